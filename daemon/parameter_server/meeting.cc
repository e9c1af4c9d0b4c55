#include "daemon/parameter_server/meeting.h"

#include <algorithm>
#include <utility>

#include "daemon/group/failure_record.h"

namespace stoker::parameter_server {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kEndedAfter{10};  // as the line of StartDelayLog
constexpr int kFailure = 0;                      // the key of the only failure record

}  // namespace

TaskWait::TaskWait(const Meeting& meeting, std::string awaited, bool is_for_chief)
    : meeting_(meeting),
      awaited_(std::move(awaited)),
      is_for_chief_(is_for_chief),
      ended_from_(steady_clock::now() +
                  std::min<std::chrono::milliseconds>(kEndedAfter, meeting.start_timeout)),
      deadline_(steady_clock::now() + meeting.start_timeout) {}

Status TaskWait::check() {
  const auto now = steady_clock::now();
  if (now >= ended_from_ && meeting_.find_end)
    if (std::string end = meeting_.find_end(); !end.empty())
      return Status(StatusCode::kClosed, std::move(end));
  delay_.check([this] { return awaited_; });
  // It may take long to index the data.
  if (is_for_chief_ && meeting_.is_chief_running && meeting_.is_chief_running())
    deadline_ = now + meeting_.start_timeout;
  if (now < deadline_) return {};
  return Status(StatusCode::kPeerLost, awaited_ +
                                           " has not started in time; see its log, or raise "
                                           "distributed.start_timeout_seconds");
}

Status wait_for_task(group::Store& store, const std::string& key, const std::stop_token& stop,
                     TaskWait wait) {
  while (true) {
    const Status set = store.wait(key, steady_clock::now() + kFailureCheckInterval, stop);
    if (set.code() != StatusCode::kTimedOut) return set;
    STOKER_RETURN_IF_ERROR(check_failure(store));
    STOKER_RETURN_IF_ERROR(wait.check());
  }
}

void announce_failure(group::Store& store, const ClusterTask& task, const Status& failure) {
  StatusCode code = failure.code();
  if (code == StatusCode::kPeerLost) code = failure.cause();
  if (code == StatusCode::kCancelled) code = StatusCode::kOk;
  (void)group::write_failure_record(
      store,
      {.rank = kFailure, .reason = task.name() + " failed: " + failure.to_string(), .code = code});
}

Status check_failure(group::Store& store, std::chrono::milliseconds grace) {
  STOKER_ASSIGN_OR_RETURN(const auto record,
                          group::wait_for_failure_record(store, kFailure, grace));
  return record ? Status(StatusCode::kPeerLost, record->reason, record->code) : Status();
}

}  // namespace stoker::parameter_server
