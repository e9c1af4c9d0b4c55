// Files that are rewritten, replaced or removed while they are read, for every format.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/data/small_datasets.h"

namespace stoker::data::pipeline {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::ValuesIn;

enum class Change { kRewritten, kReplaced };

// Those that read their files for each sample; caches on disk are copies.
std::vector<testing::SmallDataset> uncached_datasets() {
  std::vector<testing::SmallDataset> datasets = testing::small_datasets();
  std::erase_if(datasets, [](const testing::SmallDataset& each) {
    const std::string name = each.name;
    return name == "synthetic" || name == "packed" || name == "decoded";
  });
  return datasets;
}

class ChangedFilesTest : public testing::FolderFixture,
                         public ::testing::WithParamInterface<testing::SmallDataset> {
 protected:
  std::unique_ptr<Dataset> open_small(const std::string& index = "index") const {
    const config::DatasetConfig config = GetParam().write(folder());
    auto data = open_dataset("train", config, path(index), {});
    EXPECT_TRUE(data.ok()) << data.status().to_string();
    return data.ok() ? *std::move(data) : nullptr;
  }
  std::string folder() const { return path("data"); }

  // The bytes of all files are reversed, so that sizes stay; only the time tells.
  void change(Change how) const {
    std::vector<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder()))
      if (entry.is_regular_file()) files.push_back(entry.path().string());
    for (const std::string& file : files) {
      const auto time = fs::last_write_time(file);
      const std::string bytes = *read_file(file, 1 << 30);
      const std::string reversed(bytes.rbegin(), bytes.rend());
      const std::string target = how == Change::kReplaced ? file + ".new" : file;
      std::fstream out(target, how == Change::kReplaced
                                   ? std::ios::out | std::ios::binary
                                   : std::ios::in | std::ios::out | std::ios::binary);
      out << reversed;
      out.close();
      if (how == Change::kReplaced) {
        fs::last_write_time(target, time);  // neither size nor time tell
        fs::rename(target, file);
      } else {
        fs::last_write_time(file, time + std::chrono::seconds(5));
      }
    }
  }

  static BatchReadResult read_all(const Dataset& data) {
    std::vector<std::vector<std::byte>> tensors;
    for (const TensorSpec& spec : data.spec()) tensors.emplace_back(spec.bytes() * data.size());
    const std::vector<std::span<std::byte>> rows(tensors.begin(), tensors.end());
    std::vector<SampleReadRequest> samples;
    for (uint64_t sample = 0; sample < data.size(); ++sample)
      samples.push_back({.sample = sample, .random_key = {.sample = sample}});
    return data.read_batch(samples, rows);
  }
};

TEST_P(ChangedFilesTest, MakesEverySampleOfRewrittenFilesAnError) {
  const auto data = open_small();
  ASSERT_NE(data, nullptr);
  const BatchReadResult before = read_all(*data);
  ASSERT_EQ(before.good, data->size()) << before.status.to_string();
  change(Change::kRewritten);
  for (uint64_t sample = 0; sample < data->size(); ++sample) {
    const Status status = testing::read_sample(*data, sample).status;
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << sample << ": " << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("modified since it was indexed"));
  }
}

TEST_P(ChangedFilesTest, RejectsBatchOfRewrittenFiles) {
  const auto data = open_small();
  ASSERT_NE(data, nullptr);
  ASSERT_EQ(read_all(*data).good, data->size());
  change(Change::kRewritten);
  const BatchReadResult after = read_all(*data);
  EXPECT_EQ(after.good, 0u);
  EXPECT_EQ(after.status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(after.status.message(), HasSubstr(folder()));
}

// An open descriptor refers to the old file, whose samples are right; one that is opened does not.
TEST_P(ChangedFilesTest, NeverReadsFileThatReplacedIndexedOne) {
  const config::DatasetConfig config = GetParam().write(folder());
  const auto indexed = open_dataset("train", config, path("index"), {});
  ASSERT_TRUE(indexed.ok());
  const auto unread = open_indexed("train", config, path("index"), "");
  ASSERT_TRUE(unread.ok()) << unread.status().to_string();
  change(Change::kReplaced);
  const BatchReadResult after = read_all(**unread);
  EXPECT_EQ(after.good, 0u);
  EXPECT_EQ(after.status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(after.status.message(), HasSubstr("replaced by another file"));
}

INSTANTIATE_TEST_SUITE_P(AllFormats, ChangedFilesTest, ValuesIn(uncached_datasets()),
                         [](const auto& set) { return std::string(set.param.name); });

}  // namespace
}  // namespace stoker::data::pipeline
