#include "evaluator/evaluation_loop.h"

#include <fcntl.h>
#include <sys/file.h>

#include <filesystem>
#include <fstream>

#include "shared/base/hash.h"
#include "shared/base/log.h"
#include "shared/run/early_stopping.h"
#include "tests/evaluator/loop_fixture.h"

namespace stoker::evaluator {
namespace {

using namespace std::chrono_literals;
using Steps = std::vector<uint64_t>;
using Lines = std::vector<std::string>;
namespace fs = std::filesystem;

class EvaluationLoopTest : public EvaluationLoopBaseTest {
 protected:
  EvaluationLoop::LoopResult loop_result(EvaluationLoop& loop, bool paced = false,
                                         bool ended = false) {
    const auto done = loop.evaluate_due({.run_ended = ended, .paced = paced}, {});
    EXPECT_TRUE(done.ok()) << done.status().to_string();
    return done.ok() ? *done : EvaluationLoop::LoopResult{};
  }
  void corrupt(uint64_t step, const std::string& file) {
    std::ofstream(path_of(step) + "/" + file, std::ios::app) << "x";
  }
};

// ---- Exactly once

TEST_F(EvaluationLoopTest, EvaluatesEachCheckpointOnceAcrossRestart) {
  for (const uint64_t step : {10, 20, 30}) commit(step);
  loop_result(*open());
  loop_result(*open());
  EXPECT_EQ(evaluated_, (Steps{10, 20, 30}));
  EXPECT_EQ(outcomes(), (Lines{"10 evaluated", "20 evaluated", "30 evaluated"}));
  EXPECT_EQ(run::read_best(layout_)->step, 30u);
}

TEST_F(EvaluationLoopTest, EvaluatesAnotherCheckpointWithSameStep) {
  commit(10);
  loop_result(*open());
  fs::remove_all(path_of(10));
  checkpoint::TrainerState again(10);
  again.manifest.live_settings = R"({"lr":2E-4})";
  ASSERT_TRUE(store_.commit(again.content()).ok());
  loop_result(*open());
  EXPECT_EQ(evaluated_, (Steps{10, 10}));
  const auto manifest = read_file(path_of(10) + "/manifest.json", 1 << 20);
  const auto result = read_file(run::eval_result_path(layout_.eval_dir(), 10), 1 << 20);
  EXPECT_EQ(run::parse_eval_result(*result, "")->manifest_sha256, sha256_hex(*manifest));
}

TEST_F(EvaluationLoopTest, EvaluatesInConfiguredOrder) {
  config_.eval.order = config::EvaluationOrder::kNewestFirst;
  for (const uint64_t step : {10, 20, 30}) commit(step);
  loop_result(*open());
  EXPECT_EQ(evaluated_, (Steps{30, 20, 10}));
}

TEST_F(EvaluationLoopTest, ReportsNewestEvaluatedStepAcrossRestart) {
  commit(10);
  const auto loop = open();
  EXPECT_EQ(loop->newest_resolved(), 0u);
  loop_result(*loop);
  EXPECT_EQ(loop->newest_resolved(), 10u);
  const auto again = open();
  loop_result(*again);
  EXPECT_EQ(again->newest_resolved(), 10u) << "by an earlier life";
}

// A trainer that saves faster than the evaluator evaluates must not keep it running forever.
TEST_F(EvaluationLoopTest, StopsAfterRequestedStep) {
  for (const uint64_t step : {10, 20, 30, 40}) commit(step);
  const auto loop = open();
  ASSERT_TRUE(loop->evaluate_due({.until = 20}, {}).ok());
  EXPECT_EQ(evaluated_, (Steps{10, 20}));
  ASSERT_TRUE(loop->evaluate_due({.until = 25}, {}).ok());
  EXPECT_EQ(evaluated_, (Steps{10, 20, 30})) << "the first that is past it";
}

// ---- Requests

TEST_F(EvaluationLoopTest, EvaluatesRequestedCheckpointAgain) {
  for (const uint64_t step : {10, 20, 30}) commit(step);
  loop_result(*open());
  const std::string id = request(20).id;
  const auto loop = open();
  loop_result(*loop);
  EXPECT_EQ(evaluated_, (Steps{10, 20, 30, 20}));
  EXPECT_EQ(outcomes().back(), "20 evaluated");
  EXPECT_EQ(*metrics::read_records(layout_.evaluation_outcomes_file())
                 ->records.back()
                 .find_text("request_id"),
            id);
  EXPECT_EQ(num_requests(), 0u);
  loop_result(*loop);
  loop_result(*open());
  EXPECT_EQ(evaluated_.size(), 4u) << "once per request";
  EXPECT_EQ(run::read_best(layout_)->step, 30u);
}

TEST_F(EvaluationLoopTest, EvaluatesRequestedCheckpointsFirstAndRegardlessOfPolicyAndPace) {
  config_.eval.checkpoints = config::CheckpointSelection::kLatest;
  config_.eval.start_delay_seconds = 60;
  for (const uint64_t step : {10, 20, 30}) commit(step);
  request(10);
  const auto loop = open();
  EXPECT_EQ(loop_result(*loop, true).waiting_for, "eval.start_delay_seconds");
  EXPECT_EQ(evaluated_, Steps{10});
  clock_.advance(60s);
  loop_result(*loop, true);
  EXPECT_EQ(evaluated_, (Steps{10, 30}));
}

TEST_F(EvaluationLoopTest, RecordsRequestWithoutCheckpointAsSuperseded) {
  commit(10);
  request(7);
  loop_result(*open());
  EXPECT_EQ(outcomes(), (Lines{"7 superseded", "10 evaluated"}));
  EXPECT_NE(reason(0).find("no checkpoint of step 7"), std::string::npos);
  EXPECT_EQ(num_requests(), 0u);
}

TEST_F(EvaluationLoopTest, WarnsOnceOfInvalidRequest) {
  const auto loop = open();
  const std::string path = layout_.evaluation_requests_dir() + "/step-000000010.json";
  std::ofstream(path) << "garbage";
  fs::create_directories(layout_.evaluation_requests_dir() + "/step-000000011.json/file");
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) loop_result(*loop);
  flush_log();
  const std::string log = testing::internal::GetCapturedStderr();
  const auto count = [&](const std::string& words) {
    size_t found = 0;
    for (size_t at = log.find(words); at != std::string::npos; at = log.find(words, at + 1))
      ++found;
    return found;
  };
  EXPECT_EQ(count("evaluation request invalid path=" + path), 1u) << log;
  EXPECT_EQ(count("evaluation request invalid"), 2u) << log;
  EXPECT_FALSE(fs::exists(path));
  EXPECT_EQ(outcomes(), Lines{});
}

TEST_F(EvaluationLoopTest, KeepsResultWhenRequestedEvaluationFails) {
  config_.eval.max_attempts = 1;
  commit(10);
  loop_result(*open());
  request(10);
  error_ = [](const auto&) { return Status(StatusCode::kInternal, "no luck"); };
  loop_result(*open());
  EXPECT_EQ(outcomes(), (Lines{"10 evaluated", "10 failed"}));
  EXPECT_EQ(num_requests(), 0u);
  loop_result(*open());
  EXPECT_EQ(evaluated_.size(), 2u) << "the checkpoint still counts as evaluated";
}

TEST_F(EvaluationLoopTest, RequestDoesNotCountForRequestedLastStep) {
  config_.eval.throttle_seconds = 60;
  for (const uint64_t step : {10, 20, 30}) commit(step);
  request(20);
  const auto loop = open();
  const EvaluationLoop::LoopState until_20{.paced = true, .until = 20};
  ASSERT_TRUE(loop->evaluate_due(until_20, {}).ok());
  EXPECT_EQ(evaluated_, Steps{20});
  EXPECT_EQ(loop->newest_resolved(), 0u) << "10 is pending";
  clock_.advance(60s);
  ASSERT_TRUE(loop->evaluate_due(until_20, {}).ok());
  EXPECT_EQ(evaluated_, (Steps{20, 10}));
}

TEST_F(EvaluationLoopTest, FailsIfRequestedCheckpointStaysLocked) {
  commit(10);
  const auto loop = open();
  loop_result(*loop);
  request(10);
  const UniqueFd lock(::open((path_of(10) + "/SHA256SUMS").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  Status status;
  for (int attempt = 0; status.ok() && attempt < 100; ++attempt) {
    status = loop->evaluate_due({.run_ended = true}, {}).status();
    clock_.advance(10s);
  }
  EXPECT_EQ(status.code(), StatusCode::kBusy);
}

TEST_F(EvaluationLoopTest, RemovesRequestWhoseOutcomeWasRecordedBeforeCrash) {
  commit(10);
  const run::EvaluationRequest known = request(10);
  const auto content = read_file(known.path, 4096);
  loop_result(*open());
  std::ofstream(known.path) << *content;
  loop_result(*open());
  EXPECT_EQ(evaluated_, Steps{10});
  EXPECT_EQ(num_requests(), 0u);
}

TEST_F(EvaluationLoopTest, RequestedEvaluationDoesNotEndRun) {
  config_.eval.early_stopping.patience = 1;
  for (const uint64_t step : {30, 40}) commit(step);
  const auto loop = open();
  loop_result(*loop);
  ASSERT_TRUE(fs::remove(layout_.early_stop_file()));
  request(40);
  loop_result(*loop);
  EXPECT_EQ(evaluated_, (Steps{30, 40, 40}));
  EXPECT_FALSE(fs::exists(layout_.early_stop_file()));
}

// ---- Branches

// A run that goes back to step 10 after step 40, of which the later ones are archived.
class EvaluationBranchTest : public EvaluationLoopTest {
 protected:
  void save(uint64_t step) {
    commit(step);
    const auto last = run::read_lineage(layout_.lineage_file())->newest();
    run::SavedCheckpoint saved{.id = id(step), .parent_step = {}};
    if (last) saved.parent_step = last->step;
    ASSERT_TRUE(run::add_saved(files_, layout_.lineage_file(), {saved}).ok());
  }
  void resume_at_10() {
    for (const uint64_t step : {30, 40}) fs::remove_all(path_of(step));
    ASSERT_TRUE(run::add_resumed(files_, layout_.lineage_file(), id(10)).ok());
  }
  run::CheckpointId id(uint64_t step) const {
    return {step, sha256_hex(*read_file(path_of(step) + "/manifest.json", 1 << 20))};
  }
};

TEST_F(EvaluationBranchTest, EvaluatesNewestOfPresentBranch) {
  config_.eval.checkpoints = config::CheckpointSelection::kLatest;
  for (const uint64_t step : {10, 40}) save(step);
  const auto loop = open();
  loop_result(*loop);
  resume_at_10();
  save(20);
  loop_result(*loop);
  EXPECT_EQ(evaluated_, (Steps{40, 20}));
}

TEST_F(EvaluationBranchTest, EvaluatesEachIntervalOfPresentBranch) {
  config_.eval.checkpoints = config::CheckpointSelection::kInterval;
  config_.eval.every_steps = 20;
  for (const uint64_t step : {10, 30, 40}) save(step);
  const auto loop = open();
  loop_result(*loop);
  resume_at_10();
  save(35);
  loop_result(*loop);
  EXPECT_EQ(evaluated_, (Steps{30, 40, 35}));
}

TEST_F(EvaluationBranchTest, StopsEarlyByResultsOfPresentBranchOnly) {
  config_.eval.early_stopping.patience = 1;
  for (const uint64_t step : {10, 30, 40}) save(step);  // step 30 is the best, see loss_of()
  const auto loop = open();
  loop_result(*loop);
  const auto request = run::read_early_stop_request(layout_.early_stop_file());
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->manifest_sha256, id(40).manifest_sha256);
  resume_at_10();
  loop_result(*loop);
  EXPECT_FALSE(fs::exists(layout_.early_stop_file())) << "the run has left its branch";
  for (const uint64_t step : {20, 50, 60}) save(step);  // better each time
  loop_result(*loop);
  EXPECT_FALSE(fs::exists(layout_.early_stop_file()));
  EXPECT_EQ(run::read_best(layout_)->step, 60u);
}

TEST_F(EvaluationBranchTest, RemovesEarlyStopOfFormerBranchOnOpen) {
  config_.eval.early_stopping.patience = 1;
  for (const uint64_t step : {10, 30, 40}) save(step);
  loop_result(*open());
  ASSERT_TRUE(fs::exists(layout_.early_stop_file()));
  resume_at_10();
  loop_result(*open());
  EXPECT_FALSE(fs::exists(layout_.early_stop_file()));
}

// ---- Outcomes

TEST_F(EvaluationLoopTest, RecordsCorruptCheckpointWithFileWithoutRetry) {
  commit(10);
  corrupt(10, "model.safetensors");
  loop_result(*open());
  loop_result(*open());
  EXPECT_EQ(evaluated_, Steps{}) << "nothing of it may be used";
  EXPECT_EQ(outcomes(), Lines{"10 corrupt"});
  EXPECT_NE(reason(0).find("model.safetensors"), std::string::npos);
}

TEST_F(EvaluationLoopTest, RecordsCheckpointOfAnotherModelAsCorrupt) {
  commit(10);
  error_ = [](const auto&) { return Status(StatusCode::kMismatch, "unexpected fc.weight"); };
  loop_result(*open());
  EXPECT_EQ(outcomes(), Lines{"10 corrupt"});
}

TEST_F(EvaluationLoopTest, RecordsCheckpointWithoutManifestAsCorrupt) {
  commit(10);
  fs::remove(path_of(10) + "/manifest.json");
  loop_result(*open());
  loop_result(*open());
  EXPECT_EQ(outcomes(), Lines{"10 corrupt"});
}

TEST_F(EvaluationLoopTest, RecordsDeletedCheckpointAsSuperseded) {
  commit(10);
  // The error that a network file system returns for a file deleted while it is being read.
  error_ = [this](const auto& checkpoint) {
    fs::remove_all(checkpoint.path());
    return Status(StatusCode::kIoError, "read model.safetensors: Stale file handle");
  };
  loop_result(*open());
  EXPECT_EQ(outcomes(), Lines{"10 superseded"});
}

TEST_F(EvaluationLoopTest, CountsOutcomesWithoutResultAsFailures) {
  config_.eval.max_attempts = 1;
  for (const uint64_t step : {10, 20, 30}) commit(step);
  corrupt(20, "model.safetensors");
  error_ = [](const auto& checkpoint) {
    if (checkpoint.manifest().step == 10) fs::remove_all(checkpoint.path());
    return checkpoint.manifest().step == 10 ? Status(StatusCode::kIoError, "gone") : Status();
  };
  const auto loop = open();
  EXPECT_TRUE(loop->failures().ok());
  loop_result(*loop);
  EXPECT_EQ(outcomes(), (Lines{"10 superseded", "20 corrupt", "30 evaluated"}));
  EXPECT_EQ(loop->failures().code(), StatusCode::kCorrupt);
  EXPECT_NE(loop->failures().message().find("1 of the evaluations failed, the first at step 20"),
            std::string::npos)
      << loop->failures().message();
  EXPECT_NE(loop->failures().message().find(layout_.evaluation_outcomes_file()), std::string::npos);
  error_ = [](const auto&) { return Status(StatusCode::kOutOfMemory, "10 GB"); };
  request(30);
  loop_result(*loop);
  EXPECT_EQ(outcomes().back(), "30 failed");
  EXPECT_EQ(loop->failures().code(), StatusCode::kOutOfMemory);
  error_ = [](const auto&) { return Status(StatusCode::kInternal, "a bug"); };
  request(30);
  loop_result(*loop);
  EXPECT_EQ(loop->failures().code(), StatusCode::kInternal);
  EXPECT_TRUE(open()->failures().ok()) << "of an earlier life";
}

// The checkpoint is as it was saved, so that something else is corrupt: a sample.
TEST_F(EvaluationLoopTest, RecordsCorruptDataAsFailureOfItsOwn) {
  config_.eval.max_attempts = 1;
  commit(10);
  error_ = [](const auto&) {
    return Status(StatusCode::kCorrupt, "dataset val: val.csv: line 7: 'x' is no number");
  };
  const auto loop = open();
  loop_result(*loop);
  EXPECT_EQ(outcomes(), Lines{"10 failed"});
  EXPECT_EQ(*metrics::read_records(layout_.evaluation_outcomes_file())
                 ->records.back()
                 .find_count("exit_code"),
            65u);
  EXPECT_EQ(loop->failures().code(), StatusCode::kCorrupt);
  EXPECT_NE(loop->failures().message().find("step 10: dataset val: val.csv: line 7"),
            std::string::npos)
      << loop->failures().message();
}

TEST_F(EvaluationLoopTest, EvaluatesOpenCheckpointAfterDeletion) {
  commit(10);
  error_ = [this](const checkpoint::VerifiedCheckpoint& checkpoint) {
    fs::remove_all(checkpoint.path());
    const auto tensors = checkpoint.open_tensors("model.safetensors");
    std::vector<std::byte> bytes(8 * 4 * 4);
    return tensors.ok() ? (*tensors)->read("fc.weight", bytes) : tensors.status();
  };
  loop_result(*open());
  EXPECT_EQ(outcomes(), Lines{"10 evaluated"});
}

TEST_F(EvaluationLoopTest, HoldsLockOnCheckpointAgainstRetention) {
  for (const uint64_t step : {10, 20, 30}) commit(step);
  Steps left;
  error_ = [&](const auto& checkpoint) {
    if (checkpoint.manifest().step == 10) {
      EXPECT_TRUE(store_.delete_checkpoints(std::vector<uint64_t>{10, 20}).ok());
      left = checkpoint::steps_of(store_);
    }
    return Status();
  };
  loop_result(*open());
  EXPECT_EQ(left, (Steps{10, 30})) << "a shared lock is held on what is read";
}

// ---- Attempts

TEST_F(EvaluationLoopTest, RetriesFailureWithBackoffThenRecordsFailed) {
  commit(10);
  error_ = [](const auto&) { return Status(StatusCode::kTimedOut, "it took too long"); };
  const auto loop = open();
  const auto first = loop_result(*loop);
  ASSERT_TRUE(first.maybe_due_at.has_value());
  EXPECT_EQ(*first.maybe_due_at, 1s);
  EXPECT_NE(first.waiting_for.find("step 10"), std::string::npos);
  clock_.advance(999ms);
  loop_result(*loop);
  EXPECT_EQ(evaluated_.size(), 1u) << "too early";
  clock_.advance(1ms);
  EXPECT_EQ(*loop_result(*loop).maybe_due_at, 1s + 4s);
  clock_.advance(4s);
  EXPECT_FALSE(loop_result(*loop).maybe_due_at.has_value());
  EXPECT_EQ(evaluated_.size(), 3u);
  EXPECT_EQ(outcomes(), Lines{"10 failed"});
  EXPECT_EQ(reason(0), "it took too long");
}

TEST_F(EvaluationLoopTest, EvaluatesOthersWhileOneFails) {
  commit(10);
  commit(20);
  error_ = [](const auto& checkpoint) {
    return checkpoint.manifest().step == 10 ? Status(StatusCode::kOutOfMemory, "10 GB") : Status();
  };
  const auto loop = open();
  loop_result(*loop);
  EXPECT_EQ(outcomes(), Lines{"20 evaluated"});
  clock_.advance(1h);
  loop_result(*loop);
  clock_.advance(1h);
  loop_result(*loop);
  EXPECT_EQ(outcomes(), (Lines{"20 evaluated", "10 failed"}));
}

TEST_F(EvaluationLoopTest, RecordsFailedAfterCrashingOnAllAttempts) {
  commit(10);
  // Each crash happens after the attempt was recorded and before it ended: later writes do not
  // reach the disk.
  for (int life = 0; life < 3; ++life) {
    test::FaultyFiles dying(scratch_.path());
    const auto loop = open(dying);
    error_ = [&](const auto&) {
      dying.kill_at(dying.operations().size() + 1);
      return Status(StatusCode::kInternal, "dead");
    };
    (void)loop->evaluate_due({}, {});
  }
  error_ = nullptr;
  loop_result(*open());
  EXPECT_EQ(evaluated_.size(), 3u) << "it must not be touched a fourth time";
  EXPECT_EQ(outcomes(), Lines{"10 failed"});
  EXPECT_NE(reason(0).find("3 times"), std::string::npos);
}

TEST_F(EvaluationLoopTest, DoesNotCountStoppedAttempt) {
  commit(10);
  error_ = [](const auto&) { return Status(StatusCode::kCancelled, "stopped"); };
  for (int life = 0; life < 5; ++life) {
    std::stop_source stop;
    error_ = [&](const auto&) {
      stop.request_stop();
      return Status(StatusCode::kCancelled, "stopped");
    };
    ASSERT_TRUE(open()->evaluate_due({}, stop.get_token()).ok());
  }
  EXPECT_EQ(outcomes(), Lines{});
  error_ = nullptr;
  loop_result(*open());
  EXPECT_EQ(outcomes(), Lines{"10 evaluated"});
}

TEST_F(EvaluationLoopTest, EvaluatesLockedCheckpointAfterItsLockIsReleased) {
  commit(10);
  const auto loop = open();
  {
    const UniqueFd lock(::open((path_of(10) + "/SHA256SUMS").c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
    for (int attempt = 0; attempt < 5; ++attempt) {
      EXPECT_EQ(loop_result(*loop).maybe_due_at, clock_.monotonic() + 10s);
      clock_.advance(10s);
    }
    EXPECT_EQ(outcomes(), Lines{});
  }
  EXPECT_FALSE(loop_result(*loop).maybe_due_at.has_value());
  EXPECT_EQ(outcomes(), Lines{"10 evaluated"});
}

TEST_F(EvaluationLoopTest, FailsIfCheckpointStaysLockedAfterRunEnded) {
  commit(10);
  commit(20);
  const auto loop = open();
  const UniqueFd lock(::open((path_of(10) + "/SHA256SUMS").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  for (int attempt = 0; attempt < 100; ++attempt) {
    ASSERT_TRUE(loop->evaluate_due({.paced = true}, {}).ok()) << "the run can still add some";
    clock_.advance(10s);
  }
  const auto end = clock_.monotonic();
  Status status;
  while (status.ok() && clock_.monotonic() < end + 1h) {
    status = loop->evaluate_due({.run_ended = true, .paced = true}, {}).status();
    if (status.ok()) clock_.advance(10s);
  }
  EXPECT_EQ(status.code(), StatusCode::kBusy);
  EXPECT_EQ(clock_.monotonic(), end + 10min);
  EXPECT_NE(status.message().find(path_of(10)), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("start stoker-eval again"), std::string::npos);
  EXPECT_EQ(outcomes(), Lines{"20 evaluated"}) << "the others are evaluated first";
}

// ---- Throttling

TEST_F(EvaluationLoopTest, WaitsThrottleTimeBetweenEvaluations) {
  config_.eval.throttle_seconds = 60;
  commit(10);
  commit(20);
  const auto loop = open();
  clock_.advance(5s);
  const auto first = loop_result(*loop, true);
  EXPECT_EQ(evaluated_, Steps{10});
  EXPECT_EQ(first.maybe_due_at, 65s) << "from the start of the one before";
  EXPECT_EQ(first.waiting_for, "eval.throttle_seconds");
  clock_.advance(60s);
  loop_result(*loop, true);
  EXPECT_EQ(evaluated_, (Steps{10, 20}));
}

TEST_F(EvaluationLoopTest, WaitsStartDelayBeforeFirstEvaluation) {
  config_.eval.start_delay_seconds = 30;
  commit(10);
  const auto loop = open();
  EXPECT_EQ(loop_result(*loop, true).maybe_due_at, 30s);
  EXPECT_EQ(evaluated_, Steps{});
  clock_.advance(30s);
  loop_result(*loop, true);
  EXPECT_EQ(evaluated_, Steps{10});
}

TEST_F(EvaluationLoopTest, IgnoresDelaysAfterRunEnded) {
  config_.eval.start_delay_seconds = 3600;
  config_.eval.throttle_seconds = 3600;
  commit(10);
  commit(20);
  loop_result(*open(), true, true);
  EXPECT_EQ(evaluated_, (Steps{10, 20}));
}

// ---- Actions on a result

TEST_F(EvaluationLoopTest, RequestsEarlyStopWhenPatienceIsExhausted) {
  config_.eval.early_stopping.patience = 2;
  for (const uint64_t step : {30, 40, 50}) commit(step);
  loop_result(*open());
  const auto request = run::read_early_stop_request(layout_.early_stop_file());
  ASSERT_TRUE(request.ok()) << request.status().to_string();
  EXPECT_EQ(request->step, 50u);
}

TEST_F(EvaluationLoopTest, WarnsOfNonfiniteMonitorAndComparesNothingWithIt) {
  config_.eval.early_stopping.patience = 2;
  config_.checkpoint.monitor = {"val/loss", "val/accuracy"};
  for (const uint64_t step : {1000, 1010, 1020, 1030}) commit(step);
  testing::internal::CaptureStderr();
  loop_result(*open());
  flush_log();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("monitored metric not finite step=1030 metric=val/loss"), std::string::npos)
      << log;
  EXPECT_EQ(log.find("metric=val/accuracy"), std::string::npos) << log;
  EXPECT_EQ(run::read_early_stop_request(layout_.early_stop_file()).status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(run::read_best(layout_).status().code(), StatusCode::kNotFound);
}

TEST_F(EvaluationLoopTest, CompletesResultOfDeletedCheckpointOnNextStart) {
  const std::string path = commit(10);
  {
    // As if the evaluator was killed right after the result file was in place.
    test::FaultyFiles dying(scratch_.path());
    const auto loop = open(dying);
    const auto verified = checkpoint::CheckpointStore::open_verified(path);
    ASSERT_TRUE(run::write_eval_result(files_, layout_.eval_dir(), result_of(*verified)).ok());
  }
  fs::remove_all(path);
  loop_result(*open());
  EXPECT_EQ(evaluated_, Steps{});
  EXPECT_EQ(outcomes(), Lines{"10 evaluated"});
  EXPECT_EQ(metrics::read_records(layout_.eval_metrics_file())->records.size(), 2u);
  EXPECT_EQ(run::read_best(layout_)->step, 10u);
}

TEST_F(EvaluationLoopTest, ListsAvailableMetricsIfMonitorWasNotEvaluated) {
  config_.eval.monitor = "other/accuracy";  // in the table, but other has no labels
  commit(10);
  const auto done = open()->evaluate_due({}, {});
  EXPECT_EQ(done.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(done.status().message().find("val/accuracy"), std::string::npos);
}

TEST_F(EvaluationLoopTest, RejectsMonitorThatTableLacks) {
  config_.eval.monitor = "bleu";
  EXPECT_EQ(open(files_), nullptr);
}

}  // namespace
}  // namespace stoker::evaluator
