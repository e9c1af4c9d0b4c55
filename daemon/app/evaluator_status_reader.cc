#include "daemon/app/evaluator_status_reader.h"

#include <cmath>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/file_stamp.h"
#include "shared/run/eval_result.h"
#include "shared/run/run_state.h"

namespace stoker::app {

using namespace std::chrono_literals;

namespace {

control::TrainerStatus::Evaluator no_results() {
  control::TrainerStatus::Evaluator status;
  status.best_value = std::nan("");
  return status;
}

}  // namespace

control::TrainerStatus::Evaluator EvaluatorStatusReader::read_cached() const {
  const std::lock_guard lock(mutex_);
  const auto now = clock_.monotonic();
  if (!read_once_ || now - read_at_ >= 1s) {
    last_ = read();
    read_at_ = now;
    read_once_ = true;
  }
  return last_;
}

control::TrainerStatus::Evaluator EvaluatorStatusReader::read() const {
  run::EvaluatorState state = run::read_evaluator_state(layout_);
  if (state.phase == run::EvaluatorState::Phase::kNotStarted) return no_results();
  std::string stamp;
  // outcomes.jsonl follows each result.
  for (const std::string& path : {layout_.evaluation_outcomes_file(), layout_.lineage_file(),
                                  layout_.best_file(), layout_.metric_table_file()})
    stamp += file_stamp(path) + " ";
  if (std::exchange(results_stamp_, stamp) != stamp) results_ = read_results();
  control::TrainerStatus::Evaluator status = results_;
  status.state = run::to_string(state.phase);
  status.reason = std::move(state.reason);
  return status;
}

control::TrainerStatus::Evaluator EvaluatorStatusReader::read_results() const {
  control::TrainerStatus::Evaluator status = no_results();
  status.last_evaluated_step = run::newest_evaluated_step(layout_).value_or(0);
  if (const auto best = run::read_best(layout_); best.ok()) {
    status.best_value = best->value;
    status.best_step = best->step;
    status.best_metric = run::Monitor{best->dataset, best->metric}.to_text();
    const auto table = eval_metrics::read_metric_table(layout_.metric_table_file());
    const auto* const definition = table.ok() ? table->find(best->metric) : nullptr;
    if (definition != nullptr) status.best_direction = to_string(definition->direction);
  }
  return status;
}

}  // namespace stoker::app
