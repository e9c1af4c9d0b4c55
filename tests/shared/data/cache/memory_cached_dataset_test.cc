// Samples cached in memory after their first read: the same samples, without further file accesses.
#include "shared/data/cache/memory_cached_dataset.h"

#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/data/small_datasets.h"
#include "tests/support/eventually.h"

namespace stoker::data::cache {
namespace {

using test::eventually;
using ::testing::HasSubstr;
using testing::read_sample;
using testing::Sample;
using testing::SmallDataset;

constexpr uint64_t kMuch = 1 << 30;

std::vector<SampleReadRequest> reads_of(const std::vector<uint64_t>& samples,
                                        const RandomKey& random_key = {}) {
  std::vector<SampleReadRequest> reads;
  for (const uint64_t sample : samples)
    reads.push_back(
        {.sample = sample,
         .random_key = {.seed = random_key.seed, .epoch = random_key.epoch, .sample = sample}});
  return reads;
}

// The result of read_batch(): tensors of several rows.
struct Rows {
  BatchReadResult read;
  std::vector<std::string> tensors;
};
Rows read_batch(const Dataset& data, const std::vector<SampleReadRequest>& reads) {
  Rows rows;
  std::vector<std::span<std::byte>> outputs;
  for (const TensorSpec& tensor : data.spec())
    rows.tensors.emplace_back(tensor.bytes() * reads.size(), '\xee');
  for (std::string& tensor : rows.tensors)
    outputs.push_back(std::as_writable_bytes(std::span(tensor)));
  rows.read = data.read_batch(reads, outputs);
  return rows;
}
// The result of read() for each sample.
Rows read_each(const Dataset& data, const std::vector<SampleReadRequest>& reads) {
  Rows rows{.read = {.good = reads.size(), .status = {}}, .tensors = {}};
  for (const TensorSpec& tensor : data.spec()) {
    rows.tensors.emplace_back();
    rows.tensors.back().reserve(tensor.bytes() * reads.size());
  }
  for (const SampleReadRequest& each : reads) {
    std::vector<std::string> one;
    std::vector<std::span<std::byte>> outputs;
    for (const TensorSpec& tensor : data.spec()) one.emplace_back(tensor.bytes(), '\xee');
    for (std::string& tensor : one) outputs.push_back(std::as_writable_bytes(std::span(tensor)));
    EXPECT_TRUE(data.read(each.sample, each.random_key, outputs).ok());
    for (size_t tensor = 0; tensor < one.size(); ++tensor) rows.tensors[tensor] += one[tensor];
  }
  return rows;
}

std::vector<uint64_t> all_of(const Dataset& data) {
  std::vector<uint64_t> samples(data.size());
  for (uint64_t i = 0; i < samples.size(); ++i) samples[i] = i * 7 % samples.size();
  return samples;
}

// Changes the contents of the files of a dataset, but not their sizes and times.
void spoil_files(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const auto time = std::filesystem::last_write_time(entry);
    std::fstream(entry.path(), std::ios::in | std::ios::out | std::ios::binary)
        << std::string(entry.file_size(), '\xa5');
    std::filesystem::last_write_time(entry, time);
  }
}

// ---- Each format

class MemoryCacheFormatTest : public testing::FolderFixture,
                              public ::testing::WithParamInterface<SmallDataset> {
 protected:
  bool has_rows() const {
    const std::string name = GetParam().name;
    for (const char* each : {"text", "tokens", "packed", "decoded", "idx", "cifar", "tfrecord",
                             "tar", "tar_text", "csv", "jsonl", "npy"})
      if (name == each) return true;
    return false;
  }
};

TEST_P(MemoryCacheFormatTest, ReturnsSameSamplesFromMemoryOnSecondRead) {
  const config::DatasetConfig config = GetParam().write(path("set"));
  const auto plain = open(config);
  ASSERT_TRUE(plain.ok()) << plain.status().to_string();
  const auto reads = reads_of(all_of(**plain), {.seed = 3, .epoch = 5});
  const Rows expected = read_each(**plain, reads);
  EXPECT_EQ(read_batch(**plain, reads).tensors, expected.tensors) << "rows read together";

  const auto kept = open(config, "train", kMuch);
  ASSERT_TRUE(kept.ok()) << kept.status().to_string();
  const std::vector<SampleReadRequest> half(reads.begin(), reads.begin() + 20);
  EXPECT_EQ(read_batch(**kept, half).tensors, read_batch(**plain, half).tensors);
  const Rows first = read_batch(**kept, reads);  // some of them from memory
  EXPECT_EQ(first.read.good, reads.size()) << first.read.status.to_string();
  EXPECT_EQ(first.tensors, expected.tensors);
  const bool has_files = GetParam().format != std::string("synthetic");
  ASSERT_EQ((*kept)->info().maybe_files != nullptr, has_files);
  if (has_files) spoil_files(path("set"));
  const bool is_unchanged = has_rows() || !has_files;
  EXPECT_EQ(read_batch(**kept, reads).tensors == expected.tensors, is_unchanged);
  if (is_unchanged) {
    EXPECT_EQ(read_each(**kept, reads).tensors, expected.tensors);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, MemoryCacheFormatTest,
                         ::testing::ValuesIn(testing::small_datasets()),
                         [](const auto& test) { return std::string(test.param.name); });

// ---- What is cached, and when

class MemoryCachedDatasetTest : public testing::FolderFixture {
 protected:
  std::unique_ptr<Dataset> opened(const config::DatasetConfig& config,
                                  uint64_t cache_bytes = 0) const {
    auto data = open(config, "train", cache_bytes);
    EXPECT_TRUE(data.ok()) << data.status().to_string();
    return *std::move(data);
  }
};

TEST_F(MemoryCachedDatasetTest, ReadsFilesWhenCacheBudgetIsTooSmall) {
  const config::DatasetConfig config = testing::small::cifar(path("set"));
  // Pixels, a label, the state of the sample.
  const uint64_t needed = opened(config)->size() * (3072 + 8 + 1);
  const auto data = opened(config, needed - 1);
  const auto enough = opened(config, needed);
  const Sample before = read_sample(*data, 7);
  ASSERT_TRUE(before.status.ok());
  EXPECT_EQ(read_sample(*enough, 7).tensors, before.tensors);
  spoil_files(path("set"));
  const Sample after = read_sample(*data, 7);
  EXPECT_NE(after.status.message() + after.text(), before.text());
  EXPECT_EQ(read_sample(*enough, 7).tensors, before.tensors);
}

TEST_F(MemoryCachedDatasetTest, LeavesBudgetUntouchedWhenItIsTooSmall) {
  const config::DatasetConfig config = testing::small::cifar(path("set"));
  const uint64_t needed = opened(config)->size() * (3072 + 8 + 1);
  files::MemoryBudget small(needed - 1), enough(needed);
  with_memory_cache(opened(config), {}, small);
  EXPECT_EQ(small.taken(), 0u);
  with_memory_cache(opened(config), {}, enough);
  EXPECT_EQ(enough.taken(), needed);
}

TEST_F(MemoryCachedDatasetTest, CachesLabelsWhenImagesExceedBudget) {
  const config::DatasetConfig config = testing::small::idx(path("set"));
  const auto data = opened(config, 50);  // labels; images need 50 * 784
  const auto uncached = opened(config, 49);
  ASSERT_EQ(read_sample(*data, 7).label(), 3);
  spoil_files(path("set"));
  EXPECT_THAT(read_sample(*uncached, 7).status.message(),
              HasSubstr(path("set/labels") +
                        ": label 165 at offset 15 was not there when the file was indexed"));
  const Sample spoiled = read_sample(*data, 7);
  EXPECT_TRUE(spoiled.status.ok()) << "the label is in memory: " << spoiled.status.message();
  EXPECT_EQ(spoiled.label(), 3);
  EXPECT_EQ(spoiled.text(), std::string(784, '\xa5'));
  std::filesystem::resize_file(path("set/labels"), 10);
  Sample cut;
  EXPECT_TRUE(eventually([&] { return !(cut = read_sample(*data, 7)).status.ok(); }));
  EXPECT_THAT(cut.status.message(), HasSubstr(path("set/labels")));
}

TEST_F(MemoryCachedDatasetTest, CachesLabelsOfSplit) {
  config::DatasetConfig config = testing::small::idx(path("set"));
  config.split = {0.5, 1.0};
  std::string labels = test::big_endian(2049) + test::big_endian(50);
  for (int i = 0; i < 50; ++i) labels += static_cast<char>(i % 7);
  write("set/labels", labels);
  const auto data = opened(config, 25);
  ASSERT_EQ(data->size(), 25u);
  spoil_files(path("set"));
  for (int64_t i = 0; i < 25; ++i)
    EXPECT_EQ(read_sample(*data, static_cast<uint64_t>(i)).label(), (25 + i) % 7);
}

TEST_F(MemoryCachedDatasetTest, CachesSelectedRangeBeforeRandomTransforms) {
  config::DatasetConfig config = testing::small::cifar(path("set"));
  config.skip_samples = 7;
  config.max_samples = 11;
  set_transform(config, config::RandomCrop{.size = {32, 32}, .padding = 3});
  set_transform(config, config::RandomHorizontalFlip{.p = 0.5});
  const auto plain = opened(config);
  const auto kept = opened(config, kMuch);
  std::vector<std::vector<std::string>> expected;
  for (uint64_t epoch = 0; epoch < 6; ++epoch)
    expected.push_back(read_each(*plain, reads_of(all_of(*plain), {.epoch = epoch})).tensors);
  EXPECT_NE(expected[0], expected[1]) << "or this test shows nothing";
  EXPECT_EQ(read_batch(*kept, reads_of(all_of(*kept), {.epoch = 0})).tensors, expected[0]);
  spoil_files(path("set"));
  for (uint64_t epoch = 0; epoch < 6; ++epoch)
    EXPECT_EQ(read_batch(*kept, reads_of(all_of(*kept), {.epoch = epoch})).tensors,
              expected[epoch]);
}

TEST_F(MemoryCachedDatasetTest, DoesNotCacheRandomCrops) {
  config::DatasetConfig config = testing::small::tar(path("set"));
  transforms_in(config) = {config::RandomResizedCrop{{32, 32}}};
  const auto data = opened(config, kMuch);
  const auto in_epoch = [&](uint64_t epoch) {
    return read_batch(*data, reads_of({3}, {.epoch = epoch})).tensors;
  };
  EXPECT_NE(in_epoch(0), in_epoch(1));
}

TEST_F(MemoryCachedDatasetTest, SharesBudgetBetweenMixtureComponentsInOrder) {
  config::DatasetConfigs datasets{{"one", testing::small::text(path("one"))},
                                  {"two", testing::small::text(path("two"))}};
  datasets["train"].source = config::Concat{{"one", "two"}};
  const auto plain = pipeline::open_dataset("train", datasets, index_dir(), {});
  ASSERT_TRUE(plain.ok()) << plain.status().to_string();
  const uint64_t of_one = (*plain)->component_sizes()[0];
  const auto data =
      pipeline::open_dataset("train", datasets, index_dir(), {}, of_one * (65 + 1) + 100);
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  const Sample first = read_sample(**data, 3), second = read_sample(**data, of_one + 3);
  spoil_files(path("one"));
  spoil_files(path("two"));
  EXPECT_EQ(read_sample(**data, 3).text(), first.text());
  EXPECT_NE(read_sample(**data, of_one + 3).text(), second.text());
}

TEST_F(MemoryCachedDatasetTest, ReportsSampleErrorOnEveryRead) {
  config::DatasetConfig config = testing::small::csv(path("set"));
  const std::string file = path("set/data");
  std::string rows = content_of("set/data");
  rows.replace(rows.find("\n30,") + 1, 2, "x0");
  write("set/data", rows);
  const auto data = opened(config, kMuch);
  for (int round = 0; round < 3; ++round) {
    const Rows read = read_batch(*data, reads_of({28, 29, 30, 31}));
    EXPECT_EQ(read.read.good, 2u) << round;
    EXPECT_THAT(read.read.status.message(), HasSubstr(file));
    EXPECT_EQ(read_batch(*data, reads_of({31, 32})).read.good, 2u);
    EXPECT_EQ(read_sample(*data, 30).status.code(), StatusCode::kCorrupt);
  }
}

TEST_F(MemoryCachedDatasetTest, DetectsTruncatedFileWhileSamplesAreCached) {
  const auto data = opened(testing::small::cifar(path("set")), kMuch);
  for (uint64_t sample = 0; sample < data->size(); ++sample)
    ASSERT_TRUE(read_sample(*data, sample).status.ok());
  std::filesystem::resize_file(path("set/data"), 20 * 3073 + 100);
  Sample cut;
  EXPECT_TRUE(eventually([&] { return !(cut = read_sample(*data, 30)).status.ok(); }));
  EXPECT_THAT(cut.status.message(), HasSubstr(path("set/data")));
  EXPECT_THAT(cut.status.message(), HasSubstr("since it was indexed"));
  EXPECT_THAT(read_batch(*data, reads_of({30})).read.status.message(),
              HasSubstr("since it was indexed"));
}

TEST_F(MemoryCachedDatasetTest, InvalidatesCacheWhenFileIsRemovedOrReplaced) {
  for (const bool replaced : {false, true}) {
    std::filesystem::remove_all(path("set"));
    const auto data = opened(testing::small::idx(path("set")), kMuch);
    const Sample before = read_sample(*data, 3);
    ASSERT_TRUE(before.status.ok());
    spoil_files(path("set"));
    ASSERT_EQ(read_sample(*data, 3).text(), before.text()) << "it is in memory";
    std::filesystem::rename(path("set/labels"), path("elsewhere"));
    if (replaced) write("set/labels", "something else");
    EXPECT_TRUE(eventually([&] { return read_sample(*data, 3).text() != before.text(); }))
        << replaced;
  }
}

TEST_F(MemoryCachedDatasetTest, RetainsCacheAfterRefreshableFileIsAppendedTo) {
  config::DatasetConfig config = testing::small::csv(path("set"));
  set_refresh(config, config::Refresh::kEpoch);
  const auto data = opened(config, kMuch);
  const Sample before = read_sample(*data, 5);
  ASSERT_TRUE(before.status.ok()) << before.status.to_string();
  spoil_files(path("set"));
  std::ofstream(path("set/data"), std::ios::app) << "7,8,cat\n";
  // A check of the files happens meanwhile.
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  do ASSERT_EQ(read_sample(*data, 5).tensors, before.tensors);
  while (std::chrono::steady_clock::now() < until);
}

TEST_F(MemoryCachedDatasetTest, CachesNothingWithoutAddressSpace) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs its own address space";
#endif
  auto plain = opened(testing::small::cifar(path("set")));
  const Dataset* const same = plain.get();
  files::MemoryBudget budget(kMuch);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  const rlimit none{.rlim_cur = 1, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &none), 0);
  const auto data = with_memory_cache(std::move(plain), {}, budget);
  ::setrlimit(RLIMIT_AS, &before);
  EXPECT_EQ(data.get(), same);
  EXPECT_EQ(budget.taken(), 0u);
  EXPECT_TRUE(read_sample(*data, 3).status.ok());
}

TEST_F(MemoryCachedDatasetTest, ReturnsSameSamplesOnAllThreads) {
  const config::DatasetConfig config = testing::small::tokens(path("set"));
  const auto plain = opened(config);
  const auto data = opened(config, kMuch);
  const auto reads = reads_of(all_of(*data));
  const Rows expected = read_each(*plain, reads);
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (int round = 0; round < 20; ++round) {
        const bool together = (round + thread) % 2 == 0;
        EXPECT_EQ((together ? read_batch(*data, reads) : read_each(*data, reads)).tensors,
                  expected.tensors);
      }
    });
}

}  // namespace
}  // namespace stoker::data::cache
