#include "tests/fuzz/format.h"
#include "tests/fuzz/set_under_test.h"

namespace stoker::fuzz {
namespace {

constexpr unsigned kHasTarget = 1, kIsText = 2, kSkips = 4;

// The first byte says with which settings, the rest is the file.
bool run(std::string_view input) {
  static SetUnderTest set;
  if (input.empty()) return false;
  const unsigned settings = static_cast<unsigned char>(input[0]);
  set.write("lines", input.substr(1));
  config::DatasetConfig config;
  config.kind = config::DatasetKind::kJsonl;
  config.path = set.path("lines");
  if ((settings & kSkips) != 0) config.incomplete = "skip";
  if ((settings & kIsText) != 0) {
    config.text = "t";
    config.context = 3;
    return set.check(config);
  }
  config.input = {"a", "b.c"};
  config.shape = {3};
  if ((settings & kHasTarget) != 0) {
    config.target = {"y"};
  } else {
    config.label = "y";
  }
  return set.check(config);
}

std::string seed(unsigned settings, const std::string& lines) {
  return static_cast<char>(settings) + lines;
}

}  // namespace

const Format& jsonl_format() {
  static constexpr Format kFormat{
      .name = "jsonl", .run = run, .seeds = [] {
        return std::vector<std::string>{
            seed(0,
                 "{\"a\": [1, 2], \"b\": {\"c\": -0.5}, \"y\": \"cat\"}\n\n"
                 "{\"y\": \"\\u00fc\", \"b.c\": 7, \"a\": [[1], 2e3], \"z\": [{\"a\": null}]}\r\n"),
            seed(kHasTarget, "{\"a\": true, \"b\": {\"c\": [18446744073709551615, 3]}, \"y\": 4}"),
            seed(kIsText,
                 "{\"t\": \"ab\\n\"}\n{\"t\": \"\"}\n{\"x\": {}, \"t\": \"\\ud83d\\ude00\"}\n"),
            seed(kSkips | kIsText, "{\"t\": \"long enough\"}\n{\"t\": null}\n{}\n")};
      }};
  return kFormat;
}

}  // namespace stoker::fuzz
