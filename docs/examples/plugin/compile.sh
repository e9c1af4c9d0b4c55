#!/usr/bin/env bash
# compile.sh PREFIX SOURCE PLUGIN.so: compiles a plugin for the stoker that is installed under
# PREFIX, with the headers of the LibTorch that it uses. Set CXX for another compiler than g++.
set -euo pipefail
prefix=${1:?give the prefix of an installed stoker} source=${2:?give a source file} plugin=${3:?give the name of the plugin}
torch=$("$prefix/bin/stoker-libtorch" --show)
"${CXX:-g++}" -std=c++20 -O2 -shared -fPIC -I "$prefix/include" -isystem "$torch/include" \
  -isystem "$torch/include/torch/csrc/api/include" "$source" -o "$plugin.new"
# Atomic replacement: a running process keeps the old file mapped.
mv "$plugin.new" "$plugin"
