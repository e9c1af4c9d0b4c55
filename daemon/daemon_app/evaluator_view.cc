#include "daemon/daemon_app/evaluator_view.h"

#include <cmath>
#include <filesystem>

#include "shared/base/file.h"
#include "shared/checkpoint/store.h"
#include "shared/run/eval_result.h"

namespace stoker::daemon_app {

using namespace std::chrono_literals;

control::TrainerStatus::Evaluator EvaluatorView::look() const {
  const std::lock_guard lock(mutex_);
  const auto now = clock_.monotonic();
  if (!read_once_ || now - read_at_ >= 1s) {
    last_ = read();
    read_at_ = now;
    read_once_ = true;
  }
  return last_;
}

control::TrainerStatus::Evaluator EvaluatorView::read() const {
  control::TrainerStatus::Evaluator seen;
  seen.best = std::nan("");
  std::error_code ignored;
  if (!std::filesystem::exists(layout_.eval_lock_file(), ignored)) return seen;
  const auto alive = is_locked(layout_.eval_lock_file());
  seen.state = alive.ok() && *alive ? "running" : "exited";
  const auto names = list_directory(layout_.eval());
  if (names.ok()) {
    for (const std::string& name : *names) {
      if (!name.ends_with(".json")) continue;
      const auto step = checkpoint::CheckpointStore::maybe_step_of(name.substr(0, name.size() - 5));
      if (step && *step > seen.last_step) seen.last_step = *step;
    }
  }
  if (const auto best = run::read_best(layout_.best_file()); best.ok()) {
    seen.best = best->value;
    seen.best_step = best->step;
  }
  return seen;
}

}  // namespace stoker::daemon_app
