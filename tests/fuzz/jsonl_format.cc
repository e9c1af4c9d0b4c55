#include <utility>

#include "tests/fuzz/dataset_under_test.h"
#include "tests/fuzz/format.h"

namespace stoker::fuzz {
namespace {

constexpr unsigned kHasTarget = 1, kIsText = 2, kSkips = 4;
// Variable-length sequences.
constexpr unsigned kIsPadded = 8, kTruncates = 16, kIsTokens = 32, kHasLabels = 64,
                   kFewLabels = 128;

config::JsonlDataset padded(config::JsonlDataset config, unsigned settings) {
  const bool is_tokens = (settings & kIsTokens) != 0, is_text = (settings & kIsText) != 0;
  config.record.sequence.max_length = 5;
  if ((settings & kTruncates) != 0) {
    config.record.sequence.on_overflow = config::OnOverflow::kTruncate;
  } else if ((settings & kSkips) != 0) {
    config.record.sequence.on_overflow = config::OnOverflow::kDrop;
  }
  if (is_text) config.record.fields.text = "t";
  if (is_tokens && !is_text) config.record.fields.input_ids = "t";
  if (!is_tokens && !is_text) {
    config.record.fields.input = {"t"};
    config.record.input_shape = {2};
  }
  if ((settings & kHasLabels) != 0) {
    config.record.fields.labels = "y";
    if ((settings & kFewLabels) != 0) config.record.sequence.max_label_length = 3;
  } else if ((settings & kHasTarget) != 0) {
    config.record.fields.target = {"y"};
  } else if (config.record.fields.text.empty() || (settings & kFewLabels) != 0) {
    config.record.fields.label = "y";
  }
  return config;
}

// The first byte selects the settings; the rest is the file.
bool run(std::string_view input) {
  static DatasetUnderTest set;
  if (input.empty()) return false;
  const unsigned settings = static_cast<unsigned char>(input[0]);
  set.write("lines", input.substr(1));
  config::JsonlDataset config;
  config.path = set.path("lines");
  if ((settings & kSkips) != 0) config.record.on_missing_field = config::OnMissingField::kDrop;
  if ((settings & kIsPadded) != 0)
    return set.check({.source = padded(std::move(config), settings)});
  if ((settings & kIsText) != 0) {
    config.record.fields.text = "t";
    config.record.sequence.block_size = 3;
    return set.check({.source = config});
  }
  config.record.fields.input = {"a", "b.c"};
  config.record.input_shape = {3};
  if ((settings & kHasTarget) != 0) {
    config.record.fields.target = {"y"};
  } else {
    config.record.fields.label = "y";
  }
  return set.check({.source = config});
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
            seed(kIsPadded,
                 "{\"t\": [[1, 2], [-0.5, 4]], \"y\": 1}\n{\"y\": 0, \"t\": [3, 1e3]}\n"),
            seed(kIsPadded | kIsTokens | kHasLabels | kSkips,
                 "{\"t\": [1, 70000, 3], \"y\": [0, -100, 2]}\n{\"t\": [], \"y\": [1]}\n"
                 "{\"t\": [1, 2, 3, 4, 5, 6], \"y\": [1, 1, 1, 1, 1, 1]}\n"),
            seed(kIsPadded | kHasLabels | kFewLabels | kTruncates,
                 "{\"t\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], \"y\": [7]}\n"),
            seed(kIsPadded | kIsText | kTruncates, "{\"t\": \"long\"}\n{\"t\": \"longer\"}\n"),
            seed(kSkips | kIsText, "{\"t\": \"long enough\"}\n{\"t\": null}\n{}\n")};
      }};
  return kFormat;
}

}  // namespace stoker::fuzz
