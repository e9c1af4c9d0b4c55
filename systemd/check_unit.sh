#!/bin/sh
# check_unit.sh UNIT LIMIT BUILD WHOLE: UNIT is valid, scores at most LIMIT (tenths), and starts a program that BUILD
# installs (WHOLE: 1; a build without LibTorch, 0, has neither program).
set -eu
unit=$1 limit=$2 build=$3 whole=$4

command -v systemd-analyze >/dev/null || { echo "SKIP: no systemd-analyze on this machine"; exit 77; }

# The program is named by its installed path, which need not exist yet; its name must be a target that is installed.
program=$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$unit")
name=$(basename "$program")
[ -n "$name" ] || { echo "$unit: no ExecStart"; exit 1; }
if [ "$whole" = 1 ]; then
  grep -rqs "/bin/$name\"" --include=cmake_install.cmake "$build" || {
    echo "$unit starts $program, but no installed target is called $name"; exit 1; }
fi

# verify wants programs that exist; everything else is looked at as it is.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed 's|^ExecStart=[^ ]*|ExecStart=/bin/true|' "$unit" >"$work/$(basename "$unit")"
instance=$(basename "$unit" | sed 's/@/@demo/')
cp "$work/$(basename "$unit")" "$work/$instance"

# It also tells of other units of this machine; ours are those that matter.
problems=$(systemd-analyze verify --man=no "$work/$instance" 2>&1 | grep -e "$instance" -e "stoker" || true)
[ -z "$problems" ] || { echo "$problems"; exit 1; }

systemd-analyze security --offline=true --no-pager --threshold="$limit" "$work/$instance" >"$work/score" 2>&1 || {
  cat "$work/score"; echo "$unit: less protected than the limit of $limit tenths"; exit 1; }
tail -n 1 "$work/score"
