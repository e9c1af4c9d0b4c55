#!/usr/bin/env bash
# install_test.sh BUILD: what `cmake --install` puts under another prefix runs from there, and the units name it.
set -euo pipefail
build=${1:?give the build folder}
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
cmake --install "$build" --prefix "$prefix" >"$prefix/install.log"
for program in stokerd stoker-eval stokerctl; do
  "$prefix/bin/$program" --version
done
[[ -x $prefix/libexec/stoker/stoker-feed ]]
grep -q "^ExecStart=$prefix/bin/stokerd " "$prefix/lib/systemd/system/stokerd@.service"
grep -q "^ExecStart=$prefix/bin/stoker-eval " "$prefix/lib/systemd/system/stoker-eval@.service"
