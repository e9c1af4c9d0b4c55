#include "shared/data/format/tar_reader.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/data/tar_writer.h"

namespace stoker::data::format {
namespace {

using namespace std::string_literals;
using ::testing::HasSubstr;
using testing::kTarEnd;
using testing::pax_header;
using testing::tar_content;
using testing::tar_header;
using testing::tar_member;

struct Walked {
  std::vector<TarMember> members;
  Status status;
  bool has_end = false;
};
Walked walk(const std::string& file) {
  Walked walked;
  files::MemorySource source(std::as_bytes(std::span(file)));
  TarReader tar(source);
  for (TarMember member;;) {
    const auto more = tar.next(member);
    walked.status = more.status();
    walked.has_end = tar.has_end_block();
    if (!more || !*more) return walked;
    walked.members.push_back(member);
  }
}
void expect_wrong(const std::string& file, const std::string& what) {
  const Walked walked = walk(file);
  EXPECT_EQ(walked.status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(walked.status.message(), HasSubstr(what));
}

TEST(TarReaderTest, ReturnsNamesOffsetsAndSizes) {
  const Walked walked =
      walk(tar_member("a", std::string(513, 'x')) + tar_member("b", "") + kTarEnd);
  ASSERT_TRUE(walked.status.ok()) << walked.status.to_string();
  ASSERT_EQ(walked.members.size(), 2u);
  EXPECT_EQ(walked.members[0].name, "a");
  EXPECT_EQ(walked.members[0].content, 512u);
  EXPECT_EQ(walked.members[0].size, 513u);
  EXPECT_EQ(walked.members[1].name, "b");
  EXPECT_EQ(walked.members[1].header, 512u + 1024);
  EXPECT_TRUE(walked.members[1].is_file);
  EXPECT_TRUE(walked.has_end);
}

TEST(TarReaderTest, PrependsPrefixOnlyInUstarFormat) {
  const std::string gnu = "ustar  \0"s;
  EXPECT_EQ(walk(tar_header({.name = "c", .prefix = "a/b"})).members[0].name, "a/b/c");
  EXPECT_EQ(walk(tar_header({.name = "c", .magic = gnu, .prefix = "1234"})).members[0].name, "c");
  EXPECT_EQ(walk(tar_header({.name = "c", .magic = "", .prefix = "x"})).members[0].name, "c");
  EXPECT_EQ(walk(tar_header({.name = std::string(100, 'n')})).members[0].name,
            std::string(100, 'n'));
}

TEST(TarReaderTest, ReadsLongNamesFromGnuAndPaxHeaders) {
  const std::string name(300, 'n');
  const std::string record = "310 path=" + name + "\n";
  ASSERT_EQ(record.size(), 310u);
  for (const std::string& header :
       {tar_member("././@LongLink", name + '\0', 'L'), pax_header(record),
        tar_member("././@LongLink", "target", 'K') + pax_header("18 comment=abcdef\n" + record)}) {
    const Walked walked = walk(header + tar_member("short", "x") + tar_member("next", "y"));
    ASSERT_EQ(walked.members.size(), 2u) << walked.status.to_string();
    EXPECT_EQ(walked.members[0].name, name);
    EXPECT_EQ(walked.members[1].name, "next");
    EXPECT_EQ(walked.members[0].header + 512, walked.members[0].content);
    EXPECT_EQ(walked.members[0].begin, 0u);
    EXPECT_EQ(walked.members[1].begin, walked.members[1].header);
  }
}

TEST(TarReaderTest, ReadsSizesInBase256AndPaxHeaders) {
  const std::string base256 = "\x80"s + std::string(9, '\0') + "\x02\x01"s;  // 513
  const std::string content = tar_content(std::string(513, 'x'));
  const Walked walked =
      walk(tar_header({.name = "a", .size_field = base256}) + content +
           pax_header("12 size=513\n") + tar_header({.name = "b", .size = 7}) + content + kTarEnd);
  ASSERT_EQ(walked.members.size(), 2u) << walked.status.to_string();
  EXPECT_EQ(walked.members[0].size, 513u);
  EXPECT_EQ(walked.members[1].size, 513u);
}

TEST(TarReaderTest, TreatsNonregularMembersAsEmpty) {
  for (const char type : {'1', '2', '3', '4', '5', '6'}) {
    const Walked walked =
        walk(tar_header({.name = "x", .size = 999999, .type = type}) + tar_member("b", "y"));
    ASSERT_EQ(walked.members.size(), 2u) << type;
    EXPECT_FALSE(walked.members[0].is_file);
    EXPECT_TRUE(walked.members[1].is_file);
  }
  EXPECT_FALSE(walk(tar_header({.name = "old-folder/", .type = '\0'})).members[0].is_file);
  EXPECT_FALSE(walk(tar_member("volume", "", 'V')).members[0].is_file);
}

TEST(TarReaderTest, ReportsMissingEndMarker) {
  EXPECT_FALSE(walk(tar_member("a", "x")).has_end);
  EXPECT_TRUE(walk(tar_member("a", "x")).status.ok());
  EXPECT_FALSE(walk("").has_end);
  // The last member is not padded to a block.
  EXPECT_EQ(walk(tar_header({.name = "a", .size = 3}) + "abc").members.size(), 1u);
}

TEST(TarReaderTest, RejectsMembersAfterEndMarker) {
  const std::string one = tar_member("a", "x") + kTarEnd;
  EXPECT_TRUE(walk(one + std::string(8192, '\0')).status.ok());
  expect_wrong(one + one, "offset 1024: something follows the end of the archive");
  expect_wrong(one + std::string(2 << 20, '\0'), "bytes follow the end");
}

TEST(TarReaderTest, ReportsErrorOrMissingEndOnTruncation) {
  const std::string whole = pax_header("12 size=513\n") + tar_header({.name = "a", .size = 513}) +
                            tar_content(std::string(513, 'x')) + tar_member("b", "y");
  for (size_t length = 0; length < whole.size(); ++length) {
    const Walked walked = walk(whole.substr(0, length));
    EXPECT_FALSE(walked.has_end) << length;
    if (!walked.status.ok()) continue;
    EXPECT_TRUE(length == 0 || length >= 1536 + 513) << length;
  }
}

TEST(TarReaderTest, DetectsChangedHeaderByteByChecksum) {
  const std::string whole = tar_member("a", "x") + kTarEnd;
  for (size_t position = 0; position < 512; ++position) {
    if (position >= 148 && position < 156) continue;  // the checksum itself
    std::string corrupted = whole;
    corrupted[position] = static_cast<char>(corrupted[position] + 1);
    expect_wrong(corrupted, "offset 0: not a tar header");
  }
}

TEST(TarReaderTest, RejectsInvalidNumbers) {
  const auto with_size = [](const std::string& field) {
    return tar_header({.name = "a", .size_field = field}) + tar_content("x") + kTarEnd;
  };
  expect_wrong(with_size("77777777777"), "the file ends in the content");
  expect_wrong(with_size("\x80"s + std::string(3, '\0') + std::string(8, '\xff')),
               "the file ends in the content");
  expect_wrong(with_size("\x80\x01"s + std::string(10, '\0')), "the size is not a number");
  expect_wrong(with_size(std::string(12, '\xff')), "the size is not a number");
  expect_wrong(with_size("8"), "the size is not a number");
  expect_wrong(with_size("-1"), "the size is not a number");
}

TEST(TarReaderTest, RejectsInvalidExtendedHeaders) {
  const std::string member = tar_member("a", "x");
  for (const std::string records : {"", "5 a=b\n", "7 a=b\n", "6 a=b", "0 a=b\n", "x a=b\n",
                                    "99 a=b\n", "4 ab\n", "18446744073709551616 a=b\n", "3\n\n"}) {
    if (records.empty()) continue;
    expect_wrong(pax_header(records) + member, "offset 0: a broken pax header");
  }
  expect_wrong(pax_header("11 size=-1\n") + member, "size in a pax header");
  expect_wrong(pax_header("28 size=99999999999999999999\n") + member, "pax header");
  expect_wrong(pax_header("11 size=99\n") + tar_header({.name = "a"}), "ends in the content");
  expect_wrong(pax_header("10 path=x\n", 'g') + member, "for all members");
  expect_wrong(pax_header("10 path=x\n") + kTarEnd, "ends after a header that belongs to a member");
  expect_wrong(pax_header("22 GNU.sparse.major=1\n") + member, "sparse");
  expect_wrong(tar_member("a", "", 'S'), "without --sparse");
  expect_wrong(tar_member("a", "", 'M'), "another volume");
  expect_wrong(tar_header({.name = "L", .size = 1 << 20, .type = 'L'}) + std::string(1 << 20, 'n'),
               "a name of 1048576 bytes");
  expect_wrong(tar_header({.name = "K", .size = 1 << 20, .type = 'K'}) + std::string(1 << 20, 'n'),
               "a name of 1048576 bytes");
  expect_wrong(tar_header({.name = "x", .size = 2 << 20, .type = 'x'}) + std::string(2 << 20, 'n'),
               "a pax header of 2097152 bytes");
}

TEST(TarReaderTest, LimitsExtendedHeadersOfMember) {
  const std::string header = pax_header("1024 a=" + std::string(1016, 'b') + "\n");
  std::string headers;
  while (headers.size() < 4 << 20) headers += header;
  expect_wrong(headers + tar_member("a", "x"), "extended headers of more than 4194304 bytes");
  headers.resize(headers.size() - header.size());
  EXPECT_EQ(walk(headers + tar_member("a", "x")).members.size(), 1u);
}

TEST(TarReaderTest, ReadsJoinedArchives) {
  const std::string a = tar_member("a", "x"), b = tar_member("b", "y");
  const std::string file = a + kTarEnd + b + kTarEnd;
  files::MemorySource source(std::as_bytes(std::span(file)));
  TarReader tar(source, 0, TarReader::AfterEnd::kArchives);
  TarMember member;
  const size_t second = a.size() + kTarEnd.size();
  for (const auto& [name, begin] : {std::pair("a", size_t{0}), std::pair("b", second)}) {
    EXPECT_TRUE(*tar.next(member));
    EXPECT_EQ(member.name, name);
    EXPECT_EQ(member.begin, begin);
    EXPECT_FALSE(*tar.next(member));
    EXPECT_TRUE(tar.has_end_block());
  }
  EXPECT_FALSE(*tar.next(member));
  EXPECT_FALSE(tar.has_end_block());
  tar.seek(second);
  EXPECT_TRUE(*tar.next(member));
  EXPECT_EQ(member.name, "b");
}

}  // namespace
}  // namespace stoker::data::format
