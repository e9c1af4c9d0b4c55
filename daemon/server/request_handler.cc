#include "daemon/server/request_handler.h"

#include <chrono>
#include <memory>
#include <utility>

#include "shared/base/log.h"
#include "shared/control/grammar.h"
#include "shared/control/thread_table.h"

namespace stoker::server {
namespace {

// The list opens a file per thread, on the thread that feeds the watchdog, and any client may ask
// for it.
constexpr std::chrono::milliseconds kThreadTableAge{100};

control::ProtocolError busy(const std::string& id, std::string message) {
  return {.id = id,
          .code = control::ErrorCode::kFailed,
          .why = Status(StatusCode::kBusy, std::move(message))};
}

// Names and descriptions come from the method table and need no escaping.
std::string help_json() {
  std::string list;
  for (const auto& info : control::methods()) {
    list += list.empty() ? "" : ",";
    std::string text(info.text);
    if (!info.waits_for.empty()) text += "; answers when " + std::string(info.waits_for);
    list += "{\"method\":\"" + std::string(info.name) + "\",\"text_form\":\"" + info.text_form +
            "\",\"role\":\"" +
            std::string(to_string(info.changes_state ? Role::kOperate : Role::kRead)) +
            "\",\"text\":\"" + text + "\"}";
  }
  return "{\"methods\":[" + list + "]}";
}

// Requests for files that only read are limited by those in flight and those that wait.
bool counts_as_change(const control::Call& call) {
  const auto* const maybe_files = std::get_if<control::FileRequest>(&call);
  return maybe_files == nullptr || std::holds_alternative<control::Evaluate>(*maybe_files);
}

void log_change(const Peer& peer, const std::string& words, const Status& result) {
  const std::string outcome = result.to_string();
  if (result.ok()) {
    log_info("control command",
             {{"command", words}, {"uid", peer.uid}, {"pid", peer.pid}, {"result", outcome}});
  } else {
    log_warn("control command",
             {{"command", words}, {"uid", peer.uid}, {"pid", peer.pid}, {"result", outcome}});
  }
}

void log_job_end(uint64_t job, const Peer& peer, const std::string& words, const Status& result) {
  const std::string outcome = result.to_string();
  if (result.ok()) {
    log_info("control command", {{"command", words},
                                 {"uid", peer.uid},
                                 {"pid", peer.pid},
                                 {"result", outcome},
                                 {"job", job}});
  } else {
    log_warn("control command", {{"command", words},
                                 {"uid", peer.uid},
                                 {"pid", peer.pid},
                                 {"result", outcome},
                                 {"job", job}});
  }
}

// `result`, a JSON object, with the number of its job.
std::string with_job(const std::string& result, uint64_t job) {
  const size_t end = result.rfind('}');
  if (end == std::string::npos) return result;
  const bool is_empty = result.find_first_not_of("{ ") == end;
  return result.substr(0, end) + (is_empty ? "" : ",") + "\"job\":" + std::to_string(job) + "}";
}

// JobProgress: tells subscribers how far a job is, after each further tenth and at most once a second.
// It is not logged.
//
// Threads: one at a time.
class JobProgress {
 public:
  JobProgress(std::shared_ptr<EventFeed> events, Clock& clock, uint64_t job, std::string words,
              std::string_view unit)
      : events_(std::move(events)),
        clock_(clock),
        job_(job),
        words_(std::move(words)),
        unit_(unit),
        last_(clock.monotonic()) {}

  void report(uint64_t done, uint64_t total) {
    if (done < last_done_) next_done_ = 0;  // another attempt
    last_done_ = done;
    const std::chrono::nanoseconds now = clock_.monotonic();
    if (done < next_done_ || done >= total || now - last_ < kJobProgressInterval) return;
    last_ = now;
    next_done_ = done + total / kParts;
    const Field fields[] = {
        {"job", job_}, {"command", words_}, {"done", done}, {"total", total}, {"unit", unit_}};
    events_->put(LogLevel::kInfo, "job progress", fields);
  }

 private:
  static constexpr uint64_t kParts = 10;
  static constexpr std::chrono::seconds kJobProgressInterval{1};

  // Constant after construction.
  const std::shared_ptr<EventFeed> events_;
  Clock& clock_;
  const uint64_t job_;
  const std::string words_;
  const std::string_view unit_;

  std::chrono::nanoseconds last_;
  uint64_t last_done_ = 0;
  uint64_t next_done_ = 0;
};

std::string_view unit_of(const control::Command& command) {
  return std::holds_alternative<control::Profile>(command) ? "steps" : "bytes";
}

// Whether the client waits for the end of the job that the command starts. Empty: it starts none.
std::optional<bool> waits_for_job(const control::Command& command) {
  if (const auto* const save = std::get_if<control::SaveCheckpoint>(&command)) return save->wait;
  if (const auto* const profile = std::get_if<control::Profile>(&command)) return profile->wait;
  return std::nullopt;
}

}  // namespace

void RequestHandler::handle(Session& session, std::string_view line) {
  if (!requests_.try_acquire(session.peer().uid)) {
    return reject(
        session,
        busy("null", "more than " + std::to_string(static_cast<int>(limits_.requests_per_s)) +
                         " requests per second from one user; wait, then reconnect"),
        true);
  }
  const auto parsed = control::parse_request(line);
  if (const auto* error = std::get_if<control::ProtocolError>(&parsed))
    return reject(session, *error, error->code == control::ErrorCode::kParseError);
  const auto& request = std::get<control::Request>(parsed);
  ++counters_.requests_total;
  if (control::method_info(request.call).changes_state) {
    const auto error = find_change_error(session, request.id, request.call);
    if (error) return reject(session, *error, false);
  }
  std::visit([&](const auto& call) { execute(session, request.id, call); }, request.call);
}

void RequestHandler::reject(Session& session, const control::ProtocolError& error,
                            bool close_session) {
  ++counters_.requests_failed;
  if (close_session) return session.close_with_error(control::render_error(error));
  session.send(control::render_error(error));
}

void RequestHandler::reply(Session& session, const std::string& id,
                           const Result<std::string>& result) {
  if (!result.ok())
    return reject(session, {id, control::ErrorCode::kFailed, result.status()}, false);
  session.send(control::render_result(id, *result));
}

std::string RequestHandler::status_json() const {
  return control::to_json(complete_status(training_, run_, counters_));
}

std::optional<control::ProtocolError> RequestHandler::find_change_error(const Session& session,
                                                                        const std::string& id,
                                                                        const control::Call& call) {
  const Peer& peer = session.peer();
  if (counts_as_change(call) && !changes_.try_acquire(peer.uid))
    return busy(id, "more than " + std::to_string(static_cast<int>(limits_.changes_per_s)) +
                        " changes per second from one user; request ignored");
  if (session.role() != Role::kOperate) {
    const std::string words = control::to_words(call);
    const Status why(StatusCode::kPermission,
                     "uid " + std::to_string(peer.uid) + " has read-only access; '" + words +
                         "' requires the daemon's owner, root or a user in control.operators");
    log_denial(peer, words, why);
    return control::ProtocolError{.id = id, .code = control::ErrorCode::kFailed, .why = why};
  }
  if (session.in_flight() >= limits_.requests_in_flight)
    return busy(id, std::to_string(limits_.requests_in_flight) +
                        " requests of this connection are in flight; request ignored");
  return std::nullopt;
}

void RequestHandler::log_denial(const Peer& peer, const std::string& words, const Status& why) {
  if (!denials_.try_acquire(peer.uid)) {
    ++suppressed_denials_[peer.uid];
    return;
  }
  const auto suppressed = suppressed_denials_.extract(peer.uid);
  log_warn("control command", {{"command", words},
                               {"uid", peer.uid},
                               {"pid", peer.pid},
                               {"result", why.to_string()},
                               {"num_suppressed", suppressed.empty() ? 0 : suppressed.mapped()}});
}

// ---- Answered by the server

void RequestHandler::execute(Session& session, const std::string& id, const control::Hello&) {
  reply(
      session, id,
      control::to_json(
          {.stoker_version = build_, .role = std::string(to_string(session.role())), .run = run_}));
}

void RequestHandler::execute(Session& session, const std::string& id, const control::Help&) {
  reply(session, id, help_json());
}

void RequestHandler::execute(Session& session, const std::string& id, const control::GetStatus&) {
  reply(session, id, status_json());
}

void RequestHandler::execute(Session& session, const std::string& id, const control::GetThreads&) {
  const std::chrono::nanoseconds now = clock_.monotonic();
  if (thread_table_.empty() || now - thread_table_at_ >= kThreadTableAge) {
    thread_table_ = control::to_json(control::make_thread_table(training_.threads()));
    thread_table_at_ = now;
  }
  reply(session, id, thread_table_);
}

void RequestHandler::execute(Session& session, const std::string& id,
                             const control::GetSettings& call) {
  reply(session, id, training_.settings(call.key, session.role() == Role::kOperate));
}

void RequestHandler::execute(Session& session, const std::string& id,
                             const control::ReadInspection& call) {
  // A read-only client neither keeps an inspection open nor discards records that an operator has not
  // read.
  reply(session, id,
        session.role() == Role::kOperate ? training_.read_inspection(call.inspection, call.after)
                                         : training_.peek_inspection(call.inspection, call.after));
}

void RequestHandler::execute(Session& session, const std::string& id,
                             const control::CloseInspection& call) {
  const Status closed = training_.close_inspection(call.inspection);
  log_change(session.peer(), control::to_words(call), closed);
  reply(session, id, closed.ok() ? Result<std::string>("{}") : closed);
}

void RequestHandler::execute(Session& session, const std::string& id, const control::Attach& call) {
  auto process = session.open_peer_pidfd();
  auto attached = process.ok() ? training_.attach(session.peer().pid, *std::move(process))
                               : Result<AttachedRing>(process.status());
  log_change(session.peer(), control::to_words(call), attached.status());
  if (!attached.ok())
    return reject(session, {id, control::ErrorCode::kFailed, attached.status()}, false);
  // The process keeps its producer for its lifetime, so a lost reply wastes an entry of the
  // producer table.
  if (!session.send_with(control::render_result(id, attached->answer), std::move(attached->ring)))
    reject(session, busy(id, "read the reply to the previous attach first"), false);
}

void RequestHandler::execute(Session& session, const std::string& id,
                             const control::Subscribe& call) {
  session.subscribe(call);
  on_subscribe_(session);  // before the reply, after which the client relies on every event
  reply(session, id, std::string("{}"));
  if (call.status_seconds > 0)
    session.notify(control::render_notification("status", status_json()));
}

void RequestHandler::execute(Session& session, const std::string& id, const control::Reload& call) {
  const Result<std::string> reloaded =
      reload_ ? reload_(call.dry_run)
              : Status(StatusCode::kPermission, "this stokerd cannot reload");
  if (!call.dry_run) log_change(session.peer(), control::to_words(call), reloaded.status());
  reply(session, id, reloaded);
}

// ---- Passed to other threads

void RequestHandler::execute(Session& session, const std::string& id,
                             const control::FileRequest& call) {
  session.begin_request();
  const bool is_change = std::holds_alternative<control::Evaluate>(call);
  files_.post(call, [replies = replies_, to = session.weak_from_this(), id, peer = session.peer(),
                     words = control::to_words(call), is_change](Result<std::string> result) {
    if (is_change) log_change(peer, words, result.status());
    replies->put(to, id, result);
  });
}

void RequestHandler::execute(Session& session, const std::string& id,
                             const control::Command& command) {
  if (const auto waits = waits_for_job(command)) return start_job(session, id, command, *waits);
  session.begin_request();
  training_.post(command, [replies = replies_, to = session.weak_from_this(), id,
                           peer = session.peer(), words = control::to_words(command),
                           is_dry_run = control::is_dry_run(command)](Result<std::string> result) {
    // Logged here, on the calling thread: the change was made even if the client is gone.
    if (!is_dry_run) log_change(peer, words, result.status());
    replies->put(to, id, result);
  });
}

// The reply comes at the end of the job, or immediately with its number.
void RequestHandler::start_job(Session& session, const std::string& id,
                               const control::Command& command, bool waits) {
  const uint64_t job = next_job_++;
  const std::string words = control::to_words(command);
  log_info(
      "job started",
      {{"job", job}, {"command", words}, {"uid", session.peer().uid}, {"pid", session.peer().pid}});
  if (waits)
    session.begin_request();
  else
    session.send(control::render_result(id, with_job("{}", job)));
  const auto done = [replies = replies_, to = session.weak_from_this(), id, peer = session.peer(),
                     words, job, waits](Result<std::string> result) {
    log_job_end(job, peer, words, result.status());
    if (!waits) return;
    if (result.ok()) result = with_job(*result, job);
    replies->put(to, id, result);
  };
  // Shared, because a std::function must be copyable.
  const auto progress =
      std::make_shared<JobProgress>(events_, clock_, job, words, unit_of(command));
  training_.post(command, done,
                 [progress](uint64_t so_far, uint64_t total) { progress->report(so_far, total); });
}

}  // namespace stoker::server
