#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/image/image_files.h"

namespace stoker::data::format {
namespace {

using image::testing::encode_png_file;
using image::testing::plain;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_sample;

class ImageListTest : public testing::FolderFixture {
 protected:
  void SetUp() override {
    for (int i = 0; i < 3; ++i) {
      const auto value = static_cast<uint8_t>(10 * i);
      write("set/p/" + std::to_string(i) + ".png",
            encode_png_file(plain(2, 2, {value, value, value})));
    }
  }
  config::DatasetConfig listed(const std::string& list) const {
    config::DatasetConfig config;
    config.source = config::ImageListDataset{};
    path_in(config) = path(list);
    transforms_in(config) = {config::Resize{{2, 2}}};
    return config;
  }
  // First pixel and label of each sample.
  std::vector<std::pair<int, int64_t>> samples(const config::DatasetConfig& config) const {
    const auto dataset = open(config);
    EXPECT_TRUE(dataset.ok()) << dataset.status().to_string();
    std::vector<std::pair<int, int64_t>> samples;
    for (uint64_t i = 0; dataset.ok() && i < (*dataset)->size(); ++i) {
      const auto sample = read_sample(**dataset, i);
      EXPECT_TRUE(sample.status.ok()) << sample.status.to_string();
      samples.emplace_back(std::to_integer<int>(sample.tensors[0][0]), sample.label());
    }
    return samples;
  }
};

TEST_F(ImageListTest, ReadsImagesRelativeToCsvListWithClasses) {
  write("set/list.csv", "id,label,path\n7,rose,p/2.png\n8,\"daisy\",p/0.png\n9,rose,p/2.png\n");
  const auto config = listed("set/list.csv");
  EXPECT_THAT(samples(config), ElementsAre(std::pair(20, 1), std::pair(0, 0), std::pair(20, 1)));
  const auto dataset = *open(config);
  EXPECT_THAT(dataset->class_names(), ElementsAre("daisy", "rose"));
  EXPECT_EQ(dataset->source(0).file, path("set/p/2.png"));
  const auto again = pipeline::open_indexed("train", config, index_dir(), dataset->fingerprint());
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(read_sample(**again, 1).label(), 0);
}

TEST_F(ImageListTest, SupportsOtherFormatsColumnsAndRoot) {
  write("lists/a.jsonl", "{\"file_name\": \"1.png\", \"meta\": {\"class\": 4}}\n");
  auto config = listed("lists/a.jsonl");
  source_in<config::ImageListDataset>(config).root = path("set/p");
  fields_in(config).image = "file_name";
  fields_in(config).label = "meta.class";
  EXPECT_THAT(samples(config), ElementsAre(std::pair(10, 4)));
  write("lists/a.tsv", "path\tlabel\n" + path("set/p/2.png") + "\t1\n");
  EXPECT_THAT(samples(listed("lists/a.tsv")), ElementsAre(std::pair(20, 1)));
}

TEST_F(ImageListTest, ReturnsSameSamplesWithPackedCache) {
  write("set/list.csv", "path,label\np/0.png,0\np/2.png,2\np/1.png,1\n");
  auto config = listed("set/list.csv");
  const auto plain = samples(config);
  for (const bool has_markers : {false, true}) {
    cache_in(config) = config::CacheConfig{.jpeg_restart_markers = has_markers, .dir = {}};
    EXPECT_EQ(samples(config), plain) << has_markers;
  }
  std::filesystem::remove_all(path("set/p"));
  const auto dataset = pipeline::open_indexed("train", config, index_dir(), "");
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_TRUE(read_sample(**dataset, 2).status.ok());
}

TEST_F(ImageListTest, SplitsByRow) {
  write("set/list.csv", "path,label\np/0.png,0\np/1.png,1\np/2.png,2\n");
  auto config = listed("set/list.csv");
  config.split = {0.5, 1};
  EXPECT_THAT(samples(config), ElementsAre(std::pair(10, 1), std::pair(20, 2)));
  EXPECT_EQ((*open(config))->classes(), 3u);
}

TEST_F(ImageListTest, PreservesFingerprintWhenMovedWithList) {
  write("set/list.csv", "path,label\np/0.png,0\n");
  const std::string fingerprint = (*open(listed("set/list.csv")))->fingerprint();
  std::filesystem::rename(path("set"), path("moved"));
  EXPECT_EQ((*open(listed("moved/list.csv")))->fingerprint(), fingerprint);
  write("moved/list.csv", "path,label\np/0.png,1\n");
  age("moved/list.csv", 5);
  EXPECT_NE((*open(listed("moved/list.csv")))->fingerprint(), fingerprint);
}

TEST_F(ImageListTest, ReportsMissingOrNonregularImageWithLine) {
  write("set/list.csv", "path,label\np/0.png,0\np/9.png,1\n");
  expect_error(listed("set/list.csv"), StatusCode::kNotFound,
               {"data.train.path", path("set/list.csv"), "line 3", "p/9.png"});
  write("set/list.csv", "path,label\np,0\n");
  expect_error(listed("set/list.csv"), StatusCode::kInvalidArgument,
               {"line 2", "not a regular file"});
}

TEST_F(ImageListTest, RejectsRowsWithoutPathOrLabel) {
  write("set/list.csv", "path,label\np/0.png,\n");
  expect_error(listed("set/list.csv"), StatusCode::kCorrupt, {"line 2", "has no 'label'"});
  write("set/list.csv", "path,label\n,1\n");
  expect_error(listed("set/list.csv"), StatusCode::kCorrupt, {"line 2", "has no 'path'"});
  write("set/list.jsonl", "{\"path\": 5, \"label\": 1}\n");
  expect_error(listed("set/list.jsonl"), StatusCode::kCorrupt, {"line 1", "has no 'path'"});
  write("set/list.jsonl", "{\"path\": \"\\u0000\", \"label\": 1}\n");
  expect_error(listed("set/list.jsonl"), StatusCode::kCorrupt, {"no path"});
  write("set/list.csv", "path,label\n\"p/\n0.png\",1\n");
  expect_error(listed("set/list.csv"), StatusCode::kCorrupt, {"line 2", "no path"});
  write("set/list.jsonl", "{\"path\": \"p/0.png\", \"label\": -1}\n");
  expect_error(listed("set/list.jsonl"), StatusCode::kCorrupt, {"line 1", "must be at least 0"});
}

TEST_F(ImageListTest, LeavesOutBadRowsUpToRate) {
  write("set/list.csv",
        "path,label\np/0.png,0\np/9.png,1\np/1.png,\np/1.png,1\np/2.png\np/2.png,2\n");
  auto config = listed("set/list.csv");
  expect_error(config, StatusCode::kNotFound,
               {"line 3", "p/9.png", "3 of 6 are bad", "data.train.max_bad_record_rate (0.001)"});
  source_in<config::ImageListDataset>(config).max_bad_record_rate = 0.5;
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(samples(config), ElementsAre(std::pair(0, 0), std::pair(10, 1), std::pair(20, 2)));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("bad records skipped dataset=train count=3 total=6"));
  const auto list = read_file(index_dir() + "/train.bad_records.jsonl", 1 << 20);
  ASSERT_TRUE(list.ok()) << list.status().to_string();
  for (const char* const line : {"\"line 3\"", "\"line 4\"", "\"line 6\""})
    EXPECT_THAT(*list, HasSubstr(line));
  EXPECT_EQ(std::ranges::count(*list, '\n'), 3);
}

TEST_F(ImageListTest, RejectsInvalidLists) {
  write("set/list.csv", "file,label\np/0.png,0\n");
  expect_error(listed("set/list.csv"), StatusCode::kInvalidArgument,
               {"data.train.fields.image", "no column 'path'"});
  write("set/list.csv", "path,label\n");
  expect_error(listed("set/list.csv"), StatusCode::kNotFound, {"names no image"});
  expect_error(listed("set/list.xml"), StatusCode::kInvalidArgument, {".csv, .tsv or .jsonl"});
  expect_error(listed("set/none.csv"), StatusCode::kNotFound, {path("set/none.csv")});
}

}  // namespace
}  // namespace stoker::data::format
