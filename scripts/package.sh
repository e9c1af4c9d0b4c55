#!/usr/bin/env bash
# Builds the packages of the installed tree.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  cat <<'HELP'
Usage: scripts/package.sh [GENERATOR…]

Builds stoker_VERSION_amd64.deb, stoker-dev_VERSION_amd64.deb (generator DEB), stoker-VERSION-x86_64.tar.gz (TGZ) and the
Python wheel stoker-VERSION-py3-none-manylinux_….whl (WHEEL) in build/release/packages; default: all. Their bytes depend only on the commit: file times are SOURCE_DATE_EPOCH, by
default the time of the commit. DEB needs dpkg-dev, WHEEL patchelf and Python 3.11.
HELP
  exit 0
fi
umask 022  # the modes of packed files and folders
cd "$root"
generators=("$@")
(($#)) || generators=(DEB TGZ WHEEL)

# Without a repository, as in an unpacked archive: that of the newest change.
if [[ -z ${SOURCE_DATE_EPOCH:-} ]]; then
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
fi
export SOURCE_DATE_EPOCH
commit=$(git rev-parse HEAD 2>/dev/null || true)
if [[ -n $commit && -n $(git status --porcelain --untracked-files=no) ]]; then commit+=-modified; fi

# stokerd --version prints the commit.
(export STOKER_COMMIT=$commit && "$root/scripts/build.sh" release programs)
packages=$root/build/release/packages
rm -f "$packages"/*.deb "$packages"/*.tar.gz "$packages"/*.whl
for generator in "${generators[@]}"; do
  step "Build the packages ($generator)" "package-$generator" \
    cpack --config build/release/CPackConfig.cmake -G "${generator/WHEEL/External}" -B "$packages"
done
rm -f "$packages"/*.json  # what CPack wrote about the wheel
(cd "$packages" && find . -maxdepth 1 -type f -printf '%f\n' | sort | xargs sha256sum)
