#!/usr/bin/env bash
# plugin_test.sh BUILD LIBTORCH COMPILER: compiles the installed plugin example against an installed
# tree outside the source tree, runs its own test, trains with it and evaluates it. Skipped if LIBTORCH has no headers.
set -euo pipefail
build=${1:?give the build folder} libtorch=${2:?give the folder of LibTorch} compiler=${3:?give the C++ compiler}
[[ -e $libtorch/include/torch/csrc/api/include/torch/version.h ]] || {
  echo "this LibTorch has no headers; skipped"
  exit 77
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
  printf 'plugin_test: %s\n' "$*" >&2
  exit 1
}

# For a test: optimizing LibTorch's headers takes a quarter of the time.
printf '#!/bin/sh\nexec "%s" "$@" -O0\n' "$compiler" >"$scratch/compiler"
chmod +x "$scratch/compiler"

tree="$scratch/far away/stoker"
cmake --install "$build" --prefix "$tree" >"$scratch/install.log"
"$tree/bin/stoker-libtorch" "$libtorch" >/dev/null
mkdir "$scratch/plugin"
cp "$tree/share/stoker/plugin/gated_mlp.cc" "$scratch/plugin/"
CXX=$compiler "$tree/share/stoker/plugin/compile.sh" "$tree" "$scratch/plugin/gated_mlp.cc" "$scratch/plugin/gated_mlp.so"
! ldd "$scratch/plugin/gated_mlp.so" | grep torch || fail "the plugin is bound to one LibTorch"

cp "$tree/share/stoker/plugin/gated_mlp_test.cc" "$scratch/plugin/"
(cd "$scratch/plugin" && CXX=$scratch/compiler "$tree/share/stoker/plugin/compile.sh" "$tree" gated_mlp.cc gated_mlp_test.cc gated_mlp_test)
(cd / && env -u LD_LIBRARY_PATH "$scratch/plugin/gated_mlp_test") || fail "the example's own test failed"

# The CMake package. The source is small, because LibTorch's headers take long to compile.
cat >"$scratch/plugin/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(example CXX)
find_package(stoker 0.1 REQUIRED)
stoker_add_plugin(small small.cc)
stoker_add_plugin_test(small_test small_test.cc)
CMAKE
printf '#include <stoker/plugin_entry.h>\n#include <torch/version.h>\nstatic_assert(TORCH_VERSION_MAJOR >= 2);\n' >"$scratch/plugin/small.cc"
printf '#include <c10/core/Device.h>\nint main() { return c10::Device("cpu").is_cpu() ? 0 : 1; }\n' >"$scratch/plugin/small_test.cc"
build_with_cmake() {
  cmake -S "$scratch/plugin" -B "$scratch/plugin/build" "-DCMAKE_PREFIX_PATH=$tree" "-DCMAKE_CXX_COMPILER=$compiler"
  cmake --build "$scratch/plugin/build"
}
(build_with_cmake) >"$scratch/cmake.log" 2>&1 || true
[[ -s $scratch/plugin/build/small.so ]] || fail "the CMake package has built no small.so: $(tail -n 5 "$scratch/cmake.log")"
"$scratch/plugin/build/small_test" || fail "a test built with the CMake package does not run"

cat >"$scratch/run.yaml" <<YAML
run: {dir: "$scratch/run"}
data:
  train: {format: synthetic, num_samples: 64, input_shape: [8], num_targets: 2}
  val: {format: synthetic, num_samples: 16, input_shape: [8], num_targets: 2}
model: {name: plugin, path: "$scratch/plugin/gated_mlp.so", args: {width: 8, blocks: 1}}
task: {name: regression}
train: {max_steps: 20, micro_batch_size: 4, device: cpu, num_threads: 1}
YAML
run() { (cd / && env -u LD_LIBRARY_PATH "$tree/bin/$1" "${@:2}") >"$scratch/$1.log" 2>&1; }
run stokerd --config "$scratch/run.yaml" || fail "training failed: $(tail -n 5 "$scratch/stokerd.log")"
run stoker-eval --run-dir "$scratch/run" --once || fail "evaluation failed: $(tail -n 5 "$scratch/stoker-eval.log")"
grep -q '"loss"' "$scratch/run/eval/step-000000020.json"
grep -q '"model_file":"[0-9a-f]\{64\}"' "$scratch/run/checkpoints/step-000000020/manifest.json"
echo "a plugin was made, trained and evaluated"
