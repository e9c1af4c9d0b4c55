#include "tests/fuzz/file_under_test.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "shared/base/file.h"

namespace stoker::fuzz {

void check_invariant(bool holds, std::string_view message) {
  if (holds) return;
  std::fprintf(stderr, "violated invariant: %.*s\n", static_cast<int>(message.size()),
               message.data());
  std::abort();
}

UniqueFd make_memory_file(std::string_view input) {
  UniqueFd fd(::memfd_create("input", MFD_CLOEXEC));
  check_invariant(
      default_file_system().write(fd.get(), std::as_bytes(std::span(input)), "input").ok(),
      "the input must be writable");
  return fd;
}

bool check_status(const Status& status) {
  if (status.ok()) return true;
  check_invariant(status.code() == StatusCode::kCorrupt || status.code() == StatusCode::kMismatch,
                  "unexpected status: " + status.to_string());
  for (const unsigned char c : status.message())
    check_invariant(c >= 0x20 && c != 0x7f, "error message contains a control character");
  return false;
}

bool check_tensors(const checkpoint::TensorSource& file, uint64_t max_bytes) {
  bool any = false;
  for (const TensorSpec& spec : file.tensors()) {
    check_invariant(file.find(spec.name) != nullptr && *file.find(spec.name) == spec,
                    "a tensor must be found by its name");
    if (spec.bytes() > max_bytes) continue;
    std::vector<std::byte> first(spec.bytes()), second(spec.bytes());
    const Status status = file.read(spec.name, first);
    check_invariant(status.code() == file.read(spec.name, second).code() && first == second,
                    "repeated reads of a tensor must be equal");
    any = check_status(status) || any;
  }
  return any;
}

}  // namespace stoker::fuzz
