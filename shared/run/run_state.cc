#include "shared/run/run_state.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <stdexcept>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"
#include "shared/base/utf8.h"

namespace stoker::run {
namespace {

namespace json = boost::json;
constexpr uint64_t kMaxBytes = 1 << 20;
constexpr uint64_t kMaxLockBytes = 4096;
constexpr std::string_view kTask = " task=";  // the last field
constexpr std::array<std::string_view, 4> kRunOutcomes{"finished", "stopped", "failed",
                                                       "preempted"};

RunOutcome run_outcome_of(std::string_view word) {
  const auto found = std::ranges::find(kRunOutcomes, word);
  if (found == kRunOutcomes.end()) throw std::invalid_argument("unknown state");
  return static_cast<RunOutcome>(found - kRunOutcomes.begin());
}

}  // namespace

std::string_view to_string(RunOutcome outcome) {
  return kRunOutcomes[static_cast<size_t>(outcome)];
}

std::string to_json(const ExitStatus& end) {
  return json::serialize(json::object{{"state", to_string(end.outcome)},
                                      {"step", end.step},
                                      {"reason", valid_utf8(end.reason)},
                                      {"exit_code", end.exit_code}}) +
         "\n";
}

Result<ExitStatus> parse_exit_status(std::string_view text, const std::string& path) {
  return parse_json_object<ExitStatus>(text, path, [](const json::object& root) {
    ExitStatus end;
    end.outcome = run_outcome_of(root.at("state").as_string());
    end.step = root.at("step").to_number<uint64_t>();
    end.reason = root.at("reason").as_string().c_str();
    end.exit_code = root.at("exit_code").to_number<int>();
    return end;
  });
}

std::string to_json(const PauseStatus& pause) {
  return json::serialize(json::object{{"step", pause.step}, {"since", pause.since}}) + "\n";
}

Result<PauseStatus> parse_pause_status(std::string_view text, const std::string& path) {
  return parse_json_object<PauseStatus>(text, path, [](const json::object& root) {
    return PauseStatus{.step = root.at("step").to_number<uint64_t>(),
                       .since = root.at("since").as_string().c_str()};
  });
}

Status write_exit_status(FileSystem& files, const RunLayout& layout, const ExitStatus& end) {
  return write_file_atomically(files, layout.exit_status_file(), to_json(end));
}

RunState read_run_state(const RunLayout& layout) {
  RunState state;
  const auto locked = is_locked(layout.lock_file());
  if (locked.ok() && *locked) {
    state.phase = RunState::Phase::kRunning;
    if (const auto text = read_file(layout.paused_file(), kMaxBytes); text.ok()) {
      auto pause = parse_pause_status(*text, layout.paused_file());
      if (pause.ok()) state.pause = *std::move(pause);
    }
    return state;
  }
  if (const auto text = read_file(layout.exit_status_file(), kMaxBytes); text.ok()) {
    auto end = parse_exit_status(*text, layout.exit_status_file());
    if (end.ok()) {
      state.phase = end->outcome == RunOutcome::kPreempted ? RunState::Phase::kPreempted
                                                           : RunState::Phase::kEnded;
      state.end = *std::move(end);
      return state;
    }
  }
  if (!locked.ok()) state.no_locks = locked.status().message();
  std::error_code ignored;
  if (std::filesystem::exists(layout.lock_file(), ignored)) state.phase = RunState::Phase::kCrashed;
  return state;
}

std::string lock_text(Clock& clock, const std::string& task) {
  return "pid=" + std::to_string(::getpid()) + " since=" + to_iso8601(clock.wall()) +
         (task.empty() ? "" : std::string(kTask) + task);
}

std::string task_in_lock(const std::string& path) {
  const auto holder = read_file(path, kMaxLockBytes);
  const size_t at = holder.ok() ? holder->find(kTask) : std::string::npos;
  if (at == std::string::npos) return "";
  const size_t begin = at + kTask.size();
  return printable(holder->substr(begin, holder->find('\n', begin) - begin));
}

}  // namespace stoker::run
