#include "shared/archive/zip.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/packed_bytes.h"

namespace stoker::archive {
namespace {

std::string written(const std::function<Status(ZipWriter&)>& add) {
  std::string bytes;
  ZipWriter zip([&](std::span<const std::byte> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
    return Status();
  });
  EXPECT_TRUE(add(zip).ok());
  EXPECT_TRUE(zip.finish().ok());
  return bytes;
}

ArchiveFile file_of(const std::string& bytes) {
  return {
      .path = "x.zip", .size = bytes.size(), .read = [&](uint64_t at, std::span<std::byte> out) {
        std::memcpy(out.data(), bytes.data() + at, out.size());
        return Status();
      }};
}

TEST(ZipWriterTest, WritesMembersFoundByZipDirectory) {
  const std::string archive = written([](ZipWriter& zip) {
    STOKER_RETURN_IF_ERROR(zip.add("a/first", "one"));
    STOKER_RETURN_IF_ERROR(zip.begin("a/second", 6, 64));
    for (const std::string part : {"tw", "", "o ha"})
      STOKER_RETURN_IF_ERROR(zip.append(std::as_bytes(std::span(part))));
    return zip.add("a/empty", "");
  });
  const ArchiveFile file = file_of(archive);
  const auto members = read_zip_directory(file);
  ASSERT_TRUE(members.ok()) << members.status().to_string();
  ASSERT_EQ(members->size(), 3U);
  for (const auto& [i, name, content] :
       {std::tuple(0, "a/first", "one"), {1, "a/second", "two ha"}, {2, "a/empty", ""}}) {
    const ZipMember& member = (*members)[static_cast<size_t>(i)];
    EXPECT_EQ(member.name, name);
    EXPECT_FALSE(member.is_deflated);
    EXPECT_EQ(member.crc32, test::crc32_of(content));
    EXPECT_EQ(archive.substr(*zip_data_offset(file, member), member.bytes), content);
  }
  EXPECT_EQ(*zip_data_offset(file, (*members)[1]) % 64, 0U);
}

TEST(ZipWriterTest, AlignsMemberDataWithAnyNameLength) {
  for (size_t length = 1; length < 200; ++length) {
    const std::string archive = written([&](ZipWriter& zip) {
      STOKER_RETURN_IF_ERROR(zip.add("x", std::string(length % 7, 'x')));
      STOKER_RETURN_IF_ERROR(zip.begin(std::string(length, 'n'), 1, 64));
      return zip.append(std::as_bytes(std::span("x", 1)));
    });
    const ArchiveFile file = file_of(archive);
    const auto members = read_zip_directory(file);
    ASSERT_TRUE(members.ok()) << members.status().to_string();
    EXPECT_EQ(*zip_data_offset(file, members->back()) % 64, 0U) << length;
  }
}

// The count does not fit into 16 bits and is stored in the ZIP64 end record.
TEST(ZipWriterTest, WritesZip64EndWithMoreThan65535Members) {
  constexpr size_t kMany = 70'000;
  const std::string archive = written([](ZipWriter& zip) {
    for (size_t i = 0; i < kMany; ++i) STOKER_RETURN_IF_ERROR(zip.add(std::to_string(i), ""));
    return Status();
  });
  const auto members = read_zip_directory(file_of(archive));
  ASSERT_TRUE(members.ok()) << members.status().to_string();
  EXPECT_EQ(members->size(), kMany);
  EXPECT_EQ(members->back().name, "69999");
}

TEST(ZipDirectoryTest, LimitsMembers) {
  using test::little_endian;
  constexpr uint64_t kMembers = 250'001, kBytes = kMembers * 46;
  std::string archive(kBytes, '\0');
  archive += little_endian(0x06064b50, 4) + std::string(20, '\0') + little_endian(kMembers, 8) +
             little_endian(kMembers, 8) + little_endian(kBytes, 8) + little_endian(0, 8);
  archive += little_endian(0x07064b50, 4) + little_endian(0, 4) + little_endian(kBytes, 8) +
             little_endian(1, 4);
  archive += little_endian(0x06054b50, 4) + little_endian(0, 4) + std::string(12, '\xff') +
             little_endian(0, 2);
  const auto members = read_zip_directory(file_of(archive));
  ASSERT_EQ(members.status().code(), StatusCode::kCorrupt);
  EXPECT_THAT(members.status().message(),
              testing::HasSubstr("has 250001 members; the limit is 250000"));
}

TEST(ZipWriterTest, ReturnsSinkError) {
  ZipWriter zip([](std::span<const std::byte>) { return Status(StatusCode::kNoSpace, "full"); });
  EXPECT_EQ(zip.add("a", "x").code(), StatusCode::kNoSpace);
}

}  // namespace
}  // namespace stoker::archive
