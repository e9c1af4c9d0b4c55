#include "evaluator/outcome_log.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/faulty_files.h"
#include "tests/support/temporary_directory.h"

namespace stoker::evaluator {
namespace {

class OutcomeLogTest : public ::testing::Test {
 protected:
  void SetUp() override { file_ = folder_ / "outcomes.jsonl"; }
  Result<OutcomeLog> open() const { return OutcomeLog::open(default_file_system(), file_); }

  const test::TemporaryDirectory folder_;
  std::string file_;
};

TEST_F(OutcomeLogTest, FindsOutcomesByStepAndManifestAfterRestart) {
  {
    auto log = open();
    ASSERT_TRUE(log.ok());
    ASSERT_TRUE(log->append({200, "aa", Outcome::kEvaluated, 1, ""}, "now").ok());
    ASSERT_TRUE(
        log->append({400, "bb", Outcome::kCorrupt, 2, "model.safetensors: SHA-256 differs"}, "now")
            .ok());
  }
  const auto log = open();
  ASSERT_TRUE(log.ok());
  ASSERT_NE(log->find(200, "aa"), nullptr);
  ASSERT_NE(log->find(400, "bb"), nullptr);
  EXPECT_EQ(log->find(400, "bb")->outcome, Outcome::kCorrupt);
  EXPECT_EQ(log->find(400, "bb")->attempts, 2);
  EXPECT_EQ(log->find(200, "cc"), nullptr)
      << "another checkpoint of the same step is another checkpoint";
}

TEST_F(OutcomeLogTest, RemovesPartialLastLineBeforeAppending) {
  {
    auto log = open();
    ASSERT_TRUE(log->append({1, "aa", Outcome::kEvaluated, 1, ""}, "now").ok());
  }
  std::ofstream(file_, std::ios::app) << "{\"step\":2,\"manif";
  {
    auto log = open();
    ASSERT_TRUE(log.ok());
    EXPECT_EQ(log->find(2, ""), nullptr);
    ASSERT_TRUE(log->append({3, "cc", Outcome::kSuperseded, 1, ""}, "now").ok());
  }
  const auto log = open();
  EXPECT_NE(log->find(1, "aa"), nullptr);
  EXPECT_NE(log->find(3, "cc"), nullptr);
}

TEST_F(OutcomeLogTest, SurvivesPowerCutAfterFirstAppend) {
  test::FaultyFiles files(folder_.path());
  {
    auto log = OutcomeLog::open(files, file_);
    ASSERT_TRUE(log.ok());
    ASSERT_TRUE(log->append({200, "aa", Outcome::kEvaluated, 1, ""}, "now").ok());
  }
  const std::string after = folder_.path() + "-after";
  files.simulate_power_loss(files.operations().size(), test::Survival::kNothing, 1, after);
  const auto log = OutcomeLog::open(default_file_system(), after + "/outcomes.jsonl");
  std::filesystem::remove_all(after);
  ASSERT_TRUE(log.ok()) << log.status().to_string();
  EXPECT_NE(log->find(200, "aa"), nullptr);
}

TEST_F(OutcomeLogTest, IgnoresInvalidLinesAndReadsOthers) {
  std::ofstream(file_)
      << "garbage\n{}\n[1]\n"
         R"({"step":5,"manifest_sha256":"ee","outcome":"evaluated","attempts":1,"reason":"","wall_time":"x"})"
         "\n"
         R"({"step":6,"manifest_sha256":"ff","outcome":"invented","attempts":1,"reason":"","wall_time":"x"})"
         "\n";
  const auto log = open();
  ASSERT_TRUE(log.ok());
  EXPECT_NE(log->find(5, "ee"), nullptr);
  EXPECT_EQ(log->find(6, "ff"), nullptr);
}

}  // namespace
}  // namespace stoker::evaluator
