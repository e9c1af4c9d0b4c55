// The first byte of an input selects the settings, and whether the rest is used as a file or
// consists of Examples (split_input) that are framed with correct checksums, because a fuzzer is
// unlikely to find correct ones.
#include "tests/fuzz/dataset_under_test.h"
#include "tests/fuzz/format.h"
#include "tests/shared/data/example_writer.h"

namespace stoker::fuzz {
namespace {

using namespace data::testing;

constexpr size_t kRecords = 3;
constexpr char kBytes = 0, kImage = 1, kNumbers = 2, kText = 3;  // two bits: the fields to read
constexpr char kUnchanged = 4, kSkip = 8, kPadded = 16;  // kPadded: variable-length sequences

config::TfrecordDataset with_sequences(char mode, config::TfrecordDataset config) {
  config.record.sequence.max_length = 3;
  config.record.sequence.on_overflow =
      (mode & kSkip) != 0 ? config::OnOverflow::kTruncate : config::OnOverflow::kError;
  if ((mode & 3) == kText) {
    config.record.fields.text = "x";
  } else if ((mode & 3) == kImage) {
    config.record.fields.input_ids = "x";
    config.record.fields.labels = "y";
  } else {
    config.record.fields.input = {"x"};
    config.record.input_shape = {2};
    config.record.fields.label = "y";
  }
  return config;
}

config::TfrecordDataset make_config(char mode) {
  config::TfrecordDataset config;
  config.record.on_missing_field =
      (mode & kSkip) != 0 ? config::OnMissingField::kDrop : config::OnMissingField::kError;
  if ((mode & kPadded) != 0) return with_sequences(mode, std::move(config));
  if ((mode & 3) == kText) {
    config.record.fields.text = "x";
    config.record.sequence.block_size = 3;
    return config;
  }
  if ((mode & 3) == kImage) {
    config.record.fields.image = "x";
    config.transforms = {config::Resize{{2, 2}}};
  } else {
    config.record.fields.input = {"x"};
    config.record.input_shape = {2};
  }
  if ((mode & 3) == kNumbers) {
    config.record.fields.target = {"y", "z"};
    config.record.num_targets = 2;
  } else {
    config.record.fields.label = "y";
  }
  return config;
}

bool run(std::string_view input) {
  static DatasetUnderTest set;
  const char mode = input.empty() ? kUnchanged : input[0];
  input.remove_prefix(input.empty() ? 0 : 1);
  std::string file(input);
  if ((mode & kUnchanged) == 0) {
    file.clear();
    for (const std::string_view record : split_input(input, kRecords)) file += framed(record);
  }
  set.write("data.tfrecord", file);
  config::TfrecordDataset config = make_config(mode);
  config.path = set.path("data.tfrecord");
  return set.check({.source = config});
}

std::string with_mode(int mode, const std::string& rest) { return static_cast<char>(mode) + rest; }

std::vector<std::string> seeds() {
  const std::string bytes = example({{"x", bytes_feature("ab")}, {"y", ints_feature({1})}});
  const std::string name = example({{"y", bytes_feature("dog")}, {"x", bytes_feature("cd")}});
  const std::string numbers = example({{"x", floats_feature({1, 2})},
                                       {"y", ints_feature({-3})},
                                       {"other", bytes_feature("other")},
                                       {"z", bytes_feature("0.5")}});
  const std::string unpacked = message(
      1,
      message(1, message(2, message(2, "\x0d" + raw(1.f) + "\x0d" + raw(2.f))) + message(1, "x")) +
          message(1, message(1, "y") + message(2, message(3, "\x08\x03"))) +
          message(1, message(1, "z") + message(2, message(3, "\x08\x04"))));
  const std::string steps = sequence_example(
      {{"y", ints_feature({2})}}, {{"x", {floats_feature({1, 2}), floats_feature({3, 4})}}});
  const std::string tags = sequence_example({}, {{"x", {ints_feature({7}), ints_feature({8})}},
                                                 {"y", {ints_feature({0}), ints_feature({1})}}});
  const std::string listed =
      example({{"x", ints_feature({5, 6, 7})}, {"y", ints_feature({0, -100, 1})}});
  return {with_mode(kNumbers | kPadded, join_input({steps, steps, steps})),
          with_mode(kImage | kPadded | kSkip, join_input({tags, listed, tags})),
          with_mode(kText | kPadded, join_input({bytes, name, bytes})),
          with_mode(kNumbers | kPadded | kUnchanged, framed(steps) + framed(steps)),
          with_mode(kBytes, join_input({bytes, bytes, bytes})),
          with_mode(kBytes, join_input({bytes, name, name})),
          with_mode(kBytes | kSkip, join_input({bytes, "", numbers.substr(0, 0)})),
          with_mode(kNumbers, join_input({numbers, unpacked, numbers})),
          with_mode(kText, join_input({bytes, name, bytes})),
          with_mode(kBytes | kUnchanged, framed(bytes) + framed(bytes)),
          with_mode(kText | kUnchanged, framed(bytes) + framed(name))};
}

}  // namespace

const Format& tfrecord_format() {
  static constexpr Format kFormat{.name = "tfrecord", .run = run, .seeds = seeds};
  return kFormat;
}

}  // namespace stoker::fuzz
