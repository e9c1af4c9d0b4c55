#include "shared/data/format/csv_table.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::data::format {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> fields(std::string_view text, char delimiter = ',') {
  CsvRow row;
  const Status status = row.split(text, delimiter);
  EXPECT_TRUE(status.ok()) << status.to_string();
  std::vector<std::string> fields;
  for (size_t i = 0; i < row.size(); ++i) fields.emplace_back(row[i]);
  return fields;
}

TEST(CsvRowTest, SplitsAtDelimitersAndPreservesEmptyFields) {
  EXPECT_THAT(fields("a,b,c\n"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(fields("a,b,c\r\n"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(fields("a;b,c", ';'), ElementsAre("a", "b,c"));
  EXPECT_THAT(fields(",,\n"), ElementsAre("", "", ""));
  EXPECT_THAT(fields("a\n"), ElementsAre("a"));
}

TEST(CsvRowTest, ParsesDelimitersLineEndsAndQuotesInQuotedFields) {
  EXPECT_THAT(fields("\"a,b\",\"c\nd\",\"e\"\"f\"\n"), ElementsAre("a,b", "c\nd", "e\"f"));
  EXPECT_THAT(fields("\"\",\"\"\"\",x\n"), ElementsAre("", "\"", "x"));
  EXPECT_THAT(fields("\"a\"\r\n"), ElementsAre("a"));
}

TEST(CsvRowTest, TreatsQuoteWithinFieldAsCharacter) {
  EXPECT_THAT(fields("3.5\" disk,a\"b\"\n"), ElementsAre("3.5\" disk", "a\"b\""));
}

TEST(CsvRowTest, ReportsMalformedQuotesWithColumn) {
  CsvRow row;
  EXPECT_THAT(row.split("a,\"b", ',').message(), HasSubstr("column 2"));
  EXPECT_THAT(row.split("\"a\"b,c", ',').message(), HasSubstr("column 1 has text behind"));
}

TEST(CsvRowTest, ReturnsSameFieldFromSplitOneAndSplit) {
  for (const std::string text :
       {"a,b,c\n", ",,", "a", "\"a,b\",c\r\n", "a,\"b\"\"c\",,d", ",x\n", "x,\n"}) {
    const auto all = fields(text);
    for (size_t wanted = 0; wanted < all.size() + 2; ++wanted) {
      CsvRow row;
      const auto one = row.split_one(text, ',', wanted);
      ASSERT_TRUE(one.ok());
      EXPECT_EQ(one->fields, all.size()) << text;
      const auto expected =
          wanted < all.size() ? std::optional<std::string_view>(all[wanted]) : std::nullopt;
      EXPECT_EQ(one->field, expected) << text;
    }
  }
}

TEST(CsvRowTest, FindsRowEndOutsideQuotes) {
  EXPECT_EQ(end_of_csv_row("a,b\nc", ','), 4u);
  EXPECT_EQ(end_of_csv_row("a,\"b\nc\"\nd", ','), 8u);
  EXPECT_EQ(end_of_csv_row("a,b\"\nc\"\n", ','), 5u);
  EXPECT_EQ(end_of_csv_row("\"a\"\"\n\"\n", ','), 7u);
  EXPECT_EQ(end_of_csv_row("\"a\"b\"\nc", ','), 6u);
}

TEST(CsvRowTest, FindsNoRowEndInIncompleteRow) {
  for (const char* const bytes : {"", "a,b", "a,\"b\n", "a,\"b\"", "\"a\"\"\n"})
    EXPECT_EQ(end_of_csv_row(bytes, ','), 0u) << bytes;
}

}  // namespace
}  // namespace stoker::data::format
