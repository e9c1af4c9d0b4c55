// What a producer of a stream sends first, and the saved bytes of producers in a checkpoint.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/data/stream/producer_handshake.h"
#include "shared/data/stream/producer_history.h"
#include "tests/fuzz/format.h"

namespace stoker::fuzz {
namespace {

using data::stream::ByteHistory;
using data::stream::ProducerHistory;

constexpr char kHello = 'h', kHistory = 's';
constexpr size_t kCapacity = 4096;

bool read_line(std::string_view line) {
  const auto hello = data::stream::parse_hello(line);
  if (!hello) return false;
  const bool has_name = !hello->name.empty() &&
                        hello->name.size() <= data::stream::kMaxProducerName &&
                        hello->name.find_first_of("/\n") == std::string::npos;
  if (has_name == hello->ends_stream) std::abort();
  return true;
}

bool read_history(std::string_view saved) {
  std::vector<uint64_t> memory((ByteHistory::kHeaderBytes + kCapacity) / sizeof(uint64_t));
  const ByteHistory bytes(std::as_writable_bytes(std::span(memory)));
  saved = saved.substr(0, kCapacity);
  bytes.assign(0, std::as_bytes(std::span(saved)), saved.size());
  const ProducerHistory history(bytes);
  const auto known = history.by_name();
  for (const auto& [name, parts] : known) {
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i > 0 && parts[i].offset != parts[i - 1].end()) std::abort();
      std::vector<std::byte> content(parts[i].bytes);
      if (parts[i].at + parts[i].bytes > saved.size() || !history.copy(parts[i].at, content))
        std::abort();
    }
  }
  if (history.copy_needed([](const auto&) { return true; }).size() > saved.size()) std::abort();
  history.append("new", 7, std::vector<std::byte>(100));
  const auto added = history.by_name();
  if (!added.empty() && added.contains("new") && added.at("new").back().end() != 107) std::abort();
  return !known.empty();
}

// The first byte selects one of them.
bool run(std::string_view input) {
  if (input.empty()) return false;
  return input[0] == kHello ? read_line(input.substr(1)) : read_history(input.substr(1));
}

std::vector<std::string> seeds() {
  std::vector<std::string> inputs;
  for (const char* const line :
       {R"({"format":1,"name":"simulator-3"})", R"({"format":1,"end":true})",
        R"({"name":"a_b.c","replay":false,"format":1})"})
    inputs.push_back(kHello + std::string(line));
  std::vector<uint64_t> memory((ByteHistory::kHeaderBytes + kCapacity) / sizeof(uint64_t));
  const ByteHistory bytes(std::as_writable_bytes(std::span(memory)));
  const ProducerHistory history(bytes);
  const std::string text = "first record\nsecond record\n";
  history.append("a", 0, std::as_bytes(std::span(text)));
  history.append("b", 1 << 20, std::as_bytes(std::span(text)));
  history.append("a", 13, std::as_bytes(std::span(text)));
  const auto saved = history.copy_needed([](const auto&) { return true; });
  inputs.push_back(kHistory +
                   std::string(reinterpret_cast<const char*>(saved.data()), saved.size()));
  history.append("a", 13 + text.size(), {});
  history.append(ProducerHistory::kEndOfStream, 0, {});
  std::string ended(bytes.range().end, '\0');
  bytes.copy(0, std::as_writable_bytes(std::span(ended)));
  inputs.push_back(kHistory + ended);
  return inputs;
}

}  // namespace

const Format& producer_format() {
  static constexpr Format kFormat{.name = "producer", .run = run, .seeds = seeds};
  return kFormat;
}

}  // namespace stoker::fuzz
