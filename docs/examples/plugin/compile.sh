#!/usr/bin/env bash
# compile.sh PREFIX SOURCE… OUTPUT: compiles a plugin (OUTPUT ends in .so), or a plugin and its test
# into a program, for the stoker that is installed under PREFIX, with the headers of the LibTorch
# that it uses. Set CXX for another compiler than g++.
set -euo pipefail
usage="usage: compile.sh PREFIX SOURCE... OUTPUT"
(($# >= 3)) || {
  printf '%s\n' "$usage" >&2
  exit 64
}
prefix=$1 output=${*: -1} sources=("${@:2:$#-2}")
torch=$("$prefix/bin/stoker-libtorch" --show)
# A plugin uses the LibTorch of the program that loads it.
if [[ $output == *.so ]]; then
  link=(-shared -fPIC)
else
  link=(-L "$torch/lib" "-Wl,--no-as-needed" -ltorch_cpu -lc10 "-Wl,-rpath,$torch/lib")
fi
"${CXX:-g++}" -std=c++20 -O2 -I "$prefix/include" -isystem "$torch/include" \
  -isystem "$torch/include/torch/csrc/api/include" "${sources[@]}" "${link[@]}" -o "$output.new"
# Atomic replacement: a running process keeps the old file mapped.
mv "$output.new" "$output"
