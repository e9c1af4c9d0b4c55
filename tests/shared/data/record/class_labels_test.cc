#include "shared/data/record/class_labels.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::data::record {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

uint64_t add(ClassLabels& labels, std::string_view text) {
  return *labels.add(std::as_bytes(std::span(text)));
}
uint64_t add(ClassLabels& labels, int64_t number) { return *labels.add(FieldInts(&number, 1)); }

TEST(ClassLabelsTest, UsesNumbersAsClassesUpToMaximum) {
  ClassLabels labels;
  const uint64_t five = add(labels, 5), two = add(labels, "2\n");
  EXPECT_EQ(add(labels, "5"), five);
  const auto classes = labels.finish(0);
  ASSERT_TRUE(classes.ok());
  EXPECT_EQ(classes->count, 6u);
  EXPECT_THAT(classes->names, IsEmpty());
  EXPECT_EQ(classes->of_label[five], 5u);
  EXPECT_EQ(classes->of_label[two], 2u);
}

TEST(ClassLabelsTest, AssignsClassesToNamesInSortedOrder) {
  ClassLabels labels;
  const uint64_t dog = add(labels, "dog"), cat = add(labels, "cat"), ten = add(labels, 10);
  const auto classes = labels.finish(0);
  ASSERT_TRUE(classes.ok());
  EXPECT_THAT(classes->names, ElementsAre("10", "cat", "dog"));
  EXPECT_EQ(classes->count, 3u);
  EXPECT_EQ(classes->of_label[dog], 2u);
  EXPECT_EQ(classes->of_label[cat], 1u);
  EXPECT_EQ(classes->of_label[ten], 0u);
}

TEST(ClassLabelsTest, AcceptsMoreClassesThanLabelsButNotFewer) {
  ClassLabels labels;
  add(labels, 9);
  EXPECT_EQ(labels.finish(1000)->count, 1000u);
  EXPECT_EQ(labels.finish(10)->count, 10u);
  EXPECT_EQ(labels.finish(9).status().message(), "is 9, but a label is 9");
  add(labels, "x");
  EXPECT_EQ(labels.finish(1).status().message(), "is 1, but there are 2 different labels");
}

TEST(ClassLabelsTest, RejectsInvalidLabels) {
  ClassLabels labels;
  const std::string spaces = " \n", huge(1025, 'x');
  const int64_t negative = -1;
  const float number = 1;
  EXPECT_EQ(labels.add(std::as_bytes(std::span(spaces))).status().message(), "is empty");
  EXPECT_THAT(labels.add(std::as_bytes(std::span(huge))).status().message(), HasSubstr("1025"));
  EXPECT_THAT(labels.add(FieldInts(&negative, 1)).status().message(),
              HasSubstr("must be at least 0"));
  EXPECT_THAT(labels.add(FieldFloats(&number, 1)).status().message(), HasSubstr("1 number"));
}

TEST(ClassLabelsTest, TreatsNumberBeyondOneMillionAsName) {
  ClassLabels labels;
  add(labels, 1'000'000);
  const auto classes = labels.finish(0);
  EXPECT_EQ(classes->count, 1u);
  EXPECT_THAT(classes->names, ElementsAre("1000000"));
}

}  // namespace
}  // namespace stoker::data::record
