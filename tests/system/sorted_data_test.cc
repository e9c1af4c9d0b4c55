// Data sorted by class, split into training and validation, with the real programs.
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Of 150 rows sorted by class, the last third is one class.
class SortedDataTest : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    std::ofstream rows(path("sorted.csv"));
    rows << "x,kind\n";
    const char* const kinds[] = {"cat", "cow", "dog"};
    for (int i = 0; i < 150; ++i) {
      const int kind = i / 50;
      rows << kind - 1 + 0.004 * (i % 50 - 25) << ',' << kinds[kind] << '\n';
    }
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
