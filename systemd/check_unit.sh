#!/bin/sh
# check_unit.sh UNIT LIMIT BUILD WHOLE: checks that UNIT is valid, that its exposure score is at
# most LIMIT (tenths), and that it starts a program that BUILD installs (only if WHOLE is 1; a build
# without LibTorch, 0, has no such program).
set -eu
unit=$1 limit=$2 build=$3 whole=$4

command -v systemd-analyze >/dev/null || { echo "SKIP: no systemd-analyze on this machine"; exit 77; }

# ExecStart has the installed path, which need not exist yet; the file name must be an installed
# target.
program=$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$unit")
name=$(basename "$program")
[ -n "$name" ] || { echo "$unit: no ExecStart"; exit 1; }
if [ "$whole" = 1 ]; then
  grep -rqs "/bin/$name\"" --include=cmake_install.cmake "$build" || {
    echo "$unit starts $program, but no installed target is called $name"; exit 1; }
fi

# systemd-analyze verify requires an existing program, so it is replaced by /bin/true.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed 's|^ExecStart=[^ ]*|ExecStart=/bin/true|' "$unit" >"$work/$(basename "$unit")"
instance=$(basename "$unit" | sed 's/@/@demo/')
cp "$work/$(basename "$unit")" "$work/$instance"

# verify also reports problems of other units on this machine; ignore those.
problems=$(systemd-analyze verify --man=no "$work/$instance" 2>&1 | grep -e "$instance" -e "stoker" || true)
[ -z "$problems" ] || { echo "$problems"; exit 1; }

systemd-analyze security --offline=true --no-pager --threshold="$limit" "$work/$instance" >"$work/score" 2>&1 || {
  cat "$work/score"; echo "$unit: less protected than the limit of $limit tenths"; exit 1; }
tail -n 1 "$work/score"
