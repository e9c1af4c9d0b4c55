#include "shared/data/pipeline/dataset_refresh.h"

#include <fstream>

#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/example_writer.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/data/tar_writer.h"
#include "tests/shared/image/image_files.h"

namespace stoker::data::pipeline {
namespace {

using config::DatasetConfig;
using testing::read_sample;

class DatasetRefreshTest : public testing::FolderFixture {
 protected:
  DatasetConfig set_of(config::DatasetSource source) const {
    DatasetConfig set{.source = std::move(source)};
    path_in(set) = path("data");
    set_refresh(set, config::Refresh::kEpoch);
    if (set.has_tokens()) sequence_in(set).block_size = 8;
    if (set.is_tabular()) fields_in(set).label = "y";
    return set;
  }
  void append(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::app | std::ios::binary) << text;
    age(name, ++seconds_);
  }
  std::unique_ptr<Dataset> indexed(const DatasetConfig& set, const std::string& folder) const {
    auto data = open_dataset("train", set, path(folder), {});
    EXPECT_TRUE(data.ok()) << data.status().to_string();
    return data.ok() ? *std::move(data) : nullptr;
  }
  Status check(const DatasetConfig& set) const {
    indexed(set, ".after");
    return validate_refresh({{"train", set}}, {"train"}, path(".before"), path(".after"));
  }
  void expect_rejected(const DatasetConfig& set, const std::string& why) const {
    const Status status = check(set);
    EXPECT_EQ(status.code(), StatusCode::kMismatch);
    EXPECT_THAT(status.message(), ::testing::HasSubstr(why));
  }
  static std::vector<std::vector<std::byte>> all(const Dataset& data) {
    std::vector<std::vector<std::byte>> samples;
    for (uint64_t sample = 0; sample < data.size(); ++sample) {
      const auto read = read_sample(data, sample);
      EXPECT_TRUE(read.status.ok()) << read.status.to_string();
      for (const auto& tensor : read.tensors) samples.push_back(tensor);
    }
    return samples;
  }
  // Previously indexed samples are unchanged, and the appended data is accepted as a refresh.
  void expect_refreshes(const DatasetConfig& set, const std::function<void()>& grow) const {
    const auto before = indexed(set, ".before");
    const auto samples = all(*before);
    grow();
    EXPECT_EQ(all(*before), samples);
    const auto reopened = open_indexed("train", set, path(".before"), before->fingerprint());
    ASSERT_TRUE(reopened.ok()) << reopened.status().to_string();
    EXPECT_EQ(all(**reopened), samples);
    const Status status = check(set);
    EXPECT_TRUE(status.ok()) << status.to_string();
    const auto after = indexed(set, ".after");
    EXPECT_GT(after->size(), before->size());
    EXPECT_TRUE(validate_same_schema(*before, *after).ok());
    all(*after);
  }

  mutable int seconds_ = 0;
};

TEST_F(DatasetRefreshTest, AcceptsAppendedTextAndNewFiles) {
  write("data/a.txt", std::string(100, 'a'));
  write("data/c.txt", std::string(50, 'c'));
  expect_refreshes(set_of(config::TextDataset{}), [this] {
    append("data/a.txt", std::string(40, 'A'));
    write("data/b.txt", std::string(30, 'b'));
  });
}

TEST_F(DatasetRefreshTest, AcceptsAppendedTokens) {
  write("data/a.bin", std::string(200, '\1'));
  expect_refreshes(set_of(config::TokensDataset{}),
                   [this] { append("data/a.bin", std::string(80, 2)); });
}

TEST_F(DatasetRefreshTest, AcceptsAppendedCsvRowsAndNewFiles) {
  write("data/a.csv", "x,y\n1,0\n2,1\n");
  expect_refreshes(set_of(config::CsvDataset{}), [this] {
    append("data/a.csv", "3,1\n4,0\n");
    write("data/b.csv", "x,y\n5,1\n");
  });
}

TEST_F(DatasetRefreshTest, AcceptsAppendedJsonLines) {
  auto set = set_of(config::JsonlDataset{});
  fields_in(set).input = {"x"};
  write("data/a.jsonl", "{\"x\":1,\"y\":0}\n{\"x\":2,\"y\":1}");
  expect_refreshes(set, [this] { append("data/a.jsonl", "\n{\"x\":3,\"y\":1}\n"); });
}

TEST_F(DatasetRefreshTest, AcceptsNewTfrecordShards) {
  auto set = set_of(config::TfrecordDataset{});
  fields_in(set).input = {"x"};
  record_in(set).input_shape = {1};
  fields_in(set).label = "y";
  const auto record = [](float x, int64_t y) {
    return testing::framed(
        testing::example({{"x", testing::floats_feature({x})}, {"y", testing::ints_feature({y})}}));
  };
  write("data/a.tfrecord", record(1, 0) + record(2, 1));
  expect_refreshes(set, [&] { write("data/b.tfrecord", record(3, 1)); });
  append("data/a.tfrecord", record(4, 0));
  expect_rejected(set, "a.tfrecord: changed from");
}

TEST_F(DatasetRefreshTest, AcceptsNewTarShards) {
  auto set = set_of(config::WebdatasetDataset{});
  fields_in(set).input = {"x"};
  record_in(set).input_shape = {2};
  fields_in(set).label = "cls";
  const auto shard = [](const std::string& key) {
    return testing::tar_member(key + ".x", "ab") + testing::tar_member(key + ".cls", "1") +
           testing::kTarEnd;
  };
  write("data/a.tar", shard("a"));
  expect_refreshes(set, [&] { write("data/b.tar", shard("b")); });
}

TEST_F(DatasetRefreshTest, AcceptsNewImages) {
  auto set = set_of(config::ImageFolderDataset{});
  transforms_in(set) = {config::Resize{{4, 4}}};
  const std::string image =
      image::testing::encode_png_file(image::testing::plain(4, 4, {1, 9, 99}));
  for (const char* const folder : {"data/cat/", "data/dog/"})
    write(folder + std::string("1.png"), image);
  expect_refreshes(set, [&] { write("data/cat/more/2.png", image); });
}

TEST_F(DatasetRefreshTest, AcceptsNewDataOfStableSplits) {
  std::string rows = "x,y\n", more;
  for (int i = 0; i < 50; ++i) rows += std::to_string(i) + (i % 2 == 0 ? ",0\n" : ",1\n");
  for (int i = 50; i < 100; ++i) more += std::to_string(i) + (i % 2 == 0 ? ",0\n" : ",1\n");
  write("data/b.csv", rows);
  auto table = set_of(config::CsvDataset{});
  table.split = {0, 0.5};
  table.split_by = config::SplitBy::kRandom;
  expect_refreshes(table, [&] {
    append("data/b.csv", more);
    write("data/a.csv", rows);
  });
  for (int i = 0; i < 8; ++i) write("data/" + std::to_string(i) + ".txt", std::string(50, 'a'));
  auto text = set_of(config::TextDataset{});
  text.split = {0, 0.5};
  text.split_by = config::SplitBy::kGroup;
  expect_refreshes(text, [this] {
    for (int i = 8; i < 20; ++i) write("data/" + std::to_string(i) + ".txt", std::string(50, 'b'));
  });
}

TEST_F(DatasetRefreshTest, ReportsRemovedTruncatedOrChangedFiles) {
  const auto set = set_of(config::TextDataset{});
  write("data/a.txt", std::string(100, 'a'));
  write("data/b.txt", std::string(100, 'b'));
  write("data/c.txt", std::string(100, 'c'));
  indexed(set, ".before");
  std::filesystem::remove(path("data/b.txt"));
  expect_rejected(set, "data/b.txt: was removed");
  indexed(set, ".before");
  write("data/a.txt", std::string(60, 'a'));
  expect_rejected(set, "data/a.txt: shrank from 100 to 60 bytes");
  indexed(set, ".before");
  age("data/c.txt", 5);
  expect_rejected(set, "data/c.txt: was modified");
}

TEST_F(DatasetRefreshTest, RejectsIncompleteLastCsvRow) {
  const auto set = set_of(config::CsvDataset{});
  write("data/a.csv", "x,y\n1,0\n2,1");
  indexed(set, ".before");
  append("data/a.csv", "1,1\n");  // the last row becomes "2,11,1": too many fields
  EXPECT_FALSE(open_dataset("train", set, path(".after"), {}).ok());
  write("data/a.csv", "x,y\n1,0\n2,1\n");
  age("data/a.csv", 20);
  indexed(set, ".before");
  append("data/a.csv", "3,1");
  expect_rejected(set, "its last row has no line end");
  append("data/a.csv", "\n");
  EXPECT_TRUE(check(set).ok());
}

TEST_F(DatasetRefreshTest, RejectsChangedClasses) {
  const auto set = set_of(config::CsvDataset{});
  write("data/a.csv", "x,y\n1,0\n2,1\n");
  const auto before = indexed(set, ".before");
  append("data/a.csv", "3,2\n");
  const Status status = validate_same_schema(*before, *indexed(set, ".after"));
  EXPECT_EQ(status.code(), StatusCode::kMismatch);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("2 before, 3 now"));
}

TEST_F(DatasetRefreshTest, RejectsChangeWithRefreshNever) {
  auto set = set_of(config::TextDataset{});
  write("data/a.txt", std::string(100, 'a'));
  set_refresh(set, config::Refresh::kNever);
  indexed(set, ".before");
  append("data/a.txt", "more");
  expect_rejected(set, "its refresh is never");
}

// The index accepts a partial last row that is completed later; the refresh check rejects it.
TEST_F(DatasetRefreshTest, RejectsExtensionOfLastCsvRow) {
  const auto set = set_of(config::CsvDataset{});
  write("data/a.csv", "x,y\n1,0\n2,1");
  indexed(set, ".before");
  append("data/a.csv", "0\n1,0\n");
  expect_rejected(set, "its last row was appended to");
}

}  // namespace
}  // namespace stoker::data::pipeline
