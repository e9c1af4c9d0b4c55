#include <string>

#include <gtest/gtest.h>

#include "tests/shared/data/folder_fixture.h"

namespace stoker::data::format {
namespace {

using ::testing::HasSubstr;
using testing::read_sample;

std::string record(const std::string& labels, char fill) {
  return labels + std::string(3072, fill);
}

class CifarDatasetTest : public testing::FolderFixture {
 protected:
  config::DatasetConfig cifar(int classes, const std::string& name = "data") const {
    config::DatasetConfig config;
    config.source =
        config::CifarDataset{.num_classes = classes, .path = path(name), .transforms = {}};
    return config;
  }
};

TEST_F(CifarDatasetTest, ReadsBatchFilesOfFolderInOrder) {
  write("data/data_batch_2.bin", record("\3", 'c'));
  write("data/data_batch_1.bin", record("\1", 'a') + record("\2", 'b'));
  write("data/test_batch.bin", record("\4", 'd'));
  const auto dataset = open(cifar(10));
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_EQ((*dataset)->size(), 3u);
  EXPECT_EQ((*dataset)->classes(), 10u);
  EXPECT_EQ((*dataset)->class_names().size(), 10u);
  EXPECT_EQ((*dataset)->spec()[0],
            (TensorSpec{.name = "input", .dtype = DType::kU8, .shape = {3, 32, 32}}));
  for (uint64_t i = 0; i < 3; ++i) {
    const auto sample = read_sample(**dataset, i);
    EXPECT_EQ(sample.label(), static_cast<int64_t>(i + 1));
    EXPECT_EQ(sample.text(), std::string(3072, static_cast<char>('a' + i)));
  }
  EXPECT_EQ((*dataset)->source(1).offset, 3073u);
}

TEST_F(CifarDatasetTest, ReadsSingleFile) {
  write("data/test_batch.bin", record("\4", 'd'));
  const auto dataset = open(cifar(10, "data/test_batch.bin"));
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ(read_sample(**dataset, 0).label(), 4);
}

TEST_F(CifarDatasetTest, UsesFineLabelsOfCifar100) {
  write("data/train.bin", record({'\x05', '\x63'}, 'a'));
  const auto dataset = open(cifar(100));
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_EQ(read_sample(**dataset, 0).label(), 99);
  EXPECT_EQ(read_sample(**dataset, 0).text(), std::string(3072, 'a'));
}

TEST_F(CifarDatasetTest, ReportsCorruptLabelWithOffset) {
  write("data/data_batch_1.bin", record("\1", 'a') + record("\x0a", 'b'));
  const auto dataset = open(cifar(10));
  ASSERT_TRUE(dataset.ok());
  const Status status = read_sample(**dataset, 1).status;
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("offset 3073"));
}

TEST_F(CifarDatasetTest, RejectsTruncatedOrEmptyFile) {
  write("data/data_batch_1.bin", record("\1", 'a'));
  write("data/data_batch_2.bin", record("\1", 'a').substr(1));
  expect_error(cifar(10), StatusCode::kCorrupt, {path("data/data_batch_2.bin"), "3072 bytes"});
  write("data/data_batch_2.bin", "");
  expect_error(cifar(10), StatusCode::kCorrupt, {path("data/data_batch_2.bin")});
}

TEST_F(CifarDatasetTest, RejectsMissingBatchFiles) {
  write("data/data_batch_1.bin", record("\1", 'a'));
  expect_error(cifar(100), StatusCode::kNotFound, {"train.bin"});
}

}  // namespace
}  // namespace stoker::data::format
