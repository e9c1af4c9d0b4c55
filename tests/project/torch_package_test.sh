#!/usr/bin/env bash
# torch_package_test.sh SOURCE LIBTORCH: builds a program with a LibTorch that is found only through
# its TorchConfig.cmake, like one from a distribution or an unpacked zip. The config here sets the
# same variables and uses the libraries of LIBTORCH.
set -euo pipefail
source_dir=${1:?give the source folder}
libtorch=${2:?give a folder of LibTorch}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
config=$work/prefix/share/cmake/Torch
mkdir -p "$config"
ln -s "$libtorch/lib" "$libtorch/include" "$work/prefix/"
cat >"$config/TorchConfig.cmake" <<'CONFIG'
get_filename_component(TORCH_INSTALL_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(TORCH_INCLUDE_DIRS "${TORCH_INSTALL_PREFIX}/include" "${TORCH_INSTALL_PREFIX}/include/torch/csrc/api/include")
set(TORCH_LIBRARIES "${TORCH_INSTALL_PREFIX}/lib/libtorch_cpu.so" "${TORCH_INSTALL_PREFIX}/lib/libc10.so")
CONFIG
echo 'set(PACKAGE_VERSION 2.11.0)' >"$config/TorchConfigVersion.cmake"
cmake -S "$source_dir/tests/project/torch_package" -B "$work/build" "-DSTOKER_SOURCE_DIR=$source_dir" \
  "-DCMAKE_PREFIX_PATH=$work/prefix"
cmake --build "$work/build"
[[ $("$work/build/print_device") == cpu ]]
# A LibTorch with an incompatible ABI is rejected with an error that mentions it.
echo 'set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=0")' >>"$config/TorchConfig.cmake"
if cmake -S "$source_dir/tests/project/torch_package" -B "$work/old" "-DSTOKER_SOURCE_DIR=$source_dir" \
  "-DCMAKE_PREFIX_PATH=$work/prefix" 2>"$work/errors"; then
  echo "a LibTorch of the old C++ ABI was taken" >&2
  exit 1
fi
grep -q 'old C++ ABI' "$work/errors"
