// Variable-length sequences from files to metrics: a tagger and a CTC model learn the rule behind
// their data, and are evaluated, inspected and exported.
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr int kTokens = 8;

class SequenceTasksTest : public RunTest {
 protected:
  // `line(random)` returns a record as JSON.
  template <typename Line>
  void write_records(const std::string& name, int records, unsigned seed, Line line) const {
    std::mt19937 random(seed);
    std::ofstream file(path(name));
    for (int i = 0; i < records; ++i) file << line(random) << '\n';
  }
  static std::string list(const std::vector<std::string>& items) {
    std::string text;
    for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
    return '[' + text + ']';
  }

  // The tag of each word indicates whether the next word is larger than the previous one, so a model
  // needs both directions. The first and the last word have no tag.
  static std::string tagged_words(std::mt19937& random) {
    const size_t length = 4 + random() % 9;
    std::vector<unsigned> words(length);
    for (unsigned& word : words) word = static_cast<unsigned>(random() % kTokens);
    std::vector<std::string> texts, tags;
    for (size_t i = 0; i < length; ++i) {
      const bool has_tag = i > 0 && i + 1 < length;
      texts.push_back(std::to_string(words[i]));
      tags.push_back(!has_tag ? "-100" : words[i + 1] > words[i - 1] ? "1" : "0");
    }
    return "{\"words\": " + list(texts) + ", \"tags\": " + list(tags) + "}";
  }

  // Each letter is one-hot for one to three frames, followed by a zero frame. The record does not
  // contain the number of frames.
  static std::string written_letters(std::mt19937& random) {
    std::vector<std::string> frames, letters;
    const size_t count = 1 + random() % 4;
    for (size_t i = 0; i < count; ++i) {
      const size_t letter = 1 + random() % 3, held = 1 + random() % 3;
      letters.push_back(std::to_string(letter));
      for (size_t frame = 0; frame < held; ++frame)
        frames.push_back(letter == 1 ? "[1, 0, 0]" : letter == 2 ? "[0, 1, 0]" : "[0, 0, 1]");
      frames.push_back("[0, 0, 0]");
    }
    return "{\"frames\": " + list(frames) + ", \"letters\": " + list(letters) + "}";
  }

  static std::string config_of(const std::string& data, const std::string& val,
                               const std::string& task, int steps) {
    return "data:\n  train: {format: jsonl, " + data + "}\n  val: {format: jsonl, " + val +
           "}\nmodel: {name: blstm, hidden_size: 24, vocab_size: " + std::to_string(kTokens) +
           "}\ntask: {name: " + task +
           "}\noptimizer: {name: adam, lr: 0.01}\nscheduler: {name: constant, warmup_steps: 0}\n"
           "train: {max_steps: " +
           std::to_string(steps) +
           ", micro_batch_size: 32, device: cpu, num_threads: 1}\n"
           "checkpoint: {save_every_steps: null, save_every_seconds: null}\n"
           "metrics: {log_every_steps: 20}\neval: {batch_size: 24}\n";
  }

  run::DatasetResult trained_and_evaluated(const std::string& config) {
    EXPECT_EQ(train(write_config(config), run_dir()).code, 0);
    const auto evaluated = evaluator(run_dir(), {"--once"}).wait(60s);
    EXPECT_TRUE(evaluated && evaluated->code == 0);
    return newest_result(run_dir());
  }
  static std::map<std::string, double> by_name(const run::DatasetResult& result) {
    return {result.metrics.begin(), result.metrics.end()};
  }
};

TEST_F(SequenceTasksTest, LearnsTagsThatNeedContextOnBothSides) {
  write_records("train.jsonl", 800, 1, tagged_words);
  write_records("val.jsonl", 100, 2, tagged_words);
  const std::string fields =
      ", fields: {input_ids: words, labels: tags}, sequence: {max_length: 12}";
  const run::DatasetResult found = trained_and_evaluated(
      config_of("path: " + path("train.jsonl") + fields, "path: " + path("val.jsonl") + fields,
                "sequence_labeling", 250));
  auto metrics = by_name(found);
  EXPECT_EQ(found.samples, 100u);
  EXPECT_GT(metrics["accuracy"], 0.95);
  EXPECT_GT(metrics["macro_f1"], 0.95);
  ASSERT_EQ(found.classes.size(), 2u);
  // Number of words with a tag: all but two of each record.
  uint64_t tags = 0;
  std::istringstream records(text_of(path("val.jsonl")));
  for (std::string record; std::getline(records, record);) {
    const std::string of_record = record.substr(record.find("tags"));
    for (size_t i = of_record.find('['); i < of_record.size(); ++i)
      if ((of_record[i] == '0' || of_record[i] == '1') && of_record[i - 1] == ' ') ++tags;
  }
  EXPECT_EQ(found.classes[0].samples + found.classes[1].samples, tags);

  auto shown = ctl(run_dir(), {"class-report"}, "class-report");
  ASSERT_EQ(shown.wait(20s)->code, 0);
  EXPECT_THAT(log_of("class-report"), HasSubstr("precision"));
  auto exported =
      ctl(run_dir(), {"export", "250", "--format", "torch", "--output", path("m.pt")}, "export");
  EXPECT_EQ(exported.wait(20s)->code, 0);
}

TEST_F(SequenceTasksTest, LearnsUnalignedLettersWithCtc) {
  write_records("train.jsonl", 800, 3, written_letters);
  write_records("val.jsonl", 100, 4, written_letters);
  const std::string fields =
      ", fields: {input: frames, labels: letters}, input_shape: [3], "
      "sequence: {max_length: 16, max_label_length: 4}";
  auto metrics = by_name(trained_and_evaluated(config_of(
      "path: " + path("train.jsonl") + fields, "path: " + path("val.jsonl") + fields, "ctc", 250)));
  EXPECT_LT(metrics["label_error_rate"], 0.05);
  EXPECT_GT(metrics["exact_match"], 0.85);
  EXPECT_LT(metrics["loss"], 0.3);
}

}  // namespace
}  // namespace stoker::test
