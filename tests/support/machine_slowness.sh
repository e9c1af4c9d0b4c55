# shellcheck shell=bash
# Sourced. machine_slowness MOST: how many times longer this machine takes for a fixed computation than an idle Zen 5, rounded
# up, at most MOST; for the timeouts of tests, as machine_slowness.h.
machine_slowness() {
  local begin=${EPOCHREALTIME/[.,]/} i slowness
  for ((i = 0; i < 100000; i++)); do :; done
  slowness=$(((${EPOCHREALTIME/[.,]/} - begin + 99999) / 100000))
  echo $((slowness < $1 ? slowness : $1))
}
