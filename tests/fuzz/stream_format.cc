// Streams without an index. The first byte of an input selects the format; its samples do not depend
// on how the bytes arrive, or on where reading was interrupted.
#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shared/config/dataset_config.h"
#include "shared/data/stream/record_decoder.h"
#include "shared/data/stream/record_stream.h"
#include "tests/fuzz/file_under_test.h"
#include "tests/fuzz/format.h"
#include "tests/shared/data/example_writer.h"
#include "tests/shared/data/stream/memory_input.h"
#include "tests/shared/data/tar_writer.h"
#include "tests/support/packed_bytes.h"
#include "tests/support/temporary_directory.h"

namespace stoker::fuzz {
namespace {

using namespace data::testing;
using data::stream::ByteInput;
using data::stream::RecordDecoder;
using data::stream::RecordStream;
using data::stream::StreamPosition;
using data::stream::StreamRecord;

constexpr char kText = 0, kTokens = 1, kLines = 2, kFrames = 3, kTarFile = 4, kGzip = 5, kZstd = 6;

config::DatasetConfig make_stream_config(char mode) {
  config::RecordConfig record;
  record.fields.input = {"x"};
  record.fields.label = "y";
  record.input_shape = {2};
  record.num_classes = 3;
  if (mode == kTokens) {
    config::TokensDataset tokens;
    tokens.dtype = config::TokenType::kUint32;
    tokens.sequence.block_size = 1;
    return {.source = tokens};
  }
  if (mode == kLines || mode == kGzip || mode == kZstd) {
    config::JsonlDataset lines;
    lines.record = record;
    return {.source = lines};
  }
  if (mode == kFrames) {
    config::TfrecordDataset frames;
    frames.record = record;
    return {.source = frames};
  }
  if (mode == kTarFile) {
    config::WebdatasetDataset tar;
    tar.record = record;
    tar.record.fields.input = {"json:x"};
    return {.source = tar};
  }
  config::TextDataset text;
  text.sequence.block_size = 3;
  return {.source = text};
}

std::unique_ptr<ByteInput> open_input(char mode, const std::string& content, size_t part) {
  if (mode != kGzip && mode != kZstd)
    return std::make_unique<data::stream::testing::MemoryInput>(content, part);
  static const test::TemporaryDirectory folder;
  const std::string path = folder / (mode == kGzip ? "data.gz" : "data.zst");
  test::write_whole(path, content);
  auto opened = data::stream::open_shard(path);
  check_invariant(opened.ok(), "a shard must open");
  return *std::move(opened);
}

struct ReadStream {
  std::vector<std::string> records;
  std::vector<StreamPosition> starts;
  std::vector<StreamPosition> ends;
  StatusCode code = StatusCode::kOk;
  bool operator==(const ReadStream&) const = default;
};

std::string record_text(const StreamRecord& record) {
  return {reinterpret_cast<const char*>(record.bytes.data()), record.bytes.size()};
}

ReadStream read_stream(RecordStream& stream) {
  ReadStream read;
  for (StreamRecord record;;) {
    const auto more = stream.next(record, {});
    read.code = more.status().code();
    check_status(more.status());
    if (!more && stream.can_continue()) continue;
    if (!more || !*more) return read;
    check_invariant(read.ends.empty() || record.at.offset >= read.ends.back().offset ||
                        stream.position().record > record.at.record,
                    "positions must increase");
    read.records.emplace_back(record_text(record));
    read.starts.push_back(record.at);
    read.ends.push_back(stream.position());
  }
}

bool decode(RecordDecoder& decoder, const std::string& record) {
  const auto kept = decoder.read(std::as_bytes(std::span(record)));
  if (!check_status(kept.status()) || !*kept) return false;
  std::vector<std::vector<std::byte>> tensors;
  std::vector<std::span<std::byte>> outputs;
  for (const TensorSpec& spec : decoder.spec(0)) tensors.emplace_back(spec.bytes());
  for (auto& tensor : tensors) outputs.emplace_back(tensor);
  return check_status(decoder.write({}, outputs));
}

// Decodes every record as it is read.
bool read_once(RecordDecoder& decoder, RecordStream& stream) {
  bool any = false;
  for (StreamRecord record;;) {
    const auto more = stream.next(record, {});
    check_status(more.status());
    if (!more && stream.can_continue()) continue;
    if (!more || !*more) return any;
    any = decode(decoder, record_text(record)) || any;
  }
}

bool run(std::string_view input) {
  const char mode = input.empty() ? kText : input[0];
  const std::string content(input.substr(std::min<size_t>(1, input.size())));
  const std::string name = "train";
  const config::DatasetConfig config = make_stream_config(mode);
  const data::DatasetRequest request{.name = name, .config = config};
  const auto framing = data::stream::framing_of(request);
  const auto decoder = RecordDecoder::make(request);
  check_invariant(framing.ok() && decoder.ok(), "the settings must be valid");
  const auto open = [&](size_t part) {
    return std::make_unique<RecordStream>(*framing, open_input(mode, content, part));
  };
  if (reads_once()) return read_once(**decoder, *open(1 << 20));
  const ReadStream read = read_stream(*open(1 << 20));
  check_invariant(read_stream(*open(3)) == read, "records depend on how the bytes arrive");
  bool any = false;
  for (const std::string& record : read.records) any = decode(**decoder, record) || any;
  for (size_t i = 0; i < std::min<size_t>(4, read.records.size()); ++i) {
    const auto resumed = open(1 << 20);
    check_invariant(resumed->skip_to(read.ends[i], {}).ok(), "a position must exist");
    const ReadStream after = read_stream(*resumed);
    check_invariant(
        after.code == read.code &&
            std::equal(after.records.begin(), after.records.end(),
                       read.records.begin() + static_cast<ptrdiff_t>(i) + 1, read.records.end()),
        "records depend on where reading was interrupted");
    // One stream, which skips from each record to the next but one.
    const auto skipping = open(100);
    for (size_t j = i; j < read.records.size(); j += 2) {
      StreamRecord record;
      check_invariant(skipping->skip_to(read.starts[j], {}).ok(), "a record must have a position");
      const auto more = skipping->next(record, {});
      check_invariant(
          more && *more && record.at == read.starts[j] && record_text(record) == read.records[j],
          "a record depends on those before it");
    }
  }
  return any;
}

std::vector<std::string> seeds() {
  const auto with_mode = [](char mode, const std::string& content) { return mode + content; };
  const std::string line = "{\"x\": [1, 2], \"y\": 0}\n";
  const std::string frame =
      framed(example({{"x", floats_feature({1, 2})}, {"y", ints_feature({1})}}));
  const std::string tar = tar_member("a.json", "{\"x\": [1, 2]}") + tar_member("a.y", "2");
  return {with_mode(kText, "abcdefgh"),
          with_mode(kTokens, std::string("\1\0\0\0\2\0\0\0\3\0\0\0", 12)),
          with_mode(kLines, "\n" + line + line),
          with_mode(kFrames, frame + frame),
          with_mode(kTarFile, tar + tar_member("b.y", "1") + kTarEnd),
          with_mode(kTarFile, tar + kTarEnd + tar + kTarEnd),
          with_mode(kGzip, test::gzip(line) + test::gzip(line)),
          with_mode(kZstd, test::zstd(line))};
}

}  // namespace

const Format& stream_format() {
  static constexpr Format kFormat{.name = "stream", .run = run, .seeds = seeds};
  return kFormat;
}

}  // namespace stoker::fuzz
