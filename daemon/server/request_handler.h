// RequestHandler: parses, authorizes and executes a request line and sends the reply.
//
// Threads:   the io_context thread only. Training and FileRequests reply from other
//            threads through the ReplyQueue.
// Blocking:  never.
// Ownership: training, the clock, limits and files must outlive this object.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/server/event_feed.h"
#include "daemon/server/file_requests.h"
#include "daemon/server/rate_limiter.h"
#include "daemon/server/reply_queue.h"
#include "daemon/server/session.h"
#include "daemon/server/training_control.h"
#include "shared/control/hello_reply.h"
#include "shared/control/protocol.h"

namespace stoker::server {

class RequestHandler {
 public:
  // `files`, `reload`: of ServerOptions; `on_subscribe` comes before the reply to a subscription.
  RequestHandler(TrainingControl& training, Clock& clock, const Limits& limits, std::string build,
                 control::RunIdentity run, std::shared_ptr<ReplyQueue> replies, FileRequests& files,
                 std::shared_ptr<EventFeed> events,
                 std::function<Result<std::string>(bool dry_run)> reload,
                 std::function<void(Session&)> on_subscribe)
      : training_(training),
        clock_(clock),
        limits_(limits),
        build_(std::move(build)),
        run_(std::move(run)),
        replies_(std::move(replies)),
        files_(files),
        events_(std::move(events)),
        reload_(std::move(reload)),
        on_subscribe_(std::move(on_subscribe)),
        requests_(clock, limits.requests_per_s),
        changes_(clock, limits.changes_per_s),
        denials_(clock, limits.denials_logged_per_s, limits.denials_logged_burst) {
    replies_->count_errors_in(counters_.requests_failed);
  }

  void handle(Session& session, std::string_view line);
  // A connection counts as one request.
  bool admit_connection(uid_t uid) { return requests_.try_acquire(uid); }

  control::TrainerStatus::Control& counters() { return counters_; }
  std::string status_json() const;

 private:
  void reject(Session& session, const control::ProtocolError& error, bool close_session);
  // Sends the result or the error.
  void reply(Session& session, const std::string& id, const Result<std::string>& result);
  // Empty if the peer may make `call`, which needs the role operate, now; otherwise the error.
  std::optional<control::ProtocolError> find_change_error(const Session& session,
                                                          const std::string& id,
                                                          const control::Call& call);

  void log_denial(const Peer& peer, const std::string& words, const Status& why);

  // One for each type of Call.
  void execute(Session& session, const std::string& id, const control::Hello&);
  void execute(Session& session, const std::string& id, const control::Help&);
  void execute(Session& session, const std::string& id, const control::GetStatus&);
  void execute(Session& session, const std::string& id, const control::GetThreads&);
  void execute(Session& session, const std::string& id, const control::GetSettings& call);
  void execute(Session& session, const std::string& id, const control::Subscribe& call);
  void execute(Session& session, const std::string& id, const control::Reload& call);
  void execute(Session& session, const std::string& id, const control::FileRequest& call);
  void execute(Session& session, const std::string& id, const control::Attach& call);
  void execute(Session& session, const std::string& id, const control::ReadInspection& call);
  void execute(Session& session, const std::string& id, const control::CloseInspection& call);
  void execute(Session& session, const std::string& id, const control::Command& command);
  void start_job(Session& session, const std::string& id, const control::Command& command,
                 bool waits);

  TrainingControl& training_;
  Clock& clock_;
  const Limits& limits_;
  const std::string build_;
  const control::RunIdentity run_;
  const std::shared_ptr<ReplyQueue> replies_;
  FileRequests& files_;
  const std::shared_ptr<EventFeed> events_;
  const std::function<Result<std::string>(bool dry_run)> reload_;
  const std::function<void(Session&)> on_subscribe_;
  uint64_t next_job_ = 1;
  RateLimiter requests_;
  RateLimiter changes_;
  RateLimiter denials_;
  std::map<uid_t, uint64_t> suppressed_denials_;  // since the last logged one of this user
  control::TrainerStatus::Control counters_;
  std::string thread_table_;  // the last one; empty: none yet
  std::chrono::nanoseconds thread_table_at_{0};
};

}  // namespace stoker::server
