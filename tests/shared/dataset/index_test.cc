#include "shared/dataset/index.h"

#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "shared/base/sha256.h"
#include "tests/shared/dataset/folder_fixture.h"

namespace stoker::dataset {
namespace {

Index example() {
  Index index;
  index.settings = "kind=text split=0:1 context=8";
  index.source = "corpus\n\n**/*";
  index.facts = {.numbers = {1, 2, ~0ull}, .names = {"cat", ""}, .made = FileTable()};
  index.facts.made.add("runs/x/index/train.x.decompressed",
                       {.size = 784, .mtime_ns = 1'700'000'000'000'000'000, .inode = 9});
  index.facts.pack_sizes = {0, 12};
  index.files = FileTable("/data/corpus");
  index.files.add("a.txt", {.size = 10, .mtime_ns = -5, .inode = 7});
  index.files.add("b/c \n\xff.txt", {.size = 0, .mtime_ns = 1'700'000'000'123'456'789, .inode = 8});
  return index;
}

// As decode_index() takes it: with the digest that belongs to it.
std::string sealed(std::string body) { return body + sha256_hex(body); }
std::string body_of(const std::string& encoded) { return encoded.substr(0, encoded.size() - 64); }

TEST(Index, ComesBackAsItWas) {
  const Index index = example();
  const auto read = decode_index(encode_index(index), "x.index");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->settings, index.settings);
  EXPECT_EQ(read->source, index.source);
  EXPECT_EQ(read->facts.numbers, index.facts.numbers);
  EXPECT_EQ(read->facts.names, index.facts.names);
  EXPECT_EQ(read->facts.made, index.facts.made);
  EXPECT_EQ(read->facts.pack_sizes, index.facts.pack_sizes);
  EXPECT_EQ(read->files, index.files);
  EXPECT_EQ(read->fingerprint(), index.fingerprint());
  EXPECT_EQ(read->files.path(1), "/data/corpus/b/c \n\xff.txt");
}

TEST(Index, CostsAboutAHundredBytesAFile) {
  Index index = example();
  for (int i = 0; i < 10000; ++i) index.files.add("n01440764/n01440764_10026.JPEG", {});
  EXPECT_LT(encode_index(index).size() / 10000, 100u);
}

TEST(Index, EveryTruncationIsCorrupt) {
  const std::string encoded = encode_index(example());
  for (size_t length = 0; length < encoded.size(); ++length)
    ASSERT_EQ(decode_index(encoded.substr(0, length), "x").status().code(), Code::kCorrupt)
        << length;
}

TEST(Index, EveryFlippedByteIsCorrupt) {
  const std::string encoded = encode_index(example());
  for (size_t at = 0; at < encoded.size(); ++at) {
    std::string damaged = encoded;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    ASSERT_EQ(decode_index(damaged, "x").status().code(), Code::kCorrupt) << at;
  }
}

TEST(Index, AppendedBytesAreCorrupt) {
  EXPECT_EQ(decode_index(encode_index(example()) + "x", "x").status().code(), Code::kCorrupt);
  EXPECT_EQ(decode_index(sealed(body_of(encode_index(example())) + "x"), "x").status().code(),
            Code::kCorrupt);
}

TEST(Index, GarbageIsCorrupt) {
  EXPECT_EQ(decode_index("", "x").status().code(), Code::kCorrupt);
  EXPECT_EQ(decode_index(std::string(5000, 'x'), "x").status().code(), Code::kCorrupt);
}

// Lengths that lie, under a digest that is right: nothing is allocated for them.
TEST(Index, FaultRow58HugeLengthsAreCorruptWhereverTheyStand) {
  const std::string body = body_of(encode_index(example()));
  for (size_t at = 12; at + 8 <= body.size(); ++at) {
    for (const uint64_t length : {~0ull, 1ull << 40, 1ull << 20}) {
      std::string lying = body;
      std::memcpy(lying.data() + at, &length, sizeof length);
      const auto read = decode_index(sealed(lying), "x");
      if (read.ok()) continue;  // it fell into a number that may be anything, such as a fact
      ASSERT_EQ(read.status().code(), Code::kCorrupt) << at;
    }
  }
  std::string settings_length = body;
  const uint64_t huge = ~0ull;
  std::memcpy(settings_length.data() + 12, &huge, sizeof huge);
  EXPECT_EQ(decode_index(sealed(settings_length), "x").status().code(), Code::kCorrupt);
}

TEST(Index, AnotherVersionIsAMismatch) {
  std::string body = body_of(encode_index(example()));
  ++body[8];
  EXPECT_EQ(decode_index(sealed(body), "x").status().code(), Code::kMismatch);
}

TEST(Fingerprint, DependsOnSettingsNamesSizesAndTimesOnly) {
  const std::string original = example().fingerprint();
  const auto changed = [](auto change) {
    Index index = example();
    change(index);
    return index.fingerprint();
  };
  EXPECT_EQ(original.size(), 64u);
  EXPECT_NE(original, changed([](Index& index) { index.settings += '1'; }));
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

// A user can tell by the fingerprint in a checkpoint whether the data is the same: it must not
// change by itself.
TEST(Fingerprint, NeverChangesBetweenVersions) {
  EXPECT_EQ(example().fingerprint(),
            "d6c1c39f6758b7199884ee0a4f58edc1c2e74c26e09ae6be2e67a173b930cb42");
}

using IndexFile = testing::FolderFixture;

TEST_F(IndexFile, SavedAndLoaded) {
  ASSERT_TRUE(save_index(example(), path("x.index")).ok());
  const auto read = load_index(path("x.index"));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->fingerprint(), example().fingerprint());
}

TEST_F(IndexFile, MissingOneIsNotFoundAndAFifoDoesNotHang) {
  EXPECT_EQ(load_index(path("x.index")).status().code(), Code::kNotFound);
  ASSERT_EQ(::mkfifo(path("fifo.index").c_str(), 0600), 0);
  EXPECT_FALSE(load_index(path("fifo.index")).ok());
}

}  // namespace
}  // namespace stoker::dataset
