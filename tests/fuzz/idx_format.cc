#include "tests/fuzz/format.h"
#include "tests/fuzz/set_under_test.h"

namespace stoker::fuzz {
namespace {

std::string big_endian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

std::string seed(uint32_t count, uint32_t height, uint32_t width) {
  std::string pictures =
      big_endian(0x803) + big_endian(count) + big_endian(height) + big_endian(width);
  std::string labels = big_endian(0x801) + big_endian(count);
  for (uint32_t i = 0; i < count; ++i) {
    pictures += std::string(size_t{height} * width, static_cast<char>(i));
    labels += static_cast<char>(i % 3);
  }
  return join_input({labels, pictures});
}

bool run(std::string_view input) {
  static SetUnderTest set;
  const auto parts = split_input(input, 2);
  set.write("labels", parts[0]);
  set.write("pictures", parts[1]);
  config::DatasetConfig config;
  config.kind = config::DatasetKind::kIdx;
  config.path = set.path("pictures");
  config.labels = set.path("labels");
  return set.check(config);
}

}  // namespace

const Format& idx_format() {
  static constexpr Format kFormat{.name = "idx", .run = run, .seeds = [] {
                                    return std::vector<std::string>{seed(1, 1, 1), seed(5, 2, 3)};
                                  }};
  return kFormat;
}

}  // namespace stoker::fuzz
