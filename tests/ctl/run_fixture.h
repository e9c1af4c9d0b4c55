// CtlTest: fixture with a run directory, whose files are written with the functions that the
// programs use.
#pragma once

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ctl/stokerctl.h"
#include "shared/base/file.h"
#include "shared/metrics/metrics_record.h"
#include "shared/run/eval_result.h"
#include "shared/run/run_layout.h"
#include "shared/run/run_state.h"
#include "tests/support/temporary_directory.h"

namespace stoker::ctl {

inline constexpr TextStyle kPiped{.columns = 80};
inline constexpr TextStyle kTerminal{.columns = 80, .live = true, .color = true, .unicode = true};

// Width of the widest line in characters (not bytes); ANSI color sequences have no width.
inline size_t widest_line(const std::string& text) {
  size_t widest = 0, width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = text.find('m', i);
    } else if (text[i] == '\n') {
      width = 0;
    } else if ((text[i] & 0xC0) != 0x80) {
      widest = std::max(widest, ++width);
    }
  }
  return widest;
}

class CtlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const auto& path : {layout().metrics_dir(), layout().eval_dir(), layout().logs_dir()})
      std::filesystem::create_directories(path);
    write_file(layout().metric_table_file(),
               eval_metrics::to_json(eval_metrics::MetricTable(
                   {{.name = "loss"},
                    {.name = "bits_per_byte"},
                    {.name = "auroc", .direction = eval_metrics::Direction::kMaximize}})));
  }

  run::RunLayout layout() const { return run::RunLayout(root_ / "run"); }
  std::string path(const std::string& name) const { return root_ / name; }
  static void write_file(const std::string& path, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  }

  void write_train_metrics(const std::vector<metrics::TrainMetrics>& rows) {
    std::string lines;
    for (const auto& row : rows) lines += metrics::to_json(metrics::to_record(row)) + "\n";
    write_file(layout().train_metrics_file(), lines);
  }
  // `count` records, one every ten steps, with a decreasing loss.
  void write_train_metrics(uint64_t count) {
    std::vector<metrics::TrainMetrics> rows;
    for (uint64_t i = 1; i <= count; ++i)
      rows.push_back(make_train_metrics(10 * i, 1 + 4.0 / static_cast<double>(i)));
    write_train_metrics(rows);
  }
  static metrics::TrainMetrics make_train_metrics(uint64_t step, double loss) {
    return {.step = step,
            .epoch = step / 100,
            .loss = loss,
            .lr = 1e-3,
            .grad_norm = 1,
            .samples_seen = step * 16,
            .samples_per_second = 1234.5,
            .step_time_ms = 13,
            .data_wait_ms = 0.25,
            .checkpoint_stall_ms = 1.5,
            .wall_time = "2026-01-31T12:00:00.000Z"};
  }
  void write_eval(uint64_t step, double loss, const std::string& manifest_sha256 = "",
                  std::optional<bool> use_ema = {}) {
    const run::EvalResult result{
        .step = step,
        .manifest_sha256 = manifest_sha256,
        .datasets = {{.dataset = "valid",
                      .samples = 100,
                      .metrics = {{"loss", loss}, {"bits_per_byte", loss * 1.442695}}}},
        .seconds = 1,
        .created = "2026-01-31T12:00:00.000Z",
        .maybe_use_ema = use_ema};
    ASSERT_TRUE(run::write_eval_result(default_file_system(), layout().eval_dir(), result).ok());
  }
  void write_best(uint64_t step, double loss, const std::string& manifest_sha256 = "") {
    write_file(layout().best_file(),
               run::to_json(run::BestCheckpoint{.dataset = "valid",
                                                .metric = "loss",
                                                .value = loss,
                                                .step = step,
                                                .manifest_sha256 = manifest_sha256}));
  }
  void write_exit_status(run::RunOutcome outcome, uint64_t step, int exit_code = 0) {
    ASSERT_TRUE(run::write_exit_status(default_file_system(), layout(),
                                       {.outcome = outcome,
                                        .step = step,
                                        .reason = "all steps are done",
                                        .exit_code = exit_code})
                    .ok());
  }

  struct CommandResult {
    int code = -1;
    std::string out;
    std::string err;
  };
  static CommandResult run_with_arguments(std::vector<std::string> words,
                                          const TextStyle& style = kPiped) {
    words.insert(words.begin(), "stokerctl");
    std::vector<const char*> argv;
    for (const std::string& word : words) argv.push_back(word.c_str());
    std::ostringstream out, err;
    const ExitCode code =
        run_stokerctl(static_cast<int>(argv.size()), argv.data(), style, out, err);
    return {static_cast<int>(code), out.str(), err.str()};
  }
  CommandResult ctl(std::vector<std::string> words, const TextStyle& style = kPiped) const {
    words.insert(words.begin(), {"--run-dir", layout().root()});
    return run_with_arguments(std::move(words), style);
  }

  const test::TemporaryDirectory root_;
};

}  // namespace stoker::ctl
