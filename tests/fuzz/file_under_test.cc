#include "tests/fuzz/file_under_test.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "shared/base/file.h"

namespace stoker::fuzz {

void must(bool holds, std::string_view promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %.*s\n", static_cast<int>(promise.size()), promise.data());
  std::abort();
}

UniqueFd file_of(std::string_view input) {
  UniqueFd fd(::memfd_create("input", MFD_CLOEXEC));
  must(default_file_system().write(fd.get(), std::as_bytes(std::span(input)), "input").ok(),
       "the input can be written");
  return fd;
}

bool check_status(const Status& status) {
  if (status.ok()) return true;
  must(status.code() == StatusCode::kCorrupt || status.code() == StatusCode::kMismatch,
       "refused with " + status.to_string());
  for (const unsigned char c : status.message())
    must(c >= 0x20 && c != 0x7f, "a control character in a message");
  return false;
}

bool check_tensors(const checkpoint::TensorSource& file, uint64_t max_bytes) {
  bool any = false;
  for (const TensorSpec& spec : file.tensors()) {
    must(file.find(spec.name) != nullptr && *file.find(spec.name) == spec, "a tensor has its name");
    if (spec.bytes() > max_bytes) continue;
    std::vector<std::byte> once(spec.bytes()), twice(spec.bytes());
    const Status status = file.read(spec.name, once);
    must(status.code() == file.read(spec.name, twice).code() && once == twice,
         "a tensor has the same bytes each time");
    any = check_status(status) || any;
  }
  return any;
}

}  // namespace stoker::fuzz
