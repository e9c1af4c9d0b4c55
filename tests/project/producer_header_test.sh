#!/usr/bin/env bash
# producer_header_test.sh BUILD COMPILER: compiles the installed producer.h and its example outside the
# source tree, with warnings as errors. Skipped without the compiler.
set -euo pipefail
build=${1:?give the build folder} compiler=${2:?give the C++ compiler}
command -v "$compiler" >/dev/null || {
  echo "$compiler is not installed; skipped"
  exit 77
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
  printf 'producer_header_test: %s\n' "$*" >&2
  exit 1
}

tree="$scratch/far away/stoker"
cmake --install "$build" --component dev --prefix "$tree" >"$scratch/install.log"
find "$tree/include" -type f ! -name producer.h -delete  # it needs no other header
[[ -s $tree/include/stoker/producer.h ]] || fail "producer.h is not installed"
compile() {
  (cd "$scratch" && "$compiler" -std=c++20 -O2 -Wall -Wextra -Wpedantic -Werror -Wconversion -Wshadow \
    -I "$tree/include" "$@")
}

# Two translation units of one program, one of which includes nothing else before.
cat >"$scratch/one.cc" <<'CODE'
#include <stoker/producer.h>
stoker::producer::ErrorCode code_of(const char* path) {
  const auto producer = stoker::producer::attach(path);
  return producer ? stoker::producer::ErrorCode::kEnded : producer.error().code;
}
CODE
cat >"$scratch/two.cc" <<'CODE'
#include <cstdio>
#include <stoker/producer.h>
stoker::producer::ErrorCode code_of(const char* path);
int main(int, char** argv) {
  const auto producer = stoker::producer::attach(argv[1]);
  if (producer || producer.error().code != code_of(argv[1])) return 1;
  std::puts(producer.error().message.c_str());
}
CODE
compile one.cc two.cc -o program
output=$("$scratch/program" "$scratch/none")
[[ $output == "$scratch/none: No such file or directory; give the directory or the control socket of an active run" ]] ||
  fail "attach reports: $output"

compile "$tree/share/stoker/producer/ring_producer.cc" -o ring_producer
! output=$("$scratch/ring_producer" /dev/null 2>&1) || fail "the example attaches to /dev/null"
echo "compiled with $("$compiler" --version | head -n 1)"
