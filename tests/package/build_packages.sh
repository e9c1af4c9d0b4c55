#!/usr/bin/env bash
# build_packages.sh BUILD FOLDER CPACK: builds the packages of BUILD into FOLDER, for the tests of them.
# Skipped without dpkg-dev.
set -euo pipefail
build=${1:?give the build folder} folder=${2:?give the folder for the packages} cpack=${3:?give cpack}
rm -rf "$folder"
command -v dpkg-shlibdeps >/dev/null || {
  printf 'SKIP: no dpkg-shlibdeps on this machine (Debian package dpkg-dev)\n'
  exit 77
}
export SOURCE_DATE_EPOCH=1700000000
# Compressed less than a release, which takes a third of the time.
"$cpack" --config "$build/CPackConfig.cmake" -G DEB -B "$folder" -D CPACK_DEBIAN_COMPRESSION_TYPE=gzip
"$cpack" --config "$build/CPackConfig.cmake" -G TGZ -B "$folder"
command -v patchelf >/dev/null || exit 0  # the tests of the wheel are skipped
"$cpack" --config "$build/CPackConfig.cmake" -G External -B "$folder"
