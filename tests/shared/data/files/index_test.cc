#include "shared/data/files/index.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stop_token>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/hash.h"
#include "tests/shared/data/folder_fixture.h"

namespace stoker::data::files {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Index example() {
  Index index;
  index.fingerprint_text = "kind=text split=0:1 context=8";
  index.source = "corpus\n\n**/*";
  index.metadata = {.numbers = {1, 2, ~0ull}, .names = {"cat", ""}, .made = FileTable()};
  index.metadata.made.add("runs/x/index/train.x.decompressed",
                          {.size = 784, .mtime_ns = 1'700'000'000'000'000'000, .inode = 9});
  index.metadata.pack_sizes = {0, 12};
  index.metadata.pack_checksums = {1, 0xffffffff};
  index.files = FileTable("/data/corpus");
  index.files.add("a.txt", {.size = 10, .mtime_ns = -5, .inode = 7});
  index.files.add("b/c \n\xff.txt", {.size = 0, .mtime_ns = 1'700'000'000'123'456'789, .inode = 8});
  return index;
}

// Appends the matching digest.
std::string sealed(std::string body) { return body + sha256_hex(body); }
std::string body_of(const std::string& encoded) { return encoded.substr(0, encoded.size() - 64); }

TEST(IndexTest, RoundTripsThroughEncoding) {
  const Index index = example();
  const auto read = decode_index(encode_index(index), "x.index");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->fingerprint_text, index.fingerprint_text);
  EXPECT_EQ(read->source, index.source);
  EXPECT_EQ(read->metadata.numbers, index.metadata.numbers);
  EXPECT_EQ(read->metadata.names, index.metadata.names);
  EXPECT_EQ(read->metadata.made, index.metadata.made);
  EXPECT_EQ(read->metadata.pack_sizes, index.metadata.pack_sizes);
  EXPECT_EQ(read->metadata.pack_checksums, index.metadata.pack_checksums);
  EXPECT_EQ(read->files, index.files);
  EXPECT_EQ(read->fingerprint(), index.fingerprint());
  EXPECT_EQ(read->files.path(1), "/data/corpus/b/c \n\xff.txt");
}

TEST(IndexTest, RecordsWhetherSamplesWereValidated) {
  Index index = example();
  for (const bool is_validated : {false, true}) {
    index.is_validated = is_validated;
    const auto read = decode_index(encode_index(index), "x.index");
    ASSERT_TRUE(read.ok()) << read.status().to_string();
    EXPECT_EQ(read->is_validated, is_validated);
  }
}

// An update must not index and pack all data again. Without files, which have no times of change there.
TEST(IndexTest, ReadsPreviousVersion) {
  Index index = example();
  index.files = index.metadata.made = FileTable();
  index.is_validated = true;
  std::string body = body_of(encode_index(index));
  body.resize(body.size() - sizeof(uint64_t));  // the number of selected samples
  body[8] = 6;                                  // version
  const auto read = decode_index(sealed(body), "x.index");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_TRUE(read->is_validated);
  EXPECT_EQ(read->metadata.numbers, index.metadata.numbers);
  EXPECT_EQ(read->fingerprint(), index.fingerprint());
}

TEST(IndexTest, StoresSamplesOfSplitAndTimesOfChange) {
  Index index = example();
  index.metadata.selected = {1, 5, uint64_t{1} << 40};
  index.files.add("d", {.size = 3, .mtime_ns = 4, .inode = 5, .ctime_ns = 6});
  const auto read = decode_index(encode_index(index), "x.index");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->metadata.selected, index.metadata.selected);
  EXPECT_EQ(read->files.stamp(2).ctime_ns, 6);
  EXPECT_EQ(read->fingerprint(), index.fingerprint());
}

TEST(FileTableTest, FindsFileThatWasTouched) {
  const auto table = [](int64_t second) {
    FileTable files;
    files.add("a", {.size = 1, .ctime_ns = 7});
    files.add("b", {.size = 2, .ctime_ns = second});
    return files;
  };
  EXPECT_EQ(table(8), table(9)) << "times of change are not compared";
  EXPECT_EQ(table(8).first_touched(table(8)), 2u);
  EXPECT_EQ(table(8).first_touched(table(9)), 1u);
  EXPECT_EQ(table(8).first_touched(table(0)), 2u) << "not known";
}

TEST(IndexTest, UsesUnder100BytesPerFile) {
  Index index = example();
  for (int i = 0; i < 10000; ++i) index.files.add("n01440764/n01440764_10026.JPEG", {});
  EXPECT_LT(encode_index(index).size() / 10000, 100u);
}

TEST(IndexTest, ReportsCorruptOnTruncationAtAnyByte) {
  const std::string encoded = encode_index(example());
  for (size_t length = 0; length < encoded.size(); ++length)
    ASSERT_EQ(decode_index(encoded.substr(0, length), "x").status().code(), StatusCode::kCorrupt)
        << length;
}

TEST(IndexTest, ReportsCorruptOnFlippedByte) {
  const std::string encoded = encode_index(example());
  for (size_t at = 0; at < encoded.size(); ++at) {
    std::string corrupted = encoded;
    corrupted[at] = static_cast<char>(corrupted[at] ^ 1);
    ASSERT_EQ(decode_index(corrupted, "x").status().code(), StatusCode::kCorrupt) << at;
  }
}

TEST(IndexTest, ReportsCorruptOnAppendedBytes) {
  EXPECT_EQ(decode_index(encode_index(example()) + "x", "x").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(decode_index(sealed(body_of(encode_index(example())) + "x"), "x").status().code(),
            StatusCode::kCorrupt);
}

TEST(IndexTest, ReportsCorruptOnGarbage) {
  EXPECT_EQ(decode_index("", "x").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(decode_index(std::string(5000, 'x'), "x").status().code(), StatusCode::kCorrupt);
}

// Invalid lengths with a valid digest: no memory is allocated for them.
TEST(IndexTest, ReportsCorruptOnHugeLengthAnywhere) {
  const std::string body = body_of(encode_index(example()));
  for (size_t at = 12; at + 8 <= body.size(); ++at) {
    for (const uint64_t length : {~0ull, 1ull << 40, 1ull << 20}) {
      std::string lying = body;
      std::memcpy(lying.data() + at, &length, sizeof length);
      const auto read = decode_index(sealed(lying), "x");
      if (read.ok()) continue;  // the length overwrote an arbitrary number, such as metadata
      ASSERT_EQ(read.status().code(), StatusCode::kCorrupt) << at;
    }
  }
  std::string settings_length = body;
  const uint64_t huge = ~0ull;
  std::memcpy(settings_length.data() + 12, &huge, sizeof huge);
  EXPECT_EQ(decode_index(sealed(settings_length), "x").status().code(), StatusCode::kCorrupt);
}

TEST(IndexTest, ReportsMismatchOnOtherVersion) {
  std::string body = body_of(encode_index(example()));
  body[8] = 9;
  EXPECT_EQ(decode_index(sealed(body), "x").status().code(), StatusCode::kMismatch);
}

TEST(FingerprintTest, DependsOnlyOnSettingsNamesSizesAndTimes) {
  const std::string original = example().fingerprint();
  const auto changed = [](auto change) {
    Index index = example();
    change(index);
    return index.fingerprint();
  };
  EXPECT_EQ(original.size(), 64u);
  EXPECT_NE(original, changed([](Index& index) { index.fingerprint_text += '1'; }));
  EXPECT_NE(original, changed([](Index& index) { index.files.add("d", {}); }));
  EXPECT_EQ(original, changed([](Index& index) { index.source += '1'; }));
  const auto with_first = [](const std::string& name, const FileStamp& stamp) {
    Index index = example();
    const Index old = index;
    index.files = FileTable("elsewhere");
    index.files.add(name, stamp);
    index.files.add(old.files.name(1), old.files.stamp(1));
    return index.fingerprint();
  };
  EXPECT_EQ(original, with_first("a.txt", {.size = 10, .mtime_ns = -5, .inode = 99}));
  EXPECT_NE(original, with_first("a.txu", {.size = 10, .mtime_ns = -5, .inode = 7}));
  EXPECT_NE(original, with_first("a.txt", {.size = 11, .mtime_ns = -5, .inode = 7}));
  EXPECT_NE(original, with_first("a.txt", {.size = 10, .mtime_ns = -4, .inode = 7}));
}

// The fingerprint in a checkpoint shows whether the data is the same, so it must not depend on the
// version.
TEST(FingerprintTest, MatchesRecordedFingerprint) {
  EXPECT_EQ(example().fingerprint(),
            "d6c1c39f6758b7199884ee0a4f58edc1c2e74c26e09ae6be2e67a173b930cb42");
}

constexpr uid_t kOther = 4242;

using IndexFileTest = testing::FolderFixture;

TEST_F(IndexFileTest, LoadsSavedIndex) {
  ASSERT_TRUE(save_index(example(), path("x.index")).ok());
  const auto read = load_index(path("x.index"));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->fingerprint(), example().fingerprint());
}

TEST_F(IndexFileTest, ReportsMissingFileAndRejectsFifoWithoutBlocking) {
  EXPECT_EQ(load_index(path("x.index")).status().code(), StatusCode::kNotFound);
  ASSERT_EQ(::mkfifo(path("fifo.index").c_str(), 0600), 0);
  EXPECT_FALSE(load_index(path("fifo.index")).ok());
}

// What another user can put into the index/ of a run without using the disk: gigabytes of zeros, also with the first
// bytes of an index. Neither is read.
TEST_F(IndexFileTest, ReadsNoSparseFileOfAnySize) {
  const std::string file = path("x.index");
  for (const std::string& start : {std::string(), encode_index(example())}) {
    if (!start.empty() && ::geteuid() != 0) GTEST_SKIP() << "only root can give files to others";
    std::ofstream(file, std::ios::binary) << start;
    std::filesystem::resize_file(file, uint64_t{15} << 30);
    if (!start.empty()) {
      ASSERT_EQ(::chown(file.c_str(), kOther, kOther), 0);
    }
    const Status rejected = load_index(file).status();
    EXPECT_EQ(rejected.code(), StatusCode::kCorrupt);
    EXPECT_THAT(rejected.message(), StartsWith(file + ": not a dataset index ("));
    EXPECT_THAT(rejected.message(), EndsWith("; remove it, and the next start builds it again"));
  }
}

// As on ZFS, where what was just written counts as one block, and zeros are holes.
TEST_F(IndexFileTest, ReadsOwnFileWithHoles) {
  const std::string file = path("x.index");
  std::ofstream(file, std::ios::binary) << encode_index(example());
  std::filesystem::resize_file(file, (uint64_t{64} << 20) + 4096);
  EXPECT_THAT(load_index(file).status().message(), HasSubstr("SHA-256 mismatch"))
      << "it is read, and has zeros behind its end";
}

// An index and a sparse file change places while the index is loaded. What is checked is what is read.
TEST_F(IndexFileTest, ReadsNoSparseFileThatTakesPlaceOfIndex) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files to others";
  const std::string file = path("x.index"), sparse = path("sparse");
  ASSERT_TRUE(save_index(example(), file).ok());
  std::ofstream(sparse, std::ios::binary) << encode_index(example());
  std::filesystem::resize_file(sparse, (uint64_t{64} << 20) + 4096);
  ASSERT_EQ(::chown(sparse.c_str(), kOther, kOther), 0);
  std::jthread other([&](const std::stop_token& stop) {
    while (!stop.stop_requested())
      ::renameat2(AT_FDCWD, file.c_str(), AT_FDCWD, sparse.c_str(), RENAME_EXCHANGE);
  });
  for (int i = 0; i < 300; ++i) {
    const Status status = load_index(file).status();
    if (status.ok()) continue;
    ASSERT_THAT(status.message(), HasSubstr("(a sparse file)"));
  }
}

TEST_F(IndexFileTest, RejectsFileLargerThanIndexOfItsDataset) {
  Index index = example();
  // Of 10 bytes of data and two files.
  const uint64_t limit = max_index_bytes(index);
  EXPECT_LT(limit, uint64_t{17} << 20);
  index.metadata.numbers.resize(limit / sizeof(uint64_t));
  ASSERT_TRUE(save_index(index, path("x.index")).ok());
  EXPECT_TRUE(load_index(path("x.index"), limit).ok()) << "of compressed files, it can be larger";
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files to others";
  ASSERT_EQ(::chown(path("x.index").c_str(), kOther, kOther), 0);
  EXPECT_TRUE(load_index(path("x.index")).ok());
  const Status rejected = load_index(path("x.index"), limit).status();
  EXPECT_EQ(rejected.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(rejected.message(),
              HasSubstr("more than the index of its dataset can have (17 MiB)"));
}

TEST(MaxIndexBytesTest, DependsOnFilesAndNeverOverflows) {
  Index index;
  const uint64_t least = max_index_bytes(index);
  index.files.add("a.csv", {.size = 1'000'000});
  // Rows of two bytes, each with an offset, a length, a class and the number of a selected sample.
  EXPECT_GT(max_index_bytes(index), least + 500'000 * 4 * sizeof(uint64_t));
  index.files.add("b.csv", {.size = uint64_t{1} << 40});
  EXPECT_EQ(max_index_bytes(index), kMaxIndexBytes);
  index.files.add("c.csv", {.size = ~uint64_t{0}});
  EXPECT_EQ(max_index_bytes(index), kMaxIndexBytes);
}

// A name takes 32 bytes of memory beyond its text.
TEST(IndexTest, ReportsCorruptOnMillionsOfEmptyNames) {
  Index index = example();
  index.metadata.names.assign(1'000'000, "");
  EXPECT_TRUE(decode_index(encode_index(index), "x").ok());
  index.metadata.names.assign(2'000'000, "");
  EXPECT_EQ(decode_index(encode_index(index), "x").status().code(), StatusCode::kCorrupt);
  index.metadata.names.assign(2'000'000, "a dog");  // with its length, 13 bytes
  EXPECT_EQ(decode_index(encode_index(index), "x").status().code(), StatusCode::kCorrupt);
  index.metadata.names.assign(2'000'000, "two dogs");
  EXPECT_TRUE(decode_index(encode_index(index), "x").ok());
}

}  // namespace
}  // namespace stoker::data::files
