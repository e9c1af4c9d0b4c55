#include "tests/system/kill_report.h"

#include <charconv>

namespace stoker::test {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

std::optional<uint64_t> start_step_of(std::string_view log) {
  constexpr std::string_view kEvent = " training started ";
  constexpr std::string_view kField = " start_step=";
  const size_t event = log.find(kEvent);
  if (event == std::string_view::npos) return std::nullopt;
  const std::string_view line = log.substr(event, log.find('\n', event) - event);
  const size_t field = line.find(kField);
  if (field == std::string_view::npos) return std::nullopt;
  uint64_t step = 0;
  const char* const from = line.data() + field + kField.size();
  const auto parsed = std::from_chars(from, line.data() + line.size(), step);
  if (parsed.ec != std::errc()) return std::nullopt;
  return step;
}

KillReport report_kill(std::string_view log, uint64_t newest_step, uint64_t max_steps) {
  const auto start_step = start_step_of(log);
  return {.start_step = start_step,
          .is_in_training = start_step && newest_step > *start_step && newest_step < max_steps};
}

std::string to_string(const KillCounts& counts) {
  return std::to_string(counts.kills) + " kills, " + std::to_string(counts.in_training) +
         " in training, " + std::to_string(counts.resumed) + " restarts resumed";
}

AssertionResult count_start(std::optional<uint64_t> start_step, uint64_t newest_checkpoint,
                            KillCounts& counts) {
  if (!start_step) return AssertionSuccess();
  if (*start_step != newest_checkpoint)
    return AssertionFailure() << "training started at step " << *start_step
                              << ", the newest checkpoint is of step " << newest_checkpoint;
  counts.resumed += *start_step > 0;
  return AssertionSuccess();
}

AssertionResult count_kill(const KillReport& report, uint64_t newest_checkpoint,
                           bool must_be_in_training, KillCounts& counts) {
  ++counts.kills;
  counts.in_training += report.is_in_training;
  if (must_be_in_training && !report.is_in_training)
    return AssertionFailure() << "killed outside of training";
  return count_start(report.start_step, newest_checkpoint, counts);
}

}  // namespace stoker::test
