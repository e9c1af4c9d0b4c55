#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/checkpoint/safetensors.h"
#include "tests/shared/checkpoint/raw_tensors.h"
#include "tests/support/temporary_directory.h"

namespace stoker::checkpoint {
namespace {

using ::testing::HasSubstr;

class SafetensorsFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto written = write_safetensors(default_file_system(), scratch_.path(), "t",
                                           views_of(tensors_), {{"k", "v"}});
    ASSERT_TRUE(written.ok()) << written.status().to_string();
    auto opened = SafetensorsFile::open(scratch_ / "t");
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    file_ = *std::move(opened);
  }

  test::TemporaryDirectory scratch_;
  const std::vector<OwnedTensor> tensors_ = one_of_each_dtype();
  std::unique_ptr<SafetensorsFile> file_;
};

TEST_F(SafetensorsFileTest, ReadsWrittenTensorsAndMetadata) {
  EXPECT_EQ(file_->tensors().size(), tensors_.size());
  EXPECT_EQ(file_->metadata(), (std::map<std::string, std::string>{{"k", "v"}}));
  for (const OwnedTensor& tensor : tensors_) {
    const TensorSpec* spec = file_->find(tensor.spec.name);
    ASSERT_NE(spec, nullptr) << tensor.spec.name;
    EXPECT_EQ(*spec, tensor.spec);
    std::vector<std::byte> bytes(spec->bytes());
    ASSERT_TRUE(file_->read(spec->name, bytes).ok());
    EXPECT_EQ(bytes, tensor.bytes) << spec->name;
  }
}

TEST_F(SafetensorsFileTest, ReportsNotFoundOnUnknownName) {
  EXPECT_EQ(file_->find("nobody"), nullptr);
  const Status status = file_->read("nobody", {});
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("nobody"));
}

TEST_F(SafetensorsFileTest, RejectsBufferOfWrongSize) {
  std::vector<std::byte> bytes(tensors_[0].bytes.size() + 1);
  EXPECT_EQ(file_->read(tensors_[0].spec.name, bytes).code(), StatusCode::kInvalidArgument);
  bytes.resize(bytes.size() - 2);
  EXPECT_EQ(file_->read(tensors_[0].spec.name, bytes).code(), StatusCode::kInvalidArgument);
}

TEST_F(SafetensorsFileTest, ReportsCorruptWhenFileIsTruncatedAfterOpen) {
  ASSERT_EQ(::truncate((scratch_ / "t").c_str(), 64), 0);
  std::vector<std::byte> bytes(tensors_[0].bytes.size());
  EXPECT_EQ(file_->read(tensors_[0].spec.name, bytes).code(), StatusCode::kCorrupt);
}

TEST_F(SafetensorsFileTest, ReadsTensorsWhenFileIsDeletedAfterOpen) {
  ASSERT_EQ(::unlink((scratch_ / "t").c_str()), 0);
  std::vector<std::byte> bytes(tensors_[0].bytes.size());
  ASSERT_TRUE(file_->read(tensors_[0].spec.name, bytes).ok());
  EXPECT_EQ(bytes, tensors_[0].bytes);
}

TEST_F(SafetensorsFileTest, RejectsMissingOrNonregularFileWithoutBlocking) {
  EXPECT_EQ(SafetensorsFile::open(scratch_ / "none").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(SafetensorsFile::open(scratch_.path()).status().code(), StatusCode::kCorrupt);
  ASSERT_EQ(::mkfifo((scratch_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(SafetensorsFile::open(scratch_ / "pipe").status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace stoker::checkpoint
