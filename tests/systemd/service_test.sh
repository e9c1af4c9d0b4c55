#!/usr/bin/env bash
# service_test.sh BUILD LIBTORCH: tests the installed units under a real systemd as PID 1. A
# container boots the /usr of this machine read-only, with /etc and /var in memory (systemd-nspawn
# --volatile=yes) and stoker installed in /usr/local, and runs service_steps.sh. Skipped if
# systemd-nspawn is missing or not permitted.
set -euo pipefail
build=${1:?give the build folder}
libtorch=$(readlink -f "${2:?give the folder of LibTorch}")
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
source "$here/container.sh"
# shellcheck source=tests/support/machine_slowness.sh
source "$here/../support/machine_slowness.sh"
skip() {
  printf 'SKIP: %s\n' "$*"
  exit 77
}
fail() {
  printf 'service_test: %s\n' "$*" >&2
  print_results >&2
  exit 1
}
require_nspawn
scratch=$(mktemp -d)
trap remove_container EXIT

# Installed as described in docs/operations.md. LibTorch is mounted below /opt, which
# ProtectHome=yes does not hide, together with its parent folder, which contains its own
# dependencies.
local=$scratch/usr/local
DESTDIR=$scratch cmake --install "$build" --prefix /usr/local >"$scratch/install.log"
libraries=$(dirname "$(find "$local"/lib* -name libyaml-cpp.so\* -print -quit)")
[[ -d $libraries ]] || fail "the installed tree has no own libraries"
ln -sfn "/opt/libtorch/${libtorch##*/}" "$libraries/torch"

# An exported module that belongs to root, if there was a PyTorch to export it (StokerExport.Zoo).
module=$build/tests/exported/mlp
if [[ -e $module/graph.json ]]; then
  mkdir -p "$local/share/stoker-test"
  cp -r --no-preserve=mode "$module" "$local/share/stoker-test/module"
fi

units=$local/lib/systemd/system
mkdir -p "$scratch/results" "$local/libexec/stoker-test" "$units/stokerd@demo.service.d" "$units/stokerd@denied.service.d" "$units/stokerd@crashing.service.d"
cp "$here/service_steps.sh" "$here/steps.sh" "$local/libexec/stoker-test/"
# With an empty /etc, systemd enables the units of its presets; without a preset file that is every
# unit.
mkdir -p "$local/lib/systemd/system-preset"
echo 'disable *' >"$local/lib/systemd/system-preset/00-stoker-test.preset"
write_test_units "$units" 180 "/usr/local/libexec/stoker-test/service_steps.sh /results"
# Shorter timeouts, and a credential; everything else is as installed.
cat >"$units/stokerd@demo.service.d/test.conf" <<UNIT
[Service]
WatchdogSec=$((5 * $(machine_slowness 5)))
RestartSec=100ms
LoadCredential=webhook-url:/etc/stoker/webhook-url
UNIT
printf '[Service]\nRestartSec=100ms\n' >"$units/stokerd@crashing.service.d/test.conf"
# A unit whose filter does not permit seccomp.
cat >"$units/stokerd@denied.service.d/test.conf" <<'UNIT'
[Service]
SystemCallFilter=~seccomp
UNIT

boot 210 --directory=/ --volatile=yes --bind-ro="$local:/usr/local" --bind-ro="$(dirname "$libtorch"):/opt/libtorch"
