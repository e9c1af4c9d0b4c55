// The index cache, and behavior common to all formats.
#include "shared/data/pipeline/open_dataset.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/data/format/format.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/unprivileged_user.h"

namespace stoker::data::pipeline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::read_sample;

class OpenDatasetTest : public testing::FolderFixture {
 protected:
  config::DatasetConfig text(const std::string& name = "data", int64_t context = 4) const {
    config::DatasetConfig config;
    path_in(config) = path(name);
    sequence_in(config).block_size = context;
    return config;
  }
  Result<std::unique_ptr<Dataset>> indexed(const config::DatasetConfig& config,
                                           const std::string& fingerprint) const {
    return open_indexed("train", config, index_dir(), fingerprint);
  }
  // The log output of opening the dataset again.
  std::string log_of_open(const config::DatasetConfig& config) const {
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(open(config).ok());
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(OpenDatasetTest, NamesFormatsAsInConfiguration) {
  using config::DatasetFormat;
  for (size_t i = 0; i < config::kWords<DatasetFormat>.size(); ++i) {
    const auto format = static_cast<DatasetFormat>(i);
    EXPECT_EQ(std::string_view(format::format_ops(format).name), config::to_string(format));
  }
}

TEST_F(OpenDatasetTest, ReusesIndexWhenNothingChanged) {
  write("data/a", "0123456789");
  ASSERT_TRUE(open(text()).ok());
  const auto written = std::filesystem::last_write_time(path(".index/train.index"));
  age(".index/train.index", -100);
  EXPECT_EQ(log_of_open(text()), "");
  EXPECT_EQ(std::filesystem::last_write_time(path(".index/train.index")),
            written - std::chrono::seconds(100));
}

TEST_F(OpenDatasetTest, RebuildsIndexWhenFileIsAddedChangedOrRemoved) {
  write("data/a", "0123456789");
  write("data/b", "0123456789");
  const std::string first = (*open(text()))->fingerprint();
  write("data/c", "x");
  EXPECT_THAT(log_of_open(text()), HasSubstr("dataset index rebuilt"));
  EXPECT_NE((*open(text()))->fingerprint(), first);
  std::filesystem::remove(path("data/c"));
  EXPECT_EQ((*open(text()))->fingerprint(), first);
  age("data/a", 2);
  EXPECT_NE((*open(text()))->fingerprint(), first);
  write("data/a", "01234567");
  EXPECT_EQ((*open(text()))->size(), 4u);  // (18 - 1) / 4
}

// As `touch -r` and editors do that keep the time. pandas.read_csv() of the second content: 3 rows.
TEST_F(OpenDatasetTest, RebuildsIndexOfFileWithSameSizeAndTime) {
  config::DatasetConfig config;
  config::CsvDataset csv;
  csv.path = path("a.csv");
  csv.record.fields.label = "y";
  config.source = csv;
  write("a.csv", "x,y\n1,0\n22222,1\n");
  const auto time = std::filesystem::last_write_time(path("a.csv"));
  const std::string fingerprint = (*open(config))->fingerprint();
  EXPECT_EQ((*open(config))->size(), 2u);
  // In place, so that the inode stays, too.
  std::fstream(path("a.csv"), std::ios::in | std::ios::out) << "x,y\n7,1\n8,0\n9,1\n";
  const auto changed_at = [this] {
    struct stat info {};
    EXPECT_EQ(::stat(path("a.csv").c_str(), &info), 0);
    return std::pair(info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
  };
  ASSERT_TRUE(test::eventually([&, indexed_at = changed_at()] {  // a tick of its clock
    std::filesystem::last_write_time(path("a.csv"), time);
    return changed_at() != indexed_at;
  }));
  EXPECT_THAT(log_of_open(config), AllOf(HasSubstr("dataset index rebuilt"),
                                         HasSubstr("its content or an attribute was changed")));
  const auto data = open(config);
  ASSERT_EQ((*data)->size(), 3u);
  EXPECT_EQ(read_sample(**data, 2).values<float>(0), std::vector<float>{9});
  EXPECT_EQ((*data)->fingerprint(), fingerprint);
  EXPECT_EQ(log_of_open(config), "");
}

// The other process builds the index while this one waits for it, and has built it when it ends.
TEST_F(OpenDatasetTest, UsesIndexThatAnotherProcessHasBuilt) {
  write("data/a", "0123456789");
  std::filesystem::create_directory(index_dir());
  auto lock = lock_file(index_dir() + "/LOCK", "pid 1");
  ASSERT_TRUE(lock.ok()) << lock.status().to_string();
  std::filesystem::file_time_type built;
  bool has_waited = false;
  const auto build = [&](uint64_t, std::string_view what) {
    if (!what.starts_with("seconds waited")) return;
    has_waited = true;
    lock->fd.reset();
    ASSERT_TRUE(open(text()).ok());
    age(".index/train.index", -100);
    built = std::filesystem::last_write_time(path(".index/train.index"));
  };
  const auto opened = open_dataset("train", text(), index_dir(), build);
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_EQ((*opened)->size(), 2u);
  EXPECT_TRUE(has_waited);
  EXPECT_EQ(std::filesystem::last_write_time(path(".index/train.index")), built);
}

TEST_F(OpenDatasetTest, RebuildsCorruptIndexOnlyInOpenDataset) {
  write("data/a", "0123456789");
  const std::string fingerprint = (*open(text()))->fingerprint();
  for (const std::string& damage : {std::string(), std::string("garbage"), std::string(3000, '\0'),
                                    content_of(".index/train.index").substr(0, 200)}) {
    write(".index/train.index", damage);
    EXPECT_EQ(indexed(text(), fingerprint).status().code(), StatusCode::kCorrupt);
    EXPECT_THAT(log_of_open(text()), HasSubstr("dataset index rebuilt"));
    EXPECT_TRUE(indexed(text(), fingerprint).ok());
  }
}

TEST_F(OpenDatasetTest, OpensIndexedSamplesWithoutScanningFolder) {
  write("data/b", "0123456789");
  const std::string fingerprint = (*open(text()))->fingerprint();
  write("data/a", "a new file that sorts first");
  const auto dataset = indexed(text(), fingerprint);
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_EQ((*dataset)->fingerprint(), fingerprint);
  EXPECT_EQ(read_sample(**dataset, 1).text(), "45678");
}

TEST_F(OpenDatasetTest, RejectsIndexWithOtherFingerprintOrSettings) {
  write("data/a", "0123456789");
  const std::string fingerprint = (*open(text()))->fingerprint();
  EXPECT_EQ(indexed(text(), std::string(64, '0')).status().code(), StatusCode::kMismatch);
  EXPECT_EQ(indexed(text("data", 3), fingerprint).status().code(), StatusCode::kMismatch);
  EXPECT_EQ(indexed(text("elsewhere"), fingerprint).status().code(), StatusCode::kMismatch);
  EXPECT_EQ(open_indexed("val", text(), index_dir(), fingerprint).status().code(),
            StatusCode::kNotFound);
}

TEST_F(OpenDatasetTest, ComputesFingerprintIndependentOfPath) {
  write("data/a", "0123456789");
  const std::string fingerprint = (*open(text()))->fingerprint();
  std::filesystem::rename(path("data"), path("moved"));
  EXPECT_EQ((*open(text("moved")))->fingerprint(), fingerprint);
}

TEST_F(OpenDatasetTest, ReportsMissingPathWithKey) {
  expect_error(text("missing"), StatusCode::kNotFound, {"data.train.path", path("missing")});
}

TEST_F(OpenDatasetTest, ReportsEmptyFolderWithGlobAndPath) {
  std::filesystem::create_directory(path("data"));
  expect_error(text(), StatusCode::kNotFound, {"data.train.path", path("data"), "'**/*'"});
}

TEST_F(OpenDatasetTest, ReportsUnreadableFolder) {
  using std::filesystem::perms;
  write("data/a", "0123456789");
  std::filesystem::permissions(path(""), perms{0755});
  std::filesystem::permissions(path("data"), perms::none);
  const test::UnprivilegedUser user;
  expect_error(text(), StatusCode::kPermission, {"data.train.path", path("data")});
}

TEST_F(OpenDatasetTest, RejectsSpecialFileWithoutBlocking) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  expect_error(text("fifo"), StatusCode::kInvalidArgument, {"not a regular file"});
  config::DatasetConfig device = text();
  path_in(device) = "/dev/zero";
  expect_error(device, StatusCode::kInvalidArgument, {"not a regular file"});
}

TEST_F(OpenDatasetTest, RejectsInvalidSettingsWithKey) {
  write("data/a", "0123456789");
  auto config = text();
  path_in(config) = "";
  expect_error(config, StatusCode::kInvalidArgument, {"data.train.path"});
  config = text("data", 0);
  expect_error(config, StatusCode::kInvalidArgument, {"data.train.sequence.block_size"});
  for (const auto& split : std::vector<std::vector<double>>{
           {}, {0.5}, {0.5, 0.5}, {-0.1, 1}, {0, 1.1}, {0, 0.5, 1}, {0, std::nan("")}}) {
    config = text();
    config.split = split;
    expect_error(config, StatusCode::kInvalidArgument, {"data.train.split"});
  }
  config = text();
  glob_in(config) = "/x";
  expect_error(config, StatusCode::kInvalidArgument, {"data.train.glob"});
}

TEST_F(OpenDatasetTest, RejectsDatasetNamesInvalidAsFileNames) {
  write("data/a", "0123456789");
  for (const std::string name : {"", "../x", "a/b", ".x"})
    EXPECT_EQ(open(text(), name).status().code(), StatusCode::kInvalidArgument) << name;
}

TEST_F(OpenDatasetTest, ReportsErrorWhenIndexFolderCannotBeCreated) {
  write("data/a", "0123456789");
  write("file", "x");
  const auto dataset = open_dataset("train", text(), path("file/index"), {});
  ASSERT_FALSE(dataset.ok());
  EXPECT_THAT(dataset.status().message(), HasSubstr(path("file")));
}

TEST_F(OpenDatasetTest, ReportsErrorOnlyForSamplesOfAlteredFiles) {
  write("data/a", "01234");
  write("data/b", "56789");
  write("data/c", "abcde");
  const auto dataset = open(text("data", 4));
  ASSERT_TRUE(dataset.ok());
  ASSERT_EQ((*dataset)->size(), 3u);
  std::filesystem::remove(path("data/b"));
  EXPECT_TRUE(read_sample(**dataset, 0).status.ok());
  EXPECT_EQ(read_sample(**dataset, 1).status.code(), StatusCode::kNotFound);
  EXPECT_THAT(read_sample(**dataset, 1).status.message(), HasSubstr(path("data/b")));
  ASSERT_EQ(::mkfifo(path("data/b").c_str(), 0600), 0);
  EXPECT_EQ(read_sample(**dataset, 1).status.code(), StatusCode::kCorrupt);
  age("data/c", 5);
  EXPECT_EQ(read_sample(**dataset, 2).status.code(), StatusCode::kCorrupt);
  EXPECT_TRUE(read_sample(**dataset, 0).status.ok());
}

TEST_F(OpenDatasetTest, ReportsFileThatIsTruncatedWhileOpen) {
  write("data", std::string(1000, 'x'));
  const auto dataset = open(text("data", 99));
  ASSERT_TRUE(dataset.ok());
  ASSERT_TRUE(read_sample(**dataset, 0).status.ok());  // the descriptor stays open
  std::filesystem::resize_file(path("data"), 550);
  for (const uint64_t sample : {5, 3}) {  // behind and before the new end
    const auto cut = read_sample(**dataset, sample);
    EXPECT_EQ(cut.status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(cut.status.message(), HasSubstr(path("data")));
    EXPECT_THAT(cut.status.message(), HasSubstr(sample == 5 ? "offset 550" : "to 550 bytes"));
  }
}

TEST_F(OpenDatasetTest, ReadsManyFilesWithFewDescriptors) {
  for (int i = 0; i < 300; ++i) write("data/" + std::to_string(1000 + i), "0123456789");
  const auto dataset = open(text("data", 9));
  ASSERT_TRUE(dataset.ok());
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  // Fewer than the descriptor cache would open, so it must close some.
  const rlimit few{.rlim_cur = 24, .rlim_max = old.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  uint64_t failed = 0;
  for (uint64_t sample = 0; sample < (*dataset)->size(); ++sample)
    failed += !read_sample(**dataset, sample).status.ok();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
  EXPECT_EQ(failed, 0u);
}

TEST_F(OpenDatasetTest, ReadsSameBytesOnAllThreads) {
  std::string all;
  for (int i = 0; i < 200; ++i) {
    const std::string content = std::to_string(1'000'000'000 + i * 7919);
    write("data/" + std::to_string(1000 + i), content);
    all += content;
  }
  const auto dataset = open(text("data", 15));
  ASSERT_TRUE(dataset.ok());
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 2000; ++i) {
        const uint64_t sample = (i * 37 + t * 11) % (*dataset)->size();
        const auto read = read_sample(**dataset, sample);
        wrong[t] += !read.status.ok() || read.text() != all.substr(sample * 15, 16);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const int count : wrong) EXPECT_EQ(count, 0);
}

}  // namespace
}  // namespace stoker::data::pipeline
