// numpy arrays as members of tar files.
#include <cmath>
#include <string>

#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/data/tar_writer.h"
#include "tests/support/numpy_files.h"

namespace stoker::data::format {
namespace {

using test::bytes_of;
using test::npy;
using test::npy_with_header;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kTarEnd;
using testing::read_sample;
using testing::tar_member;

class WebdatasetArraysTest : public testing::FolderFixture {
 protected:
  config::DatasetConfig arrays(std::vector<int64_t> shape) const {
    config::DatasetConfig config;
    config.source = config::WebdatasetDataset{};
    path_in(config) = path("data.tar");
    fields_in(config).input = {"npy"};
    record_in(config).input_shape = std::move(shape);
    fields_in(config).label = "cls";
    return config;
  }
  // Writes one sample per array.
  void write_arrays(const std::vector<std::string>& arrays) const {
    std::string file;
    for (size_t i = 0; i < arrays.size(); ++i)
      file += tar_member(std::to_string(i) + ".npy", arrays[i]) +
              tar_member(std::to_string(i) + ".cls", std::to_string(i % 2));
    write("data.tar", file + kTarEnd);
  }
  static std::string two_floats() { return npy("<f4", "(2,)", bytes_of<float>({1, 2})); }
  // The error of an array that is the second of three samples; the others are valid.
  std::string error_from(const std::string& array) const {
    write_arrays({two_floats(), array, two_floats()});
    const auto data = opened(arrays({2}));
    if (!data) return "refused";
    EXPECT_TRUE(read_sample(*data, 0).status.ok());
    EXPECT_TRUE(read_sample(*data, 2).status.ok());
    const Status status = read_sample(*data, 1).status;
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr(path("data.tar") + ": "));
    EXPECT_THAT(status.message(), HasSubstr("at offset 2048"));
    return status.message();
  }
};

TEST_F(WebdatasetArraysTest, ConvertsNumbersOfAnyTypeToFloats) {
  write_arrays({npy("<f4", "(2,)", bytes_of<float>({1.5, -2})),
                npy("<f8", "(2,)", bytes_of<double>({0.1, -0.0})),
                npy("<i8", "(1, 2)", bytes_of<int64_t>({-3, 4})),
                npy("|u1", "(2,)", bytes_of<uint8_t>({5, 255})),
                npy("|b1", "(2,)", bytes_of<uint8_t>({1, 0}))});
  const auto data = opened(arrays({2}));
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(data->spec()[0], (TensorSpec{.name = "input", .dtype = DType::kF32, .shape = {2}}));
  EXPECT_THAT(read_sample(*data, 0).values<float>(0), ElementsAre(1.5f, -2));
  EXPECT_THAT(read_sample(*data, 1).values<float>(0), ElementsAre(0.1f, -0.0f));
  EXPECT_THAT(read_sample(*data, 2).values<float>(0), ElementsAre(-3, 4));
  EXPECT_THAT(read_sample(*data, 3).values<float>(0), ElementsAre(5, 255));
  EXPECT_THAT(read_sample(*data, 4).values<float>(0), ElementsAre(1, 0));
  EXPECT_EQ(read_sample(*data, 3).label(), 1);
}

TEST_F(WebdatasetArraysTest, ReadsUint8ArraysAsImages) {
  std::vector<uint8_t> pixels(12);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i);
  write_arrays(
      {npy("|u1", "(3, 2, 2)", bytes_of(pixels)), npy("|u1", "(2, 2, 3)", bytes_of(pixels))});
  config::DatasetConfig config = arrays({3, 2, 2});
  const auto data = opened(config);
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(data->spec()[0].dtype, DType::kU8);
  EXPECT_THAT(read_sample(*data, 0).values<uint8_t>(0),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(read_sample(*data, 1).values<uint8_t>(0),
              ElementsAre(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11));
  set_transform(config, config::RandomHorizontalFlip{.p = 1});
  const auto flipped = opened(config);
  ASSERT_NE(flipped, nullptr);
  EXPECT_THAT(read_sample(*flipped, 0).values<uint8_t>(0),
              ElementsAre(1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10));
}

TEST_F(WebdatasetArraysTest, ReadsLabelAndTargetsFromArrays) {
  write("data.tar", tar_member("a.x.npy", two_floats()) +
                        tar_member("a.y.npy", npy("<i8", "()", bytes_of<int64_t>({3}))) +
                        tar_member("b.x.npy", two_floats()) +
                        tar_member("b.y.npy", npy("|u1", "(1,)", bytes_of<uint8_t>({1}))) +
                        kTarEnd);
  config::DatasetConfig config = arrays({2});
  fields_in(config).input = {"x.npy"};
  fields_in(config).label = "y.npy";
  const auto labeled = opened(config);
  ASSERT_NE(labeled, nullptr);
  EXPECT_EQ(labeled->classes(), 4u);
  EXPECT_EQ(read_sample(*labeled, 0).label(), 3);
  EXPECT_EQ(read_sample(*labeled, 1).label(), 1);
  fields_in(config).label.clear();
  fields_in(config).target = {"x.npy", "y.npy"};
  record_in(config).num_targets = 3;
  const auto aimed = opened(config);
  ASSERT_NE(aimed, nullptr);
  EXPECT_THAT(read_sample(*aimed, 0).values<float>(1), ElementsAre(1, 2, 3));
}

TEST_F(WebdatasetArraysTest, ConcatenatesSeveralInputArrays) {
  write("data.tar", tar_member("a.x.npy", two_floats()) +
                        tar_member("a.z.npy", npy("<i4", "(1, 1)", bytes_of<int32_t>({7}))) +
                        tar_member("a.cls", "0") + kTarEnd);
  config::DatasetConfig config = arrays({3});
  fields_in(config).input = {"x.npy", "z.npy"};
  const auto data = opened(config);
  ASSERT_NE(data, nullptr);
  EXPECT_THAT(read_sample(*data, 0).values<float>(0), ElementsAre(1, 2, 7));
}

TEST_F(WebdatasetArraysTest, ReportsSampleErrorOnInvalidNpyFile) {
  const std::string good = two_floats();
  EXPECT_THAT(error_from("no array"), HasSubstr("not an npy file"));
  EXPECT_THAT(error_from(""), HasSubstr("not an npy file"));
  EXPECT_THAT(error_from(good.substr(0, 40)), HasSubstr("truncated within its header"));
  EXPECT_THAT(error_from(good.substr(0, good.size() - 1)), HasSubstr("declares 8 bytes"));
  EXPECT_THAT(error_from(good + "more"), HasSubstr("declares 8 bytes"));
  EXPECT_THAT(error_from(npy("<c8", "(1,)", "12345678")), HasSubstr("of type '<c8'"));
  EXPECT_THAT(error_from(npy("|O", "(1,)", "12345678")), HasSubstr("of type '|O'"));
  EXPECT_THAT(error_from(npy(">f4", "(2,)", "12345678")), HasSubstr("big-endian"));
  EXPECT_THAT(error_from(npy_with_header("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2)}",
                                         "12345678")),
              HasSubstr("Fortran order"));
  EXPECT_THAT(error_from(npy("<f4", "(9223372036854775807, 9223372036854775807)", "")),
              HasSubstr("declares more than 2^64 bytes"));
}

TEST_F(WebdatasetArraysTest, ReportsSampleErrorOnShapeMismatchOrNonfiniteValue) {
  EXPECT_THAT(error_from(npy("<f4", "(3,)", bytes_of<float>({1, 2, 3}))),
              HasSubstr("is an array of [3], but its shape is to be [2]"));
  EXPECT_THAT(error_from(npy("<f4", "(2,)", bytes_of<float>({1, NAN}))),
              HasSubstr("must be finite, got NaN"));
  EXPECT_THAT(error_from(npy("<f4", "()", bytes_of<float>({1}))), HasSubstr("array of [1]"));
}

TEST_F(WebdatasetArraysTest, ReportsSampleErrorOnOtherDimensionOrder) {
  const std::string bytes(12, 'x');
  write_arrays(
      {npy("|u1", "(3, 2, 2)", bytes), npy("|u1", "(2, 3, 2)", bytes), npy("<f4", "(3,)", bytes)});
  const auto data = opened(arrays({3, 2, 2}));
  ASSERT_NE(data, nullptr);
  EXPECT_TRUE(read_sample(*data, 0).status.ok());
  EXPECT_THAT(read_sample(*data, 1).status.message(),
              HasSubstr("array of [2, 3, 2], but its shape is to be [3, 2, 2]"));
  EXPECT_FALSE(read_sample(*data, 2).status.ok());
}

TEST_F(WebdatasetArraysTest, ReportsSampleErrorOnFloatsAmongUint8Images) {
  write_arrays(
      {npy("|u1", "(1, 2, 2)", "abcd"), npy("<f4", "(1, 2, 2)", bytes_of<float>({1, 2, 3, 4}))});
  const auto data = opened(arrays({1, 2, 2}));
  ASSERT_NE(data, nullptr);
  EXPECT_THAT(read_sample(*data, 1).status.message(),
              HasSubstr("float32 [1, 2, 2], but those before are images of uint8"));
}

TEST_F(WebdatasetArraysTest, ReportsSampleErrorOnInterleavedBytesAmongFloats) {
  write_arrays({npy("<f4", "(3, 1, 2)", bytes_of<float>({1, 2, 3, 4, 5, 6})),
                npy("|u1", "(1, 2, 3)", "abcdef")});
  const auto data = opened(arrays({3, 1, 2}));
  ASSERT_NE(data, nullptr);
  EXPECT_TRUE(read_sample(*data, 0).status.ok());
  EXPECT_THAT(read_sample(*data, 1).status.message(),
              HasSubstr("is an array of [1, 2, 3], but its shape is to be [3, 1, 2]"));
}

TEST_F(WebdatasetArraysTest, RejectsDatasetWhenFirstArrayIsInvalid) {
  write_arrays({"no array", two_floats()});
  expect_error(arrays({2}), StatusCode::kCorrupt,
               {"data.train.path", path("data.tar"), "sample '0'", "npy: not an npy file"});
}

TEST_F(WebdatasetArraysTest, RejectsDatasetWithInvalidLabels) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {npy("<f4", "()", bytes_of<float>({1})), "must be one integer, got 1 number"},
      {npy("<i8", "(2,)", bytes_of<int64_t>({1, 2})), "must be one integer, got 2 integers"},
      {npy("<i8", "()", bytes_of<int64_t>({-1})), "must be at least 0, got -1"},
      {"7", "not an npy file"}};
  for (const auto& [label, message] : cases) {
    write("data.tar", tar_member("a.npy", two_floats()) + tar_member("a.y.npy", label) + kTarEnd);
    config::DatasetConfig config = arrays({2});
    fields_in(config).label = "y.npy";
    expect_error(config, StatusCode::kCorrupt, {path("data.tar"), "sample 'a'", message});
  }
}

TEST_F(WebdatasetArraysTest, RejectsIncompatibleSettings) {
  write_arrays({two_floats()});
  config::DatasetConfig images = arrays({});
  fields_in(images).input.clear();
  fields_in(images).image = "npy";
  transforms_in(images) = {config::Resize{{2, 2}}};
  expect_error(images, StatusCode::kInvalidArgument,
               {"data.train.fields.image", "'npy' is an array", "fields.input"});
  config::DatasetConfig mixed = arrays({2});
  fields_in(mixed).input = {"npy;bin"};
  expect_error(mixed, StatusCode::kInvalidArgument, {"data.train.fields.input", "mixes arrays"});
  config::DatasetConfig json = arrays({2});
  fields_in(json).input = {"npy:x"};
  expect_error(json, StatusCode::kInvalidArgument, {"data.train.fields.input", "no JSON"});
  config::DatasetConfig text;
  text.source = config::WebdatasetDataset{};
  path_in(text) = path("data.tar");
  fields_in(text).text = "npy";
  sequence_in(text).block_size = 3;
  expect_error(text, StatusCode::kInvalidArgument, {"data.train.fields.text", "no text"});
}

}  // namespace
}  // namespace stoker::data::format
