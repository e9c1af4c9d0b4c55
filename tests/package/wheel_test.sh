#!/usr/bin/env bash
# wheel_test.sh PACKAGES PYTORCH SUITE: checks the Python wheel and installs it in a bare Debian SUITE: bookworm, made from the packages
# of this machine, or trixie, from a mirror. PYTORCH: site-packages with torch.
set -euo pipefail
packages=${1:?give the folder of the packages} pytorch=${2:?give site-packages with torch} suite=${3:?give bookworm or trixie}
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
skip() {
  printf 'SKIP: %s\n' "$*"
  exit 77
}
fail() {
  printf 'wheel_test: %s\n' "$*" >&2
  exit 1
}
wheel=$(echo "$packages"/stoker-*.whl)
[[ -e $wheel ]] || skip "the wheel was not built (Debian packages dpkg-dev, patchelf)"
[[ -e $pytorch/torch/version.py ]] || skip "$pytorch has no PyTorch"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The newest symbols that any file needs, stated in docs/compatibility.md, and the platform that has them: libstdc++ 3.4.30 is GCC 12's,
# and the first manylinux with it is 2_35 (auditwheel's policies; Debian 12 has glibc 2.36, Ubuntu 24.04 glibc 2.39 with 3.4.33).
python3 -m zipfile -e "$wheel" "$scratch/wheel"
find "$scratch/wheel/stoker" -type f \( -name '*.so*' -o -path '*/bin/*' -o -path '*/libexec/*' \) -exec objdump -T {} + |
  grep -F '*UND*' | grep -oE '\((GLIBC|GLIBCXX|CXXABI)_[0-9.]+\)' | tr -d '()' | sort -u >"$scratch/versions"
newest=$(for name in GLIBC GLIBCXX CXXABI; do grep "^${name}_" "$scratch/versions" | sort -V | tail -n 1; done | paste -s -d ' ')
[[ $newest == "GLIBC_2.34 GLIBCXX_3.4.30 CXXABI_1.3.13" ]] || fail "needs $newest: state it in docs/compatibility.md, and here"
version=$(dpkg-deb -f "$packages"/stoker_*.deb Version)
[[ ${wheel##*/} == "stoker-$version-py3-none-manylinux_2_35_x86_64.whl" ]] || fail "$wheel: another version (python/pyproject.toml) or platform"
[[ -z $(find "$scratch/wheel" -type l) ]] || fail "the wheel has links, which it cannot have"
mapfile -t others < <(find "$scratch/wheel" -path '*/lib/stoker/*.so*' -printf '%f\n' | grep -v '^libstoker' | sort)
for library in "${others[@]}"; do
  package=$(dpkg -S "*/$library" 2>/dev/null | sed 's/[:,].*//;q')
  [[ -s $scratch/wheel/stoker/share/doc/stoker/licenses/$package ]] || fail "the wheel lacks the license of $library"
done
data=$(echo "$scratch"/wheel/stoker-*.data/data)
python3 -B "$here/names_test.py" "$scratch/wheel/stoker" "$data" || fail "the wheel names what it does not contain"

((EUID == 0)) || skip "needs root, to make a root of Debian"
unshare --mount true 2>/dev/null || skip "namespaces are not permitted here"
if [[ $suite == bookworm ]]; then
  grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release || skip "this is not Debian 12"
  "$here/bare_root.sh" "$scratch/root" python3 python3-venv libstdc++6 >"$scratch/log" 2>&1 || fail "bare_root.sh: $(tail -n 3 "$scratch/log")"
else
  command -v mmdebstrap >/dev/null || skip "no mmdebstrap on this machine (Debian package mmdebstrap)"
  # shellcheck disable=SC2016  # apt-get expands it
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Suite: oldstable' | head -n 1)
  mmdebstrap --variant=essential --include=python3,python3-venv,libstdc++6 --quiet "$suite" "$scratch/root" "$mirror" >"$scratch/log" 2>&1 ||
    skip "$mirror does not answer with $suite: $(tail -n 1 "$scratch/log")"
fi
mkdir "$scratch/root/wheel"
cp "$wheel" "$scratch/root/wheel/"
# Its mounts end with it.
unshare --mount --propagation private "$here/wheel_steps.sh" "$scratch/root" "$(readlink -f "$pytorch")" >"$scratch/log" 2>&1 || {
  tail -n 40 "$scratch/log" >&2
  fail "wheel_steps.sh failed"
}
