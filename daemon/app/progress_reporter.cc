#include "daemon/app/progress_reporter.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "shared/base/log.h"

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
  char text[32];
  std::snprintf(text, sizeof text, " %.4f", metric.value);
  return "  " + metric.name + text;
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  // An estimate: whole minutes from ten minutes on, ten seconds before.
  const double unit = seconds >= 600 ? 60 : seconds >= 60 ? 10 : 1;
  const auto whole = static_cast<long long>(std::round(seconds / unit) * unit);
  const long long hours = whole / 3600;
  char text[48];
  if (hours >= 48) {
    std::snprintf(text, sizeof text, "%lld d %lld h", hours / 24, hours % 24);
  } else if (hours > 0) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", hours, whole / 60 % 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
  }
  return text;
}

std::string progress_line(const control::TrainerStatus& status, size_t columns) {
  const double part = status.max_steps > 0 ? 100.0 * static_cast<double>(status.step) /
                                                 static_cast<double>(status.max_steps)
                                           : 0.0;
  char text[256];
  std::string line(control::to_string(status.state));
  std::snprintf(text, sizeof text, "  step %llu/%llu %.0f %%",
                static_cast<unsigned long long>(status.step),
                static_cast<unsigned long long>(status.max_steps), part);
  line += text;
  if (!status.waiting_for.empty()) line += "  waiting for " + status.waiting_for;
  if (std::isfinite(status.loss)) {
    std::snprintf(text, sizeof text, "  loss %.4f", status.loss);
    line += text;
    for (const auto& metric : status.training_metrics) line += format_training_metric(metric);
    std::snprintf(text, sizeof text, "  lr %.3g  %.0f samples/s  data wait %.1f ms  ETA %s",
                  status.lr, status.samples_per_second, status.feed.data_wait_ms,
                  format_duration(status.eta_seconds).c_str());
    line += text;
  }
  if (std::isfinite(status.evaluator.best_value)) {
    std::snprintf(text, sizeof text, "  best %.4f @%llu", status.evaluator.best_value,
                  static_cast<unsigned long long>(status.evaluator.best_step));
    line += text;
  }
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
  log_info("training progress", {{"step", status.step},
                                 {"max_steps", status.max_steps},
                                 {"loss", status.loss},
                                 {"lr", status.lr},
                                 {"samples_per_second", status.samples_per_second},
                                 {"step_time_ms", status.step_time_ms},
                                 {"data_wait_ms", status.feed.data_wait_ms},
                                 {"eta_seconds", status.eta_seconds}});
}

}  // namespace stoker::app
