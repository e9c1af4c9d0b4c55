#include "shared/data/file_kind.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/shared/data/example_writer.h"
#include "tests/shared/data/tar_writer.h"

namespace stoker::data {
namespace {

using ::testing::HasSubstr;
using namespace std::string_literals;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

// The first bytes that Python 3.11 (gzip, lzma, bz2, zipfile, pickle, sqlite3), numpy 2.4, torch 2.11,
// Pillow 13 and safetensors write.
std::vector<std::pair<std::string, std::string>> known_kinds() {
  return {{"gzip", from_hex("1f8b0800000000000203cb48cdc9c9cf")},
          {"xz", from_hex("fd377a585a000004e6d6b446020021")},
          {"bzip2", from_hex("425a68393141592653591931653d0000")},
          {".npy", from_hex("934e554d5059010076007b276465736372")},
          {"zip archive", from_hex("504b03042d000000000000002100f740")},
          {"zip archive", from_hex("504b0304000008080000000000000000")},
          {"pickle", from_hex("80027d710058010000006171015d7102")},
          {"pickle", from_hex("80049510000000000000007d948c0161")},
          {"SQLite", from_hex("53514c69746520666f726d6174203300")},
          {"PNG", from_hex("89504e470d0a1a0a0000000d49484452")},
          {"JPEG", from_hex("ffd8ffe000104a46494600010100000100")},
          {"GIF", from_hex("474946383761090009008100000000")},
          {"WebP", from_hex("52494646240000005745425056503820")},
          {"PDF", from_hex("255044462d312e340a2520637265617465")},
          {"safetensors", from_hex("38000000000000007b2261223a7b226474")},
          {"Parquet", "PAR1\x15\x04\x15"s},
          {"Arrow", "ARROW1\0\0"s},
          {"HDF5", "\x89HDF\r\n\x1a\n\0"s},
          {"Git LFS", "version https://git-lfs.github.com/spec/v1\noid sha256:"},
          {"tar archive", testing::tar_member("a.txt", "hello")},
          {"TFRecord", testing::framed("a record")}};
}

TEST(FileKindTest, NamesKnownKindsAndWhatToDo) {
  for (const auto& [name, head] : known_kinds()) {
    const auto kind = find_file_kind(bytes_of(head));
    ASSERT_TRUE(kind) << name;
    EXPECT_THAT(std::string(kind->name), HasSubstr(name));
    EXPECT_FALSE(kind->advice.empty());
    const Status status = reject_binary(bytes_of(head));
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << name;
    EXPECT_THAT(status.message(), HasSubstr(name));
    EXPECT_THAT(status.message(), HasSubstr(std::string(kind->advice)));
  }
}

// str.encode() of Python.
TEST(FileKindTest, RejectsOtherEncodings) {
  EXPECT_EQ(reject_binary(bytes_of(from_hex("fffe680065006c006c006f00"))).message(),
            "is UTF-16; convert it to UTF-8");
  EXPECT_EQ(reject_binary(bytes_of(from_hex("00680065006c006c006f"))).message(),
            "is UTF-16; convert it to UTF-8");
  EXPECT_EQ(reject_binary(bytes_of(from_hex("680065006c006c006f00"))).message(),
            "is UTF-16; convert it to UTF-8");
  EXPECT_EQ(reject_binary(bytes_of(from_hex("fffe000068000000650000006c000000"))).message(),
            "is UTF-32; convert it to UTF-8");
  EXPECT_THAT(reject_binary(bytes_of("some\0bytes\0\0\0"s)).message(),
              HasSubstr("has control characters"));
}

TEST(FileKindTest, AcceptsTextsThatBeginLikeOtherKinds) {
  for (const std::string& text :
       {"PAR1,PAR2\n1,2\n"s, "ORC,elf\n"s, "FEA1;x"s, "ID3 is a tag"s, "PK\n1\n"s, "version 2"s,
        "\xef\xbb\xbfwith a mark"s, "caf\xe9 in Latin-1"s, "RIFF raff"s, "{\"a\": 1}"s, ""s, "a"s,
        "BZ"s, "BZh is short"s, "SQLite for beginners"s, "MATLAB 5 is old"s,
        // Texts that NUL separates.
        std::string(100, 'a') + '\0' + std::string(100, 'b')})
    EXPECT_TRUE(reject_binary(bytes_of(text)).ok()) << text;
}

TEST(FileKindTest, AcceptsWantedKind) {
  EXPECT_TRUE(
      reject_other_kind(bytes_of(testing::tar_member("PK\3\4", "x")), "a tar archive").ok());
  EXPECT_THAT(reject_other_kind(bytes_of(testing::framed("x")), "a tar archive").message(),
              HasSubstr("is a TFRecord file and not a tar archive; use format tfrecord"));
}

}  // namespace
}  // namespace stoker::data
