#include "daemon/app/evaluated_reductions.h"

#include <utility>
#include <variant>

#include "daemon/train/plateau.h"
#include "shared/base/file_stamp.h"
#include "shared/base/number_format.h"

namespace stoker::app {

uint64_t EvaluatedReductions::count(double lr) {
  const auto* const plateau =
      std::get_if<config::ReduceOnPlateauScheduler>(&config_.scheduler.schedule);
  if (plateau == nullptr || plateau->monitor != config::PlateauMonitor::kEval) return 0;
  std::string stamp = format_shortest(lr) + " ";
  // outcomes.jsonl follows each result.
  for (const std::string& path :
       {layout_.evaluation_outcomes_file(), layout_.lineage_file(), layout_.metric_table_file()})
    stamp += file_stamp(path) + " ";
  if (std::exchange(stamp_, stamp) != stamp) count_ = count_results(lr);
  return count_;
}

uint64_t EvaluatedReductions::count_results(double lr) {
  const auto table = eval_metrics::read_metric_table(layout_.metric_table_file());
  if (!table.ok()) return 0;
  const auto monitor = run::make_monitor(config_.eval, *table);
  if (!monitor.ok()) return 0;
  auto plateau = std::get<config::ReduceOnPlateauScheduler>(config_.scheduler.schedule);
  plateau.num_reductions = 0;
  const bool is_larger_better = monitor->direction == eval_metrics::Direction::kMaximize;
  train::Plateau values;
  for (const auto& [step, value] : values_.read(layout_, *monitor))
    if (values.add(plateau, value, is_larger_better) && train::can_reduce(plateau, lr))
      ++plateau.num_reductions;
  return plateau.num_reductions;
}

}  // namespace stoker::app
