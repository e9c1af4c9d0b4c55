// Words and scores as recorded from pycocoevalcap (make_captions_golden.py), and cases by hand.
#include "shared/eval_metrics/caption_metrics.h"

#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/json_parser.h"
#include "shared/base/utf8.h"
#include "shared/eval_metrics/ptb_tokenizer.h"

namespace stoker::eval_metrics {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::map<std::string, double> scores_of(const CaptionMetrics& metrics) {
  const MetricValues values = metrics.metrics();
  return {values.begin(), values.end()};
}

std::string text_of(const boost::json::value& value) { return std::string(value.as_string()); }

TEST(CaptionMetrics, EqualsRecordedScores) {
  std::ifstream file(STOKER_CAPTIONS_GOLDEN);
  ASSERT_TRUE(file) << STOKER_CAPTIONS_GOLDEN;
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  boost::system::error_code error;
  const boost::json::value expected = parse_json(line, error);
  ASSERT_FALSE(error);
  CaptionMetrics metrics;
  while (std::getline(file, line)) {
    const boost::json::value row = parse_json(line, error);
    ASSERT_FALSE(error) << line;
    const std::string caption = text_of(row.at("caption"));
    EXPECT_EQ(join(ptb_words(caption), " "), text_of(row.at("words"))) << caption;
    std::vector<std::string> references;
    for (const auto& each : row.at("references").as_array()) references.push_back(text_of(each));
    metrics.add(caption, references);
  }
  ASSERT_EQ(metrics.size(), 1000U);
  auto scores = scores_of(metrics);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(scores.at("bleu_" + std::to_string(i + 1)),
                expected.at("bleu").as_array()[i].as_double(), 1e-6);
  EXPECT_NEAR(scores.at("cider_d"), expected.at("cider_d").as_double(), 1e-6);
}

TEST(CaptionMetrics, CountsCaptionsThatEqualAReference) {
  CaptionMetrics metrics;
  EXPECT_TRUE(metrics.add("a red circle", {"A red circle.", "a circle"}));
  EXPECT_FALSE(metrics.add("a blue square", {"a green square", "a blue circle"}));
  EXPECT_DOUBLE_EQ(scores_of(metrics).at("exact_match"), 0.5);
}

TEST(CaptionMetrics, ScoresAnEmptyCaptionAsZero) {
  CaptionMetrics metrics;
  metrics.add("", {"a red circle above a blue square"});
  metrics.add("", {"a green triangle"});
  const auto scores = scores_of(metrics);
  EXPECT_NEAR(scores.at("bleu_1"), 0, 1e-6);
  EXPECT_NEAR(scores.at("cider_d"), 0, 1e-6);
}

TEST(CaptionMetrics, IsUndefinedWithoutCaptions) {
  const auto metrics = CaptionMetrics().metrics();
  EXPECT_FALSE(metrics.empty());
  for (const auto& [name, value] : metrics) EXPECT_TRUE(std::isnan(value)) << name;
}

// U+0161 ends with the byte of 'a'.
TEST(PtbWords, TakesOnlyAsciiLettersForVowels) {
  EXPECT_THAT(ptb_words("mo'ab"), ElementsAre("mo'ab"));
  EXPECT_THAT(ptb_words("mo'\u0161b"), ElementsAre("mo", "\u0161b"));
}

TEST(PtbWords, SplitsContractionsAndDropsPunctuation) {
  EXPECT_THAT(
      ptb_words("A man's dog isn't very big; he can't run."),
      ElementsAre("a", "man", "'s", "dog", "is", "n't", "very", "big", "he", "ca", "n't", "run"));
  EXPECT_THAT(ptb_words("Cannot GONNA \"quoted\""),
              ElementsAre("can", "not", "gon", "na", "quoted"));
}

TEST(PtbWords, KeepsAbbreviationsNumbersAndHyphens) {
  EXPECT_THAT(ptb_words("St. Mary's at 10:30 a.m., 3,000 half-eaten (big) 1/2"),
              ElementsAre("st.", "mary", "'s", "at", "10:30", "a.m.", "3,000", "half-eaten",
                          "-lrb-", "big", "-rrb-", "1/2"));
}

TEST(PtbWords, AcceptsBytesThatAreNotUtf8) {
  EXPECT_THAT(ptb_words("a\xff"
                        "b"),
              ElementsAre("a", "b"));
  EXPECT_THAT(ptb_words(""), IsEmpty());
  EXPECT_THAT(ptb_words("\xe2\x80"), IsEmpty());
}

}  // namespace
}  // namespace stoker::eval_metrics
