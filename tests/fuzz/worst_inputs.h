// worst_inputs: inputs that cost a parser the most memory or time for their size, as scripts/fuzz.sh
// --cost and reviews have found them. The fuzzer starts from them, cost_test bounds them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace stoker::fuzz {

// A parser whose cost is measured: a format, or another text of untrusted origin.
struct Parser {
  std::string_view name;
  bool (*run)(std::string_view input);
  size_t max_bytes = 0;  // larger inputs are rejected by the program; 0: no limit
  // Limits for an input of any size, beyond kFixedBytes: bytes of memory, and bytes that are
  // written, per byte. 0: kFixedBytes is not the limit, but that of the decoder.
  uint64_t max_heap_factor = 0;
  uint64_t max_written_factor = 0;
};

inline constexpr uint64_t kFixedBytes = uint64_t{4} << 20;  // buffers

// After set_work(Work::kReadOnce).
const std::vector<Parser>& parsers();

struct WorstInput {
  std::string_view parser;
  std::string what;
  std::function<std::string(size_t bytes)> make;  // at least a few hundred bytes; about so many
};

const std::vector<WorstInput>& worst_inputs();

struct Cost {
  uint64_t heap_bytes = 0;     // the most at a time, beyond the input itself
  uint64_t blocks = 0;         // allocations
  uint64_t written_bytes = 0;  // to files, beyond the input itself
  double seconds = 0;          // of this thread on a processor
};
// Of one call; requires heap_meter.
Cost measure(const Parser& parser, std::string_view input);

}  // namespace stoker::fuzz
