#include "ctl/live_status.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <system_error>
#include <thread>

#include "shared/base/deadline.h"
#include "shared/control/trainer_status.h"

namespace stoker::ctl {

std::optional<std::string> LiveStatus::read() {
  if (maybe_failed_at_ && clock_.monotonic() - *maybe_failed_at_ < kPause) return std::nullopt;
  const bool is_known = maybe_client_.has_value();
  auto reply = request();
  // An idle connection is closed by stokerd.
  if (!reply.ok() && is_known) reply = request();
  const auto status = reply.ok() ? control::parse_trainer_status(*reply)
                                 : Result<control::TrainerStatus>(reply.status());
  if (!status.ok()) {
    maybe_client_.reset();
    maybe_failed_at_ = clock_.monotonic();
    return std::nullopt;
  }
  maybe_failed_at_.reset();
  return control::to_json(*status);  // nothing that the page does not know
}

Result<std::string> LiveStatus::request() {
  if (!maybe_client_) {
    STOKER_ASSIGN_OR_RETURN(DaemonClient client, DaemonClient::open(layout_, kTimeout));
    maybe_client_.emplace(std::move(client));
  }
  auto reply = maybe_client_->request(control::GetStatus{}, kTimeout);
  if (!reply.ok()) maybe_client_.reset();
  return reply;
}

namespace {

constexpr size_t kMaxThreads = 64;

std::chrono::milliseconds time_until(Deadline deadline) {
  return std::max(std::chrono::milliseconds(1), std::chrono::ceil<std::chrono::milliseconds>(
                                                    deadline - std::chrono::steady_clock::now()));
}

Result<control::TrainerStatus> ask(const run::RunLayout& layout, Deadline deadline) {
  STOKER_ASSIGN_OR_RETURN(DaemonClient client, DaemonClient::open(layout, time_until(deadline)));
  STOKER_ASSIGN_OR_RETURN(const std::string reply,
                          client.request(control::GetStatus{}, time_until(deadline)));
  return control::parse_trainer_status(reply);
}

void add_answer(view::RunSummary& summary, const view::FoundRun& run, Deadline deadline) {
  const auto status = ask(run.layout, deadline);
  if (status.ok()) return add_status(summary, *status);
  const StatusCode code = status.status().code();
  if (code == StatusCode::kPermission) return;
  // It can have ended meanwhile.
  if (view::RunSummary now = view::read_summary(run.layout, run.name); !now.is_running) {
    summary = std::move(now);
    return;
  }
  // control.socket: null, or stokerd is starting or stopping.
  std::error_code ignored;
  const auto socket = std::filesystem::symlink_status(run.layout.control_socket(), ignored);
  if (socket.type() == std::filesystem::file_type::not_found) return;
  add_no_answer(summary, code == StatusCode::kTimedOut ? "stokerd runs and does not answer"
                                                       : status.status().message());
}

}  // namespace

std::vector<view::RunSummary> read_summaries(const std::vector<view::FoundRun>& runs,
                                             std::chrono::milliseconds timeout) {
  std::vector<view::RunSummary> summaries;
  std::vector<size_t> running;
  for (const view::FoundRun& run : runs) {
    summaries.push_back(view::read_summary(run.layout, run.name));
    if (summaries.back().is_running) running.push_back(summaries.size() - 1);
  }
  const Deadline deadline = std::chrono::steady_clock::now() + timeout;
  std::atomic<size_t> next = 0;
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < std::min(running.size(), kMaxThreads); ++i)
    threads.emplace_back([&] {
      // Behind many that hang, the last ones are not asked and stay as they are.
      for (size_t mine;
           (mine = next++) < running.size() && std::chrono::steady_clock::now() < deadline;)
        try {
          add_answer(summaries[running[mine]], runs[running[mine]], deadline);
        } catch (const std::exception& error) {
          add_no_answer(summaries[running[mine]], error.what());
        }
    });
  threads.clear();
  return summaries;
}

}  // namespace stoker::ctl
