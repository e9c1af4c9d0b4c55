#include "tests/fuzz/dataset_under_test.h"
#include "tests/fuzz/format.h"

namespace stoker::fuzz {
namespace {

// The first byte is the block size, with the token width in its highest bit; the rest is the file.
bool run(std::string_view input) {
  static DatasetUnderTest set;
  if (input.empty()) return false;
  const unsigned settings = static_cast<unsigned char>(input[0]);
  set.write("tokens.bin", input.substr(1));
  return set.check(
      {.source = config::TokensDataset{
           .path = set.path("tokens.bin"),
           .dtype = settings < 0x80 ? config::TokenType::kUint16 : config::TokenType::kUint32,
           .sequence = {.block_size = settings & 0x7f}}});
}

}  // namespace

const Format& tokens_format() {
  static constexpr Format kFormat{.name = "tokens", .run = run, .seeds = [] {
                                    return std::vector<std::string>{
                                        std::string("\2\1\0\2\0\3\0", 7),
                                        std::string("\1\xff\xff\xff\xff", 5),
                                        std::string("\x81\1\0\0\0\2\0\0\0\xff\xff\xff\x7f", 13)};
                                  }};
  return kFormat;
}

}  // namespace stoker::fuzz
