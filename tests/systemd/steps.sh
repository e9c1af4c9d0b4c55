# Sourced by the steps that run in a container of container.sh. The caller sets `run`, a run directory.
# shellcheck shell=bash

say() { printf '%3d s  %s\n' "$SECONDS" "$*"; }
fail() {
  say "FAILED: $*"
  exit 1
}

# save_logs_at_exit FOLDER UNIT…: writes the journal and the status of the units to FOLDER.
save_logs_at_exit() {
  logs_folder=$1
  logged_units=("${@:2}")
  trap save_logs EXIT
}
save_logs() {
  journalctl --no-pager -o short-monotonic >"$logs_folder/journal" 2>&1 || true
  systemctl --no-pager status "${logged_units[@]}" >"$logs_folder/status" 2>&1 || true
}

# within SECONDS WHAT COMMAND…: polls until the command succeeds. Counts the polls, of which a machine that is busy
# makes fewer.
within() {
  local left=$((10 * $1)) what=$2
  shift 2
  until "$@"; do
    ((left-- > 0)) || fail "$what: not in time"
    sleep 0.1
  done
}
property() { systemctl show --value -p "$2" "$1"; }
has_state() { [[ $(property "$1" ActiveState) == "$2" ]]; }
newest_step() { find "${run:?}/checkpoints" -maxdepth 1 -name 'step-*' -printf '%f\n' 2>/dev/null | sort | tail -n 1 | sed 's/^step-0*//'; }
has_step_after() { (($(newest_step) + 0 > $1)); }
