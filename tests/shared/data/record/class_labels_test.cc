#include "shared/data/record/class_labels.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::data::record {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

uint64_t add(ClassLabels& labels, std::string_view text) {
  return *labels.add(std::as_bytes(std::span(text)));
}
uint64_t add(ClassLabels& labels, int64_t number) { return *labels.add(FieldInts(&number, 1)); }

// For the settings of data.train.
class ClassLabelsTest : public ::testing::Test {
 protected:
  Result<ClassLabels::Classes> finish(const ClassLabels& labels, int64_t given = 0) {
    auto& csv = std::get<config::CsvDataset>(config_.source);
    csv.record.num_classes = given == 0 ? std::nullopt : std::optional(given);
    return labels.finish({.name = name_, .config = config_});
  }

  const std::string name_ = "train";
  config::DatasetConfig config_ = [] {
    config::DatasetConfig config;
    config.source = config::CsvDataset();
    return config;
  }();
};

TEST_F(ClassLabelsTest, UsesNumbersAsClassesUpToMaximum) {
  ClassLabels labels;
  const uint64_t five = add(labels, 5), two = add(labels, "2\n");
  EXPECT_EQ(add(labels, "5"), five);
  const auto classes = finish(labels);
  ASSERT_TRUE(classes.ok());
  EXPECT_EQ(classes->count, 6u);
  EXPECT_THAT(classes->names, IsEmpty());
  EXPECT_EQ(classes->of_label[five], 5u);
  EXPECT_EQ(classes->of_label[two], 2u);
}

TEST_F(ClassLabelsTest, AssignsClassesToNamesInSortedOrder) {
  ClassLabels labels;
  const uint64_t dog = add(labels, "dog"), cat = add(labels, "cat"), ten = add(labels, 10);
  const auto classes = finish(labels);
  ASSERT_TRUE(classes.ok());
  EXPECT_THAT(classes->names, ElementsAre("10", "cat", "dog"));
  EXPECT_EQ(classes->count, 3u);
  EXPECT_EQ(classes->of_label[dog], 2u);
  EXPECT_EQ(classes->of_label[cat], 1u);
  EXPECT_EQ(classes->of_label[ten], 0u);
}

TEST_F(ClassLabelsTest, AcceptsMoreClassesThanLabelsButNotFewer) {
  ClassLabels labels;
  add(labels, 9);
  EXPECT_EQ(finish(labels, 1000)->count, 1000u);
  EXPECT_EQ(finish(labels, 10)->count, 10u);
  EXPECT_EQ(finish(labels, 9).status().message(), "data.train.num_classes: is 9, but a label is 9");
  add(labels, "x");
  EXPECT_EQ(finish(labels, 1).status().message(),
            "data.train.num_classes: is 1, but there are 2 different labels");
}

TEST_F(ClassLabelsTest, RejectsInvalidLabels) {
  ClassLabels labels;
  const std::string spaces = " \n", huge(1025, 'x');
  const int64_t negative = -1;
  const float number = 1.5f;
  EXPECT_EQ(labels.add(std::as_bytes(std::span(spaces))).status().message(), "is empty");
  EXPECT_THAT(labels.add(std::as_bytes(std::span(huge))).status().message(), HasSubstr("1025"));
  EXPECT_THAT(labels.add(FieldInts(&negative, 1)).status().message(),
              HasSubstr("must be at least 0"));
  EXPECT_THAT(labels.add(FieldFloats(&number, 1)).status().message(), HasSubstr("got 1.5"));
}

TEST_F(ClassLabelsTest, TreatsNumberBeyondOneMillionAsName) {
  ClassLabels labels;
  add(labels, 1'000'000);
  const auto classes = finish(labels);
  EXPECT_EQ(classes->count, 1u);
  EXPECT_THAT(classes->names, ElementsAre("1000000"));
}

// As pandas 3.1.1 writes the column [0, 1, 10, None] (0.0, 1.0, 10.0), and other spellings of 10.
TEST_F(ClassLabelsTest, TakesIntegersWithFractionOfZeroAsIndices) {
  for (const std::string_view ten : {"10.0", "10", "1e1", "+10", " 10.00 "}) {
    ClassLabels labels;
    add(labels, "0.0");
    add(labels, "1.0");
    const uint64_t last = add(labels, ten);
    const auto classes = finish(labels);
    ASSERT_TRUE(classes.ok()) << classes.status().to_string();
    EXPECT_EQ(classes->count, 11u);
    EXPECT_THAT(classes->names, IsEmpty());
    EXPECT_EQ(classes->of_label[last], 10u) << ten;
  }
}

TEST_F(ClassLabelsTest, TakesSpellingsOfOneIndexAsOneClass) {
  ClassLabels labels;
  const float two = 2;
  const uint64_t text = add(labels, "2"), point = add(labels, "2.0");
  const uint64_t number = *labels.add(FieldFloats(&two, 1));
  const auto classes = finish(labels);
  ASSERT_TRUE(classes.ok());
  for (const uint64_t label : {text, point, number}) EXPECT_EQ(classes->of_label[label], 2u);
}

TEST_F(ClassLabelsTest, RejectsFewNamesAmongIndicesWithLocation) {
  for (const std::string_view stray : {"seven", "-1", "0.5", "nan"}) {
    ClassLabels labels;
    for (int i = 0; i < 10; ++i) {
      const uint64_t number = add(labels, i % 3);
      EXPECT_FALSE(labels.needs_location(number));
    }
    const uint64_t number = add(labels, stray);
    ASSERT_TRUE(labels.needs_location(number));
    labels.set_location("a.csv: line 12");
    EXPECT_FALSE(labels.needs_location(add(labels, stray)));
    const auto classes = finish(labels);
    EXPECT_EQ(classes.status().code(), StatusCode::kCorrupt);
    EXPECT_THAT(classes.status().message(), AllOf(HasSubstr("a.csv: line 12: the label is '" +
                                                            std::string(stray) + "' in 2 of 12"),
                                                  HasSubstr("data.train.class_names")));
  }
}

TEST_F(ClassLabelsTest, TakesSignsAndManyNamesNextToDigitsAsNames) {
  ClassLabels signs;
  for (int i = 0; i < 20; ++i) add(signs, 1);
  add(signs, "-1");
  EXPECT_THAT(finish(signs)->names, ElementsAre("-1", "1"));
  ClassLabels characters;
  for (const std::string_view text : {"0", "1", "2", "A", "B", "C"}) add(characters, text);
  EXPECT_THAT(finish(characters)->names, ElementsAre("0", "1", "2", "A", "B", "C"));
}

// sklearn.preprocessing.LabelEncoder().fit(["01", "02", "10"]).classes_: ['01', '02', '10']. pandas.read_csv() of
// the same column: [1, 2, 10].
TEST_F(ClassLabelsTest, TakesSpellingsOfTypedTextsAsDifferentNames) {
  ClassLabels typed({}, TextLabels::kValues), untyped;
  std::vector<uint64_t> in_typed, in_untyped;
  for (const std::string_view text : {"01", "02", "10", "02"}) {
    in_typed.push_back(add(typed, text));
    in_untyped.push_back(add(untyped, text));
  }
  const auto values = finish(typed), numbers = finish(untyped);
  ASSERT_TRUE(values.ok() && numbers.ok()) << values.status().to_string();
  EXPECT_THAT(values->names, ElementsAre("01", "02", "10"));
  const auto classes_of = [](const auto& classes, const std::vector<uint64_t>& labels) {
    std::vector<uint64_t> result;
    for (const uint64_t label : labels) result.push_back(classes->of_label[label]);
    return result;
  };
  EXPECT_THAT(classes_of(values, in_typed), ElementsAre(0, 1, 2, 1));
  EXPECT_THAT(numbers->names, IsEmpty());
  EXPECT_THAT(classes_of(numbers, in_untyped), ElementsAre(1, 2, 10, 2));
}

// What a spreadsheet has made of a few of them.
TEST_F(ClassLabelsTest, RejectsFewSpellingsOfIndicesThatOthersHave) {
  ClassLabels labels({}, TextLabels::kValues);
  for (int i = 0; i < 9; ++i) add(labels, std::to_string(i % 4));
  add(labels, "3.0");
  EXPECT_THAT(finish(labels).status().message(),
              HasSubstr("the label is '3.0' in 1 of 10 records and a class index in the others"));
}

TEST_F(ClassLabelsTest, TakesNumberAndItsTextAsOneIndex) {
  ClassLabels labels({}, TextLabels::kValues);
  const float point = 2;
  const uint64_t number = add(labels, 2), text = add(labels, "2");
  EXPECT_EQ(*labels.add(FieldFloats(&point, 1)), number);
  EXPECT_EQ(number, text);
  EXPECT_THAT(finish(labels)->names, IsEmpty());
  const std::string padded = "02";
  EXPECT_THAT(labels.index_of(std::as_bytes(std::span(padded))).status().message(),
              HasSubstr("'02', which is no class index"));
}

// Most of 001 to 150 are spelled as indices, but few are names by mistake.
TEST_F(ClassLabelsTest, TakesTextsOfEqualWidthAsNames) {
  ClassLabels labels({}, TextLabels::kValues);
  for (int i = 90; i <= 999; ++i) {
    std::string text = std::to_string(i);
    add(labels, std::string(3 - text.size(), '0') + text);
  }
  const auto classes = finish(labels);
  ASSERT_TRUE(classes.ok()) << classes.status().to_string();
  EXPECT_EQ(classes->count, 910u);
  EXPECT_EQ(classes->names.front(), "090");
  EXPECT_EQ(classes->names.back(), "999");
}

TEST_F(ClassLabelsTest, MatchesSpellingOfGivenNamesByType) {
  ClassLabels typed({"0", "1"}, TextLabels::kValues), untyped({"0", "1"});
  const std::string padded = "01";
  EXPECT_EQ(*untyped.class_of(std::as_bytes(std::span(padded))), 1u);
  EXPECT_FALSE(typed.class_of(std::as_bytes(std::span(padded))).ok());
}

TEST_F(ClassLabelsTest, TakesGivenNamesInTheirOrder) {
  ClassLabels labels({"dog", "cat", "7"});
  const uint64_t cat = add(labels, "cat"), seven = add(labels, 7);
  const auto classes = finish(labels);
  ASSERT_TRUE(classes.ok());
  EXPECT_THAT(classes->names, ElementsAre("dog", "cat", "7"));
  EXPECT_EQ(classes->count, 3u);
  EXPECT_EQ(classes->of_label[cat], 1u);
  EXPECT_EQ(classes->of_label[seven], 2u);
  const std::string owl = "owl", one = "1";
  EXPECT_THAT(labels.add(std::as_bytes(std::span(owl))).status().message(),
              HasSubstr("'owl' is none of the 3 in class_names"));
  EXPECT_FALSE(labels.add(std::as_bytes(std::span(one))).ok());  // class 1, or the name?
}

TEST_F(ClassLabelsTest, TakesIndicesOfGivenNamesThatAreNoNumbers) {
  ClassLabels labels({"dog", "cat"});
  const uint64_t one = add(labels, "1.0");
  const int64_t two = 2;
  EXPECT_FALSE(labels.add(FieldInts(&two, 1)).ok());
  const auto classes = finish(labels);
  ASSERT_TRUE(classes.ok());
  EXPECT_EQ(classes->of_label[one], 1u);
}

}  // namespace
}  // namespace stoker::data::record
