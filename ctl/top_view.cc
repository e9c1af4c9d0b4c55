#include "ctl/top_view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cwchar>

#include "ctl/status_format.h"
#include "shared/base/clock.h"
#include "shared/base/readable_format.h"
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
  const view::RunSummary& summary = state.summary;
  std::string text = paint.bold(printable(state.name)) + "  " +
                     paint.color(color_code(summary.health), summary.state) + "  step " +
                     format_count(summary.step);
  if (summary.max_steps > 0)
    text += "/" + format_count(summary.max_steps) + " (" +
            std::to_string(static_cast<int>(100 * static_cast<double>(summary.step) /
                                            static_cast<double>(summary.max_steps))) +
            " %)";
  text += "  epoch " + format_count(state.status.epoch);
  if (summary.eta_seconds > 0) text += "  ETA " + format_estimate(summary.eta_seconds);
  if (summary.state == "paused")
    if (const std::string age = format_age(summary.since); age != "-") text += "  for " + age;
  return text;
}

// The action comes first: the line can be cut.
std::vector<std::string> reason_lines(const view::RunSummary& summary, const Painter& paint) {
  std::string text = printable(summary.next);
  if (!summary.reason.empty()) text += (text.empty() ? "" : ": ") + printable(summary.reason);
  if (text.empty()) return {};
  return {paint.label("next") + (summary.health == view::Health::kGood
                                     ? text
                                     : paint.color(color_code(summary.health), text))};
}

std::string loss_line(const TrainerStatus& status, const Painter& paint) {
  if (!has_interval(status)) return paint.label("loss") + "-";
  std::string text = paint.label("loss") + paint.bold(format_value(status.loss));
  for (const auto& [name, value] : status.training_metrics)
    if (!std::isnan(value)) text += "  " + printable(name) + " " + format_value(value);
  text += "  lr " + format_rate(status.lr) + "  " + format_rate(status.samples_per_second) +
          " samples/s";
  if (!status.device.empty()) text += "  on " + printable(status.device);
  return text;
}

constexpr int kBarCells = 14;  // the line of the step fits into 80 columns

std::string step_line(const TopState& state, const Painter& paint) {
  const TrainerStatus& status = state.status;
  if (!has_interval(status)) return paint.label("step") + "-";
  const std::vector<StepPhase> phases = phases_of(status, state.stall_ms_per_step);
  std::vector<std::pair<double, const char*>> parts;
  std::string text;
  for (const StepPhase& phase : phases) {
    parts.emplace_back(phase.ms / status.step_time_ms, phase.color);
    text += (text.empty() ? " " : "  ") + paint.color(phase.color, std::string(phase.name) + " ") +
            format_milliseconds(phase.ms);
  }
  return paint.label("step") + paint.bar(parts, kBarCells) + text + " ms";
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
  if (std::isnan(feed.workers_reading))  // of a cluster
    return paint.label("workers") + paint.bar({}, kBarCells) + " " + std::to_string(feed.workers);
  return paint.label("workers") +
         paint.bar({{feed.workers_reading / workers, "34"},
                    {feed.workers_decoding / workers, "33"},
                    {feed.workers_transforming / workers, "35"},
                    {feed.workers_waiting / workers, "32"}},
                   kBarCells) +
         " " + std::to_string(feed.workers) + ": " + paint.color("34", "read ") +
         format_threads(feed.workers_reading) + paint.color("33", " decode ") +
         format_threads(feed.workers_decoding) + paint.color("35", " transform ") +
         format_threads(feed.workers_transforming) + paint.color("32", " wait ") +
         format_threads(feed.workers_waiting);
}

// The last values, the newest at the right, in the height of a line.
std::string sparkline(const std::vector<double>& values, const TextStyle& style) {
  constexpr std::array<const char*, 8> kBlocks{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::string_view kLetters = "_.:-=+*#";
  double most = 0;
  for (const double value : values)
    if (std::isfinite(value)) most = std::max(most, value);
  std::string text(static_cast<size_t>(kBarCells) - std::min<size_t>(values.size(), kBarCells),
                   ' ');
  for (size_t i = values.size() - std::min<size_t>(values.size(), kBarCells); i < values.size();
       ++i) {
    if (!std::isfinite(values[i])) {
      text += ' ';
      continue;
    }
    const auto level =
        most > 0 ? std::min<size_t>(7, static_cast<size_t>(8 * std::max(0.0, values[i]) / most))
                 : 0;
    if (style.unicode)
      text += kBlocks[level];
    else
      text += kLetters[level];
  }
  return "[" + text + "]";
}

std::string gpu_line(const Gpu& gpu, const Painter& paint) {
  std::string text = paint.label("gpu " + std::to_string(gpu.index)) +
                     paint.bar({{gpu.load_percent.value_or(0) / 100.0, "32"}}, kBarCells) + " ";
  text += gpu.load_percent ? std::to_string(*gpu.load_percent) + " %" : "load unknown";
  if (gpu.memory_total_bytes > 0)
    text +=
        "  " + format_bytes(gpu.memory_used_bytes) + " of " + format_bytes(gpu.memory_total_bytes);
  if (gpu.celsius) text += "  " + std::to_string(*gpu.celsius) + " C";
  if (gpu.watts) text += "  " + format_rate(*gpu.watts) + " W";
  return text + "  " + printable(gpu.name);
}

std::string checkpoint_line(const TopState& state, const Painter& paint) {
  const auto& checkpoint = state.status.checkpoint;
  std::string text = paint.label("checkpoint") + format_checkpoint(state.summary);
  if (checkpoint.saved_total > 0)
    text += ", stall " + format_milliseconds(checkpoint.stall_ms) + " ms";
  if (checkpoint.is_saving) text += ", saving";
  if (checkpoint.failed_total > 0)
    text += paint.color("1;31", ", " + format_count(checkpoint.failed_total) + " failed");
  return text;
}

std::string evaluator_line(const view::RunSummary& summary, const Painter& paint) {
  using Phase = run::EvaluatorState::Phase;
  const bool is_broken =
      summary.evaluator.phase == Phase::kFailed || summary.evaluator.phase == Phase::kCrashed;
  const std::string text = format_evaluator(summary), best = format_best(summary);
  return paint.label("evaluator") + (is_broken ? paint.color("1;31", text) : text) +
         (best == "-" ? "" : ", best " + best + " at step " + format_count(summary.best->step));
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

std::vector<std::string> status_lines(const TopState& state, const Painter& paint,
                                      const TextStyle& style) {
  const TrainerStatus& status = state.status;
  std::vector<std::string> lines{step_line(state, paint), ring_line(status.feed, paint),
                                 workers_line(status.feed, paint)};
  if (status.group.world_size > 1)
    lines.push_back(paint.label("group") + format_group(status.group));
  if (!status.cluster.tasks.empty())
    lines.push_back(paint.label("cluster") + format_cluster(status.cluster));
  lines.push_back(paint.label("memory") + format_memory(status));
  lines.push_back(paint.label("cpu") + sparkline(state.cpu_cores, style) + " " +
                  format_cpu(status.resources));
  lines.push_back(paint.label("transfer") + sparkline(state.transfer, style) + " " +
                  format_transfer(status.resources));
  for (const Gpu& gpu : state.gpus) lines.push_back(gpu_line(gpu, paint));
  lines.push_back(checkpoint_line(state, paint));
  lines.push_back(evaluator_line(state.summary, paint));
  if (const std::string errors = error_counts(status); !errors.empty())
    lines.push_back(paint.label("errors") + paint.color("1;33", errors));
  return lines;
}

std::string log_line(const std::string& line, const Painter& paint) {
  // Of "2026-01-31T12:00:00.000Z", the time of day to the second, in the zone of the terminal, which the last line names.
  constexpr size_t kTimeBytes = 24, kLocalBegin = 15, kLocalBytes = 8;
  const bool has_time = line.size() > kTimeBytes && parse_iso8601(line.substr(0, kTimeBytes));
  const std::string text = printable(
      has_time ? format_local_time(line.substr(0, kTimeBytes)).substr(kLocalBegin, kLocalBytes) +
                     line.substr(kTimeBytes)
               : line);
  const std::string color(log_color(line));
  return paint.color(color.empty() ? "2" : color.c_str(), text);
}

std::string key_line(const TopState& state, const Painter& paint) {
  if (!state.error.empty()) return paint.color("1;31", printable(state.error));
  if (!state.message.empty()) return paint.bold(printable(state.message));
  std::string text;
  for (const auto& [key, what] :
       {std::pair{"p", state.status.state == TrainerState::kPaused ? "resume" : "pause"},
        {"c", "checkpoint"},
        {"l", "log"},
        {"?", "help"},
        {"q", "quit"}}) {
    text += paint.color("7", std::string(" ") + key + " ") + " " + what;
    text += *key == 'l' ? " (" + std::string(to_string(state.level)) + ")  " : "  ";
  }
  return text + "(" + local_zone() + ")";
}

// What the keys and the colors mean.
std::vector<std::string> help_lines() {
  return {"p   pause or resume training, after the current step",
          "c   save a checkpoint now; the line below says when it is durable",
          "l   lowest level of the log lines shown: debug, info, warning, error",
          "?   show or hide this help",
          "q   quit; training continues",
          "step: compute, data wait, exchange with other ranks, checkpoint (stall), per step",
          "ring: batches that are ready; empty means that the workers are too slow",
          "workers: threads that read, decode, transform, or wait for a free slot",
          "cpu, transfer: of the last records; cores kept busy, bytes read and written per second",
          "checkpoint: what a crash would lose is what is newer than it"};
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

std::string_view log_color(const std::string& log_line) {
  if (is_shown(log_line, ShownLevel::kError)) return "31";
  if (is_shown(log_line, ShownLevel::kWarning)) return "33";
  return "";
}

namespace {

// Columns of the character at the start of `text`; sets its bytes.
int character_width(std::string_view text, size_t& bytes) {
  bytes = std::max<size_t>(1, utf8_character_bytes(text));
  wchar_t wide = L'?';
  std::mbstate_t state{};
  const size_t converted = std::mbrtowc(&wide, text.data(), bytes, &state);
  return converted == bytes ? std::max(0, ::wcwidth(wide)) : 1;
}

int visible_width(std::string_view text) {
  int width = 0;
  for (size_t i = 0, bytes = 0; i < text.size(); i += bytes) {
    if (text[i] == '\x1b')
      bytes = std::min(text.find('m', i), text.size() - 1) + 1 - i;
    else
      width += character_width(text.substr(i), bytes);
  }
  return width;
}

}  // namespace

std::string truncate_line(const std::string& text, int columns, bool unicode) {
  if (visible_width(text) <= columns) return text;
  const std::string ellipsis = unicode ? "…" : "~";
  if (--columns < 0) return "";
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
    size_t bytes = 0;
    if ((columns -= character_width(std::string_view(text).substr(i), bytes)) < 0) break;
    out += text.substr(i, bytes);
    i += bytes;
  }
  out += ellipsis;
  return is_colored ? out + kReset : out;
}

std::vector<std::string> render_top(const TopState& state, int rows, const TextStyle& style) {
  constexpr int kPlotFrame = 3, kMinPlotRows = 4, kMaxLogLines = 12;
  const Painter paint(style);
  std::vector<std::string> lines{head_line(state, paint)};
  for (std::string& line : reason_lines(state.summary, paint)) lines.push_back(std::move(line));
  lines.push_back(loss_line(state.status, paint));
  const std::vector<std::string> details = status_lines(state, paint, style);
  const int fixed = static_cast<int>(lines.size() + details.size()) + 1;
  int left = rows - fixed;
  int log_lines = std::clamp(left / 4, 0, kMaxLogLines);
  const std::vector<std::string> help = state.has_help ? help_lines() : std::vector<std::string>();
  if (state.has_help) log_lines = std::min(std::max(0, left), static_cast<int>(help.size()));
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
  if (state.has_help) shown.clear();
  lines.insert(lines.end(), help.begin(), help.end());
  // Whatever the plot has not used.
  const auto room = static_cast<size_t>(std::max(0, rows - 1 - static_cast<int>(lines.size())));
  for (size_t i = shown.size() - std::min(shown.size(), room); i < shown.size(); ++i)
    lines.push_back(log_line(shown[i], paint));
  lines.resize(static_cast<size_t>(std::max(0, rows - 1)));
  lines.push_back(key_line(state, paint));
  if (rows < 1) lines.clear();
  for (std::string& line : lines) line = truncate_line(line, style.columns, style.unicode);
  return lines;
}

}  // namespace stoker::ctl
