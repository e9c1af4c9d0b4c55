#include "shared/run/run_state.h"

#include <fcntl.h>
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
constexpr std::array<std::string_view, 5> kEvaluatorPhases{"not_started", "running", "exited",
                                                           "failed", "crashed"};

RunOutcome run_outcome_of(std::string_view word) {
  const auto found = std::ranges::find(kRunOutcomes, word);
  if (found == kRunOutcomes.end()) throw std::invalid_argument("unknown state");
  return static_cast<RunOutcome>(found - kRunOutcomes.begin());
}

json::object to_object(const ExitStatus& end) {
  return {{"state", to_string(end.outcome)},
          {"step", end.step},
          {"reason", valid_utf8(end.reason)},
          {"exit_code", end.exit_code}};
}

ExitStatus exit_status_of(const json::object& root) {
  ExitStatus end;
  end.outcome = run_outcome_of(root.at("state").as_string());
  end.step = root.at("step").to_number<uint64_t>();
  end.reason = root.at("reason").as_string().c_str();
  end.exit_code = root.at("exit_code").to_number<int>();
  return end;
}

// nullopt: there is no such file, or it cannot be read.
template <typename Value>
std::optional<Value> read_value(const std::string& path,
                                Result<Value> (*parse)(std::string_view, const std::string&)) {
  const auto text = read_file(path, kMaxBytes);
  if (!text.ok()) return std::nullopt;
  auto value = parse(*text, path);
  return value.ok() ? std::optional<Value>(*std::move(value)) : std::nullopt;
}

}  // namespace

std::string reason_of(const Status& failure) {
  switch (failure.code()) {
    case StatusCode::kNoSpace:
    case StatusCode::kOutOfMemory:
    case StatusCode::kDeviceLost:
    case StatusCode::kInternal:
    case StatusCode::kPeerLost:
      return failure.to_string();
    default:  // the message says it, and better: a loss that is not finite is not corrupt
      return failure.message();
  }
}

std::string_view to_string(RunOutcome outcome) {
  return kRunOutcomes[static_cast<size_t>(outcome)];
}

std::string to_json(const ExitStatus& end) { return json::serialize(to_object(end)) + "\n"; }

Result<ExitStatus> parse_exit_status(std::string_view text, const std::string& path) {
  return parse_json_object<ExitStatus>(text, path, exit_status_of);
}

std::string to_json(const LastStart& start) {
  json::object root = to_object(start.end);
  root.erase("step");
  root["time"] = start.time;
  return json::serialize(root) + "\n";
}

Result<LastStart> parse_last_start(std::string_view text, const std::string& path) {
  return parse_json_object<LastStart>(text, path, [](const json::object& root) {
    json::object end = root;
    end["step"] = 0;
    return LastStart{.time = root.at("time").as_string().c_str(), .end = exit_status_of(end)};
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

Status set_aside_exit_status(FileSystem& files, const RunLayout& layout) {
  const Status moved = files.rename(layout.exit_status_file(), layout.former_exit_status_file());
  return moved.code() == StatusCode::kNotFound ? Status() : moved;
}

Status put_back_exit_status(FileSystem& files, const RunLayout& layout) {
  const Status moved = files.rename(layout.former_exit_status_file(), layout.exit_status_file());
  if (moved.code() == StatusCode::kNotFound) return {};
  return moved.ok() ? files.sync_directory(layout.root()) : moved;
}

// Synced: otherwise, after a power cut, the run would seem to have ended before what it has done since.
Status accept_start(FileSystem& files, const RunLayout& layout) {
  bool is_changed = false;
  for (const std::string& path : {layout.former_exit_status_file(), layout.last_start_file()}) {
    const Status removed = files.remove_file(path);
    if (!removed.ok() && removed.code() != StatusCode::kNotFound) return removed;
    is_changed = is_changed || removed.ok();
  }
  return is_changed ? files.sync_directory(layout.root()) : Status();
}

RunState read_run_state(const RunLayout& layout) {
  RunState state;
  const auto locked = is_locked(layout.lock_file());
  if (locked.ok() && *locked) {
    state.phase = RunState::Phase::kRunning;
    state.pause = read_value<PauseStatus>(layout.paused_file(), parse_pause_status);
    return state;
  }
  state.last_start = read_value<LastStart>(layout.last_start_file(), parse_last_start);
  state.end = read_value<ExitStatus>(layout.exit_status_file(), parse_exit_status);
  if (!state.end)
    state.end = read_value<ExitStatus>(layout.former_exit_status_file(), parse_exit_status);
  if (state.end) {
    state.phase = state.end->outcome == RunOutcome::kPreempted ? RunState::Phase::kPreempted
                                                               : RunState::Phase::kEnded;
    return state;
  }
  if (!locked.ok()) state.no_locks = locked.status().message();
  std::error_code ignored;
  if (std::filesystem::exists(layout.lock_file(), ignored)) state.phase = RunState::Phase::kCrashed;
  return state;
}

std::string_view to_string(EvaluatorState::Phase phase) {
  return kEvaluatorPhases.at(static_cast<size_t>(phase));
}

EvaluatorState EvaluatorState::of(std::string_view word, std::string reason) {
  const auto found = std::ranges::find(kEvaluatorPhases, word);
  const auto phase = found == kEvaluatorPhases.end()
                         ? Phase::kExited
                         : static_cast<Phase>(found - kEvaluatorPhases.begin());
  return {.phase = phase, .reason = std::move(reason)};
}

EvaluatorState read_evaluator_state(const RunLayout& layout) {
  using Phase = EvaluatorState::Phase;
  const std::string path = layout.eval_lock_file();
  if (!default_file_system().open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK).ok()) return {};
  const auto locked = is_locked(path);
  if (!locked.ok()) return {};
  if (*locked) return {.phase = Phase::kRunning};
  const auto opened = default_file_system().open(layout.eval_exit_status_file(),
                                                 O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!opened.ok() && opened.status().code() != StatusCode::kNotFound) return {};  // a link
  const auto end = read_value<ExitStatus>(layout.eval_exit_status_file(), parse_exit_status);
  if (!end) return {.phase = Phase::kCrashed, .reason = "it was killed or the machine crashed"};
  if (end->outcome != RunOutcome::kFailed) return {.phase = Phase::kExited};
  return {.phase = Phase::kFailed, .reason = end->reason};
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
