#include "ctl/evaluate_command.h"

#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "ctl/run_locator.h"
#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/base/file_locks.h"
#include "shared/base/readable_format.h"
#include "shared/base/utf8.h"
#include "shared/run/eval_result.h"
#include "shared/run/evaluation_outcomes.h"
#include "shared/run/evaluation_progress.h"
#include "shared/run/evaluation_requests.h"

namespace stoker::ctl {
namespace {

constexpr int kMetricDigits = 4;

bool has_evaluator(const run::RunLayout& layout) {
  return FileLocks::read().is_locked(layout.eval_lock_file());
}

std::string advice(const run::RunLayout& layout) {
  return "no stoker-eval is running on this run; it is evaluated by the next: stoker-eval "
         "--run-dir " +
         printable(layout.root());
}

// For root: the thread accesses files as the owner of the run does, without the groups of root, so that new
// files belong to that user, as whom the evaluator runs. The destructor restores the rights.
class RunOwnerAccess {
 public:
  RunOwnerAccess() = default;
  RunOwnerAccess(const RunOwnerAccess&) = delete;
  RunOwnerAccess& operator=(const RunOwnerAccess&) = delete;
  ~RunOwnerAccess();

  Status acquire(const run::RunLayout& layout);

 private:
  // Of this thread; that of libc is for all.
  static bool set_groups(const std::vector<gid_t>& groups) {
    return ::syscall(SYS_setgroups, groups.size(), groups.data()) == 0;
  }

  std::optional<std::vector<gid_t>> maybe_groups_;  // of root, if they were dropped
};

Status RunOwnerAccess::acquire(const run::RunLayout& layout) {
  STOKER_ASSIGN_OR_RETURN(const UniqueFd fd,
                          default_file_system().open(layout.root(), O_PATH | O_DIRECTORY));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(errno, "stat " + layout.root());
  if (::geteuid() != 0 || info.st_uid == 0) return {};
  std::vector<gid_t> groups(static_cast<size_t>(std::max(::getgroups(0, nullptr), 0)));
  groups.resize(static_cast<size_t>(
      std::max(::getgroups(static_cast<int>(groups.size()), groups.data()), 0)));
  if (!set_groups({}))
    return Status::from_errno(errno, "drop the groups of root, as " + layout.root() +
                                         " belongs to uid " + std::to_string(info.st_uid));
  maybe_groups_ = std::move(groups);
  ::setfsgid(info.st_gid);
  ::setfsuid(info.st_uid);
  return {};
}

RunOwnerAccess::~RunOwnerAccess() {
  if (!maybe_groups_) return;
  ::setfsuid(::geteuid());
  ::setfsgid(::getegid());
  (void)set_groups(*maybe_groups_);
}

Result<run::EvaluationRequest> request_as_owner(const run::RunLayout& layout, uint64_t step) {
  RunOwnerAccess access;
  STOKER_RETURN_IF_ERROR(access.acquire(layout));
  return run::request_evaluation(default_file_system(), layout, step, system_clock());
}

// Up to the end of the last outcome that was recorded.
Result<uint64_t> outcomes_bytes(const run::RunLayout& layout) {
  uint64_t bytes = 0;
  const Status read =
      run::for_each_outcome_line(layout.evaluation_outcomes_file(), 0, [&](const FileLine& line) {
        if (line.is_complete) bytes = line.end;
        return Status();
      });
  if (!read.ok() && read.code() != StatusCode::kNotFound) return read;
  return bytes;
}

// The outcome of the request, or of one that replaced it: of the same step, and recorded behind the
// first `known_bytes`.
Result<std::optional<run::EvaluationOutcome>> find_outcome(const run::RunLayout& layout,
                                                           uint64_t known_bytes,
                                                           const run::EvaluationRequest& request) {
  std::optional<run::EvaluationOutcome> found;
  const Status read = run::for_each_outcome_line(
      layout.evaluation_outcomes_file(), run::kMaxOutcomeBytes, [&](const FileLine& line) {
        if (found || !line.is_complete) return Status();
        auto outcome = run::parse_outcome_record(line.text);
        if (!outcome || outcome->request_id.empty()) return Status();
        if (outcome->request_id == request.id ||
            (outcome->step == request.step && line.begin >= known_bytes))
          found = std::move(outcome);
        return Status();
      });
  if (!read.ok() && read.code() != StatusCode::kNotFound) return read;
  return found;
}

// "step 1 200: val loss 0.53, accuracy 0.81; test loss 0.6"
std::string render_result(const run::EvalResult& result) {
  std::string text = "step " + format_count(result.step) + ":";
  for (const run::DatasetResult& dataset : result.datasets) {
    text += (&dataset == result.datasets.data() ? " " : "; ") + printable(dataset.dataset);
    const char* separator = " ";
    for (const auto& [name, value] : dataset.metrics) {
      text += separator + printable(name) + " " + format_number(value, kMetricDigits);
      separator = ", ";
    }
  }
  return text;
}

Status failure_of(const run::EvaluationOutcome& outcome) {
  const std::string message =
      "step " + std::to_string(outcome.step) + " was not evaluated: " + printable(outcome.reason);
  switch (outcome.outcome) {
    case run::Outcome::kEvaluated:
      break;
    case run::Outcome::kCorrupt:
      return Status(StatusCode::kCorrupt, message);
    case run::Outcome::kSuperseded:
      return Status(StatusCode::kNotFound, message);
    case run::Outcome::kFailed:
      return Status(StatusCode::kInternal, message);
  }
  return {};
}

ExitCode show_outcome(const run::RunLayout& layout, const run::EvaluationOutcome& outcome,
                      const CommandLine& command, const Console& console) {
  Status failed = failure_of(outcome);
  const auto result =
      run::find_eval_result(layout.eval_dir(), outcome.step, outcome.manifest_sha256);
  if (failed.ok() && !result)
    failed = Status(StatusCode::kIoError,
                    run::eval_result_path(layout.eval_dir(), outcome.step) + ": cannot be read");
  if (!failed.ok()) return console.fail(failed, outcome.exit_code.value_or(exit_code_for(failed)));
  if (command.json)
    console.out << printable_json(run::to_json(*result));
  else
    console.out << render_result(*result) << "\n";
  return ExitCode::kSuccess;
}

// What the evaluator does, in one line of a terminal.
class EvaluationLine {
 public:
  EvaluationLine(const run::RunLayout& layout, uint64_t step, const Console& console)
      : layout_(layout), step_(step), console_(console) {}
  EvaluationLine(const EvaluationLine&) = delete;
  EvaluationLine& operator=(const EvaluationLine&) = delete;
  ~EvaluationLine() { erase(); }

  void draw() {
    if (!console_.style.live) return;
    if (!has_evaluator(layout_)) return erase();
    const auto progress = run::read_evaluation_progress(layout_);
    if (!progress || progress->total == 0) return erase();
    const auto percent =
        static_cast<int>(100 * std::min(progress->done, progress->total) / progress->total);
    console_.out << kClearLine << (progress->step == step_ ? "" : "waiting; ") << "evaluating step "
                 << format_count(progress->step) << ": " << percent << " % of "
                 << format_count(progress->total) << " samples" << std::flush;
    is_drawn_ = true;
  }
  void erase() {
    if (std::exchange(is_drawn_, false)) console_.out << kClearLine << std::flush;
  }

 private:
  const run::RunLayout& layout_;
  const uint64_t step_;
  const Console& console_;
  bool is_drawn_ = false;
};

ExitCode wait_for_outcome(const run::RunLayout& layout, const run::EvaluationRequest& request,
                          size_t known_bytes, const CommandLine& command, const Console& console,
                          std::chrono::milliseconds interval) {
  EvaluationLine line(layout, request.step, console);
  for (bool is_advised = false;; std::this_thread::sleep_for(interval)) {
    // stoker-eval can end meanwhile, too.
    if (!is_advised && !has_evaluator(layout)) {
      line.erase();
      console.err << "stokerctl: " << advice(layout) << std::endl;
      is_advised = true;
    }
    // Before the outcome, which is recorded before the request is removed.
    std::error_code error;
    const bool is_removed = !std::filesystem::exists(request.path, error) && !error;
    const auto outcome = find_outcome(layout, known_bytes, request);
    if (!outcome.ok()) {
      line.erase();
      return console.fail(outcome.status(), exit_code_for(outcome.status()));
    }
    if (*outcome) {
      line.erase();
      return show_outcome(layout, **outcome, command, console);
    }
    if (!is_removed) {
      line.draw();
    } else {
      line.erase();
      const Status removed(StatusCode::kNotFound,
                           printable(request.path) + ": was removed without an outcome");
      return console.fail(removed, exit_code_for(removed));
    }
  }
}

}  // namespace

ExitCode evaluate(const run::RunLayout& layout, const CommandLine& command, const Console& console,
                  std::chrono::milliseconds interval) {
  const auto entry = select_checkpoint(layout, command.selector);
  if (!entry.ok()) return console.fail(entry.status(), exit_code_for(entry.status()));
  if (command.dry_run) {
    if (command.json)
      console.out << boost::json::serialize(boost::json::object{{"step", entry->step}}) << "\n";
    else
      console.out << "evaluation of step " << format_count(entry->step) << " would be requested\n";
    return ExitCode::kSuccess;
  }
  const auto known = outcomes_bytes(layout);
  if (!known.ok()) return console.fail(known.status(), exit_code_for(known.status()));
  const auto request = request_as_owner(layout, entry->step);
  if (!request.ok()) return console.fail(request.status(), exit_code_for(request.status()));
  const bool is_running = has_evaluator(layout);
  if (command.wait) return wait_for_outcome(layout, *request, *known, command, console, interval);
  if (command.json) {
    const boost::json::object reply{{"step", request->step},
                                    {"request_id", request->id},
                                    {"evaluator", is_running ? "running" : "not running"}};
    console.print_json(boost::json::serialize(reply));
    return ExitCode::kSuccess;
  }
  console.out << "evaluation of step " << format_count(request->step) << " requested"
              << (is_running ? "" : "; " + advice(layout)) << "\n";
  return ExitCode::kSuccess;
}

}  // namespace stoker::ctl
