#include "shared/run/evaluation_outcomes.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/support/temporary_directory.h"

namespace stoker::run {
namespace {

std::string line(uint64_t step, const std::string& outcome, const std::string& manifest = "m") {
  return R"({"step":)" + std::to_string(step) + R"(,"manifest_sha256":")" + manifest +
         R"(","outcome":")" + outcome + R"(","attempts":1,"reason":"","wall_time":"w"})";
}

TEST(EvaluationOutcomesTest, AppliesFinalOutcomeOnlyToSameCheckpoint) {
  EvaluationOutcomes outcomes;
  uint64_t step = 0;
  for (const char* const outcome : {"evaluated", "corrupt", "superseded", "failed"})
    outcomes.add_line(line(++step, outcome));
  for (uint64_t each = 1; each <= 4; ++each) {
    EXPECT_EQ(outcomes.state(each, "m"),
              each == 1 ? EvaluationState::kEvaluated : EvaluationState::kFailed);
    EXPECT_EQ(outcomes.state(each, "another manifest"), EvaluationState::kPending);
    EXPECT_EQ(outcomes.is_corrupt(each, "m"), each == 2);
  }
  EXPECT_EQ(outcomes.state(5, "m"), EvaluationState::kPending);
  EXPECT_EQ(outcomes.evaluated_steps(Lineage()), std::set<uint64_t>{1});
}

// Of another user, and sparse.
TEST(EvaluationOutcomesTest, RejectsFileThatIsTooLargeToKeep) {
  const test::TemporaryDirectory folder;
  const std::string path = folder / "outcomes.jsonl";
  test::write_whole(path, "\n");
  EXPECT_TRUE(read_evaluation_outcomes(path).ok());
  std::filesystem::resize_file(path, kMaxOutcomesBytes + 1);
  EXPECT_EQ(read_evaluation_outcomes(path).status().code(), StatusCode::kInvalidArgument);
}

TEST(EvaluationOutcomesTest, IgnoresInvalidRecords) {
  EvaluationOutcomes outcomes;
  for (const char* const text :
       {"", "{}", "[]", "not json", R"({"step":-1,"manifest_sha256":"m","outcome":"failed"})",
        R"({"step":1,"manifest_sha256":7,"outcome":"failed"})"})
    outcomes.add_line(text);
  outcomes.add_line(line(1, "inspected"));
  EXPECT_EQ(outcomes.state(1, "m"), EvaluationState::kPending);
}

TEST(EvaluationOutcomesTest, RequiresOnlyCheckpointAndOutcome) {
  EvaluationOutcomes outcomes;
  outcomes.add_line(R"({"step":1,"manifest_sha256":"m","outcome":"corrupt"})");
  EXPECT_TRUE(outcomes.is_corrupt(1, "m"));
}

TEST(EvaluationOutcomesTest, WritesJsonWhateverBytesReasonHas) {
  const std::string line =
      to_json_line({.step = 1, .reason = "open caf\xe9/1.png: No such file"}, "");
  EXPECT_NE(line.find("open caf\xef\xbf\xbd/1.png"), std::string::npos) << line;  // U+FFFD
}

TEST(EvaluationOutcomesTest, RecordsExitCodeOfFailure) {
  std::string text = to_json_line({.step = 1,
                                   .manifest_sha256 = "m",
                                   .outcome = Outcome::kFailed,
                                   .reason = "val.csv: line 3",
                                   .exit_code = ExitCode::kDataError},
                                  "w");
  text.pop_back();  // the newline
  const auto failed = parse_outcome_record(text);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->exit_code, ExitCode::kDataError);
  const auto earlier = parse_outcome_record(line(1, "failed"));
  ASSERT_TRUE(earlier);
  EXPECT_FALSE(earlier->exit_code);
}

TEST(EvaluationOutcomesTest, UsesLastRecordOfCheckpoint) {
  EvaluationOutcomes outcomes;
  outcomes.add_line(line(1, "corrupt"));
  outcomes.add_line(line(1, "evaluated"));
  EXPECT_FALSE(outcomes.is_corrupt(1, "m"));
}

TEST(EvaluationOutcomesTest, KeepsResultWhenRequestedEvaluationFails) {
  const auto requested = [](uint64_t step, Outcome outcome) {
    return to_json_line({.step = step,
                         .manifest_sha256 = "m",
                         .outcome = outcome,
                         .reason = "why",
                         .request_id = "r"},
                        "w");
  };
  EvaluationOutcomes outcomes;
  for (const uint64_t step : {1, 2, 3}) outcomes.add_line(line(step, "evaluated"));
  outcomes.add_line(requested(1, Outcome::kFailed));
  outcomes.add_line(requested(2, Outcome::kSuperseded));
  outcomes.add_line(requested(3, Outcome::kCorrupt));
  EXPECT_EQ(outcomes.evaluated_steps(Lineage()), (std::set<uint64_t>{1, 2}));
  EXPECT_TRUE(outcomes.is_corrupt(3, "m"));
  outcomes.add_line(line(4, "failed"));
  outcomes.add_line(requested(4, Outcome::kEvaluated));
  EXPECT_EQ(outcomes.state(4, "m"), EvaluationState::kEvaluated);
  EXPECT_EQ(parse_outcome_record(requested(1, Outcome::kFailed))->request_id, "r");
}

TEST(EvaluationOutcomesTest, ReadsFileWithoutPartialLastLine) {
  const test::TemporaryDirectory folder;
  const std::string path = folder / "outcomes.jsonl";
  EXPECT_TRUE(read_evaluation_outcomes(path).ok()) << "a missing file has no outcomes";
  test::write_whole(path,
                    line(1, "evaluated") + "\n" + line(2, "failed") + "\n" + line(3, "evaluated"));
  const auto outcomes = read_evaluation_outcomes(path);
  ASSERT_TRUE(outcomes.ok()) << outcomes.status().to_string();
  EXPECT_EQ(outcomes->state(1, "m"), EvaluationState::kEvaluated);
  EXPECT_EQ(outcomes->state(2, "m"), EvaluationState::kFailed);
  EXPECT_EQ(outcomes->state(3, "m"), EvaluationState::kPending);
}

}  // namespace
}  // namespace stoker::run
