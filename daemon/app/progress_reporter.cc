#include "daemon/app/progress_reporter.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>

#include "daemon/app/progress_line.h"
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

}  // namespace

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
