#!/usr/bin/env bash
# package_test.sh PACKAGES LIBTORCH SOURCE: installs, upgrades, removes and purges the package under a real
# systemd as PID 1, in a bare Debian that contains only apt and the packages it depends on or recommends. Skipped if
# systemd-nspawn is missing or not permitted. LIBTORCH is used if the wheels of stoker-libtorch --install are not in
# the cache of scripts/deps.sh.
set -euo pipefail
packages=${1:?give the folder of the packages}
libtorch=$(readlink -f "${2:?give the folder of LibTorch}")
source=${3:?give the source folder}
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
source "$here/../systemd/container.sh"
skip() {
  printf 'SKIP: %s\n' "$*"
  exit 77
}
fail() {
  printf 'package_test: %s\n' "$*" >&2
  print_results >&2
  exit 1
}
require_nspawn
grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release || skip "this is not Debian 12"
dpkg-query -W systemd-sysv >/dev/null 2>&1 || skip "the package systemd-sysv is not installed"
[[ -n $(find "$packages" -maxdepth 1 -name 'stoker_*.deb' 2>/dev/null) ]] ||
  skip "the packages were not built (Debian package dpkg-dev)"
scratch=$(mktemp -d)
trap remove_container EXIT

package=$(echo "$packages"/stoker_*.deb)
mkdir "$scratch/packages" "$scratch/results"
cp "$package" "$scratch/packages/"
dpkg-deb -R "$package" "$scratch/new"
sed -i 's/^Version: .*/&+new/' "$scratch/new/DEBIAN/control"
dpkg-deb --root-owner-group -Znone -b "$scratch/new" "$scratch/packages/new.deb" >/dev/null

# The first alternative of each dependency.
mapfile -t needed < <({ dpkg-deb -f "$package" Depends && dpkg-deb -f "$package" Recommends; } | tr ',' '\n' | sed 's/^ *//; s/[ |(].*//' | sort -u)
"$here/bare_root.sh" "$scratch/root" apt systemd-sysv "${needed[@]}" >"$scratch/root.log" || fail "bare_root.sh failed"
# Answers yes, and needs no user for downloads.
printf 'APT::Get::Assume-Yes "true";\nAPT::Sandbox::User "root";\n' >"$scratch/root/etc/apt/apt.conf.d/90package-test"
install -D "$here/package_steps.sh" "$scratch/root/opt/package/package_steps.sh"
# The commands of the README for this package, as root.
awk '/^sudo apt install / { found = 1 } found && /^```/ { exit } found' "$source/README.md" |
  sed -n 's/^sudo \([^#]*[^# ]\) *\(#.*\)\?$/\1/p' >"$scratch/root/opt/package/readme_commands"
install -D "$here/../systemd/steps.sh" "$scratch/root/opt/systemd/steps.sh"
write_test_units "$scratch/root/usr/lib/systemd/system" 300 /opt/package/package_steps.sh
# More frequent checkpoints than those of the demo, and evaluations that do not yield to training.
for unit in stokerd stoker-eval; do mkdir -p "$scratch/root/etc/systemd/system/$unit@demo.service.d"; done
cat >"$scratch/root/etc/systemd/system/stokerd@demo.service.d/test.conf" <<'UNIT'
[Service]
ExecStart=
ExecStart=/usr/bin/stokerd --config /etc/stoker/%i.yaml --run-dir %S/stoker/%i --set train.max_steps=100000000 --set checkpoint.save_every_steps=500 --set scheduler.name=constant
UNIT
cat >"$scratch/root/etc/systemd/system/stoker-eval@demo.service.d/test.conf" <<'UNIT'
[Service]
ExecStart=
ExecStart=/usr/bin/stoker-eval --run-dir %S/stoker/%i --follow --set eval.priority=normal --set eval.max_samples=256
UNIT
mounts=(--bind-ro="$scratch/packages:/packages" --bind-ro="$(dirname "$libtorch"):/opt/libtorch")
# The wheels of libtorch-cpu.txt, which stoker-libtorch verifies, and what it needs of Debian.
wheels=${XDG_CACHE_HOME:-$HOME/.cache}/stoker/wheels
missing=()
while read -r name version; do
  [[ -n $(find "$wheels" -name "${name//-/_}-$version-*.whl" 2>/dev/null) ]] || missing+=("$name-$version.whl")
done < <(sed -nE 's/^([a-z-]+)==([0-9.]+) .*/\1 \2/p' "$source/scripts/libtorch-cpu.txt")
for name in python3-venv unzip; do
  [[ $(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null) == installed ]] || missing+=("$name")
done
((${#missing[@]})) || mounts+=(--bind-ro="$wheels:/wheels")
boot 330 --directory="$scratch/root" "${mounts[@]}"
if ((${#missing[@]})); then
  printf 'SKIP: all has passed but stoker-libtorch --install, which needs %s (wheels: %s)\n' "${missing[*]}" "$wheels"
  exit 77
fi
