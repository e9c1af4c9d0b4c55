// Prefetched bytes: the same samples without further file accesses, and the same errors.
#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "shared/data/files/file_reader.h"
#include "shared/data/files/prefetched_bytes.h"
#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/data/small_datasets.h"

namespace stoker::data::files {
namespace {

using ::testing::HasSubstr;
using testing::read_sample;
using testing::Sample;
using testing::SmallDataset;

constexpr uint64_t kUnlimited = 1 << 30;

// ---- Each format

class PrefetchFormatTest : public testing::FolderFixture,
                           public ::testing::WithParamInterface<SmallDataset> {
 protected:
  // Changes the contents of each file but not its size; open readers see the change.
  void spoil_files() const {
    for (const char* folder : {"set", ".index"}) {
      if (!std::filesystem::exists(path(folder))) continue;
      for (const auto& entry : std::filesystem::recursive_directory_iterator(path(folder)))
        if (entry.is_regular_file()) spoil(entry.path());
    }
  }
  static void spoil(const std::filesystem::path& file) {
    const auto time = std::filesystem::last_write_time(file);
    std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
        << std::string(std::filesystem::file_size(file), '\xa5');
    std::filesystem::last_write_time(file, time);
  }
};

TEST_P(PrefetchFormatTest, ReturnsPrefetchedSampleWithoutReadingFiles) {
  const auto opened = open(GetParam().write(path("set")));
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  const Dataset& data = **opened;
  std::vector<Sample> before;
  std::vector<std::unique_ptr<PrefetchedBytes>> bytes;
  MemoryBudget budget(kUnlimited);
  for (uint64_t sample = 0; sample < data.size(); ++sample) {
    before.push_back(read_sample(data, sample));
    ASSERT_TRUE(before.back().status.ok()) << before.back().status.to_string();
    bytes.push_back(std::make_unique<PrefetchedBytes>(budget));
    if (data.info().maybe_files != nullptr)
      data.info().maybe_files->prefetch(sample, *bytes.back());
  }
  const bool has_files = GetParam().format != std::string("synthetic");
  EXPECT_EQ(budget.taken() > 0, has_files);
  spoil_files();
  for (uint64_t sample = 0; sample < data.size(); ++sample) {
    const PrefetchedBytes::Held held(bytes[sample].get());
    const Sample after = read_sample(data, sample);
    ASSERT_TRUE(after.status.ok()) << after.status.to_string();
    ASSERT_EQ(after.tensors, before[sample].tensors) << sample;
  }
  bool differs = false;  // otherwise the test proves nothing
  for (uint64_t sample = 0; sample < data.size(); ++sample)
    differs = differs || read_sample(data, sample).tensors != before[sample].tensors;
  EXPECT_EQ(differs, has_files);
  bytes.clear();
  EXPECT_EQ(budget.taken(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, PrefetchFormatTest, ::testing::ValuesIn(testing::small_datasets()),
                         [](const auto& test) { return std::string(test.param.name); });

// ---- Splits, transforms and mixtures

class PrefetchTest : public testing::FolderFixture {
 protected:
  void expect_all_prefetched(const Dataset& data) const {
    MemoryBudget budget(kUnlimited);
    for (uint64_t sample = 0; sample < data.size(); ++sample) {
      PrefetchedBytes bytes(budget);
      data.info().maybe_files->prefetch(sample, bytes);
      const Sample plain = read_sample(data, sample);
      const PrefetchedBytes::Held held(&bytes);
      EXPECT_EQ(read_sample(data, sample).tensors, plain.tensors);
      EXPECT_TRUE(bytes.all_consumed()) << "of sample " << sample << " other bytes were prefetched";
      EXPECT_GT(budget.taken(), 0u);
    }
  }
};

TEST_F(PrefetchTest, PrefetchesSamplesOfSelectedRange) {
  config::DatasetConfig config = testing::small::cifar(path("set"));
  config.skip_samples = 7;
  config.max_samples = 11;
  config.split = {0.1, 0.9};
  set_transform(config, config::RandomHorizontalFlip{.p = 0.5});
  const auto data = open(config);
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  expect_all_prefetched(**data);
}

TEST_F(PrefetchTest, PrefetchesSamplesOfMixtureComponent) {
  config::DatasetConfigs datasets{{"one", testing::small::text(path("one"))},
                                  {"two", testing::small::tar_text(path("two"))}};
  datasets["train"].source = config::Concat{{"one", "two"}};
  const auto data = pipeline::open_dataset("train", datasets, index_dir(), {});
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  expect_all_prefetched(**data);
}

// ---- PrefetchedBytes

class PrefetchedBytesTest : public testing::FolderFixture {
 protected:
  void SetUp() override {
    write("digits", "0123456789");
    struct stat info {};
    ASSERT_EQ(::stat(path("digits").c_str(), &info), 0);
    files_.add(path("digits"),
               {.size = 10,
                .mtime_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec,
                .inode = info.st_ino});
  }
  std::string read(uint64_t offset, size_t count) const {
    std::string text(count, '\0');
    const Status status = reader_.read(0, offset, std::as_writable_bytes(std::span(text)));
    return status.ok() ? text : status.message();
  }

  FileTable files_;
  const FileReader reader_{files_};
};

TEST_F(PrefetchedBytesTest, ReadsOnlyPrefetchedRangeFromMemory) {
  MemoryBudget budget(100);
  PrefetchedBytes bytes(budget);
  reader_.prefetch(0, 2, 3, bytes);
  write("digits", "abcdefghij");  // which a read from the file notices
  age("digits", 2);
  const PrefetchedBytes::Held held(&bytes);
  EXPECT_THAT(read(2, 4), HasSubstr("modified since it was indexed"));
  EXPECT_THAT(read(3, 2), HasSubstr("modified since it was indexed"));
  EXPECT_EQ(read(2, 3), "234");
  EXPECT_THAT(read(2, 3), HasSubstr("modified since it was indexed")) << "each range is given once";
}

TEST_F(PrefetchedBytesTest, ReturnsStoredErrorWithoutRetry) {
  MemoryBudget budget(100);
  PrefetchedBytes bytes(budget);
  reader_.prefetch(0, 8, 5, bytes);  // past the end
  std::ofstream(path("digits"), std::ios::app) << "more";
  const PrefetchedBytes::Held held(&bytes);
  EXPECT_THAT(read(8, 5), HasSubstr("truncated at offset 10"));
  EXPECT_THAT(read(8, 5), HasSubstr("changed from 10 to 14 bytes")) << "each is given once";
}

TEST_F(PrefetchedBytesTest, ReportsErrorOnChangedFile) {
  MemoryBudget budget(100);
  PrefetchedBytes bytes(budget);
  write("digits", "01234567890");
  reader_.prefetch_whole(0, 100, bytes);
  write("digits", "0123456789");
  const PrefetchedBytes::Held held(&bytes);
  std::vector<std::byte> whole;
  EXPECT_THAT(reader_.read_whole(0, 100, whole).message(),
              HasSubstr("changed from 10 to 11 bytes"));
}

TEST_F(PrefetchedBytesTest, DefersFileBeyondLimitToWorker) {
  MemoryBudget budget(100);
  PrefetchedBytes bytes(budget);
  reader_.prefetch_whole(0, 9, bytes);
  EXPECT_EQ(budget.taken(), 0u);
  const PrefetchedBytes::Held held(&bytes);
  std::vector<std::byte> whole;
  EXPECT_THAT(reader_.read_whole(0, 9, whole).message(), HasSubstr("more than the limit of 9"));
}

TEST_F(PrefetchedBytesTest, DefersReadWhenBudgetIsExhausted) {
  MemoryBudget budget(5);
  PrefetchedBytes first(budget);
  reader_.prefetch(0, 0, 4, first);
  PrefetchedBytes second(budget);
  reader_.prefetch(0, 4, 4, second);
  EXPECT_EQ(budget.taken(), 4u);
  const PrefetchedBytes::Held held(&second);
  EXPECT_EQ(read(4, 4), "4567");
}

TEST_F(PrefetchedBytesTest, WaitsUntilBudgetIsAvailable) {
  MemoryBudget budget(5);
  std::optional<PrefetchedBytes> first(budget);
  reader_.prefetch(0, 0, 4, *first);
  std::promise<void> began;
  auto fetched = std::async(std::launch::async, [&] {
    PrefetchedBytes second(budget, std::stop_token());
    began.set_value();
    reader_.prefetch(0, 4, 4, second);
    return budget.taken();
  });
  began.get_future().wait();
  first.reset();
  EXPECT_EQ(fetched.get(), 4u);
}

TEST_F(PrefetchedBytesTest, DoesNotWaitWhileHoldingBudget) {
  MemoryBudget budget(5);
  PrefetchedBytes bytes(budget, std::stop_token());
  reader_.prefetch(0, 0, 3, bytes);
  reader_.prefetch(0, 3, 3, bytes);  // would wait forever
  EXPECT_EQ(budget.taken(), 3u);
}

TEST_F(PrefetchedBytesTest, DoesNotWaitForRequestBeyondBudget) {
  MemoryBudget budget(5);
  PrefetchedBytes bytes(budget, std::stop_token());
  reader_.prefetch(0, 0, 6, bytes);
  EXPECT_EQ(budget.taken(), 0u);
}

TEST_F(PrefetchedBytesTest, StopsWaitingForBudgetOnStop) {
  MemoryBudget budget(5);
  PrefetchedBytes first(budget);
  reader_.prefetch(0, 0, 4, first);
  std::stop_source stop;
  stop.request_stop();
  PrefetchedBytes second(budget, stop.get_token());
  reader_.prefetch(0, 4, 4, second);
  EXPECT_EQ(budget.taken(), 4u);
}

}  // namespace
}  // namespace stoker::data::files
