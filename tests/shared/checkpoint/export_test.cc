#include <cstring>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/archive/zip.h"
#include "shared/checkpoint/export_tensors.h"
#include "shared/checkpoint/torch_file.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"

namespace stoker::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ExportTensorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    tensors_ = one_of_each_dtype();
    // Larger than a copy chunk.
    tensors_.push_back(make_tensor("large", DType::kF32, {3, 1 << 19}, 99));
    ASSERT_TRUE(write_safetensors(default_file_system(), scratch_.path(), "model",
                                  views_of(tensors_), {{"format", "pt"}})
                    .ok());
    file_ = *SafetensorsFile::open(scratch_ / "model");
  }
  Result<NewFile> create(const std::string& name, FileSystem& files = default_file_system()) {
    return NewFile::create(files, scratch_ / name);
  }
  void expect_same(const TensorSource& file, const std::string& prefix = "") {
    for (const OwnedTensor& tensor : tensors_) {
      const std::string name = prefix + tensor.spec.name;
      ASSERT_NE(file.find(name), nullptr) << name;
      EXPECT_EQ(file.find(name)->shape, tensor.spec.shape) << name;
      EXPECT_EQ(file.find(name)->dtype, tensor.spec.dtype) << name;
      std::vector<std::byte> bytes(tensor.bytes.size());
      const Status status = file.read(name, bytes);
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(bytes, tensor.bytes) << name;
    }
  }

  test::TemporaryDirectory scratch_;
  std::vector<OwnedTensor> tensors_;
  std::unique_ptr<SafetensorsFile> file_;
};

TEST_F(ExportTensorsTest, WritesCheckpointFileUnchangedWithOneComponent) {
  auto out = create("out");
  const std::vector<ExportPart> parts = {{"model", file_.get()}};
  uint64_t reported = 0;
  ASSERT_TRUE(export_safetensors(parts, {{"format", "pt"}}, *out, [&](uint64_t bytes) {
                reported += bytes;
              }).ok());
  ASSERT_TRUE(out->commit().ok());
  EXPECT_EQ(*read_file(scratch_ / "out", 1 << 26), *read_file(scratch_ / "model", 1 << 26));
  EXPECT_EQ(out->bytes(), std::filesystem::file_size(scratch_ / "out"));
  EXPECT_GT(reported, 6U << 20);
}

TEST_F(ExportTensorsTest, PrefixesTensorNamesWithSeveralComponents) {
  auto out = create("out");
  const std::vector<ExportPart> parts = {{"model", file_.get()}, {"optimizer", file_.get()}};
  ASSERT_TRUE(export_safetensors(parts, {}, *out, {}).ok());
  ASSERT_TRUE(out->commit().ok());
  const auto read = SafetensorsFile::open(scratch_ / "out");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ((*read)->tensors().size(), 2 * tensors_.size());
  expect_same(**read, "model.");
  expect_same(**read, "optimizer.");
}

TEST_F(ExportTensorsTest, WritesTorchFileThatReadsBack) {
  auto out = create("out.pt");
  const std::vector<ExportPart> parts = {{"model", file_.get()}};
  ASSERT_TRUE(export_torch(parts, 7, *out, {}).ok());
  ASSERT_TRUE(out->commit().ok());
  const auto read = TorchFile::open(scratch_ / "out.pt");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ((*read)->tensors(), file_->tensors());
  expect_same(**read);
}

TEST_F(ExportTensorsTest, WritesTiedParametersUnderAllNamesWithOneStorage) {
  auto out = create("out.pt");
  const std::string kept = file_->tensors().front().name;
  const std::vector<ExportPart> parts = {{"model", file_.get(), {{"head.weight", kept}}}};
  ASSERT_TRUE(export_torch(parts, 7, *out, {}).ok());
  ASSERT_TRUE(out->commit().ok());
  const auto read = TorchFile::open(scratch_ / "out.pt");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  const TensorSpec* const tied = (*read)->find("head.weight");
  ASSERT_NE(tied, nullptr);
  EXPECT_EQ(tied->shape, (*read)->find(kept)->shape);
  std::vector<std::byte> one(tied->bytes()), other(tied->bytes());
  ASSERT_TRUE((*read)->read("head.weight", one).ok());
  ASSERT_TRUE((*read)->read(kept, other).ok());
  EXPECT_EQ(one, other);
  EXPECT_EQ((*read)->tensors().size(), file_->tensors().size() + 1);
}

TEST_F(ExportTensorsTest, NestsModelInTorchFileWithSeveralComponents) {
  auto out = create("out.pt");
  const std::vector<ExportPart> parts = {{"optimizer", file_.get()}, {"model", file_.get()}};
  ASSERT_TRUE(export_torch(parts, 7, *out, {}).ok());
  ASSERT_TRUE(out->commit().ok());
  const auto read = TorchFile::open(scratch_ / "out.pt");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  expect_same(**read);
}

// Like PyTorch's files, so that storages can be memory-mapped; equal content yields equal bytes.
TEST_F(ExportTensorsTest, AlignsTorchStoragesTo64Bytes) {
  for (const char* name : {"a.pt", "b.pt"}) {
    auto out = create(name);
    const std::vector<ExportPart> parts = {{"model", file_.get()}};
    ASSERT_TRUE(export_torch(parts, 7, *out, {}).ok());
    ASSERT_TRUE(out->commit().ok());
  }
  const std::string content = *read_file(scratch_ / "a.pt", 1 << 26);
  EXPECT_EQ(content, *read_file(scratch_ / "b.pt", 1 << 26));
  const archive::ArchiveFile file{
      .path = "a.pt", .size = content.size(), .read = [&](uint64_t at, std::span<std::byte> bytes) {
        std::memcpy(bytes.data(), content.data() + at, bytes.size());
        return Status();
      }};
  const auto members = archive::read_zip_directory(file);
  ASSERT_TRUE(members.ok()) << members.status().to_string();
  EXPECT_EQ(members->size(), tensors_.size() + 6);
  for (const archive::ZipMember& member : *members) {
    if (!member.name.starts_with("archive/data/")) continue;
    EXPECT_EQ(*archive::zip_data_offset(file, member) % 64, 0U) << member.name;
  }
}

TEST_F(ExportTensorsTest, DoesNotReplaceExistingFile) {
  test::write_whole(scratch_ / "mine", "existing");
  const auto out = create("mine");
  EXPECT_EQ(out.status().code(), StatusCode::kAlreadyExists);
  // A file created after create() must not be overwritten either.
  auto late = create("late");
  ASSERT_TRUE(late.ok());
  test::write_whole(scratch_ / "late", "existing");
  EXPECT_EQ(late->commit().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(*read_file(scratch_ / "late", 100), "existing");
  EXPECT_EQ(*read_file(scratch_ / "mine", 100), "existing");
}

TEST_F(ExportTensorsTest, LeavesNoFileOnFailure) {
  { const auto dropped = create("dropped"); }
  EXPECT_THAT(names_in(scratch_.path()), ElementsAre("model"));
  EXPECT_EQ(create("no/such/folder").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(create("").status().message(), HasSubstr("already exists"));
}

}  // namespace
}  // namespace stoker::checkpoint
