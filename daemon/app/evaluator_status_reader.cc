#include "daemon/app/evaluator_status_reader.h"

#include <cmath>
#include <filesystem>

#include "shared/base/file.h"
#include "shared/checkpoint/store.h"
#include "shared/run/eval_result.h"

namespace stoker::app {

using namespace std::chrono_literals;

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
  control::TrainerStatus::Evaluator status;
  status.best_value = std::nan("");
  std::error_code ignored;
  if (!std::filesystem::exists(layout_.eval_lock_file(), ignored)) return status;
  const auto alive = is_locked(layout_.eval_lock_file());
  status.state = alive.ok() && *alive ? "running" : "exited";
  const auto names = list_directory(layout_.eval_dir());
  if (names.ok()) {
    for (const std::string& name : *names) {
      if (!name.ends_with(".json")) continue;
      const auto step =
          checkpoint::CheckpointStore::parse_checkpoint_name(name.substr(0, name.size() - 5));
      if (step && *step > status.last_evaluated_step) status.last_evaluated_step = *step;
    }
  }
  if (const auto best = run::read_best(layout_.best_file()); best.ok()) {
    status.best_value = best->value;
    status.best_step = best->step;
  }
  return status;
}

}  // namespace stoker::app
