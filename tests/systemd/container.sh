# Sourced by the tests that boot a real systemd as PID 1: a systemd-nspawn container with its own
# cgroups.
#
# Set before use: scratch (a temporary folder with a folder results). Uses skip() and fail() of the
# test.
# shellcheck shell=bash disable=SC2154  # variables of the script that sources this

machine=stoker-test-$$
groups=()

require_nspawn() {
  command -v systemd-nspawn >/dev/null || skip "no systemd-nspawn on this machine (Debian package systemd-container)"
  ((EUID == 0)) || skip "systemd-nspawn needs root"
}

remove_container() {
  rm -rf "$scratch"
  local group
  for group in "${groups[@]}"; do find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true; done
  # systemd-nspawn leaves this empty folder if /run is not a tmpfs.
  rmdir "/run/systemd/nspawn/propagate/$machine" 2>/dev/null || true
}

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

# write_test_units FOLDER SECONDS COMMAND: the steps run as a unit, which the container boots into
# instead of its default target.
write_test_units() {
  cat >"$1/stoker-test.target" <<'UNIT'
[Unit]
Requires=sysinit.target stoker-test.service
UNIT
  cat >"$1/stoker-test.service" <<UNIT
[Unit]
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
ExecStart=$3
StandardOutput=append:/results/steps
StandardError=inherit
TimeoutStartSec=$2
UNIT
}

# boot SECONDS NSPAWN-ARGUMENT…: boots into the units of write_test_units and prints what the steps
# wrote. They create $scratch/results/passed.
boot() {
  local seconds=$1 code=0
  shift
  make_groups
  # Use cgroup v2 in the container even on hosts with cgroup v1, which would notify only the host,
  # not the container, that the last process of a unit has exited.
  (
    export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1
    in_groups timeout --kill-after=5 "$seconds" systemd-nspawn --boot --register=no --keep-unit \
      --machine="$machine" --private-network --console=pipe --bind="$scratch/results:/results" "$@" \
      systemd.unit=stoker-test.target systemd.mask=systemd-firstboot.service
  ) </dev/null >"$scratch/nspawn.log" 2>&1 || code=$?
  if [[ ! -e $scratch/results/steps ]]; then
    ((code == 0 || code == 124 || code == 137)) ||
      skip "systemd-nspawn: $(grep -v '^Attempted to remove' "$scratch/nspawn.log" | tail -n 1)"
    cp "$scratch/nspawn.log" "$scratch/results/"
    fail "the container did not start the steps (systemd-nspawn: $code)"
  fi
  [[ -e $scratch/results/passed ]] || fail "a step failed (systemd-nspawn: $code)"
  cat "$scratch/results/steps"
}

# The end of each file in $scratch/results, for an error message.
print_results() {
  local log
  for log in "$scratch"/results/*; do
    [[ ! -f $log ]] || { printf -- '---- %s\n' "${log##*/}" && tail -n 60 "$log"; }
  done
}
