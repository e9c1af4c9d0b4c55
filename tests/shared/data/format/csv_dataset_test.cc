#include <string>

#include <gtest/gtest.h>

#include "shared/data/format/text_records.h"
#include "shared/data/pipeline/open_dataset.h"
#include "tests/shared/data/folder_fixture.h"

namespace stoker::data::format {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_sample;

class CsvDatasetTest : public testing::FolderFixture {
 protected:
  config::DatasetConfig csv(const std::string& label = "y") const {
    config::DatasetConfig config;
    config.source = config::CsvDataset{};
    path_in(config) = path("data.csv");
    fields_in(config).label = label;
    return config;
  }
};

TEST_F(CsvDatasetTest, UsesAllColumnsExceptLabelAsInput) {
  write("data.csv", "a,y,b\n1,0,2.5\n-3,2,4e2\n");
  const auto dataset = opened(csv());
  ASSERT_EQ(dataset->size(), 2u);
  EXPECT_EQ(dataset->classes(), 3u);
  EXPECT_EQ(dataset->spec()[0], (TensorSpec{.name = "input", .dtype = DType::kF32, .shape = {2}}));
  EXPECT_THAT(read_sample(*dataset, 1).values<float>(0), ElementsAre(-3, 400));
  EXPECT_EQ(read_sample(*dataset, 1).label(), 2);
  EXPECT_EQ(dataset->source(1).file, path("data.csv"));
  EXPECT_EQ(dataset->source(1).offset, 14u);
}

TEST_F(CsvDatasetTest, ReadsInputsInRequestedOrderAndShape) {
  write("data.csv", "a,b,y,c,d\n1,2,0,3,4\n");
  auto config = csv();
  fields_in(config).input = {"d", "c", "b", "a"};
  record_in(config).input_shape = {1, 2, 2};
  const auto dataset = opened(config);
  EXPECT_EQ(dataset->spec()[0].shape, (std::vector<int64_t>{1, 2, 2}));
  EXPECT_THAT(read_sample(*dataset, 0).values<float>(0), ElementsAre(4, 3, 2, 1));
  record_in(config).input_shape = {3};
  expect_error(config, StatusCode::kInvalidArgument,
               {"data.train.input_shape", "3 numbers", "4 input columns"});
}

TEST_F(CsvDatasetTest, AssignsClassesToLabelNamesInSortedOrder) {
  write("data.csv", "x,y\n1,rose\n2,daisy\n3,\"ox, eye\"\n4,rose\n");
  const auto dataset = opened(csv());
  EXPECT_THAT(dataset->class_names(), ElementsAre("daisy", "ox, eye", "rose"));
  EXPECT_EQ(read_sample(*dataset, 0).label(), 2);
  EXPECT_EQ(read_sample(*dataset, 2).label(), 1);
}

TEST_F(CsvDatasetTest, ReadsTargetsAsFloats) {
  write("data.csv", "x,y,z\n1,0.5,-2\n");
  auto config = csv("");
  fields_in(config).target = {"z", "y"};
  const auto dataset = opened(config);
  EXPECT_EQ(dataset->classes(), 0u);
  EXPECT_EQ(dataset->spec()[1], (TensorSpec{.name = "target", .dtype = DType::kF32, .shape = {2}}));
  EXPECT_THAT(read_sample(*dataset, 0).values<float>(1), ElementsAre(-2, 0.5));
}

TEST_F(CsvDatasetTest, ReadsOtherColumnsByTheirNames) {
  write("data.csv", "weight,a,y,b,price\n0.5,1,rose,2,9\n1.5,3,daisy,4,-1\n");
  auto config = csv();
  fields_in(config).others = {"price", "weight"};
  const auto dataset = opened(config);
  EXPECT_EQ(dataset->spec(), (std::vector<TensorSpec>{{"input", DType::kF32, {2}},
                                                      {"label", DType::kI64, {}},
                                                      {"price", DType::kF32, {}},
                                                      {"weight", DType::kF32, {}}}));
  const auto sample = read_sample(*dataset, 1);
  EXPECT_THAT(sample.values<float>(0), ElementsAre(3, 4));
  EXPECT_EQ(sample.label(), 0);
  EXPECT_THAT(sample.values<float>(2), ElementsAre(-1));
  EXPECT_THAT(sample.values<float>(3), ElementsAre(1.5F));
  fields_in(config).label.clear();
  fields_in(config).target = {"b"};
  fields_in(config).input = {"a"};
  EXPECT_THAT(read_sample(*opened(config), 0).values<float>(1), ElementsAre(2));
  EXPECT_THAT(read_sample(*opened(config), 0).values<float>(2), ElementsAre(9));
}

TEST_F(CsvDatasetTest, AcceptsByteOrderMarkCarriageReturnsAndBlankLines) {
  write("data.csv", "\xef\xbb\xbfx, y \r\n1,0\r\n\r\n 2 ,1\r\n\n3,2");
  const auto dataset = opened(csv());
  ASSERT_EQ(dataset->size(), 3u);
  EXPECT_THAT(read_sample(*dataset, 1).values<float>(0), ElementsAre(2));
  EXPECT_EQ(read_sample(*dataset, 2).label(), 2);
}

TEST_F(CsvDatasetTest, AcceptsOtherDelimitersAndFilesWithoutHeader) {
  write("data.csv", "1\t0,5\n");
  auto config = csv("");
  source_in<config::CsvDataset>(config).column_names = {"x", "y"};
  fields_in(config).input = {"x"};
  fields_in(config).target = {"y"};
  source_in<config::CsvDataset>(config).delimiter = "\t";
  EXPECT_THAT(read_sample(*opened(config), 0).status.message(),
              HasSubstr("must be a number, got '0,5'"));
  source_in<config::CsvDataset>(config).delimiter = ";";
  write("data.csv", "1;5\n2;6\n");
  EXPECT_EQ(opened(config)->size(), 2u);
  for (const char* const wrong : {"", ",,", "\"", "\n"}) {
    source_in<config::CsvDataset>(config).delimiter = wrong;
    expect_error(config, StatusCode::kInvalidArgument, {"data.train.delimiter"});
  }
}

TEST_F(CsvDatasetTest, RequiresSameHeaderInAllFilesOfFolder) {
  write("data/a.csv", "x,y\n1,0\n2,1\n");
  write("data/b.csv", "x,y\n3,2\n");
  write("data/notes.txt", "not a table");
  auto config = csv();
  path_in(config) = path("data");
  glob_in(config) = "*.csv";
  const auto dataset = opened(config);
  ASSERT_EQ(dataset->size(), 3u);
  EXPECT_THAT(read_sample(*dataset, 2).values<float>(0), ElementsAre(3));
  EXPECT_EQ(dataset->source(2).file, path("data/b.csv"));
  write("data/b.csv", "y,x\n3,2\n");
  expect_error(config, StatusCode::kCorrupt, {path("data/b.csv"), "header", path("data/a.csv")});
}

TEST_F(CsvDatasetTest, ReportsMalformedNumberWithFileLineAndColumn) {
  write("data.csv", "age,y\n1,0\n\"1\n\n\",1\nold,1\n1e99,0\ninf,0\n0x10,1\n");
  const auto dataset = opened(csv());
  EXPECT_TRUE(read_sample(*dataset, 0).status.ok());
  EXPECT_TRUE(read_sample(*dataset, 1).status.ok());
  const auto bad = read_sample(*dataset, 2);
  EXPECT_EQ(bad.status.code(), StatusCode::kCorrupt);
  EXPECT_EQ(bad.status.message(),
            path("data.csv") + ": line 6 at offset 18: input 'age' must be a number, got 'old'");
  for (uint64_t sample = 3; sample < dataset->size(); ++sample)
    EXPECT_EQ(read_sample(*dataset, sample).status.code(), StatusCode::kCorrupt) << sample;
}

// STR_NA_VALUES of pandas 3.1.1, what read_csv takes for missing by default, but for the empty cell.
TEST_F(CsvDatasetTest, DropsRowsWithMissingValuesOfPandas) {
  const std::vector<std::string> markers{
      "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
      "<NA>", "N/A",      "NA",  "NULL",    "NaN",      "None", "n/a",  "nan",    "null"};
  for (const std::string& marker : markers) {
    write("data.csv", "x,z,y\n1,5,0\n" + marker + ",6,1\n3, " + marker + " ,2\n\"" + marker +
                          "\",8,0\n4,7,1\n");
    auto config = csv();
    expect_error(config, StatusCode::kCorrupt, {"line 3", "has no input 'x'", "3 of 5"});
    record_in(config).on_missing_field = config::OnMissingField::kDrop;
    const auto dataset = opened(config);
    ASSERT_EQ(dataset->size(), 2u) << marker;
    EXPECT_THAT(read_sample(*dataset, 1).values<float>(0), ElementsAre(4, 7)) << marker;
  }
}

// Names can be those words: Namibia's code is NA.
TEST_F(CsvDatasetTest, TakesWordsForMissingValuesAsLabels) {
  write("data.csv", "x,y\n1,NA\n2,None\n3,DE\n");
  EXPECT_THAT(opened(csv())->class_names(), ElementsAre("DE", "NA", "None"));
}

TEST_F(CsvDatasetTest, DropsRowsWithGivenMarkersAlsoInLabels) {
  write("data.csv", "x,y\n1,0\n-999,1\n3,?\n4,1\n");
  auto config = csv();
  std::get<config::CsvDataset>(config.source).na_values = {"-999", "?"};
  record_in(config).on_missing_field = config::OnMissingField::kDrop;
  const auto dataset = opened(config);
  ASSERT_EQ(dataset->size(), 2u);
  EXPECT_EQ(dataset->classes(), 2u);
  EXPECT_THAT(read_sample(*dataset, 1).values<float>(0), ElementsAre(4));
}

TEST_F(CsvDatasetTest, LeavesOutBadRowsWithinLimitAndListsThem) {
  std::string rows = "x,y\n";
  for (int i = 0; i < 100; ++i) rows += std::to_string(i) + "," + std::to_string(i % 2) + "\n";
  write("data.csv", rows + "1,0,5\n\"2\"3,1\n");
  auto config = csv();
  expect_error(config, StatusCode::kCorrupt,
               {"line 102", "has 3 fields, but there are 2 columns", "2 of 102 are bad",
                "data.train.max_bad_record_rate (0.001)", "train.bad_records.jsonl"});
  record_in(config).max_bad_record_rate = 0.02;
  const auto dataset = opened(config);
  EXPECT_EQ(dataset->size(), 100u);
  const std::string list = content_of(".index/train.bad_records.jsonl");
  EXPECT_THAT(list, HasSubstr("\"record\":\"line 102\""));
  EXPECT_THAT(list, HasSubstr("behind its closing quote"));
  EXPECT_EQ(std::ranges::count(list, '\n'), 2);
}

TEST_F(CsvDatasetTest, RoundsNumbersToFloats) {
  write("data.csv", "x,y\n16777217,0\n0.1,0\n1e-60,0\n-1E-60,0\n+2,0\n");
  const auto dataset = opened(csv());
  std::vector<float> numbers;
  for (uint64_t i = 0; i < dataset->size(); ++i) {
    const auto sample = read_sample(*dataset, i);
    EXPECT_TRUE(sample.status.ok()) << sample.status.to_string();
    numbers.push_back(sample.values<float>(0)[0]);
  }
  EXPECT_THAT(numbers, ElementsAre(16777216.0f, 0.1f, 0.0f, 0.0f, 2.0f));
}

TEST_F(CsvDatasetTest, RejectsWrongFieldCountAndMalformedQuotesOnOpen) {
  write("data.csv", "x,y\n1,0\n2\n");
  expect_error(csv(), StatusCode::kCorrupt,
               {path("data.csv"), "line 3", "has 1 fields", "2 columns"});
  write("data.csv", "x,y\n1,0\n2,1,2\n");
  expect_error(csv(), StatusCode::kCorrupt, {"line 3 at offset 8", "has 3 fields"});
  write("data.csv", "x,y\n1,0\n\"2,1\n3,0\n");
  expect_error(csv(), StatusCode::kCorrupt, {"line 3", "never closed"});
  write("data.csv", "x,y\n\"2\"3,1\n");
  expect_error(csv(), StatusCode::kCorrupt, {"line 2", "behind its closing quote"});
}

TEST_F(CsvDatasetTest, RejectsOrDropsEmptyFields) {
  write("data.csv", "x,y,unused\n1,0,\n,1,a\n3,,a\n\"\",1,b\n5,1,c\n");
  auto config = csv();
  fields_in(config).input = {"x"};
  expect_error(config, StatusCode::kCorrupt,
               {"line 3", "has no input 'x'", "3 of 5", "incomplete"});
  record_in(config).on_missing_field = config::OnMissingField::kDrop;
  const auto dataset = opened(config);
  ASSERT_EQ(dataset->size(), 2u);
  EXPECT_THAT(read_sample(*dataset, 1).values<float>(0), ElementsAre(5));
}

TEST_F(CsvDatasetTest, RejectsMissingOrDuplicateColumns) {
  write("data.csv", "x,x,y,\n1,2,0,3\n");
  expect_error(csv("z"), StatusCode::kInvalidArgument,
               {"data.train.fields.input", "column 4 has no name"});
  auto config = csv("z");
  fields_in(config).input = {"y"};
  expect_error(config, StatusCode::kInvalidArgument,
               {"data.train.fields.label", "no column 'z'", "x, x, y"});
  config = csv("y");
  fields_in(config).input = {"x"};
  expect_error(config, StatusCode::kInvalidArgument,
               {"data.train.fields.input", "two columns 'x'"});
  EXPECT_TRUE(open(config).status().message().starts_with("data.train.fields.input: "));
}

TEST_F(CsvDatasetTest, NamesCauseOfHeaderThatIsOneColumn) {
  write("data.csv", "x;y\n1;0\n");
  expect_error(csv("y"), StatusCode::kInvalidArgument,
               {"no column 'y'", "set data.train.delimiter"});
  write("data.csv", "x,y\r1,0\r2,1\r");
  expect_error(csv("y"), StatusCode::kCorrupt,
               {path("data.csv"), "its lines end with carriage returns alone", "tr '\\r' '\\n'"});
}

// As pandas.to_csv() writes it with an index.
TEST_F(CsvDatasetTest, RejectsColumnWithoutName) {
  write("data.csv", ",x,y\n0,1,0\n");
  expect_error(csv("y"), StatusCode::kInvalidArgument,
               {"data.train.fields.input", "column 1 has no name"});
}

TEST_F(CsvDatasetTest, ReplacesLineEndInColumnNameBySpace) {
  write("data.csv", "\"price\n(EUR)\",y\n1.5,0\n");
  auto config = csv();
  fields_in(config).input = {"price (EUR)"};
  EXPECT_THAT(read_sample(*opened(config), 0).values<float>(0), ElementsAre(1.5));
}

TEST_F(CsvDatasetTest, RejectsFilesWithoutTable) {
  write("data.csv", "");
  expect_error(csv(), StatusCode::kCorrupt, {path("data.csv"), "empty"});
  write("data.csv", "\n \n");
  expect_error(csv(), StatusCode::kCorrupt, {"empty"});
  write("data.csv", "x,y\n");
  expect_error(csv(), StatusCode::kNotFound, {"no record"});
  write("data.csv", std::string("\xff\xfex\0,\0y\0", 8));
  expect_error(csv(), StatusCode::kCorrupt, {"UTF-16"});
  write("data.csv", "\x1f\x8b\x08 and so on");
  expect_error(csv(), StatusCode::kCorrupt, {path("data.csv"), "gunzip"});
}

TEST_F(CsvDatasetTest, FindsRowsAcrossChunkBoundaries) {
  // Rows of many lengths, so that chunk boundaries are at all positions, also in quotes and line
  // ends.
  std::string table = "x,y,text\n";
  const uint64_t rows = 30'000;
  for (uint64_t i = 0; i < rows; ++i) {
    table += std::to_string(i) + ',' + std::to_string(i % 7) + ",\"" + std::string(i % 190, 'a') +
             (i % 3 == 0 ? "\"\"\n,\"\n" : "\"\r\n");
  }
  write("data.csv", table);
  auto config = csv();
  fields_in(config).input = {"x"};
  const auto dataset = opened(config);
  ASSERT_EQ(dataset->size(), rows);
  for (uint64_t i = 0; i < rows; ++i) {
    const auto sample = read_sample(*dataset, i);
    ASSERT_TRUE(sample.status.ok()) << sample.status.to_string();
    ASSERT_EQ(sample.values<float>(0)[0], static_cast<float>(i));
    ASSERT_EQ(sample.label(), static_cast<int64_t>(i % 7));
  }
}

TEST_F(CsvDatasetTest, FindsRowAfterRowEndingAtChunkBoundary) {
  // Header and rows of 8 bytes, so that every power of two from 8 on is the end of a row.
  std::string table = "xxxxx,y\n";
  const uint64_t rows = 400'000;
  for (uint64_t i = 0; i < rows; ++i)
    table += std::to_string(100000 + i % 900000).substr(1) + ",0\n";
  write("data.csv", table);
  const auto dataset = opened(csv());
  ASSERT_EQ(dataset->size(), rows);
  EXPECT_THAT(read_sample(*dataset, rows - 1).values<float>(0), ElementsAre(99999));
}

TEST_F(CsvDatasetTest, RejectsOversizedRowWithLineNumber) {
  write("data.csv", "x,y\n1,0\n2,\"" + std::string(kMaxTextLineBytes, 'a') + "\"\n");
  expect_error(csv(), StatusCode::kCorrupt, {path("data.csv") + ":3", "more than"});
}

TEST_F(CsvDatasetTest, OpensFromIndexOnlyWithSameSettings) {
  write("data.csv", "a,b,y\n1,2,cat\n3,4,dog\n");
  const std::string fingerprint = opened(csv())->fingerprint();
  const auto dataset = pipeline::open_indexed("train", csv(), index_dir(), fingerprint);
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_THAT(read_sample(**dataset, 1).values<float>(0), ElementsAre(3, 4));
  EXPECT_THAT((*dataset)->class_names(), ElementsAre("cat", "dog"));
  std::vector<config::DatasetConfig> others(4, csv());
  fields_in(others[0]).input = {"a"};
  record_in(others[1]).on_missing_field = config::OnMissingField::kDrop;
  source_in<config::CsvDataset>(others[2]).delimiter = ";";
  source_in<config::CsvDataset>(others[3]).column_names = {"a", "b", "y"};
  for (const auto& other : others)
    EXPECT_EQ(pipeline::open_indexed("train", other, index_dir(), fingerprint).status().code(),
              StatusCode::kMismatch);
}

}  // namespace
}  // namespace stoker::data::format
