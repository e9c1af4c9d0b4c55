// The first byte of an input selects the settings, and whether the checksums of all headers are
// corrected, because a fuzzer is unlikely to find correct ones.
#include <algorithm>
#include <cstdio>

#include "tests/fuzz/dataset_under_test.h"
#include "tests/fuzz/format.h"
#include "tests/shared/data/tar_writer.h"
#include "tests/support/numpy_files.h"

namespace stoker::fuzz {
namespace {

using namespace data::testing;

constexpr size_t kBlock = 512;
constexpr char kBytes = 0, kImage = 1, kJson = 2, kText = 3;  // two bits: the fields to read
constexpr char kUnchanged = 4, kSkip = 8;
constexpr char kArrays = 16;  // with kBytes numeric arrays, with kImage uint8 images
constexpr char kPadded = 32;  // variable-length sequences

config::WebdatasetDataset with_sequences(char mode, config::WebdatasetDataset config) {
  config.record.sequence.max_length = 3;
  config.record.sequence.on_overflow =
      (mode & kSkip) != 0 ? config::OnOverflow::kTruncate : config::OnOverflow::kError;
  if ((mode & 3) == kText) {
    config.record.fields.text = "x";
  } else if ((mode & 3) == kJson) {
    config.record.fields.input_ids = "json:in";
    config.record.fields.labels = "json:tags";
  } else {
    config.record.fields.input = {"npy"};
    config.record.input_shape = {2};
    config.record.fields.label = "y.npy";
  }
  return config;
}

config::WebdatasetDataset make_config(char mode) {
  config::WebdatasetDataset config;
  config.record.on_missing_field =
      (mode & kSkip) != 0 ? config::OnMissingField::kDrop : config::OnMissingField::kError;
  if ((mode & kPadded) != 0) return with_sequences(mode, std::move(config));
  if ((mode & 3) == kText) {
    config.record.fields.text = "x";
    config.record.sequence.block_size = 3;
    return config;
  }
  if ((mode & kArrays) != 0) {
    config.record.fields.input = {"npy"};
    config.record.input_shape =
        (mode & 3) == kImage ? std::vector<int64_t>{3, 2, 1} : std::vector<int64_t>{2};
    config.record.fields.label = "y.npy";
    return config;
  }
  if ((mode & 3) == kImage) {
    config.record.fields.image = "x;y";
    config.transforms = {config::Resize{{2, 2}}};
  } else {
    config.record.fields.input = {(mode & 3) == kJson ? "json:in" : "x;y"};
    config.record.input_shape = {2};
  }
  config.record.fields.label = (mode & 3) == kJson ? "json:a.b" : "cls";
  return config;
}

// Corrects the checksum of every block that looks like a header.
void repair_checksums(std::string& file) {
  for (size_t at = 0; at + kBlock <= file.size(); at += kBlock) {
    const std::string_view block = std::string_view(file).substr(at, kBlock);
    if (block.substr(257, 5) != "ustar") continue;
    file.replace(at + 148, 8, 8, ' ');
    unsigned sum = 0;
    for (const char c : block) sum += static_cast<unsigned char>(c);
    char octal[16];
    std::snprintf(octal, sizeof octal, "%06o", sum);
    file.replace(at + 148, 7, std::string(octal, 7));
  }
}

bool run(std::string_view input) {
  static DatasetUnderTest set;
  const char mode = input.empty() ? kUnchanged : input[0];
  std::string file(input.substr(std::min<size_t>(1, input.size())));
  if ((mode & kUnchanged) == 0) repair_checksums(file);
  set.write("data.tar", file);
  config::WebdatasetDataset config = make_config(mode);
  config.path = set.path("data.tar");
  return set.check({.source = config});
}

std::string with_mode(int mode, const std::string& rest) { return static_cast<char>(mode) + rest; }

std::vector<std::string> seeds() {
  const std::string one = tar_member("a.x", "ab") + tar_member("a.cls", "1");
  const std::string named = tar_member("b/c.cls", "dog") + tar_member("b/c.y", "cd");
  const std::string json = tar_member("a.json", R"({"in": [1, 2.5], "a": {"b": "cat"}})");
  const std::string base256 =
      tar_header({.name = "b.x", .size_field = "\x80" + std::string(10, '\0') + "\x02"});
  const std::string label =
      tar_member("a.y.npy", test::npy("<i8", "()", std::string("\1\0\0\0\0\0\0\0", 8)));
  const std::string numbers = tar_member("a.npy", test::npy("<f2", "(2,)", "abcd")) + label;
  const std::string planes = tar_member("a.npy", test::npy("|u1", "(3, 2, 1)", "abcdef")) + label;
  const std::string pixels = tar_member("a.npy", test::npy("|u1", "(2, 1, 3)", "abcdef")) + label;
  const std::string end = kTarEnd.substr(kBlock);
  const std::string frames = tar_member("a.npy", test::npy("<f2", "(2, 2)", "abcdefgh")) + label;
  const std::string tagged = tar_member("a.json", R"({"in": [1, 2], "tags": [0, -100]})");
  return {
      with_mode(kBytes | kPadded, frames + end),
      with_mode(kBytes | kPadded, numbers + end),
      with_mode(kJson | kPadded | kSkip, tagged + end),
      with_mode(kText | kPadded, one + end),
      with_mode(kBytes, one + end),
      with_mode(kBytes, one + named + end),
      with_mode(kBytes | kSkip, one + tar_member("README", "") + tar_member("c.x", "")),
      with_mode(kBytes | kSkip, tar_member("d/", "", '5') + one + base256 + tar_content("zz")),
      with_mode(kJson, json + end),
      with_mode(kText, one + tar_member("e.x", "text") + end),
      with_mode(kText, tar_member("././@LongLink", "long/name.x", 'L') + tar_member("s", "text")),
      with_mode(kText, pax_header("12 path=t.x\n9 size=4\n") + tar_member("s", "text") + end),
      with_mode(kBytes | kArrays, numbers + end),
      with_mode(kImage | kArrays, planes + end),
      with_mode(kImage | kArrays, pixels + end),
      with_mode(kBytes | kUnchanged, one + end)};
}

}  // namespace

const Format& tar_format() {
  static constexpr Format kFormat{.name = "tar", .run = run, .seeds = seeds};
  return kFormat;
}

}  // namespace stoker::fuzz
