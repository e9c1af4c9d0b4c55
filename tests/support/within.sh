# shellcheck shell=bash
# Sourced. within WHAT COMMAND…: polls until the command succeeds, for two minutes; calls fail() of the script if it does not.
# Counts the polls, of which a machine that is busy makes fewer.
within() {
  local left=1200 what=$1
  shift
  until "$@"; do
    ((left-- > 0)) || fail "$what: not in time"
    sleep 0.1
  done
}
