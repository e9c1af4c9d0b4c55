#include "daemon/control/request_handler.h"

#include <charconv>
#include <utility>

#include "shared/base/log.h"

namespace stoker::control {
namespace {

using control::ErrorCode;
using control::Method;
using control::ProtocolError;
using control::Request;

// As a person types it, for the log.
std::string words_of(const Request& request) {
  std::string words(control::method_info(request.method).name);
  if (request.method == Method::kProfile)
    return words + " " + std::to_string(request.profile.steps) +
           (request.profile.kernels ? " kernels" : "");
  if (request.method == Method::kInspect) return words + " " + request.inspection.glob;
  if (request.method == Method::kInspectClose)
    return words + " " + std::to_string(request.inspection_id.inspection);
  if (request.method != Method::kSet) return words;
  char value[32];
  const auto end = std::to_chars(value, value + sizeof value, request.value).ptr;
  return words + " " + request.key + " " + std::string(value, end);
}

Command command_of(const Request& request) {
  switch (request.method) {
    case Method::kPause:
      return {.kind = Command::Kind::kPause};
    case Method::kResume:
      return {.kind = Command::Kind::kResume};
    case Method::kCheckpoint:
      return {.kind = Command::Kind::kCheckpoint};
    case Method::kStop:
      return {.kind = Command::Kind::kStop};
    case Method::kProfile:
      return {.kind = Command::Kind::kProfile, .profile = request.profile};
    case Method::kInspect:
      return {.kind = Command::Kind::kInspect, .inspection = request.inspection};
    default:
      return {.kind = Command::Kind::kSet, .key = request.key, .value = request.value};
  }
}

ProtocolError busy(const std::string& id, std::string message) {
  return {
      .id = id, .code = ErrorCode::kFailed, .why = Status(StatusCode::kBusy, std::move(message))};
}

// Names and texts are ours and need no escaping.
std::string help_json() {
  std::string list;
  for (const auto& info : control::methods()) {
    list += list.empty() ? "" : ",";
    list += "{\"method\":\"" + std::string(info.name) + "\",\"text_form\":\"" +
            std::string(info.text_form) + "\",\"role\":\"" +
            std::string(to_string(info.changes_state ? Role::kOperate : Role::kRead)) +
            "\",\"text\":\"" + std::string(info.text) + "\"}";
  }
  return "{\"methods\":[" + list + "]}";
}

std::string hello_json(const std::string& build, Role role) {
  std::string names;
  for (const auto& info : control::methods())
    names += (names.empty() ? "\"" : ",\"") + std::string(info.name) + "\"";
  return "{\"protocol_version\":" + std::to_string(control::kProtocolVersion) +
         ",\"stoker_version\":\"" + build + "\",\"role\":\"" + std::string(to_string(role)) +
         "\",\"methods\":[" + names + "]}";
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

}  // namespace

void RequestHandler::handle(Session& session, std::string_view line) {
  if (!requests_.try_acquire(session.peer().uid)) {
    return reject(
        session,
        busy("null", "more than " + std::to_string(static_cast<int>(limits_.requests_per_s)) +
                         " requests a second of one user; wait, then connect again"),
        true);
  }
  const auto parsed = control::parse_request(line);
  if (const auto* error = std::get_if<ProtocolError>(&parsed))
    return reject(session, *error, error->code == ErrorCode::kParseError);
  const auto& request = std::get<Request>(parsed);
  ++counters_.requests_total;
  if (control::method_info(request.method).changes_state) return change(session, request);
  answer(session, request);
}

void RequestHandler::reject(Session& session, const ProtocolError& error, bool then_end) {
  ++counters_.requests_failed;
  if (then_end) return session.end_past_limit(control::render_error(error));
  session.send(control::render_error(error));
}

void RequestHandler::answer(Session& session, const Request& request) {
  switch (request.method) {
    case Method::kHello:
      return session.send(control::render_result(request.id, hello_json(build_, session.role())));
    case Method::kHelp:
      return session.send(control::render_result(request.id, help_json()));
    case Method::kInspectRead: {
      const auto rows =
          training_.read_inspection(request.inspection_id.inspection, request.inspection_id.after);
      if (rows.ok()) return session.send(control::render_result(request.id, *rows));
      return reject(session, {request.id, ErrorCode::kFailed, rows.status()}, false);
    }
    default:
      return session.send(control::render_result(request.id, status_json()));
  }
}

std::string RequestHandler::status_json() const {
  const auto published = training_.status();
  control::TrainerStatus status = published != nullptr ? *published : control::TrainerStatus();
  status.control = counters_;
  return control::to_json(status);
}

std::optional<ProtocolError> RequestHandler::find_change_error(const Session& session,
                                                               const Request& request,
                                                               const std::string& words) {
  const Peer& peer = session.peer();
  if (!changes_.try_acquire(peer.uid))
    return busy(request.id, "more than " + std::to_string(static_cast<int>(limits_.changes_per_s)) +
                                " changes a second of one user; nothing was done");
  if (session.role() != Role::kOperate) {
    const Status why(StatusCode::kPermission,
                     "uid " + std::to_string(peer.uid) + " may only read; '" + words +
                         "' is for the daemon's owner, root and the users in control.operators");
    log_change(peer, words, why);
    return ProtocolError{.id = request.id, .code = ErrorCode::kFailed, .why = why};
  }
  if (session.in_flight() >= limits_.requests_in_flight)
    return busy(request.id, std::to_string(limits_.requests_in_flight) +
                                " requests of this connection are in flight; nothing was done");
  return std::nullopt;
}

void RequestHandler::end_inspection(Session& session, const Request& request) {
  const Status closed = training_.close_inspection(request.inspection_id.inspection);
  log_change(session.peer(), words_of(request), closed);
  if (!closed.ok()) return reject(session, {request.id, ErrorCode::kFailed, closed}, false);
  session.send(control::render_result(request.id, "{}"));
}

void RequestHandler::attach(Session& session, const Request& request) {
  auto process = session.open_peer_pidfd();
  auto attached = process.ok() ? training_.attach(session.peer().pid, *std::move(process))
                               : Result<AttachedRing>(process.status());
  log_change(session.peer(), words_of(request), attached.status());
  if (!attached.ok())
    return reject(session, {request.id, ErrorCode::kFailed, attached.status()}, false);
  // Its row is the process's for as long as that lives, so a reply that is lost costs a row.
  if (!session.send_with(control::render_result(request.id, attached->answer),
                         std::move(attached->ring)))
    reject(session, busy(request.id, "read the reply to the attach before this one"), false);
}

void RequestHandler::change(Session& session, const Request& request) {
  const Peer peer = session.peer();
  const std::string words = words_of(request);
  if (const auto error = find_change_error(session, request, words))
    return reject(session, *error, false);
  if (request.method == Method::kAttach) return attach(session, request);
  if (request.method == Method::kInspectClose) return end_inspection(session, request);
  session.begin_request();
  training_.post(command_of(request), [replies = replies_, to = session.weak_from_this(),
                                       id = request.id, peer, words](Result<std::string> result) {
    // Logged here, on whatever thread: it was done, whether or not anybody is left to hear it.
    log_change(peer, words, result.status());
    replies->put(to, result.ok()
                         ? control::render_result(id, *result)
                         : control::render_error({id, ErrorCode::kFailed, result.status()}));
  });
}

}  // namespace stoker::control
