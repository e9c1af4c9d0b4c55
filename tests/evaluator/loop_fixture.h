// EvaluationLoopBaseTest: a run directory with checkpoints and an EvaluationLoop whose evaluation
// needs no model; the metrics are a function of the step.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "evaluator/evaluation_loop.h"
#include "shared/metrics/json_lines.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"

namespace stoker::evaluator {

class EvaluationLoopBaseTest : public checkpoint::StoreFixture {
 protected:
  EvaluationLoopBaseTest() {
    config_.eval.datasets = {"val", "other"};
    config_.eval.checkpoints = config::CheckpointSelection::kAll;
  }

  // The loss decreases with the step, except for step 30, which has the lowest loss of all. From
  // step 1000 on it is NaN.
  static double loss_of(uint64_t step) {
    if (step >= 1000) return std::numeric_limits<double>::quiet_NaN();
    return step == 30 ? 0.5 : 100.0 / double(step);
  }

  static run::EvalResult result_of(const checkpoint::VerifiedCheckpoint& checkpoint) {
    run::EvalResult result;
    result.step = checkpoint.manifest().step;
    result.manifest_sha256 = checkpoint.manifest_sha256();
    result.datasets = {{"val", 16, {{"loss", loss_of(result.step)}, {"accuracy", 0.5}}},
                       {"other", 8, {{"loss", 7}}}};
    result.created = "then";
    return result;
  }
  run::EvaluationRequest request(uint64_t step) {
    const auto made = run::request_evaluation(files_, layout_, step, clock_);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? *made : run::EvaluationRequest();
  }
  size_t num_requests() const { return run::read_evaluation_requests(layout_)->pending.size(); }

  Result<Evaluation> evaluate(const checkpoint::VerifiedCheckpoint& checkpoint) {
    evaluated_.push_back(checkpoint.manifest().step);
    if (error_) {
      const Status error = error_(checkpoint);
      if (!error.ok()) return error;
    }
    return Evaluation{result_of(checkpoint), {{"val", ArtifactKind::kGeneratedText, "some text"}}};
  }

  std::unique_ptr<EvaluationLoop> open(FileSystem& files) {
    auto loop =
        std::make_unique<EvaluationLoop>(files, clock_, config_, table_, layout_,
                                         [this](const checkpoint::VerifiedCheckpoint& checkpoint,
                                                std::stop_token) { return evaluate(checkpoint); });
    const Status opened = loop->open();
    return opened.ok() ? std::move(loop) : nullptr;
  }
  std::unique_ptr<EvaluationLoop> open() {
    auto loop = open(files_);
    EXPECT_NE(loop, nullptr);
    return loop;
  }

  // Lines such as "20 evaluated", in the order of the outcome log.
  std::vector<std::string> outcomes() const {
    std::vector<std::string> lines;
    const auto read = metrics::read_records(layout_.evaluation_outcomes_file());
    if (!read.ok()) return lines;
    for (const metrics::MetricsRecord& row : read->records)
      lines.push_back(std::to_string(*row.find_count("step")) + " " + *row.find_text("outcome"));
    return lines;
  }
  std::string reason(size_t line) const {
    return *metrics::read_records(layout_.evaluation_outcomes_file())
                ->records.at(line)
                .find_text("reason");
  }

  config::Config config_;
  const eval_metrics::MetricTable table_{
      {{.name = "loss"}, {.name = "accuracy", .direction = eval_metrics::Direction::kMaximize}}};
  ManualClock clock_;
  const run::RunLayout layout_{scratch_ / "run"};
  std::vector<uint64_t> evaluated_;  // the step of every evaluation
  std::function<Status(const checkpoint::VerifiedCheckpoint&)> error_;
};

}  // namespace stoker::evaluator
