#include "shared/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/hash.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"
#include "tests/support/faulty_files.h"
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
  EXPECT_EQ(file_->find("no_such_tensor"), nullptr);
  const Status status = file_->read("no_such_tensor", {});
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("no_such_tensor"));
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

using test::FaultyFiles;
using test::TemporaryDirectory;
using ::testing::HasSubstr;

using Metadata = std::map<std::string, std::string>;

class WriteSafetensorsTest : public ::testing::Test {
 protected:
  Result<WrittenFile> write(const TensorViews& tensors, const Metadata& metadata = {}) {
    return write_safetensors(default_file_system(), scratch_.path(), "t.safetensors", tensors,
                             metadata);
  }
  std::string content() { return *read_file(scratch_ / "t.safetensors", 1 << 30); }
  bool exists() { return std::filesystem::exists(scratch_ / "t.safetensors"); }
  void expect_rejected(const TensorViews& tensors, const std::string& why,
                       const Metadata& metadata = {}) {
    const auto written = write(tensors, metadata);
    ASSERT_FALSE(written.ok()) << why;
    EXPECT_EQ(written.status().code(), StatusCode::kInvalidArgument)
        << written.status().to_string();
    EXPECT_THAT(written.status().message(), HasSubstr(why));
    EXPECT_THAT(written.status().message(), HasSubstr("t.safetensors"));
    EXPECT_FALSE(exists());
  }

  TemporaryDirectory scratch_;
};

TEST_F(WriteSafetensorsTest, MatchesGoldenBytes) {
  const uint8_t bytes[] = {7, 8};
  const float floats[] = {1.0F, -2.0F};
  const TensorViews tensors = {{{"b", DType::kU8, {2}}, std::as_bytes(std::span(bytes))},
                               {{"a", DType::kF32, {2, 1}}, std::as_bytes(std::span(floats))}};
  const auto written = write(tensors, {{"format", "pt"}});
  ASSERT_TRUE(written.ok()) << written.status().to_string();
  // Larger element types come first; the header is padded with spaces to a multiple of 8.
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"U8","shape":[2],"data_offsets":[8,10]}})"
      "    ";
  ASSERT_EQ(header.size() % 8, 0U);
  EXPECT_EQ(content(), raw_tensors(header, std::string("\0\0\x80\x3f\0\0\0\xc0\x07\x08", 10)));
}

TEST_F(WriteSafetensorsTest, ProducesSameBytesWithSameTensors) {
  const auto tensors = one_of_each_dtype();
  ASSERT_TRUE(write(views_of(tensors), {{"b", "2"}, {"a", "1"}}).ok());
  const std::string first = content();
  std::filesystem::remove(scratch_ / "t.safetensors");
  ASSERT_TRUE(write(views_of(tensors), {{"a", "1"}, {"b", "2"}}).ok());
  EXPECT_EQ(content(), first);
}

TEST_F(WriteSafetensorsTest, AlignsTensorsToElementSize) {
  const auto tensors = one_of_each_dtype();
  ASSERT_TRUE(write(views_of(tensors)).ok());
  const auto file = SafetensorsFile::open(scratch_ / "t.safetensors");
  ASSERT_TRUE(file.ok());
  const std::string all = content();
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, all.data(), sizeof header_bytes);
  size_t offset = sizeof header_bytes + header_bytes;
  for (const TensorSpec& spec : (*file)->tensors()) {
    EXPECT_EQ(offset % dtype_bytes(spec.dtype), 0U) << to_string(spec);
    offset += spec.bytes();
  }
  EXPECT_EQ(offset, all.size());
}

TEST_F(WriteSafetensorsTest, ReportsSizeAndHashOfWrittenFile) {
  const auto written = write(views_of(one_of_each_dtype()));
  ASSERT_TRUE(written.ok());
  EXPECT_EQ(written->name, "t.safetensors");
  EXPECT_EQ(written->bytes, content().size());
  EXPECT_EQ(written->sha256, sha256_hex(content()));
}

// Sizes around the limit below which pieces are combined into one write.
TEST_F(WriteSafetensorsTest, WritesTensorsOfManySizesCompletely) {
  std::vector<OwnedTensor> tensors;
  unsigned seed = 0;
  for (const int64_t bytes : {0, 1, 5, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 7, 3 << 20, 2, 2})
    tensors.push_back(make_tensor("t" + std::to_string(seed), DType::kU8, {bytes}, seed)), ++seed;
  const auto written = write(views_of(tensors));
  ASSERT_TRUE(written.ok());
  EXPECT_EQ(written->sha256, sha256_hex(content()));
  std::string data;
  for (const OwnedTensor& tensor : tensors)
    data.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  EXPECT_TRUE(content().ends_with(data));
}

TEST_F(WriteSafetensorsTest, WritesValidFileWithoutTensors) {
  ASSERT_TRUE(write({}).ok());
  EXPECT_EQ(content(), raw_tensors("{}      ", ""));
  const auto file = SafetensorsFile::open(scratch_ / "t.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_TRUE((*file)->tensors().empty());
}

TEST_F(WriteSafetensorsTest, RoundTripsNamesAndMetadataWithSpecialCharacters) {
  const std::string odd = "quote\" back\\slash /slash \xc3\xa9 \xe2\x82\xac \xf0\x9f\x94\xa5";
  const OwnedTensor tensor = make_tensor(odd, DType::kI16, {2});
  const Metadata metadata = {{odd, "line\nbreak\ttab\x01"}, {"", ""}};
  ASSERT_TRUE(write({tensor.view()}, metadata).ok());
  const auto file = SafetensorsFile::open(scratch_ / "t.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ((*file)->metadata(), metadata);
  ASSERT_NE((*file)->find(odd), nullptr);
  EXPECT_EQ(*(*file)->find(odd), tensor.spec);
}

TEST_F(WriteSafetensorsTest, RejectsInvalidNames) {
  const OwnedTensor tensor = make_tensor("ok", DType::kU8, {1});
  const auto named = [&](const std::string& name) {
    return TensorViews{{{name, DType::kU8, {1}}, tensor.bytes}};
  };
  expect_rejected(named("__metadata__"), "__metadata__");
  expect_rejected(named(std::string(513, 'n')), "513");
  expect_rejected(named("line\nbreak"), "control character");
  expect_rejected(named(std::string("nul\0", 4)), "control character");
  expect_rejected(named("del\x7f"), "control character");
  expect_rejected(named("c1\xc2\x85"), "control character");
  expect_rejected(named("not UTF-8 \xff"), "");
  expect_rejected(named("truncated \xc3"), "");
  expect_rejected({tensor.view(), tensor.view()}, "twice");
  EXPECT_TRUE(write(named(std::string(512, 'n'))).ok());
}

TEST_F(WriteSafetensorsTest, RejectsNonUtf8Metadata) {
  expect_rejected({}, "", {{"key", "\xff"}});
  expect_rejected({}, "", {{"\xff", "value"}});
}

TEST_F(WriteSafetensorsTest, RejectsViewsOfMismatchedSize) {
  const std::vector<std::byte> bytes(16);
  const auto shaped = [&](std::vector<int64_t> shape) {
    return TensorViews{{{"t", DType::kF32, std::move(shape)}, bytes}};
  };
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  expect_rejected(shaped({3}), "16");
  expect_rejected(shaped({5}), "16");
  expect_rejected(shaped({0}), "16");
  expect_rejected(shaped({-4}), "t");
  expect_rejected(shaped({-2, -2}), "t");
  expect_rejected(shaped({kHuge, kHuge}), "t");
  expect_rejected(shaped({int64_t{1} << 62, 4, 4}), "t");  // 2^66 * 4: 0 on overflow
  EXPECT_TRUE(write(shaped({2, 1, 2})).ok());
}

TEST_F(WriteSafetensorsTest, RejectsUnknownDtype) {
  const std::vector<std::byte> bytes(4);
  expect_rejected({{{"t", static_cast<DType>(0), {1}}, {}}}, "t");
  expect_rejected({{{"t", static_cast<DType>(99), {0}}, {}}}, "t");
}

TEST_F(WriteSafetensorsTest, NeverOverwritesFile) {
  test::write_whole(scratch_ / "t.safetensors", "existing");
  EXPECT_EQ(write({}).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(content(), "existing");
}

TEST_F(WriteSafetensorsTest, ReportsNotFoundOnMissingDirectory) {
  const auto written = write_safetensors(default_file_system(), scratch_ / "none", "t", {}, {});
  EXPECT_EQ(written.status().code(), StatusCode::kNotFound);
}

TEST_F(WriteSafetensorsTest, ReportsErrorOnAnyFailedOperation) {
  const auto tensors = one_of_each_dtype();
  for (uint64_t at = 1;; ++at) {
    TemporaryDirectory directory;
    FaultyFiles files(directory.path());
    files.fail_at(at, {ENOSPC, test::Fault::Extent::kHalf});
    const auto written =
        write_safetensors(files, directory.path(), "t.safetensors", views_of(tensors), {});
    if (files.operations().size() < at) {
      EXPECT_TRUE(written.ok());
      EXPECT_GE(at, 4U);  // at least open, write, sync
      break;
    }
    EXPECT_EQ(written.status().code(), StatusCode::kNoSpace) << "operation " << at;
    EXPECT_EQ(files.operations().size(), at) << "something was tried after the error";
  }
}

TEST_F(WriteSafetensorsTest, SyncsFileBeforeReturn) {
  FaultyFiles files(scratch_.path());
  ASSERT_TRUE(
      write_safetensors(files, scratch_.path(), "t.safetensors", views_of(one_of_each_dtype()), {})
          .ok());
  TemporaryDirectory other;
  files.simulate_power_loss(files.operations().size(), test::Survival::kNamesOnly, 0,
                            other / "disk");
  EXPECT_EQ(*read_file(other / "disk/t.safetensors", 1 << 20), content());
}

}  // namespace
}  // namespace stoker::checkpoint
