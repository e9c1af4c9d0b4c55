#include "shared/data/stream/record_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/data/format/framing.h"
#include "tests/shared/data/example_writer.h"
#include "tests/shared/data/stream/stream_fixture.h"
#include "tests/shared/data/tar_writer.h"
#include "tests/support/packed_bytes.h"

namespace stoker::data::stream {
namespace {

using data::testing::framed;
using data::testing::kTarEnd;
using data::testing::pax_header;
using data::testing::raw;
using data::testing::tar_content;
using data::testing::tar_header;
using data::testing::tar_member;
using ::testing::ElementsAre;
using testing::EndlessInput;
using ::testing::HasSubstr;
using testing::MemoryInput;
using ::testing::Not;
using testing::read_records;
using testing::ReadRecords;
using ::testing::SizeIs;

const Framing kLines = format::line_framing();
const Framing kTfrecords = format::tfrecord_framing();
const Framing kTar = format::tar_framing();
Framing blocks(uint64_t tokens, uint64_t token_bytes) {
  return format::block_framing(tokens * token_bytes, token_bytes);
}
bool is_of_kind(const Framing& framing, const Framing& kind) {
  return framing.make_framer == kind.make_framer;
}

void expect_corrupt(const ReadRecords& read, const std::string& what) {
  EXPECT_EQ(read.status.code(), StatusCode::kCorrupt) << read.status.to_string();
  EXPECT_THAT(read.status.message(), HasSubstr(what));
}

// ---- Every framing

struct Example {
  std::string name;
  Framing framing;
  std::string content;
  std::vector<std::string> records;
};

Example tar_example() {
  const std::string a = tar_member("a.txt", "one") + tar_member("a.cls", "1");
  const std::string b = pax_header("14 path=b.txt\n") + tar_member("other", "two");
  const std::string long_name = std::string(150, 'c') + ".txt";
  const std::string c =
      tar_member("././@LongLink", long_name + '\0', 'L') + tar_member("x", std::string(1000, 'z'));
  return {.name = "Tar",
          .framing = kTar,
          .content = a + b + tar_member("folder/", "", '5') + tar_member("README", "no sample") +
                     c + kTarEnd,
          .records = {a, b, c}};
}

std::vector<Example> examples() {
  const std::string frames = framed("first") + framed("") + framed(std::string(3000, 'x'));
  return {{.name = "Lines",
           .framing = kLines,
           .content = "\xef\xbb\xbf{\"a\": 1}\n\n  \r\n{}\r\n{\"b\": 2}",
           .records = {"{\"a\": 1}\n", "{}\r\n", "{\"b\": 2}"}},
          {.name = "Text",
           .framing = blocks(4, 1),
           .content = "abcdefghijkl",
           .records = {"abcd", "defg", "ghij"}},
          {.name = "Tokens",
           .framing = blocks(3, 2),
           .content = "0a0b0c0d0e",
           .records = {"0a0b0c", "0c0d0e"}},
          {.name = "Tfrecord",
           .framing = kTfrecords,
           .content = frames,
           .records = {"first", "", std::string(3000, 'x')}},
          tar_example()};
}

class FramingTest : public ::testing::TestWithParam<Example> {};

TEST_P(FramingTest, ReturnsSameRecordsHoweverBytesArrive) {
  const Example& example = GetParam();
  for (const size_t part : {1u, 7u, 512u, 1u << 20}) {
    const ReadRecords read = read_records(example.framing, example.content, part);
    EXPECT_TRUE(read.status.ok()) << read.status.to_string();
    EXPECT_EQ(read.records, example.records) << part;
  }
}

TEST_P(FramingTest, NumbersRecordsAndReportsTheirOffsets) {
  const Example& example = GetParam();
  const ReadRecords read = read_records(example.framing, example.content);
  ASSERT_THAT(read.records, SizeIs(example.records.size()));
  for (size_t i = 0; i < read.records.size(); ++i) {
    EXPECT_EQ(read.starts[i].record, i);
    EXPECT_EQ(read.ends[i].record, i + 1);
    EXPECT_GT(read.ends[i].offset, read.starts[i].offset);
    if (i > 0) {
      EXPECT_GE(read.starts[i].offset, read.ends[i - 1].offset);
    }
    if (example.framing.wrapper_bytes == 0) {
      EXPECT_EQ(example.content.substr(read.starts[i].offset, read.records[i].size()),
                read.records[i]);
    }
  }
}

TEST_P(FramingTest, ContinuesAtEveryPosition) {
  const Example& example = GetParam();
  const ReadRecords whole = read_records(example.framing, example.content);
  ASSERT_THAT(whole.records, SizeIs(example.records.size()));
  for (size_t i = 0; i < whole.ends.size(); ++i) {
    auto input = std::make_unique<MemoryInput>(example.content, 100);
    ASSERT_TRUE(input->skip(whole.ends[i].offset, {}).ok());
    RecordStream stream(example.framing, std::move(input), whole.ends[i]);
    const ReadRecords rest = read_records(stream);
    EXPECT_TRUE(rest.status.ok()) << rest.status.to_string();
    ASSERT_EQ(i + 1 + rest.records.size(), whole.records.size());
    for (size_t later = i + 1; later < whole.records.size(); ++later) {
      EXPECT_EQ(rest.records[later - i - 1], whole.records[later]);
      EXPECT_EQ(rest.starts[later - i - 1], whole.starts[later]);
      EXPECT_EQ(rest.ends[later - i - 1], whole.ends[later]);
    }
  }
}

TEST_P(FramingTest, SkipsToStartOfEveryRecord) {
  const Example& example = GetParam();
  const ReadRecords whole = read_records(example.framing, example.content);
  for (size_t first = 0; first < whole.records.size(); ++first) {
    for (size_t second = first + 1; second < whole.records.size(); ++second) {
      RecordStream stream(example.framing, std::make_unique<MemoryInput>(example.content, 100));
      for (const size_t record : {first, second}) {
        ASSERT_TRUE(stream.skip_to(whole.starts[record], {}).ok());
        EXPECT_EQ(stream.position(), whole.starts[record]);
        StreamRecord read;
        ASSERT_TRUE(*stream.next(read, {}));
        EXPECT_EQ(read.at, whole.starts[record]);
        EXPECT_EQ(std::string(reinterpret_cast<const char*>(read.bytes.data()), read.bytes.size()),
                  whole.records[record]);
        EXPECT_EQ(stream.position(), whole.ends[record]);
      }
      EXPECT_THAT(read_records(stream).records, SizeIs(whole.records.size() - second - 1));
    }
  }
}

TEST_P(FramingTest, SkipsToEndOfEveryRecord) {
  const Example& example = GetParam();
  const ReadRecords whole = read_records(example.framing, example.content);
  for (size_t i = 0; i < whole.ends.size(); ++i) {
    RecordStream stream(example.framing, std::make_unique<MemoryInput>(example.content, 100));
    ASSERT_TRUE(stream.skip_to(whole.ends[i], {}).ok());
    const ReadRecords rest = read_records(stream);
    EXPECT_TRUE(rest.status.ok()) << rest.status.to_string();
    EXPECT_THAT(rest.records, SizeIs(whole.records.size() - i - 1));
    EXPECT_EQ(stream.position().record, whole.records.size());
  }
}

TEST_P(FramingTest, RejectsPositionsBeforeItsOwnAndAfterEnd) {
  const Example& example = GetParam();
  RecordStream stream(example.framing, std::make_unique<MemoryInput>(example.content));
  StreamRecord record;
  ASSERT_TRUE(*stream.next(record, {}));
  const StreamPosition position = stream.position();
  EXPECT_EQ(stream.skip_to({.offset = position.offset - 1, .record = 0}, {}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(stream.position(), position);
  const Status after_end = stream.skip_to({.offset = example.content.size() + 3, .record = 9}, {});
  EXPECT_EQ(after_end.code(), StatusCode::kCorrupt);
  EXPECT_EQ(after_end.message(), "input: ends 3 bytes before the position to continue from");
}

TEST_P(FramingTest, CountsMemoryOfWindow) {
  const Example& example = GetParam();
  RecordStream stream(example.framing, std::make_unique<MemoryInput>(example.content));
  EXPECT_EQ(stream.held_bytes(), 0u);
  EXPECT_TRUE(read_records(stream).status.ok());
  EXPECT_GE(stream.held_bytes(), example.content.size());
  EXPECT_LT(stream.held_bytes(), 1u << 20);
}

// A stream that ends anywhere returns records of the complete stream, and never another one.
TEST_P(FramingTest, ReturnsOnlyCompleteRecordsOfTruncatedStream) {
  const Example& example = GetParam();
  ASSERT_FALSE(example.content.empty());
  for (size_t length = 0; length < example.content.size(); ++length) {
    const ReadRecords read = read_records(example.framing, example.content.substr(0, length), 64);
    ASSERT_LE(read.records.size(), example.records.size());
    for (size_t i = 0; i < read.records.size(); ++i) {
      // The last line lacks its end, the last tar sample padding or a member.
      EXPECT_TRUE(example.records[i].starts_with(read.records[i])) << length;
      if (i + 1 < read.records.size()) {
        EXPECT_EQ(read.records[i], example.records[i]) << length;
      }
    }
    EXPECT_TRUE(read.status.ok() || read.status.code() == StatusCode::kCorrupt) << length;
  }
}

// A stream that breaks off anywhere continues behind its last complete record.
TEST_P(FramingTest, ContinuesBehindLastCompleteRecord) {
  Framing framing = GetParam().framing;
  framing.needs_ends = true;
  const bool has_lines = framing.has_lines;
  const std::string content = GetParam().content + (has_lines ? "\n" : "");
  std::vector<std::string> expected = GetParam().records;
  ASSERT_FALSE(expected.empty());
  if (has_lines) expected.back() += '\n';
  const size_t step = content.size() > 1000 ? 3 : 1;
  for (size_t length = 0; length < content.size(); length += step) {
    RecordStream broken(framing, std::make_unique<MemoryInput>(content.substr(0, length)));
    ReadRecords read = read_records(broken);
    EXPECT_EQ(read.status.ok(), !broken.is_incomplete()) << length << read.status.to_string();
    const StreamPosition at = broken.position();
    RecordStream rest(framing, std::make_unique<MemoryInput>(content.substr(at.offset)), at);
    const ReadRecords after = read_records(rest);
    EXPECT_TRUE(after.status.ok()) << length << after.status.to_string();
    read.records.insert(read.records.end(), after.records.begin(), after.records.end());
    EXPECT_EQ(read.records, expected) << length;
  }
}

TEST_P(FramingTest, EndsWithoutRecordIfStreamIsEmpty) {
  const ReadRecords read = read_records(GetParam().framing, "");
  EXPECT_TRUE(read.status.ok()) << read.status.to_string();
  EXPECT_THAT(read.records, SizeIs(0));
}

TEST_P(FramingTest, StopsWhileWaitingForProducer) {
  std::array<int, 2> fds{};
  ASSERT_EQ(::pipe2(fds.data(), O_CLOEXEC), 0);
  const UniqueFd writer(fds[1]);
  RecordStream stream(GetParam().framing,
                      make_descriptor_input({.fd = UniqueFd(fds[0]), .name = "pipe"}));
  std::optional<Result<bool>> more;
  std::jthread reader([&](const std::stop_token& stop) {
    StreamRecord record;
    more = stream.next(record, stop);
  });
  EXPECT_TRUE(testing::eventually([&] { return stream.input().is_waiting(); }));
  reader.request_stop();
  reader.join();
  EXPECT_EQ(more->status().code(), StatusCode::kCancelled);
}

// Bytes are always available, but none belongs to a record.
TEST(RecordStreamTest, StopsAndPollsWhileSkippingWhatIsNoRecord) {
  const std::pair<Framing, std::string> streams[] = {{kLines, "\n"},
                                                     {kTar, tar_member("folder/", "", '5')}};
  for (const auto& [framing, text] : streams) {
    RecordStream stream(framing, std::make_unique<EndlessInput>(text));
    std::optional<Result<bool>> more;
    std::jthread reader([&](const std::stop_token& stop) {
      StreamRecord record;
      more = stream.next(record, stop);
    });
    EXPECT_TRUE(testing::eventually([&] { return stream.input().polls() > 10; }));
    reader.request_stop();
    reader.join();
    EXPECT_EQ(more->status().code(), StatusCode::kCancelled);
  }
}

// A record does not wait for bytes after it; a tar sample only for the headers of the next member.
TEST_P(FramingTest, ReturnsFirstRecordWhileProducerPauses) {
  const Example& example = GetParam();
  const ReadRecords whole = read_records(example.framing, example.content);
  const uint64_t bytes = [&] {
    if (is_of_kind(example.framing, kTfrecords)) return whole.ends[0].offset;
    if (is_of_kind(example.framing, kTar)) return whole.starts[1].offset + 3 * 512;
    return whole.starts[0].offset + whole.records[0].size();
  }();
  std::array<int, 2> fds{};
  ASSERT_EQ(::pipe2(fds.data(), O_CLOEXEC), 0);
  const UniqueFd writer(fds[1]);
  ASSERT_EQ(::write(writer.get(), example.content.data(), bytes), static_cast<ssize_t>(bytes));
  RecordStream stream(example.framing,
                      make_descriptor_input({.fd = UniqueFd(fds[0]), .name = "pipe"}));
  StreamRecord record;
  const auto more = stream.next(record, {});
  ASSERT_TRUE(more.ok()) << more.status().to_string();
  EXPECT_TRUE(*more);
  EXPECT_EQ(record.bytes.size(), example.records[0].size());
}

INSTANTIATE_TEST_SUITE_P(Formats, FramingTest, ::testing::ValuesIn(examples()),
                         [](const auto& example) { return example.param.name; });

// ---- Lines

TEST(LineStreamTest, ReportsObjectThatStreamEndsIn) {
  const ReadRecords read = read_records(kLines, "{}\n{\"a\": 1");
  EXPECT_THAT(read.records, ElementsAre("{}\n"));
  expect_corrupt(read, "input: record 1 at offset 3: is cut off by the end");
}

// Bytes that are no JSON are found when the line is decoded; the lines after it are read.
TEST(LineStreamTest, ReturnsLinesAfterGarbage) {
  EXPECT_THAT(read_records(kLines, "{}\n\x01 garbage\n{}\n").records,
              ElementsAre("{}\n", "\x01 garbage\n", "{}\n"));
}

TEST(LineStreamTest, RejectsLineAboveLimit) {
  const ReadRecords read = read_records(kLines, "{}\n" + std::string(kMaxRecordBytes + 1, 'x'));
  EXPECT_THAT(read.records, ElementsAre("{}\n"));
  expect_corrupt(read, "input: record 1 at offset 3: a row of more than 67108864 bytes");
  EXPECT_THAT(read.status.message(), Not(HasSubstr("quote")));
}

TEST(LineStreamTest, RejectsUtf16AndCompressedStream) {
  expect_corrupt(read_records(kLines, "\xff\xfe{"), "input: record 0 at offset 0: is UTF-16");
  expect_corrupt(read_records(kLines, test::gzip("{}\n")),
                 "input: record 0 at offset 0: packed by gzip");
}

// ---- Blocks

TEST(BlockStreamTest, CountsBytesThatDoNotFillBlock) {
  const auto dropped = [](const Framing& framing, std::string content) {
    RecordStream stream(framing, std::make_unique<MemoryInput>(std::move(content)));
    EXPECT_TRUE(read_records(stream).status.ok());
    return stream.dropped_bytes();
  };
  EXPECT_EQ(dropped(blocks(4, 1), "abc"), 3u);
  EXPECT_EQ(dropped(blocks(4, 1), "abcd"), 0u);
  EXPECT_EQ(dropped(blocks(4, 1), "abcdef"), 2u);
  EXPECT_EQ(dropped(blocks(3, 2), "0a0b0c0d"), 2u);
}

TEST(BlockStreamTest, ReportsTokenThatStreamEndsIn) {
  const ReadRecords read = read_records(blocks(3, 2), "0a0b0c0");
  EXPECT_THAT(read.records, ElementsAre("0a0b0c"));
  expect_corrupt(read, "input: record 1 at offset 6: the stream ends in a token of 2 bytes");
}

// ---- TFRecords

TEST(TfrecordStreamTest, ReportsRecordThatStreamEndsIn) {
  const std::string frame = framed("second");
  for (size_t length = 1; length < frame.size(); ++length) {
    const ReadRecords read = read_records(kTfrecords, framed("first") + frame.substr(0, length));
    EXPECT_THAT(read.records, ElementsAre("first"));
    expect_corrupt(read, "input: record 1 at offset 21: is cut off by the end");
  }
}

TEST(TfrecordStreamTest, ReportsGarbageBetweenRecords) {
  const ReadRecords read = read_records(kTfrecords, framed("first") + "garbage" + framed("second"));
  EXPECT_THAT(read.records, ElementsAre("first"));
  expect_corrupt(read, "input: record 1 at offset 21: the checksum of its length is wrong");
}

TEST(TfrecordStreamTest, RejectsRecordAboveLimitBeforeItIsRead) {
  const std::string length = raw<uint64_t>(kMaxRecordBytes + 1);
  const ReadRecords read = read_records(kTfrecords, length + raw(masked_crc32c(length)));
  expect_corrupt(read, "has 67108865 bytes, more than the limit of 67108864");
}

TEST(TfrecordStreamTest, ContinuesAfterRecordWithWrongChecksum) {
  std::string second = framed("second");
  second[format::kFrameHead] = 'S';
  RecordStream stream(kTfrecords,
                      std::make_unique<MemoryInput>(framed("first") + second + framed("third")));
  const ReadRecords read = read_records(stream);
  EXPECT_THAT(read.records, ElementsAre("first"));
  expect_corrupt(read, "input: record 1 at offset 21: the checksum of its data is wrong");
  EXPECT_TRUE(stream.can_continue());
  EXPECT_EQ(stream.position(), (StreamPosition{.offset = 21 + second.size(), .record = 2}));
  const ReadRecords rest = read_records(stream);
  EXPECT_TRUE(rest.status.ok()) << rest.status.to_string();
  EXPECT_THAT(rest.records, ElementsAre("third"));
  EXPECT_EQ(rest.starts[0].record, 2u);
}

TEST(TfrecordStreamTest, DoesNotContinueWhereLengthIsWrong) {
  RecordStream stream(kTfrecords, std::make_unique<MemoryInput>(std::string(100, 'x')));
  expect_corrupt(read_records(stream), "not TFRecords");
  EXPECT_FALSE(stream.can_continue());
  expect_corrupt(read_records(kTfrecords, test::gzip("x")), "packed by gzip");
}

// ---- Tar streams

TEST(TarStreamTest, ReportsMemberThatStreamEndsIn) {
  const std::string a = tar_member("a.txt", "one");
  const ReadRecords read = read_records(
      kTar, a + tar_member("b.txt", "two") + tar_header({.name = "b.bin", .size = 9}) + "12345");
  EXPECT_THAT(read.records, ElementsAre(a));
  expect_corrupt(read, "input: record 1 at offset 1024: offset 2048: the file ends in the content");
}

TEST(TarStreamTest, ReportsGarbageBetweenMembers) {
  const std::string a = tar_member("a.txt", "one");
  const ReadRecords read = read_records(
      kTar, a + tar_member("b.txt", "two") + std::string(512, '?') + tar_member("c.txt", "three"));
  EXPECT_THAT(read.records, ElementsAre(a));
  expect_corrupt(read, "offset 2048: not a tar header");
}

TEST(TarStreamTest, RejectsSampleAboveLimitBeforeItIsRead) {
  const ReadRecords read = read_records(
      kTar, tar_member("a.txt", "one") + tar_header({.name = "a.bin", .size = kMaxRecordBytes}));
  expect_corrupt(read, "input: record 0 at offset 0: has 67110400 bytes, more than the limit");
}

TEST(TarStreamTest, SkipsLargeMembersThatBelongToNoSample) {
  const std::string a = tar_member("a.txt", "one");
  const ReadRecords read =
      read_records(kTar, tar_member("README", std::string(kMaxRecordBytes + 1, 'x')) + a + kTarEnd);
  EXPECT_TRUE(read.status.ok()) << read.status.to_string();
  EXPECT_THAT(read.records, ElementsAre(a));
}

TEST(TarStreamTest, AcceptsStreamWithoutEndMarker) {
  const std::string a = tar_member("a.txt", "one");
  EXPECT_THAT(read_records(kTar, a).records, ElementsAre(a));
  EXPECT_TRUE(read_records(kTar, a).status.ok());
  const ReadRecords unpadded = read_records(kTar, a.substr(0, 512 + 3));
  ASSERT_THAT(unpadded.records, ElementsAre(a.substr(0, 512 + 3)));
  EXPECT_EQ(unpadded.ends[0], (StreamPosition{.offset = 512 + 3, .record = 1}));
}

TEST(TarStreamTest, RejectsCompressedStream) {
  expect_corrupt(read_records(kTar, test::zstd(tar_member("a.txt", "one"))),
                 "input: record 0 at offset 0: packed by zstd");
}

TEST(TarStreamTest, ReadsArchivesJoinedByCat) {
  const std::string a = tar_member("a.txt", "one"), b = tar_member("b.txt", "two");
  const std::string zeros(10240, '\0');
  for (const std::string& end : {std::string(512, '\0'), kTarEnd, zeros}) {
    const std::string content = end + a + end + a + b + end;
    const ReadRecords read = read_records(kTar, content, 100);
    EXPECT_TRUE(read.status.ok()) << read.status.to_string();
    // Two archives can have samples with the same key.
    ASSERT_THAT(read.records, ElementsAre(a, a, b));
    for (size_t i = 0; i < read.ends.size(); ++i) {
      RecordStream stream(kTar, std::make_unique<MemoryInput>(content, 100));
      ASSERT_TRUE(stream.skip_to(read.ends[i], {}).ok());
      EXPECT_THAT(read_records(stream).records, SizeIs(2 - i));
    }
  }
}

TEST(TarStreamTest, ReturnsLastSampleBeforeErrorAfterEndMarker) {
  const std::string a = tar_member("a.txt", "one");
  const ReadRecords garbage = read_records(kTar, a + kTarEnd + std::string(512, '?'));
  EXPECT_THAT(garbage.records, ElementsAre(a));
  expect_corrupt(garbage, "input: record 1 at offset 1024: offset 2048: not a tar header");
  const ReadRecords zeros = read_records(kTar, a + std::string(2 << 20, '\0'));
  EXPECT_THAT(zeros.records, ElementsAre(a));
  expect_corrupt(zeros, "bytes follow the end of the archive");
}

TEST(TarStreamTest, ReturnsLastSampleOfArchiveWhileProducerPauses) {
  const std::string a = tar_member("a.txt", "one");
  const std::string content = a + std::string(512, '\0');
  std::array<int, 2> fds{};
  ASSERT_EQ(::pipe2(fds.data(), O_CLOEXEC), 0);
  const UniqueFd writer(fds[1]);
  ASSERT_EQ(::write(writer.get(), content.data(), content.size()),
            static_cast<ssize_t>(content.size()));
  RecordStream stream(kTar, make_descriptor_input({.fd = UniqueFd(fds[0]), .name = "pipe"}));
  StreamRecord record;
  const auto more = stream.next(record, {});
  ASSERT_TRUE(more.ok() && *more);
  EXPECT_EQ(record.bytes.size(), a.size());
}

TEST(TarStreamTest, LimitsMemoryForExtendedHeaders) {
  const std::string pax = pax_header("18 comment=123456\n", 'g');
  for (const std::string& header : {pax, tar_member("link", std::string(60'000, 'x'), 'K')}) {
    RecordStream stream(kTar, std::make_unique<EndlessInput>(header));
    expect_corrupt(read_records(stream), "extended headers of more than 4194304 bytes");
    EXPECT_LT(stream.held_bytes(), 16u << 20);
  }
  const ReadRecords read =
      read_records(kTar, tar_header({.name = "link", .size = uint64_t{4} << 30, .type = 'K'}));
  expect_corrupt(read, "a name of 4294967296 bytes");
}

TEST(TarStreamTest, LimitsMembersAndKeyOfSample) {
  const auto members = [](size_t count) {
    std::string content;
    for (size_t i = 0; i < count; ++i) content += tar_member("a." + std::to_string(i), "");
    return content;
  };
  EXPECT_THAT(read_records(kTar, members(1000)).records, SizeIs(1));
  expect_corrupt(read_records(kTar, members(1001)),
                 "input: record 0 at offset 0: has more than 1000 members");
  const std::string a = tar_member("a.txt", "one");
  const auto with_key = [](size_t bytes) {
    return tar_member("././@LongLink", std::string(bytes, 'k') + ".txt", 'L') + tar_member("x", "");
  };
  EXPECT_THAT(read_records(kTar, a + with_key(4096)).records, SizeIs(2));
  const ReadRecords read = read_records(kTar, a + with_key(4097));
  EXPECT_THAT(read.records, ElementsAre(a));
  expect_corrupt(read, "input: record 1 at offset 1024: its key has 4097 bytes");
}

// Their contents are skipped, so the end of the stream is found when the next header is read.
TEST(TarStreamTest, DistinguishesEndInPaddingAndInContentOfMemberWithoutSample) {
  const std::string readme = tar_header({.name = "README", .size = 1000});
  const ReadRecords unpadded = read_records(kTar, readme + std::string(1000, 'x'));
  EXPECT_TRUE(unpadded.status.ok()) << unpadded.status.to_string();
  RecordStream stream(kTar, std::make_unique<MemoryInput>(readme + std::string(1000, 'x')));
  EXPECT_TRUE(read_records(stream).status.ok());
  EXPECT_EQ(stream.position(), (StreamPosition{.offset = 1512, .record = 0}));
  expect_corrupt(read_records(kTar, readme + std::string(600, 'x')),
                 "input: record 0 at offset 1536: offset 0: the file ends in the content");
}

// ---- Framing of formats

Result<Framing> framing(const config::DatasetConfig& config) {
  const std::string name = "train";
  return framing_of({.name = name, .config = config});
}

TEST(FramingOfTest, DependsOnFormat) {
  EXPECT_TRUE(is_of_kind(*framing({.source = config::JsonlDataset{}}), kLines));
  EXPECT_TRUE(is_of_kind(*framing({.source = config::TfrecordDataset{}}), kTfrecords));
  EXPECT_TRUE(is_of_kind(*framing({.source = config::WebdatasetDataset{}}), kTar));
  config::TokensDataset tokens;
  tokens.dtype = config::TokenType::kUint32;
  tokens.sequence.block_size = 8;
  const auto of_tokens = framing({.source = tokens});
  ASSERT_TRUE(of_tokens.ok());
  EXPECT_TRUE(is_of_kind(*of_tokens, blocks(9, 4)));
  EXPECT_EQ(of_tokens->block_bytes, 36u);
  EXPECT_EQ(of_tokens->token_bytes, 4u);
}

TEST(FramingOfTest, RejectsFormatsThatNeedIndexAndLargeBlocks) {
  const auto csv = framing({.source = config::CsvDataset{}});
  EXPECT_EQ(csv.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(csv.status().message(), HasSubstr("data.train.stream: needs format text"));
  config::TextDataset text;
  text.sequence.block_size = int64_t{1} << 27;
  EXPECT_THAT(framing({.source = text}).status().message(),
              HasSubstr("data.train.sequence.block_size"));
}

}  // namespace
}  // namespace stoker::data::stream
