// Entry points of libFuzzer: one program per format, selected by STOKER_FUZZ_FORMAT.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const stoker::fuzz::Format* const format = stoker::fuzz::find_format(STOKER_FUZZ_FORMAT);
  if (format == nullptr) {
    std::fputs("no format " STOKER_FUZZ_FORMAT " in tests/fuzz/format.cc\n", stderr);
    std::abort();
  }
  format->run({reinterpret_cast<const char*>(data), size});
  return 0;
}
