#!/usr/bin/env bash
# wheel_service_test.sh PACKAGES PYTORCH: the units of `stokerctl install-service` in a bare Debian under a real systemd as PID 1.
# Skipped if systemd-nspawn is missing or not permitted. PYTORCH: site-packages with torch.
set -euo pipefail
packages=${1:?give the folder of the packages} pytorch=${2:?give site-packages with torch}
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
source "$here/../systemd/container.sh"
skip() {
  printf 'SKIP: %s\n' "$*"
  exit 77
}
fail() {
  printf 'wheel_service_test: %s\n' "$*" >&2
  print_results >&2
  exit 1
}
require_nspawn
grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release || skip "this is not Debian 12"
dpkg-query -W systemd-sysv >/dev/null 2>&1 || skip "the package systemd-sysv is not installed"
wheel=$(echo "$packages"/stoker-*.whl)
[[ -e $wheel ]] || skip "the wheel was not built (Debian packages dpkg-dev, patchelf)"
[[ -e $pytorch/torch/version.py ]] || skip "$pytorch has no PyTorch"
scratch=$(mktemp -d)
trap remove_container EXIT

mkdir "$scratch/results"
"$here/bare_root.sh" "$scratch/root" systemd-sysv python3 python3-venv libstdc++6 passwd >"$scratch/root.log" || fail "bare_root.sh failed"
install -D "$here/wheel_service_steps.sh" "$scratch/root/opt/package/wheel_service_steps.sh"
install -D "$here/../systemd/steps.sh" "$scratch/root/opt/systemd/steps.sh"
mkdir "$scratch/root/wheel"
cp "$wheel" "$scratch/root/wheel/"
write_test_units "$scratch/root/usr/lib/systemd/system" 300 /opt/package/wheel_service_steps.sh
boot 330 --directory="$scratch/root" --bind-ro="$(readlink -f "$pytorch"):/opt/pytorch"
