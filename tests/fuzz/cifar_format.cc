#include "tests/fuzz/dataset_under_test.h"
#include "tests/fuzz/format.h"

namespace stoker::fuzz {
namespace {

constexpr size_t kPixels = 3 * 32 * 32;

// The first byte selects the number of classes. Each other byte stands for a record with that
// label, and 0x7f for a record that is one byte short, because a fuzzer is unlikely to find records
// of 3073 bytes.
bool run(std::string_view input) {
  static DatasetUnderTest set;
  if (input.empty()) return false;
  const bool hundred = (static_cast<unsigned char>(input[0]) & 1) != 0;
  std::string file;
  for (const char c : input.substr(1)) {
    file += c;
    file.append(c == '\x7f' ? kPixels - 1 : kPixels, c);
    if (hundred) file += '\x05';
  }
  set.write("batch.bin", file);
  return set.check(
      {.source = config::CifarDataset{
           .num_classes = hundred ? 100 : 10, .path = set.path("batch.bin"), .transforms = {}}});
}

}  // namespace

const Format& cifar_format() {
  static constexpr Format kFormat{.name = "cifar", .run = run, .seeds = [] {
                                    return std::vector<std::string>{std::string("\0\1", 2),
                                                                    std::string("\0\0\1\x09", 4),
                                                                    std::string("\1\x10\x20\0", 4)};
                                  }};
  return kFormat;
}

}  // namespace stoker::fuzz
