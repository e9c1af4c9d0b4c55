#include "ctl/top_view.h"

#include <algorithm>
#include <cmath>
#include <cwchar>

#include "ctl/status_format.h"
#include "ctl/text_format.h"
#include "shared/base/utf8.h"

namespace stoker::ctl {
namespace {

using control::TrainerState;
using control::TrainerStatus;

constexpr const char* kReset = "\x1b[0m";

class Painter {
 public:
  explicit Painter(const TextStyle& style) : style_(style) {}
  std::string color(const char* code, const std::string& text) const {
    return style_.color && !text.empty() ? "\x1b[" + std::string(code) + "m" + text + kReset : text;
  }
  std::string bold(const std::string& text) const { return color("1", text); }
  std::string label(std::string name) const {
    name.resize(11, ' ');
    return color("36", name);
  }
  // `parts`: fractions of one and their colors.
  std::string bar(const std::vector<std::pair<double, const char*>>& parts, int width) const {
    constexpr const char* kGlyphs[] = {"#", "=", "-", "+"};
    std::string text = "[";
    double sum = 0;
    int used = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      sum += std::isfinite(parts[i].first) ? std::max(0.0, parts[i].first) : 0;
      const int end = std::clamp(static_cast<int>(std::lround(sum * width)), used, width);
      std::string cells;
      for (; used < end; ++used) cells += style_.unicode && style_.color ? "█" : kGlyphs[i % 4];
      text += color(parts[i].second, cells);
    }
    for (; used < width; ++used) text += style_.unicode ? "·" : " ";
    return text + "]";
  }

 private:
  const TextStyle& style_;
};

std::string head_line(const TopState& state, const Painter& paint) {
  const TrainerStatus& status = state.status;
  std::string text =
      paint.bold(printable(state.name)) + "  " +
      paint.color(color_code(view::health_of(status.state)), std::string(to_string(status.state))) +
      "  step " + format_count(status.step);
  if (status.max_steps > 0)
    text += "/" + format_count(status.max_steps) + " (" +
            std::to_string(static_cast<int>(100 * static_cast<double>(status.step) /
                                            static_cast<double>(status.max_steps))) +
            " %)";
  text += "  epoch " + format_count(status.epoch);
  if (status.state != control::TrainerState::kPaused && std::isfinite(status.eta_seconds) &&
      status.eta_seconds > 0)
    text += "  ETA " + format_estimate(status.eta_seconds);
  return text;
}

std::string loss_line(const TrainerStatus& status, const Painter& paint) {
  if (!has_interval(status))
    return paint.label("loss") + "-" +
           (status.waiting_for.empty() ? "" : "  waiting for " + printable(status.waiting_for));
  std::string text = paint.label("loss") + paint.bold(format_number(status.loss, 5));
  for (const auto& [name, value] : status.training_metrics)
    if (!std::isnan(value)) text += "  " + printable(name) + " " + format_number(value, 4);
  text += "  lr " + format_setting(status.lr) + "  " + format_number(status.samples_per_second, 4) +
          " samples/s";
  if (!status.device.empty()) text += "  on " + printable(status.device);
  return text;
}

constexpr int kBarCells = 14;  // the line of the step fits into 80 columns

std::string step_line(const TopState& state, const Painter& paint) {
  const TrainerStatus& status = state.status;
  if (!has_interval(status)) return paint.label("step") + "-";
  const double step = status.step_time_ms;
  const double wait = status.feed.data_wait_ms / step, stall = state.stall_ms_per_step / step;
  return paint.label("step") +
         paint.bar({{1 - wait - stall, "34"}, {wait, "33"}, {stall, "35"}}, kBarCells) + " " +
         paint.color("34", "compute ") +
         format_milliseconds(std::max(0.0, step * (1 - wait - stall))) +
         paint.color("33", "  data wait ") + format_milliseconds(status.feed.data_wait_ms) +
         paint.color("35", "  checkpoint ") + format_milliseconds(state.stall_ms_per_step) + " ms";
}

std::string ring_line(const TrainerStatus::Feed& feed, const Painter& paint) {
  const double filled = feed.queue_capacity > 0 ? static_cast<double>(feed.ready_batches) /
                                                      static_cast<double>(feed.queue_capacity)
                                                : 0;
  return paint.label("ring") + paint.bar({{filled, "32"}}, kBarCells) + " " +
         format_count(feed.ready_batches) + " of " + format_count(feed.queue_capacity) +
         " batches ready";
}

std::string workers_line(const TrainerStatus::Feed& feed, const Painter& paint) {
  const double workers = std::max(1, feed.workers);
  return paint.label("workers") +
         paint.bar({{feed.workers_reading / workers, "34"},
                    {feed.workers_decoding / workers, "33"},
                    {feed.workers_transforming / workers, "35"},
                    {feed.workers_waiting / workers, "32"}},
                   kBarCells) +
         " " + std::to_string(feed.workers) + ": " + paint.color("34", "read ") +
         format_number(feed.workers_reading, 2) + paint.color("33", " decode ") +
         format_number(feed.workers_decoding, 2) + paint.color("35", " transform ") +
         format_number(feed.workers_transforming, 2) + paint.color("32", " wait ") +
         format_number(feed.workers_waiting, 2);
}

std::string memory_line(const TrainerStatus& status, const Painter& paint) {
  std::string text = paint.label("memory") + format_bytes(status.memory.rss_bytes) + " (peak " +
                     format_bytes(status.memory.peak_rss_bytes) + ")";
  if (status.memory.device_reserved_bytes > 0)
    text += "  " + printable(status.device) + " " +
            format_bytes(status.memory.device_allocated_bytes) + " of " +
            format_bytes(status.memory.device_reserved_bytes) + " reserved";
  return text;
}

std::string gpu_line(const Gpu& gpu, const Painter& paint) {
  std::string text = paint.label("gpu " + std::to_string(gpu.index)) +
                     paint.bar({{gpu.load_percent.value_or(0) / 100.0, "32"}}, kBarCells) + " ";
  text += gpu.load_percent ? std::to_string(*gpu.load_percent) + " %" : "load unknown";
  if (gpu.memory_total_bytes > 0)
    text +=
        "  " + format_bytes(gpu.memory_used_bytes) + " of " + format_bytes(gpu.memory_total_bytes);
  if (gpu.celsius) text += "  " + std::to_string(*gpu.celsius) + " C";
  if (gpu.watts) text += "  " + format_number(*gpu.watts, 3) + " W";
  return text + "  " + printable(gpu.name);
}

std::string checkpoint_line(const TrainerStatus::Checkpoint& checkpoint, const Painter& paint) {
  const bool has_checkpoint = checkpoint.last_saved_step > 0 || checkpoint.saved_total > 0;
  std::string text = paint.label("checkpoint");
  text += has_checkpoint ? "step " + format_count(checkpoint.last_saved_step) + ", stall " +
                               format_milliseconds(checkpoint.stall_ms) + " ms"
                         : "none yet";
  if (checkpoint.is_saving) text += ", saving";
  if (checkpoint.failed_total > 0)
    text += paint.color("1;31", ", " + format_count(checkpoint.failed_total) +
                                    " failed: " + printable(checkpoint.last_error));
  return text;
}

std::string evaluator_line(const TrainerStatus& status, const Painter& paint) {
  const auto& evaluator = status.evaluator;
  std::string text = paint.label("evaluator");
  text += evaluator.state == "not_started" ? "not started" : printable(evaluator.state);
  if (evaluator.last_evaluated_step > 0) {
    const uint64_t saved = status.checkpoint.last_saved_step;
    const uint64_t lag = saved - std::min(saved, evaluator.last_evaluated_step);
    text += lag == 0 ? ", up to date" : ", " + format_count(lag) + " steps behind";
  }
  if (!std::isnan(evaluator.best_value))
    text +=
        ", best " + (evaluator.best_metric.empty() ? "" : printable(evaluator.best_metric) + " ") +
        format_number(evaluator.best_value, 5) + " at step " + format_count(evaluator.best_step);
  return text;
}

// Empty: there were none.
std::string error_counts(const TrainerStatus& status) {
  std::string text;
  for (const auto& [count, what] : {std::pair{status.feed.sample_errors, "sample errors"},
                                    {status.feed.worker_crashes, "worker crashes"},
                                    {status.feed.worker_timeouts, "timeouts"},
                                    {status.feed.requeued_batches, "requeued batches"},
                                    {status.skipped_steps, "skipped steps"},
                                    {status.rollbacks, "rollbacks"}})
    if (count > 0) text += (text.empty() ? "" : ", ") + format_count(count) + " " + what;
  return text;
}

std::vector<std::string> status_lines(const TopState& state, const Painter& paint) {
  const TrainerStatus& status = state.status;
  std::vector<std::string> lines{step_line(state, paint), ring_line(status.feed, paint),
                                 workers_line(status.feed, paint)};
  if (status.group.world_size > 1)
    lines.push_back(paint.label("group") + format_group(status.group));
  if (!status.cluster.tasks.empty())
    lines.push_back(paint.label("cluster") + format_cluster(status.cluster));
  lines.push_back(memory_line(status, paint));
  for (const Gpu& gpu : state.gpus) lines.push_back(gpu_line(gpu, paint));
  lines.push_back(checkpoint_line(status.checkpoint, paint));
  lines.push_back(evaluator_line(status, paint));
  if (const std::string errors = error_counts(status); !errors.empty())
    lines.push_back(paint.label("errors") + paint.color("1;33", errors));
  if (!status.waiting_for.empty())
    lines.push_back(paint.label("waiting") + printable(status.waiting_for));
  return lines;
}

std::string log_line(const std::string& line, const Painter& paint) {
  // Of "2026-01-31T12:00:00.000Z", the time of day to the second.
  constexpr size_t kDateBytes = 11, kSecondsEnd = 19, kTimeBytes = 24;
  const bool has_time = line.size() > kTimeBytes && line[kDateBytes - 1] == 'T';
  const std::string text = printable(has_time ? line.substr(kDateBytes, kSecondsEnd - kDateBytes) +
                                                    line.substr(kTimeBytes)
                                              : line);
  if (is_shown(line, ShownLevel::kError)) return paint.color("31", text);
  if (is_shown(line, ShownLevel::kWarning)) return paint.color("33", text);
  return paint.color("2", text);
}

std::string key_line(const TopState& state, const Painter& paint) {
  if (!state.error.empty()) return paint.color("1;31", printable(state.error));
  if (!state.message.empty()) return paint.bold(printable(state.message));
  std::string text;
  for (const auto& [key, what] :
       {std::pair{"p", state.status.state == TrainerState::kPaused ? "resume" : "pause"},
        {"c", "checkpoint"},
        {"l", "log level"},
        {"q", "quit"}}) {
    text += paint.color("7", std::string(" ") + key + " ") + " " + what;
    text += *key == 'l' ? " (" + std::string(to_string(state.level)) + ")  " : "  ";
  }
  return text + "(training continues)";
}

}  // namespace

std::string_view to_string(ShownLevel level) {
  switch (level) {
    case ShownLevel::kDebug:
      return "debug";
    case ShownLevel::kInfo:
      return "info";
    case ShownLevel::kWarning:
      return "warning";
    case ShownLevel::kError:
      return "error";
  }
  return "";  // unreachable; all levels are handled above
}

bool is_shown(const std::string& log_line, ShownLevel level) {
  for (const ShownLevel one :
       {ShownLevel::kError, ShownLevel::kWarning, ShownLevel::kInfo, ShownLevel::kDebug}) {
    const std::string word(to_string(one));
    // In text, the level follows the time.
    const bool has_level = log_line.starts_with('{')
                               ? log_line.find("\"level\":\"" + word + "\"") != std::string::npos
                               : log_line.find(' ' + word + ' ') == log_line.find(' ');
    if (has_level && log_line.find(' ') != std::string::npos) return one >= level;
  }
  return level <= ShownLevel::kInfo;
}

std::string truncate_line(const std::string& text, int columns) {
  std::string out;
  bool is_colored = false;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '\x1b') {
      const size_t end = std::min(text.find('m', i), text.size() - 1) + 1;
      out += text.substr(i, end - i);
      is_colored = out.size() < 4 || !out.ends_with(kReset);
      i = end;
      continue;
    }
    const size_t bytes =
        std::max<size_t>(1, utf8_character_bytes(std::string_view(text).substr(i)));
    wchar_t wide = L'?';
    std::mbstate_t state{};
    int width = 1;
    const size_t converted = std::mbrtowc(&wide, text.data() + i, bytes, &state);
    if (converted == bytes) width = std::max(0, ::wcwidth(wide));
    if ((columns -= width) < 0) break;
    out += text.substr(i, bytes);
    i += bytes;
  }
  return is_colored ? out + kReset : out;
}

std::vector<std::string> render_top(const TopState& state, int rows, const TextStyle& style) {
  constexpr int kPlotFrame = 3, kMinPlotRows = 4, kMaxLogLines = 12;
  const Painter paint(style);
  std::vector<std::string> lines{head_line(state, paint), loss_line(state.status, paint)};
  const std::vector<std::string> details = status_lines(state, paint);
  const int fixed = static_cast<int>(lines.size() + details.size()) + 1;
  int left = rows - fixed;
  int log_lines = std::clamp(left / 4, 0, kMaxLogLines);
  if (!has_finite_point(state.curves)) log_lines = std::max(0, left);
  left -= log_lines;
  if (left >= kMinPlotRows + kPlotFrame && style.columns >= 40) {
    const std::string plot = render_plot(state.curves, "steps", left - kPlotFrame, style);
    for (size_t begin = 0; begin < plot.size();) {
      const size_t end = plot.find('\n', begin);
      lines.push_back(plot.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  lines.insert(lines.end(), details.begin(), details.end());
  std::vector<std::string> shown;
  for (const std::string& line : state.log)
    if (is_shown(line, state.level)) shown.push_back(line);
  // Whatever the plot has not used.
  const auto room = static_cast<size_t>(std::max(0, rows - 1 - static_cast<int>(lines.size())));
  for (size_t i = shown.size() - std::min(shown.size(), room); i < shown.size(); ++i)
    lines.push_back(log_line(shown[i], paint));
  lines.resize(static_cast<size_t>(std::max(0, rows - 1)));
  lines.push_back(key_line(state, paint));
  if (rows < 1) lines.clear();
  for (std::string& line : lines) line = truncate_line(line, style.columns);
  return lines;
}

}  // namespace stoker::ctl
