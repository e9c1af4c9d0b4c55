#include "daemon/app/progress_reporter.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "shared/base/log.h"
#include "shared/base/readable_format.h"

namespace stoker::app {
namespace {

using namespace std::chrono_literals;
constexpr auto kLogEvery = 10s;  // minimum interval
constexpr auto kLogEveryWithProgressLine = 60s;
constexpr size_t kColumnsForSystemd = 200;

size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col - 1u
                                                                            : 79u;
}

std::string format_training_metric(const control::TrainerStatus::TrainingMetric& metric) {
  if (!std::isfinite(metric.value)) return "";
  return "  " + metric.name + " " + format_value(metric.value);
}

}  // namespace

std::string progress_line(const control::TrainerStatus& status, size_t columns) {
  std::string line(control::to_string(status.state));
  line += "  step " + format_count(status.step);
  if (status.max_steps > 0)
    line += "/" + format_count(status.max_steps) + " " +
            std::to_string(100 * std::min(status.step, status.max_steps) / status.max_steps) + " %";
  if (!status.waiting_for.empty()) line += "  waiting for " + status.waiting_for;
  if (std::isfinite(status.loss)) {
    line += "  loss " + format_value(status.loss);
    for (const auto& metric : status.training_metrics) line += format_training_metric(metric);
    line += "  lr " + format_rate(status.lr) + "  " + format_rate(status.samples_per_second) +
            " samples/s  data wait " + format_milliseconds(status.feed.data_wait_ms) + " ms";
    if (status.eta_seconds > 0) line += "  ETA " + format_estimate(status.eta_seconds);
  }
  const auto& evaluator = status.evaluator;
  if (std::isfinite(evaluator.best_value))
    line += "  best " + (evaluator.best_metric.empty() ? "" : evaluator.best_metric + " ") +
            format_value(evaluator.best_value) + " @" + format_count(evaluator.best_step);
  if (line.size() > columns) line.resize(columns);
  return line;
}

void ProgressReporter::report(const control::TrainerStatus& status) {
  if (supports_progress_line()) set_progress_line(progress_line(status, terminal_columns()));
  notifier_.status(progress_line(status, kColumnsForSystemd));
  log(status);
}

void ProgressReporter::log(const control::TrainerStatus& status) {
  const bool is_new = status.step != logged_step_ && std::isfinite(status.loss);
  const auto every = supports_progress_line() ? kLogEveryWithProgressLine : kLogEvery;
  if (!is_new || clock_.monotonic() - logged_at_ < every) return;
  logged_step_ = status.step;
  logged_at_ = clock_.monotonic();
  log_info("training progress",
           {{"step", status.step},
            {"loss", status.loss},
            {"lr", status.lr},
            {"samples_per_second", status.samples_per_second},
            {"eta_seconds", static_cast<uint64_t>(round_estimate(status.eta_seconds))}});
}

}  // namespace stoker::app
