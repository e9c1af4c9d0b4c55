// What sequences of various lengths need, and what goes with nothing else.
#include "tests/shared/config/config_text.h"

namespace stoker::config::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string set(const std::string& fields) {
  return "data: {train: {kind: jsonl, path: a, " + fields + "}}\n";
}
const std::string kClassifier = "task: {kind: classification}\nmodel: {kind: blstm}\n";

TEST(LengthChecks, ASequenceIsNumbersATextOrTokens) {
  good(set("longest: 9, input: x, shape: [3], label: y") + kClassifier);
  good(set("longest: 9, input: x, labels: y, most_labels: 4, longer: skip") + kClassifier);
  good(set("longest: 9, text: t, longer: truncate"));
  good(set("longest: 9, tokens: t"));
  EXPECT_THAT(mistakes(set("longest: 9, label: y") + kClassifier),
              ElementsAre(HasSubstr("data.train.input: of sequences must be one field")));
  EXPECT_THAT(mistakes(set("longest: 9, text: t, tokens: u")),
              ElementsAre(HasSubstr("data.train.input: of sequences must be one field")));
  EXPECT_THAT(mistakes(set("longest: 9, input: [x, z], label: y") + kClassifier),
              ElementsAre(HasSubstr("data.train.input: must be one field")));
}

TEST(LengthChecks, RecordsOfTfrecordAndTarMayBeSequencesToo) {
  for (const std::string kind : {"tfrecord", "tar"}) {
    const std::string set = "data: {train: {kind: " + kind + ", path: a, longest: 9, ";
    good(set + "input: x, shape: [3], label: y}}\n" + kClassifier);
    good(set + "text: t}}\n");
    EXPECT_THAT(mistakes(set + "input: x, size: [8, 8], label: y}}\n" + kClassifier),
                ElementsAre(HasSubstr("data.train.size: is for pictures")))
        << kind;
    EXPECT_THAT(mistakes(set + "input: x}}\n" + kClassifier),
                ElementsAre(HasSubstr("data.train.label: is missing")))
        << kind;
  }
}

TEST(LengthChecks, ASequenceHasOneSortOfAnswer) {
  EXPECT_THAT(mistakes(set("longest: 9, input: x") + kClassifier),
              ElementsAre(HasSubstr("data.train.label: is missing")));
  EXPECT_THAT(mistakes(set("longest: 9, input: x, label: y, labels: z") + kClassifier),
              ElementsAre(HasSubstr("data.train.label: goes without labels and target")));
  EXPECT_THAT(mistakes(set("longest: 9, input: x, label: y, most_labels: 3") + kClassifier),
              ElementsAre(HasSubstr("data.train.most_labels: needs labels")));
}

TEST(LengthChecks, WhatIsForSequencesNeedsTheLongest) {
  for (const std::string field : {"longer: skip", "labels: z", "most_labels: 4"})
    EXPECT_THAT(
        mistakes(set("input: x, label: y, " + field) + kClassifier),
        ElementsAre(HasSubstr("data.train." + field.substr(0, field.find(':')) +
                              ": is for sequences of various lengths; give data.train.longest")))
        << field;
  EXPECT_THAT(
      mistakes("data: {train: {kind: npy, path: a, labels: b, lengths: c}}\n" + kClassifier),
      ElementsAre(HasSubstr("data.train.lengths: is for sequences of various lengths")));
  EXPECT_THAT(mistakes(set("tokens: t, text: u")),
              ElementsAre(HasSubstr("data.train.tokens: is for sequences of various lengths")));
}

TEST(LengthChecks, ATextThatIsASampleIsNotCut) {
  EXPECT_THAT(mistakes(set("longest: 9, text: t, context: 5")),
              ElementsAre(HasSubstr("data.train.context: cuts texts that are one stream")));
  EXPECT_EQ(good(set("longest: 9, text: t")).data.at("train").context, 0);
  EXPECT_THAT(mistakes(set("longest: 9, text: t, shape: [4]")),
              ElementsAre(HasSubstr("data.train.shape: is of an input")));
}

TEST(LengthChecks, BucketsRiseUpToTheLongest) {
  const std::string data = set("longest: 9, text: t");
  good(data + "feed: {buckets: [3, 9]}\n");
  good(data + "feed: {buckets: [4], shuffle: off, last_batch: drop}\n");
  EXPECT_THAT(mistakes(data + "feed: {buckets: [3, 3]}\n"),
              ElementsAre(HasSubstr("feed.buckets: must rise")));
  EXPECT_THAT(
      mistakes(data + "feed: {buckets: [3, 12]}\n"),
      ElementsAre(HasSubstr("feed.buckets: end with 12, above the longest of data.train (9)")));
  EXPECT_THAT(mistakes("data: {train: {path: a}}\nfeed: {buckets: [3]}\n"),
              ElementsAre(HasSubstr("feed.buckets: are for sequences of various lengths")));
}

TEST(LengthChecks, BucketsGoOnlyWithWhatKeepsEachSampleOnceAnEpoch) {
  const std::string padded = "{kind: jsonl, path: a, text: t, longest: 9";
  for (const std::string field : {"repeat: 2", "weights_file: w", "grow: epoch"})
    EXPECT_THAT(mistakes("data: {train: " + padded + ", " + field + "}}\nfeed: {buckets: [3]}\n"),
                ElementsAre(HasSubstr("feed.buckets: go without")))
        << field;
  for (const std::string other : {"shuffle: window", "shuffle: shards"})
    EXPECT_THAT(mistakes(set("longest: 9, text: t") + "feed: {buckets: [3], " + other + "}\n"),
                ElementsAre(HasSubstr("feed.buckets: go with feed.shuffle full or off")))
        << other;
  EXPECT_THAT(mistakes(set("longest: 9, text: t") + "feed: {buckets: [3], source: both}\n"),
              ElementsAre(HasSubstr("feed.buckets: go with feed.source readers")));
  const std::string mixture = "data: {train: {kind: mixture, of: [b, c]";
  const std::string sets = "}, b: " + padded + "}, c: " + padded + "}}\nfeed: {buckets: [3]}\n";
  good(mixture + sets);
  EXPECT_THAT(mistakes(mixture + ", weights: [1, 2]" + sets),
              ElementsAre(HasSubstr("feed.buckets: go without")));
}

}  // namespace
}  // namespace stoker::config::test
