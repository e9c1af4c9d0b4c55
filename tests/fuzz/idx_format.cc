#include "tests/fuzz/dataset_under_test.h"
#include "tests/fuzz/format.h"
#include "tests/support/packed_bytes.h"

namespace stoker::fuzz {
namespace {

using test::big_endian;

std::string encoded_images(uint32_t count, uint32_t height, uint32_t width) {
  std::string file = big_endian(0x803) + big_endian(count) + big_endian(height) + big_endian(width);
  for (uint32_t i = 0; i < count; ++i)
    file += std::string(size_t{height} * width, static_cast<char>(i));
  return file;
}

std::string labels(uint32_t count) {
  std::string file = big_endian(0x801) + big_endian(count);
  for (uint32_t i = 0; i < count; ++i) file += static_cast<char>(i % 3);
  return file;
}

bool run(std::string_view input) {
  static DatasetUnderTest set;
  const auto parts = split_input(input, 2);
  set.write("labels", parts[0]);
  set.write("images", parts[1]);
  return set.check(
      {.source = config::IdxDataset{
           .path = set.path("images"), .labels_path = set.path("labels"), .transforms = {}}});
}

}  // namespace

const Format& idx_format() {
  static constexpr Format kFormat{
      .name = "idx", .run = run, .seeds = [] {
        return std::vector<std::string>{
            join_input({labels(1), encoded_images(1, 1, 1)}),
            join_input({labels(5), encoded_images(5, 2, 3)}),
            join_input({labels(5), test::gzip(encoded_images(5, 2, 3))}),
            join_input({test::gzip(labels(5)), encoded_images(5, 2, 3)})};
      }};
  return kFormat;
}

}  // namespace stoker::fuzz
