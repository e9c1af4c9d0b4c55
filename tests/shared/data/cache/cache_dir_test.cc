// A cache folder shared by several runs: created once, found by content, never replaced while
// another run reads it.
#include <sys/stat.h>

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shared/data/files/scan.h"
#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/image/image_files.h"

namespace stoker::data::cache {
namespace {

using image::testing::encode_jpeg;
using image::testing::pattern;
using testing::read_sample;

class CacheDirTest : public testing::FolderFixture,
                     public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    for (uint32_t i = 0; i < 6; ++i)
      write("data/" + std::string(i % 2 == 0 ? "a/" : "b/") + std::to_string(i),
            encode_jpeg(pattern(100 + i, 120)));
  }
  config::DatasetConfig images() const {
    config::DatasetConfig config;
    config.source = config::ImageFolderDataset{};
    path_in(config) = path("data");
    glob_in(config) = "**/*";
    transforms_in(config) = {config::Resize{{20, 30}}};
    return config;
  }
  config::DatasetConfig cached() const {
    config::DatasetConfig config = images();
    const std::string name = GetParam();
    cache_in(config) = config::CacheConfig{
        .type = name == "decoded" ? config::CacheType::kDecoded : config::CacheType::kPacked,
        .jpeg_restart_markers = name == "packed_restart",
        .dir = path("shared/cache")};
    return config;
  }
  // Opens the dataset like a separate run, with its own index.
  std::unique_ptr<Dataset> run(const std::string& name, const config::DatasetConfig& config,
                               const files::ScanProgress& progress = {}) const {
    auto dataset = pipeline::open_dataset("train", config, path(name), progress);
    EXPECT_TRUE(dataset.ok()) << dataset.status().to_string();
    return dataset.ok() ? *std::move(dataset) : nullptr;
  }
  std::set<std::string> kept() const {
    std::set<std::string> names;
    const auto listed = list_directory(path("shared/cache"));
    for (const std::string& name : listed ? *listed : std::vector<std::string>())
      if (name != "CACHE_LOCK") names.insert(name);
    return names;
  }
  // Distinguishes files with the same name.
  ino_t inode_of(const std::string& name) const {
    struct stat info {};
    EXPECT_EQ(::stat(path("shared/cache/" + name).c_str(), &info), 0);
    return info.st_ino;
  }
  static void expect_same(const Dataset& one, const Dataset& other) {
    ASSERT_EQ(one.size(), other.size());
    for (uint64_t sample = 0; sample < one.size(); ++sample) {
      const auto read = read_sample(one, sample), expected = read_sample(other, sample);
      EXPECT_TRUE(read.status.ok()) << read.status.to_string();
      EXPECT_EQ(read.tensors, expected.tensors) << sample;
    }
  }
};

TEST_P(CacheDirTest, SharesCacheBetweenRuns) {
  const auto plain = run("plain", images());
  const auto first = run("first", cached());
  expect_same(*first, *plain);
  ASSERT_EQ(kept().size(), 1u);
  const std::string name = *kept().begin();
  const ino_t inode = inode_of(name);
  const auto second = run("second", cached());
  EXPECT_EQ(kept(), std::set<std::string>{name});
  EXPECT_EQ(inode_of(name), inode);
  expect_same(*second, *plain);
  expect_same(*first, *plain);
  EXPECT_EQ(second->fingerprint(), plain->fingerprint());
  // Open it like its workers and an evaluator.
  const auto reader =
      pipeline::open_indexed("train", cached(), path("second"), plain->fingerprint());
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  expect_same(**reader, *plain);
}

TEST_P(CacheDirTest, PreservesCacheInUseWhenFilesChange) {
  const auto before = run("first", cached());
  const auto kept_before = kept();
  std::vector<std::vector<std::vector<std::byte>>> samples;
  for (uint64_t sample = 0; sample < before->size(); ++sample)
    samples.push_back(read_sample(*before, sample).tensors);
  write("data/a/0", encode_jpeg(pattern(140, 140)));
  age("data/a/0", 5);
  const auto after = run("second", cached());
  EXPECT_EQ(kept().size(), 2u);
  for (const std::string& name : kept_before) EXPECT_TRUE(kept().contains(name));
  expect_same(*after, *run("plain", images()));
  for (uint64_t sample = 0; sample < before->size(); ++sample)
    EXPECT_EQ(read_sample(*before, sample).tensors, samples[sample]);
}

TEST_P(CacheDirTest, RebuildsTruncatedCacheAndRemovesLeftoversOfKilledRun) {
  (void)run("first", cached());
  const std::string name = *kept().begin();
  std::filesystem::resize_file(path("shared/cache/" + name), 100);
  write("shared/cache/.files-abc.packed.incomplete-12345", "half of a pack");
  const auto second = run("second", cached());
  EXPECT_EQ(kept(), std::set<std::string>{name});
  expect_same(*second, *run("plain", images()));
}

TEST_P(CacheDirTest, WaitsWhileAnotherRunFillsCache) {
  std::filesystem::create_directories(path("shared/cache"));
  auto other = lock_file(path("shared/cache/CACHE_LOCK"), "another run");
  ASSERT_TRUE(other.ok());
  bool waited = false;
  const auto dataset = run("first", cached(), [&](uint64_t, std::string_view what) {
    if (what.find("another run") == std::string_view::npos) return;
    waited = true;
    EXPECT_TRUE(kept().empty());
    other->fd.reset();
  });
  EXPECT_TRUE(waited);
  expect_same(*dataset, *run("plain", images()));
}

TEST_P(CacheDirTest, UsesCompleteCacheWhileFolderIsLocked) {
  (void)run("first", cached());
  const auto other = lock_file(path("shared/cache/CACHE_LOCK"), "another run");
  ASSERT_TRUE(other.ok());
  const auto fail = [](uint64_t, std::string_view what) {
    EXPECT_EQ(what.find("another run"), std::string_view::npos) << "waits for the lock";
  };
  expect_same(*run("second", cached(), fail), *run("plain", images()));
}

TEST_P(CacheDirTest, AcceptsRunDirectoryThatIsLocked) {
  std::filesystem::create_directories(path("shared/cache"));
  const auto lock = lock_file(path("shared/cache/LOCK"), "this run");
  ASSERT_TRUE(lock.ok());
  write("shared/cache/.paused.json.tmp-12345", "of the run");
  expect_same(*run("shared/cache/index", cached()), *run("plain", images()));
  EXPECT_TRUE(std::filesystem::exists(path("shared/cache/.paused.json.tmp-12345")));
}

// A file with the name and the size of the cache, and one with a flipped bit in a sample.
TEST_P(CacheDirTest, RejectsOtherBytesOfSameNameAndSize) {
  const auto plain = run("plain", images());
  (void)run("first", cached());
  const std::string name = "shared/cache/" + *kept().begin();
  const std::string right = content_of(name);
  std::filesystem::remove(path(name));
  write(name, std::string(right.size(), 'x'));
  expect_same(*run("second", cached()), *plain);

  std::filesystem::remove_all(path("shared/cache"));
  (void)run("third", cached());
  std::string changed = content_of(name);
  const uint64_t offset = 200;  // in the first sample
  changed[offset] = static_cast<char>(changed[offset] ^ 1);
  std::filesystem::remove(path(name));
  write(name, changed);
  expect_same(*run("fourth", cached()), *plain);
}

TEST_P(CacheDirTest, ReadsFilesThemselvesWhenCacheIsDeletedWhileInUse) {
  const auto plain = run("plain", images());
  const auto dataset = run("first", cached());
  std::filesystem::remove_all(path("shared/cache"));
  expect_same(*dataset, *plain);
}

TEST_P(CacheDirTest, ReplacesCacheInRunDirectory) {
  auto config = cached();
  cache_in(config)->dir.reset();
  (void)run("first", config);
  const auto files = [&] { return list_directory(path("first"))->size(); };
  const size_t before = files();
  (void)run("first", cached());
  EXPECT_EQ(files(), before - 1);
}

TEST_P(CacheDirTest, ReportsKeyWhenCachePathIsFile) {
  write("shared/cache", "a file");
  expect_error(cached(), StatusCode::kAlreadyExists, {"data.train.cache.dir: ", "shared/cache"});
}

INSTANTIATE_TEST_SUITE_P(Caches, CacheDirTest,
                         ::testing::Values("packed", "packed_restart", "decoded"),
                         [](const auto& cache) { return std::string(cache.param); });

}  // namespace
}  // namespace stoker::data::cache
