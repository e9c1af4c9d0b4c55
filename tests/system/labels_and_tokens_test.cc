// Labels and tokens outside the range of the model, and classes that only some datasets have, with
// the real programs.
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class LabelsAndTokensTest : public RunTest {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }
};

class OutOfVocabTokenTest : public LabelsAndTokensTest,
                            public ::testing::WithParamInterface<const char*> {};

TEST_P(OutOfVocabTokenTest, FailsRunWithFileAndToken) {
  std::string tokens;
  for (int i = 0; i < 4000; ++i) tokens += {static_cast<char>(i % 90), i % 400 == 7 ? '\1' : '\0'};
  write("tokens.bin", tokens);  // one in 400 tokens is 256 too large
  const std::string config = write_config("data: {train: {format: tokens, path: " +
                                          path("tokens.bin") + R"(, sequence: {block_size: 8}}}
model: {name: lstm_lm, hidden_size: 8, vocab_size: 90, context_length: 8}
train: {max_steps: 1000000, micro_batch_size: 4, device: cpu, num_threads: 1}
feed: {num_processes: )" + GetParam() + "}\n");
  EXPECT_EQ(train(config, run_dir()).code, 65);
  EXPECT_THAT(log_of("stokerd"), HasSubstr("tokens.bin"));
  EXPECT_THAT(log_of("stokerd"), HasSubstr("model.vocab_size is 90, so tokens are from 0 to 89"));
}

INSTANTIATE_TEST_SUITE_P(Workers, OutOfVocabTokenTest, ::testing::Values("1", "0"),
                         [](const auto& one) { return std::string(one.param); });

TEST_F(LabelsAndTokensTest, EvaluatesWithClassesOfTraining) {
  std::string train_rows = "x,kind\n", val_rows = train_rows;
  for (int i = 0; i < 300; ++i) {
    const char* const kinds[] = {"cat", "cow", "dog"};
    const std::string row = std::to_string(i % 3) + "," + kinds[i % 3] + "\n";
    train_rows += row;
    if (i % 3 != 1) val_rows += row;
  }
  write("train.csv", train_rows);
  write("val.csv", val_rows);
  const std::string config = write_config(
      "data:\n  train: {format: csv, fields: {label: kind}, path: " + path("train.csv") +
      "}\n  val: {format: csv, fields: {label: kind}, path: " + path("val.csv") + R"(}
model: {name: mlp, hidden_sizes: [8]}
task: {name: classification}
optimizer: {name: adam, lr: 0.03}
scheduler: {name: constant, warmup_steps: 0}
train: {max_steps: 300, micro_batch_size: 16, device: cpu, num_threads: 1}
)");
  ASSERT_EQ(train(config, run_dir()).code, 0);
  ASSERT_EQ(evaluator(run_dir(), {"--once"}).wait(60s)->code, 0) << log_of("stoker-eval");
  const run::DatasetResult val = newest_result(run_dir());
  ASSERT_EQ(val.classes.size(), 3u);
  EXPECT_EQ(val.classes[1].name, "cow");
  EXPECT_EQ(val.classes[1].samples, 0u);
  EXPECT_EQ(val.classes[2].samples, 100u);
  EXPECT_GT(val.metrics.at(1).second, 0.9) << "accuracy: dogs are dogs";
}

// Of 150 rows sorted by class, the last third is one class.
class SortedDataTest : public LabelsAndTokensTest {
 protected:
  void SetUp() override {
    LabelsAndTokensTest::SetUp();
    std::string rows = "x,kind\n";
    const char* const kinds[] = {"cat", "cow", "dog"};
    for (int i = 0; i < 150; ++i) {
      const int kind = i / 50;
      rows += std::to_string(kind - 1 + 0.004 * (i % 50 - 25)) + ',' + kinds[kind] + '\n';
    }
    write("sorted.csv", rows);
  }
  std::string config(const std::string& train, const std::string& val) const {
    const std::string csv = "{format: csv, fields: {label: kind}, path: " + path("sorted.csv");
    return write_config("data:\n  train: " + csv + ", split: [0, 0.66], " + train +
                        "}\n  val: " + csv + ", split: [0.66, 1], " + val + R"(}
model: {name: mlp, hidden_sizes: [16]}
task: {name: classification}
optimizer: {name: adam, lr: 0.03}
scheduler: {name: constant, warmup_steps: 0}
train: {max_steps: 200, micro_batch_size: 16, device: cpu, num_threads: 1}
)");
  }
  // Of the validation set after training.
  double accuracy(const std::string& by) {
    const std::string split = "split_by: " + by;
    EXPECT_EQ(train(config(split, split), run_dir()).code, 0) << log_of("stokerd");
    EXPECT_EQ(evaluator(run_dir(), {"--once"}).wait(60s)->code, 0) << log_of("stoker-eval");
    return newest_result(run_dir()).metrics.at(1).second;
  }
};

TEST_F(SortedDataTest, IsDistinguishedAfterStratifiedSplit) {
  EXPECT_GT(accuracy("stratified"), 0.95);
  EXPECT_THAT(log_of("stokerd"), ::testing::Not(HasSubstr("classes without samples")));
  EXPECT_THAT(log_of("stokerd"), ::testing::Not(HasSubstr("datasets overlap")));
  // A resume has the same samples.
  EXPECT_EQ(train(config("split_by: stratified", "split_by: stratified"), run_dir(),
                  {"--set", "train.max_steps=210"})
                .code,
            0)
      << log_of("stokerd");
  Process batch = ctl(run_dir(), {"show-batch", "205"}, "batch");
  EXPECT_EQ(code_of(batch), 0);
  EXPECT_THAT(text_of(path("batch.out")), HasSubstr("sorted.csv"));
}

TEST_F(SortedDataTest, IsWarnedAboutAfterSplitByPosition) {
  EXPECT_LT(accuracy("position"), 0.05);
  EXPECT_THAT(log_of("stokerd"), HasSubstr("classes without samples dataset=train"));
  EXPECT_THAT(log_of("stokerd"), HasSubstr("classes=dog"));
  EXPECT_THAT(log_of("stokerd"), HasSubstr("split_by: stratified"));
}

TEST_F(SortedDataTest, IsWarnedAboutIfPartsOverlap) {
  const std::string overlapping = config("split_by: random", "split_by: random, split_seed: 1");
  EXPECT_EQ(train(overlapping, run_dir(), {"--check-data"}).code, 0) << log_of("stokerd");
  EXPECT_THAT(log_of("stokerd"), HasSubstr("datasets overlap dataset=val other=train"));
  EXPECT_THAT(log_of("stokerd"), HasSubstr("sorted.csv"));
}

}  // namespace
}  // namespace stoker::test
