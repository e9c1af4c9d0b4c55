// render_top: the lines of `stokerctl top`, for a screen of any size.
//
// Threads: values and pure functions.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "ctl/gpu_usage.h"
#include "ctl/plot.h"
#include "ctl/terminal.h"
#include "shared/control/trainer_status.h"
#include "shared/view/run_summary.h"

namespace stoker::ctl {

// The lowest level of log lines that are shown.
enum class ShownLevel { kDebug, kInfo, kWarning, kError };
std::string_view to_string(ShownLevel level);

struct TopState {
  std::string name;  // of the run
  control::TrainerStatus status;
  view::RunSummary summary;   // with what `status` says
  std::vector<Curve> curves;  // loss and validation
  double stall_ms_per_step = 0;
  // Of the records that have them, the newest last: of stokerd and its workers together.
  std::vector<double> cpu_cores;
  std::vector<double> transfer;  // bytes read and written per second
  std::vector<Gpu> gpus;
  std::vector<std::string> log;  // newest last
  ShownLevel level = ShownLevel::kInfo;
  std::string message;    // the result of a command; empty: the keys are shown
  std::string error;      // stokerd does not answer; empty: it does
  bool has_help = false;  // the keys, in place of the log
};

// When the screen is drawn: after a change, at most five times a second.
class DrawSchedule {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kInterval{200};

  void request() { is_requested_ = true; }
  // As after a resize: without the interval.
  void request_immediately() {
    is_requested_ = true;
    next_ = Time::min();
  }
  // Whether to draw now.
  bool begin(Time now) {
    if (!is_requested_ || now < next_) return false;
    is_requested_ = false;
    next_ = now + kInterval;
    return true;
  }
  // The earliest time to draw; nullopt: nothing has changed.
  std::optional<Time> due() const { return is_requested_ ? std::optional(next_) : std::nullopt; }

 private:
  bool is_requested_ = false;
  Time next_ = Time::min();
};

// Exactly `rows` lines of at most style.columns characters, with ANSI colors if style.color. Drops
// what does not fit: first the plot, then log lines, then the lines from the bottom.
std::vector<std::string> render_top(const TopState& state, int rows, const TextStyle& style);

// Whether the log shows a line at this level: "2026-… info    event …" or JSON.
bool is_shown(const std::string& log_line, ShownLevel level);

// Of a line of a log on a terminal: "31"; empty: none.
std::string_view log_color(const std::string& log_line);

// `text` with at most `columns` characters, the last an ellipsis if there are more; ANSI colors take none.
std::string truncate_line(const std::string& text, int columns, bool unicode);

}  // namespace stoker::ctl
