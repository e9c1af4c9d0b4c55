#include "tests/fuzz/dataset_under_test.h"
#include "tests/fuzz/format.h"

namespace stoker::fuzz {
namespace {

// The first byte is the block size; the rest is two files.
bool run(std::string_view input) {
  static DatasetUnderTest set;
  if (input.empty()) return false;
  const auto parts = split_input(input.substr(1), 2);
  set.write("a.txt", parts[0]);
  set.write("b.txt", parts[1]);
  return set.check({.source = config::TextDataset{
                        .path = set.path(""),
                        .glob = "*.txt",
                        .sequence = {.block_size = static_cast<unsigned char>(input[0])}}});
}

}  // namespace

const Format& text_format() {
  static constexpr Format kFormat{.name = "text", .run = run, .seeds = [] {
                                    return std::vector<std::string>{
                                        '\4' + join_input({"abcde", ""}),
                                        '\1' + join_input({"", "\xff\xf0\n"}),
                                        '\7' + join_input({"to be or not to be", "that is it"})};
                                  }};
  return kFormat;
}

}  // namespace stoker::fuzz
