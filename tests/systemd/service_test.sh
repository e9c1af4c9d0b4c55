#!/usr/bin/env bash
# service_test.sh BUILD LIBTORCH: the installed units under a real systemd as PID 1. A container boots this machine's own
# /usr, read-only, with /etc and /var in memory (systemd-nspawn --volatile=yes), finds stoker installed in /usr/local, and
# runs service_steps.sh. Skipped where systemd-nspawn is missing or is not permitted to start.
set -euo pipefail
build=${1:?give the build folder}
libtorch=$(readlink -f "${2:?give the folder of LibTorch}")
readonly max_seconds=150
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
skip() {
  printf 'SKIP: %s\n' "$*"
  exit 77
}
command -v systemd-nspawn >/dev/null || skip "no systemd-nspawn on this machine (Debian package systemd-container)"
((EUID == 0)) || skip "systemd-nspawn needs root"

scratch=$(mktemp -d)
machine=stoker-test-$$
groups=()
clean_up() {
  rm -rf "$scratch"
  local group
  for group in "${groups[@]}"; do find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true; done
  # systemd-nspawn leaves this empty folder where /run is not a file system in memory.
  rmdir "/run/systemd/nspawn/propagate/$machine" 2>/dev/null || true
}
trap clean_up EXIT
fail() {
  printf 'service_test: %s\n' "$*" >&2
  local log
  for log in "$scratch"/results/*; do
    [[ ! -f $log ]] || { printf -- '---- %s\n' "${log##*/}" && tail -n 60 "$log"; } >&2
  done
  exit 1
}

# As docs/operations.md installs it. LibTorch is seen below /opt, which ProtectHome=yes does not hide, with what is beside it:
# there are the libraries that it needs in turn.
local=$scratch/usr/local
DESTDIR=$scratch cmake --install "$build" --prefix /usr/local >"$scratch/install.log"
libraries=$(dirname "$(find "$local"/lib* -name libyaml-cpp.so\* -print -quit)")
[[ -d $libraries ]] || fail "the installed tree has no libraries of its own"
ln -sfn "/opt/libtorch/${libtorch##*/}" "$libraries/torch"

# The steps are a unit that the container boots into instead of its default target.
units=$local/lib/systemd/system
mkdir -p "$scratch/results" "$local/libexec/stoker-test" "$units/stokerd@demo.service.d" "$units/stokerd@refused.service.d"
cp "$here/service_steps.sh" "$local/libexec/stoker-test/"
# With an empty /etc systemd enables what its presets name, which without a file is everything.
mkdir -p "$local/lib/systemd/system-preset"
echo 'disable *' >"$local/lib/systemd/system-preset/00-stoker-test.preset"
cat >"$units/stoker-test.target" <<'UNIT'
[Unit]
Requires=sysinit.target stoker-test.service
UNIT
cat >"$units/stoker-test.service" <<'UNIT'
[Unit]
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
ExecStart=/usr/local/libexec/stoker-test/service_steps.sh /results
StandardOutput=append:/results/steps
StandardError=inherit
TimeoutStartSec=120
UNIT
# Shorter waits; everything else is as installed.
cat >"$units/stokerd@demo.service.d/test.conf" <<'UNIT'
[Service]
WatchdogSec=10
RestartSec=1
UNIT
# A service manager whose filter does not contain seccomp.
cat >"$units/stokerd@refused.service.d/test.conf" <<'UNIT'
[Service]
SystemCallFilter=~seccomp
UNIT

# A cgroup of its own in each hierarchy that systemd uses: what the container's systemd finds itself in is its root.
make_groups() {
  local id controllers path root
  while IFS=: read -r id controllers path; do
    case $id:$controllers in
      *:name=systemd) root=/sys/fs/cgroup/systemd ;;
      0:) root=/sys/fs/cgroup && [[ ! -d $root/unified ]] || root=/sys/fs/cgroup/unified ;;
      *) continue ;;
    esac
    [[ -e $root/cgroup.procs ]] || continue
    mkdir "$root$path/$machine" 2>/dev/null || skip "a cgroup in $root$path cannot be created"
    groups+=("$root$path/$machine")
  done </proc/self/cgroup
}
in_groups() {
  local group
  for group in "${groups[@]}"; do echo "$BASHPID" >"$group/cgroup.procs"; done
  exec "$@"
}
make_groups

# cgroup 2 in the container also where the machine has the older hierarchies: those report to the machine alone, and not to
# the container, that the last process of a unit has exited.
export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1
code=0
(in_groups timeout --kill-after=5 "$max_seconds" systemd-nspawn --directory=/ --volatile=yes --boot --register=no --keep-unit \
  --machine="$machine" --private-network --console=pipe --bind-ro="$local:/usr/local" \
  --bind-ro="$(dirname "$libtorch"):/opt/libtorch" --bind="$scratch/results:/results" \
  systemd.unit=stoker-test.target systemd.mask=systemd-firstboot.service \
  </dev/null >"$scratch/nspawn.log" 2>&1) || code=$?
if [[ ! -e $scratch/results/steps ]]; then
  ((code == 0 || code == 124 || code == 137)) || skip "systemd-nspawn: $(grep -v '^Attempted to remove' "$scratch/nspawn.log" | tail -n 1)"
  cp "$scratch/nspawn.log" "$scratch/results/"
  fail "the container did not start the steps (systemd-nspawn: $code)"
fi
[[ -e $scratch/results/passed ]] || fail "a step failed (systemd-nspawn: $code)"
cat "$scratch/results/steps"
