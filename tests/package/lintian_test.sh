#!/usr/bin/env bash
# lintian_test.sh PACKAGES: checks that lintian reports neither errors nor warnings in the packages. Skipped without it.
set -euo pipefail
packages=${1:?give the folder of the packages}
for requirement in lintian dpkg-shlibdeps; do
  command -v "$requirement" >/dev/null || {
    printf 'SKIP: no %s on this machine (Debian packages lintian, dpkg-dev)\n' "$requirement"
    exit 77
  }
done
lintian --allow-root --fail-on error,warning "$packages"/*.deb
