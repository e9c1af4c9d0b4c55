#include <cmath>
#include <filesystem>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/data/files/index.h"
#include "shared/data/format/npy_header.h"
#include "shared/data/format/npy_value.h"
#include "shared/data/pipeline/dataset_refresh.h"
#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/support/numpy_files.h"

namespace stoker::data::format {
namespace {

using test::bytes_of;
using test::npy;
using test::npy_with_header;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_sample;

class NumpyDatasetTest : public testing::FolderFixture {
 protected:
  config::DatasetConfig arrays(const std::string& file = "x.npy",
                               const std::string& labels = "y.npy") const {
    config::DatasetConfig config;
    config.source = config::NumpyDataset{};
    path_in(config) = path(file);
    if (!labels.empty()) source_in<config::NumpyDataset>(config).labels_path = path(labels);
    return config;
  }
  void write_labels(int64_t count) {
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < count; ++i) labels.push_back(i % 3);
    write("y.npy", npy("<i8", '(' + std::to_string(count) + ",)", bytes_of(labels)));
  }
  // The first row of an array of these numbers, as F32.
  template <typename Number>
  std::vector<float> floats(const std::string& descr, const std::vector<Number>& numbers) {
    write("x.npy", npy(descr, "(1, " + std::to_string(numbers.size()) + ")", bytes_of(numbers)));
    write_labels(1);
    const auto dataset = opened(arrays());
    return dataset ? read_sample(*dataset, 0).values<float>(0) : std::vector<float>();
  }
  // Expects an error for an x.npy with this header and five bytes of data.
  void expect_rejected(const std::string& dict, const std::string& what) {
    write("x.npy", npy_with_header(dict, "12345"));
    write_labels(5);
    expect_error(arrays(), StatusCode::kCorrupt, {"data.train.path", path("x.npy"), what});
  }
};

TEST_F(NumpyDatasetTest, ReadsFloatRowsUnchanged) {
  write("x.npy", npy("<f4", "(3, 2)", bytes_of<float>({1, 2, 3, 4, 5, -0.0f})));
  write_labels(3);
  const auto dataset = opened(arrays());
  ASSERT_EQ(dataset->size(), 3u);
  EXPECT_EQ(dataset->classes(), 3u);
  EXPECT_EQ(dataset->spec()[0], (TensorSpec{.name = "input", .dtype = DType::kF32, .shape = {2}}));
  EXPECT_THAT(read_sample(*dataset, 1).values<float>(0), ElementsAre(3, 4));
  EXPECT_EQ(read_sample(*dataset, 2).label(), 2);
  EXPECT_EQ(dataset->source(1).file, path("x.npy"));
  EXPECT_EQ(dataset->source(1).offset, 128u + 8u);
}

TEST_F(NumpyDatasetTest, LeavesOutRowsWithInvalidLabelsUpToRate) {
  write("x.npy", npy("<f4", "(6, 1)", bytes_of<float>({0, 10, 20, 30, 40, 50})));
  write("y.npy", npy("<i8", "(6,)", bytes_of<int64_t>({-1, 0, 2, -1, -7, 1})));
  auto config = arrays();
  expect_error(config, StatusCode::kCorrupt,
               {path("y.npy"), "offset 128", "not a class", "3 of 6 are bad",
                "data.train.max_bad_record_rate (0.001)"});
  source_in<config::NumpyDataset>(config).max_bad_record_rate = 0.5;
  opened(config);
  const auto dataset = pipeline::open_indexed("train", config, index_dir(), "");
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  ASSERT_EQ((*dataset)->size(), 3u);
  EXPECT_EQ((*dataset)->classes(), 3u);
  const std::vector<std::pair<float, int64_t>> expected{{10, 0}, {20, 2}, {50, 1}};
  for (uint64_t i = 0; i < 3; ++i) {
    const auto sample = read_sample(**dataset, i);
    EXPECT_EQ(sample.values<float>(0)[0], expected[i].first);
    EXPECT_EQ(sample.label(), expected[i].second);
  }
  EXPECT_EQ((*dataset)->source(2).offset, 128u + 5 * 4);
  std::vector<int64_t> labels(2);
  ASSERT_TRUE((*dataset)->read_labels(1, labels).ok());
  EXPECT_THAT(labels, ElementsAre(2, 1));
}

TEST_F(NumpyDatasetTest, RejectsNonfiniteNumbersWithFileAndRow) {
  const auto expect_bad = [](const Dataset& dataset, uint64_t sample, const std::string& text) {
    const Status status = read_sample(dataset, sample).status;
    EXPECT_EQ(status.code(), StatusCode::kCorrupt);
    EXPECT_EQ(status.message(), text);
  };
  write("x.npy", npy("<f4", "(3, 2)", bytes_of<float>({1, 2, 3, NAN, 5, 6})));
  write("y.npy", npy("<f8", "(3,)", bytes_of<double>({0.5, 1, 1e300})));
  const auto dataset = opened(arrays());
  ASSERT_TRUE(dataset);
  EXPECT_TRUE(read_sample(*dataset, 0).status.ok());
  expect_bad(*dataset, 1, path("x.npy") + ": row 1: must be finite, got NaN");
  // The largest float is 3.4e38.
  expect_bad(*dataset, 2, path("y.npy") + ": row 2: must be finite, got infinity");
}

TEST_F(NumpyDatasetTest, RoundsOtherNumbersToFloats) {
  EXPECT_THAT(floats<double>("<f8", {0.1, -3.4028234663852886e38}),
              ElementsAre(0.1f, std::numeric_limits<float>::lowest()));
  EXPECT_THAT(floats<uint16_t>("<f2", {0x3c00, 0xc100}), ElementsAre(1, -2.5));
  EXPECT_THAT(floats<int8_t>("|i1", {-128, 127}), ElementsAre(-128, 127));
  EXPECT_THAT(floats<uint8_t>("|u1", {0, 255}), ElementsAre(0, 255));
  EXPECT_THAT(floats<uint8_t>("|b1", {1, 0}), ElementsAre(1, 0));
  EXPECT_THAT(floats<uint16_t>("<u2", {1, 65535}), ElementsAre(1, 65535));
  EXPECT_THAT(floats<int16_t>("<i2", {-1, 2}), ElementsAre(-1, 2));
  EXPECT_THAT(floats<uint32_t>("<u4", {1, 4294967295u}), ElementsAre(1, 4294967296.0f));
  EXPECT_THAT(floats<int32_t>("<i4", {-16777217, 5}), ElementsAre(-16777216, 5));
  EXPECT_THAT(floats<uint64_t>("<u8", {1, ~0ull}), ElementsAre(1, 18446744073709551616.0f));
  EXPECT_THAT(floats<int64_t>("<i8", {-5, 6}), ElementsAre(-5, 6));
}

TEST(HalfToFloatTest, ConvertsEveryHalfExactly) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const int exponent = static_cast<int>(half >> 10 & 31);
    const double fraction = half & 1023;
    double expected =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31) expected = fraction == 0 ? INFINITY : NAN;
    if (half >> 15 != 0) expected = -expected;
    const float found = half_to_float(static_cast<uint16_t>(half));
    ASSERT_TRUE(found == expected || (std::isnan(found) && std::isnan(expected))) << half;
    ASSERT_EQ(std::signbit(found), half >> 15 != 0) << half;
  }
}

TEST_F(NumpyDatasetTest, ReadsUint8ArraysAsImages) {
  const std::string pixels = "abcdefghijkl";
  write_labels(1);
  const auto shape_and_bytes = [&](const std::string& shape, size_t bytes) {
    write("x.npy", npy("|u1", shape, pixels.substr(0, bytes)));
    const auto dataset = opened(arrays());
    return std::pair(dataset->spec()[0].shape, read_sample(*dataset, 0).text());
  };
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(shape_and_bytes("(1, 2, 3)", 6), std::pair(Shape{1, 2, 3}, std::string("abcdef")));
  EXPECT_EQ(shape_and_bytes("(1, 3, 2, 2)", 12), std::pair(Shape{3, 2, 2}, pixels));
  EXPECT_EQ(shape_and_bytes("(1, 2, 2, 3)", 12),
            std::pair(Shape{3, 2, 2}, std::string("adgjbehkcfil")));
  EXPECT_EQ(shape_and_bytes("(1, 2, 3, 1)", 6), std::pair(Shape{1, 2, 3}, std::string("abcdef")));
  EXPECT_EQ(shape_and_bytes("(1, 2, 3, 2)", 12), std::pair(Shape{2, 3, 2}, pixels));
  EXPECT_EQ(opened(arrays())->spec()[0].dtype, DType::kU8);
}

TEST_F(NumpyDatasetTest, TreatsFloatLabelsAsTargets) {
  write("x.npy", npy("<f4", "(2,)", bytes_of<float>({1, 2})));
  write("y.npy", npy("<f8", "(2, 2)", bytes_of<double>({1, 2, 3, 4})));
  const auto dataset = opened(arrays());
  EXPECT_EQ(dataset->classes(), 0u);
  EXPECT_EQ(dataset->spec()[0].shape, (std::vector<int64_t>{1}));
  EXPECT_EQ(dataset->spec()[1], (TensorSpec{.name = "target", .dtype = DType::kF32, .shape = {2}}));
  EXPECT_THAT(read_sample(*dataset, 1).values<float>(1), ElementsAre(3, 4));
  auto config = arrays();
  fields_in(config).label = "y";
  expect_error(config, StatusCode::kInvalidArgument,
               {"data.train.fields.label", "float64 rows of [2]"});
}

TEST_F(NumpyDatasetTest, ConcatenatesShardsAndRequiresSameShape) {
  for (int shard = 0; shard < 3; ++shard) {
    const std::string name = std::to_string(shard) + ".npy";
    std::vector<float> rows;
    for (int row = 0; row <= shard; ++row) rows.push_back(static_cast<float>(10 * shard + row));
    const std::string shape = '(' + std::to_string(rows.size()) + ", 1)";
    write("x/" + name, npy("<f4", shape, bytes_of(rows)));
  }
  write_labels(6);
  auto config = arrays("x");
  config.split = {0.5, 1};
  const auto dataset = opened(config);
  ASSERT_EQ(dataset->size(), 3u);
  EXPECT_THAT(read_sample(*dataset, 0).values<float>(0), ElementsAre(20));
  EXPECT_EQ(read_sample(*dataset, 0).label(), 0);
  EXPECT_EQ(dataset->source(2).file, path("x/2.npy"));
  write("x/3.npy", npy("<f4", "(1, 2)", bytes_of<float>({1, 2})));
  expect_error(config, StatusCode::kMismatch, {path("x/3.npy"), "rows of [2]", "rows of [1]"});
  write("x/3.npy", npy("<f8", "(1, 1)", bytes_of<double>({1})));
  expect_error(config, StatusCode::kMismatch, {path("x/3.npy"), "float64"});
  write("x/3.npy", npy("<f4", "(1, 1)", bytes_of<float>({1})));
  expect_error(config, StatusCode::kMismatch, {"7 rows of input, but 6 of labels"});
}

TEST_F(NumpyDatasetTest, ReadsStoredOrDeflatedArchives) {
  const std::string x = npy("<f4", "(3, 1)", bytes_of<float>({1, 2, 3}));
  const std::string y = npy("<i4", "(3,)", bytes_of<int32_t>({2, 0, 1}));
  const std::vector<std::pair<std::string, std::string>> members{
      {"other.npy", x}, {"x.npy", x}, {"y.npy", y}};
  for (const std::string& archive :
       {test::zip(members, false), test::zip(members, true), test::zip64(members)}) {
    write("a.npz", archive);
    const auto dataset = opened(arrays("a.npz", ""));
    ASSERT_TRUE(dataset);
    const auto again =
        pipeline::open_indexed("train", arrays("a.npz", ""), index_dir(), dataset->fingerprint());
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    for (uint64_t i = 3; i-- > 0;) {
      EXPECT_THAT(read_sample(*dataset, i).values<float>(0), ElementsAre(1 + i));
      EXPECT_EQ(read_sample(**again, i).label(), static_cast<int64_t>((i + 2) % 3));
    }
  }
}

TEST_F(NumpyDatasetTest, SelectsArchiveMembersByFieldsOrDefaultNames) {
  const std::string x = npy("<f4", "(1, 1)", bytes_of<float>({7}));
  const std::string y = npy("<i4", "(1,)", bytes_of<int32_t>({4}));
  write("a.npz", test::zip({{"x_train.npy", x}, {"y_train.npy", y}}, false));
  auto config = arrays("a.npz", "");
  expect_error(config, StatusCode::kInvalidArgument,
               {"data.train.fields.input", path("a.npz"), "x_train.npy, y_train.npy"});
  fields_in(config).input = {"x_train"};
  fields_in(config).label = "z";
  expect_error(config, StatusCode::kInvalidArgument, {"data.train.fields.label", "no array 'z'"});
  fields_in(config).label = "y_train";
  EXPECT_EQ(read_sample(*opened(config), 0).label(), 4);
  fields_in(config).label = "";
  fields_in(config).target = {"y_train"};
  EXPECT_THAT(read_sample(*opened(config), 0).values<float>(1), ElementsAre(4));
  fields_in(config).target.clear();
  write_labels(1);
  source_in<config::NumpyDataset>(config).labels_path = path("y.npy");
  EXPECT_EQ(read_sample(*opened(config), 0).label(), 0);
}

// For models with their own loss: arrays of any shape, with or without labels.
TEST_F(NumpyDatasetTest, ReadsOtherArraysByTheirNames) {
  const std::string x = npy("<f4", "(3, 1)", bytes_of<float>({1, 2, 3}));
  const std::string y = npy("<i4", "(3,)", bytes_of<int32_t>({2, 0, 1}));
  const std::string mask =
      npy("|u1", "(3, 2, 2)", std::string("\0\1\2\3\4\5\6\7\10\11\12\377", 12));
  const std::string weight = npy("<f8", "(3,)", bytes_of<double>({0.5, 1.5, NAN}));
  const std::vector<std::pair<std::string, std::string>> members{
      {"x.npy", x}, {"y.npy", y}, {"mask.npy", mask}, {"weight.npy", weight}};
  const std::vector<TensorSpec> others{{"mask", DType::kI64, {2, 2}}, {"weight", DType::kF32, {}}};
  auto config = arrays("a.npz", "");
  fields_in(config).others = {"mask", "weight"};
  for (const bool has_label : {false, true})
    for (const bool is_deflated : {false, true}) {
      write("a.npz", test::zip(members, is_deflated));
      fields_in(config).label = has_label ? "y" : "";
      const auto dataset = opened(config);
      ASSERT_TRUE(dataset);
      const auto again =
          pipeline::open_indexed("train", config, index_dir(), dataset->fingerprint());
      ASSERT_TRUE(again.ok()) << again.status().to_string();
      std::vector<TensorSpec> expected{{"input", DType::kF32, {1}}};
      if (has_label) expected.push_back({"label", DType::kI64, {}});
      expected.insert(expected.end(), others.begin(), others.end());
      EXPECT_EQ((*again)->spec(), expected);
      const auto sample = read_sample(**again, 1);
      const size_t first = expected.size() - 2;
      EXPECT_THAT(sample.values<float>(0), ElementsAre(2));
      if (has_label) {
        EXPECT_EQ(sample.label(), 0);
      }
      EXPECT_THAT(sample.values<int64_t>(first), ElementsAre(4, 5, 6, 7));
      EXPECT_THAT(sample.values<float>(first + 1), ElementsAre(1.5F));
      EXPECT_THAT(read_sample(**again, 2).status.message(),
                  AllOf(HasSubstr("row 2"), HasSubstr("must be finite")));
    }
  fields_in(config).others = {"nothing"};
  expect_error(config, StatusCode::kInvalidArgument,
               {"data.train.fields.others", "there is no array 'nothing'"});
  write("a.npz",
        test::zip({{"x.npy", x}, {"mask.npy", npy("<i8", "(2,)", bytes_of<int64_t>({1, 2}))}},
                  false));
  fields_in(config) = {.others = {"mask"}};
  expect_error(config, StatusCode::kMismatch, {"3 rows of input, but 2 of mask"});
  write("x.npy", x);
  write_labels(3);
  config = arrays();
  fields_in(config).others = {"mask"};
  expect_error(config, StatusCode::kInvalidArgument,
               {"data.train.fields.others", "arrays of an .npz"});
}

TEST_F(NumpyDatasetTest, NeedsNoLabelsInArchive) {
  write("a.npz", test::zip({{"x.npy", npy("<f4", "(2, 1)", bytes_of<float>({1, 2}))}}, false));
  const auto dataset = opened(arrays("a.npz", ""));
  ASSERT_TRUE(dataset);
  EXPECT_EQ(dataset->spec(), (std::vector<TensorSpec>{{"input", DType::kF32, {1}}}));
  EXPECT_THAT(read_sample(*dataset, 1).values<float>(0), ElementsAre(2));
}

// Zeros shrink to a thousandth. A few of them are harmless; the file of 100 KiB is not.
TEST_F(NumpyDatasetTest, LimitsExpansionOfArchives) {
  const auto archive = [](size_t rows) {
    const std::string x = npy("|u1", "(" + std::to_string(rows) + ",)", std::string(rows, '\0'));
    return test::zip({{"x.npy", x}, {"y.npy", x}}, true);
  };
  write("a.npz", archive(1 << 20));
  EXPECT_TRUE(opened(arrays("a.npz", "")));
  write("a.npz", archive(40 << 20));  // the two together exceed what is free
  expect_error(arrays("a.npz", ""), StatusCode::kCorrupt,
               {path("a.npz"), "would take 41 MiB decompressed, more than 100 times its",
                "decompress it first (gunzip, numpy.savez)"});
}

// Found by fuzz_cost.
TEST_F(NumpyDatasetTest, ReportsUnknownTypeInOneLine) {
  write("x.npy", test::npy_with_header(
                     "{'descr': '<\n4', 'fortran_order': False, 'shape': (3, 1), }", "123456"));
  write("y.npy", npy("<i2", "(1,)", bytes_of<int16_t>({0})));
  expect_error(arrays(), StatusCode::kCorrupt, {path("x.npy"), "are of type '<"});
  EXPECT_EQ(open(arrays()).status().message().find('\n'), std::string::npos);
}

TEST_F(NumpyDatasetTest, RejectsInvalidArchives) {
  const std::string x = npy("<f4", "(1, 1)", bytes_of<float>({7}));
  const auto expect_archive_rejected = [&](std::string archive, const std::string& what) {
    write("a.npz", archive);
    expect_error(arrays("a.npz", ""), StatusCode::kCorrupt, {path("a.npz"), what});
  };
  expect_archive_rejected(test::zip({{"x\n.npy", x}}, false), "control character");
  expect_archive_rejected(test::zip({{"x.npy", "no array, but long enough"}}, false),
                          "x.npy: not an npy");
  std::string encrypted = test::zip({{"x.npy", x}}, false);
  encrypted[encrypted.find("PK\1\2") + 8] = 1;
  expect_archive_rejected(encrypted, "encrypted");
  std::string corrupted = test::zip({{"x.npy", x}, {"y.npy", x}}, true);
  corrupted[corrupted.find("PK\1\2") + 16] ^= 1;
  expect_archive_rejected(corrupted, "CRC-32");
  EXPECT_TRUE(has_no_index_files());
}

TEST_F(NumpyDatasetTest, RejectsInvalidClassLabels) {
  write("x.npy", npy("<f4", "(2,)", bytes_of<float>({1, 2})));
  write("y.npy", npy("<i2", "(2,)", bytes_of<int16_t>({0, -1})));
  expect_error(arrays(), StatusCode::kCorrupt, {path("y.npy"), "offset 130", "not a class"});
  write("y.npy", npy("<u8", "(2,)", bytes_of<uint64_t>({0, ~0ull})));
  expect_error(arrays(), StatusCode::kCorrupt, {"not a class"});
  write_labels(2);
  auto config = arrays();
  source_in<config::NumpyDataset>(config).num_classes = 10;
  EXPECT_EQ(opened(config)->classes(), 10u);
  source_in<config::NumpyDataset>(config).num_classes = 1;
  expect_error(config, StatusCode::kInvalidArgument, {"data.train.num_classes"});
  config = arrays("x.npy", "");
  expect_error(config, StatusCode::kInvalidArgument, {"data.train.labels_path", path("x.npy")});
}

TEST_F(NumpyDatasetTest, RejectsLabelThatWasWrittenAfterIndexing) {
  write("x.npy", npy("<f4", "(2,)", bytes_of<float>({1, 2})));
  write("y.npy", npy("<i4", "(2,)", bytes_of<int32_t>({0, 2})));
  const auto dataset = opened(arrays());
  const auto time = std::filesystem::last_write_time(path("y.npy"));
  write("y.npy", npy("<i4", "(2,)", bytes_of<int32_t>({0, 3})));
  std::filesystem::last_write_time(path("y.npy"), time);
  EXPECT_EQ(read_sample(*dataset, 1).status.message(),
            path("y.npy") + ": label 3 at offset 132 was not there when the file was indexed");
}

TEST_F(NumpyDatasetTest, RejectsIndexWithClassesOfNonIntegers) {
  const auto open_with_classes = [this](const std::string& target) {
    write("x.npy", npy("<f4", "(2,)", bytes_of<float>({1, 2})));
    write("y.npy", target);
    EXPECT_NE(opened(arrays()), nullptr);
    const std::string path = pipeline::index_file("train", index_dir());
    auto index = files::load_index(path);
    EXPECT_EQ(index->metadata.numbers.front(), 0u);
    index->metadata.numbers.front() = 3;
    EXPECT_TRUE(files::save_index(*index, path).ok());
    return pipeline::open_indexed("train", arrays(), index_dir(), "").status();
  };
  const Status floats = open_with_classes(npy("<f8", "(2,)", bytes_of<double>({1, 2})));
  EXPECT_EQ(floats.code(), StatusCode::kCorrupt);
  EXPECT_EQ(floats.message(),
            "data.train: its index has classes, but its labels are float64 rows of []");
  // Several numbers per row are labels only in sequences.
  const Status rows = open_with_classes(npy("<i4", "(2, 2)", bytes_of<int32_t>({1, 2, 3, 4})));
  EXPECT_EQ(rows.message(),
            "data.train: its index has classes, but its labels are int32 rows of [2]");
}

TEST_F(NumpyDatasetTest, RejectsInvalidHeaders) {
  const std::string good = "'fortran_order': False, 'shape': (5,), ";
  expect_rejected("{'descr': '>f4', " + good + "}", "astype('<f4')");
  expect_rejected("{'descr': '<c8', " + good + "}", "'<c8'");
  expect_rejected("{'descr': '|O', " + good + "}", "'|O'");
  expect_rejected("{'descr': '<U4', " + good + "}", "'<U4'");
  expect_rejected("{'descr': [('a', '<f4')], " + good + "}", "structured");
  expect_rejected("{'descr': __import__('os'), " + good + "}", "structured");
  expect_rejected("{'descr': '|u1', 'fortran_order': True, 'shape': (5, 1)}", "ascontiguousarray");
  expect_rejected("{'descr': '|u1', 'fortran_order': 0, 'shape': (5,)}", "neither True nor False");
  expect_rejected("{'descr': '|u1', 'fortran_order': False, 'shape': ()}", "single number");
  expect_rejected("{'descr': '|u1', 'fortran_order': False, 'shape': (5)}x", "behind its dict");
  expect_rejected("{'descr': '|u1', 'fortran_order': False, 'shape': (5, -1)}", "no tuple");
  expect_rejected("{'descr': '|u1', 'fortran_order': False}", "lacks");
  expect_rejected("{'descr': '|u1', 'descr': '|u1', " + good + "}", "duplicate");
  expect_rejected("{'descr': '|u1', 'x': 1, " + good + "}", "unknown");
  expect_rejected("['descr']", "no dict");
  expect_rejected("{'descr': '|u1', 'fortran_order': False, 'shape': (0, 5)}", "no numbers");
}

TEST_F(NumpyDatasetTest, RejectsInvalidLengthsWithoutAllocation) {
  const std::string head = "{'descr': '<f8', 'fortran_order': False, 'shape': (";
  expect_rejected(head + "1,)}", "declares 8 bytes of numbers, but there are 5");
  expect_rejected(head + "4294967296, 4294967296)}", "more than 2^64");
  expect_rejected(head + "99999999999999999999,)}", "no tuple");
  std::string huge = npy_with_header(head + "1,)}", "12345678", 2);
  huge.replace(8, 4, "\xf0\xff\xff\xff");
  write("x.npy", huge);
  expect_error(arrays(), StatusCode::kCorrupt, {"4294967280 bytes"});
  write("x.npy", std::string("\x93NUMPY\x04\0", 8) + std::string(100, ' '));
  expect_error(arrays(), StatusCode::kCorrupt, {"version 4.0"});
}

TEST_F(NumpyDatasetTest, ReadsAllHeaderVersions) {
  for (const char version : {1, 2, 3}) {
    write("x.npy", npy_with_header("{\"shape\": (5L, ), 'descr': \"|u1\", 'fortran_order':True}",
                                   "12345", version));
    write_labels(5);
    EXPECT_THAT(read_sample(*opened(arrays()), 4).values<float>(0), ElementsAre('5'));
  }
}

TEST_F(NumpyDatasetTest, RejectsTruncationAtAnyByte) {
  write_labels(2);
  const std::string file = npy("<f4", "(2, 1)", bytes_of<float>({1, 2}));
  for (size_t length = 0; length < file.size(); ++length) {
    write("x.npy", file.substr(0, length));
    expect_error(arrays(), StatusCode::kCorrupt, {path("x.npy")});
  }
  const std::string labels = npy("<i4", "(2,)", bytes_of<int32_t>({0, 1}));
  for (const bool deflated : {false, true}) {
    const std::string archive = test::zip({{"x.npy", file}, {"y.npy", labels}}, deflated);
    for (size_t length = 4; length < archive.size(); ++length) {
      write("x.npy", archive.substr(0, length));
      expect_error(arrays("x.npy", ""), StatusCode::kCorrupt, {path("x.npy"), "zip archive"});
    }
  }
}

}  // namespace
}  // namespace stoker::data::format
