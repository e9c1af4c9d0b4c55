#!/usr/bin/env bash
# service_test.sh BUILD LIBTORCH: tests the installed units under a real systemd as PID 1. A
# container boots the /usr of this machine read-only, with /etc and /var in memory (systemd-nspawn
# --volatile=yes) and stoker installed in /usr/local, and runs service_steps.sh. Skipped if
# systemd-nspawn is missing or not permitted.
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
  # systemd-nspawn leaves this empty folder if /run is not a tmpfs.
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

# Installed as described in docs/operations.md. LibTorch is mounted below /opt, which
# ProtectHome=yes does not hide, together with its parent folder, which contains its own
# dependencies.
local=$scratch/usr/local
DESTDIR=$scratch cmake --install "$build" --prefix /usr/local >"$scratch/install.log"
libraries=$(dirname "$(find "$local"/lib* -name libyaml-cpp.so\* -print -quit)")
[[ -d $libraries ]] || fail "the installed tree has no own libraries"
ln -sfn "/opt/libtorch/${libtorch##*/}" "$libraries/torch"

# The steps run as a unit, which the container boots into instead of its default target.
units=$local/lib/systemd/system
mkdir -p "$scratch/results" "$local/libexec/stoker-test" "$units/stokerd@demo.service.d" "$units/stokerd@denied.service.d"
cp "$here/service_steps.sh" "$local/libexec/stoker-test/"
# With an empty /etc, systemd enables the units of its presets; without a preset file that is every
# unit.
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
# Shorter timeouts; everything else is as installed.
cat >"$units/stokerd@demo.service.d/test.conf" <<'UNIT'
[Service]
WatchdogSec=10
RestartSec=1
UNIT
# A unit whose filter does not permit seccomp.
cat >"$units/stokerd@denied.service.d/test.conf" <<'UNIT'
[Service]
SystemCallFilter=~seccomp
UNIT

# A separate cgroup in each hierarchy that systemd uses; it becomes the root cgroup of the
# container's systemd.
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

# Use cgroup v2 in the container even on hosts with cgroup v1, which would notify only the host, not
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
