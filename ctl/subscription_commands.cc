#include "ctl/subscription_commands.h"

#include <charconv>
#include <chrono>

#include <boost/json.hpp>

#include "ctl/daemon_client.h"
#include "shared/base/json_parser.h"
#include "shared/base/readable_format.h"
#include "shared/base/utf8.h"
#include "shared/control/protocol.h"

namespace stoker::ctl {
namespace {

namespace json = boost::json;
using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kReplyTimeout = 10s;
constexpr std::chrono::milliseconds kReceiveTimeout = 1h;  // then it waits again
constexpr size_t kEventTimeBytes = 24;                     // "2026-01-31T12:00:00.123Z"
constexpr size_t kEventLevelBytes = 8;

ExitCode fail_reply(const Status& status, const Console& console) {
  return console.fail(status, exit_code_for_reply(status));
}

std::string text_of_field(const json::value& value) {
  if (!value.is_string()) return printable_json(json::serialize(value));
  const std::string text = printable(std::string_view(value.get_string()));
  const bool is_word = !text.empty() && text.find_first_of(" \"=") == std::string::npos;
  return is_word ? text : json::serialize(json::string(text));
}

// Prints the events that come after the time `after`, until the connection ends.
ExitCode print_events(DaemonClient& client, const CommandLine& command, const Console& console,
                      const std::string& after) {
  while (console.out.good()) {
    const auto line = client.receive(kReceiveTimeout);
    if (line.status().code() == StatusCode::kTimedOut) continue;
    if (!line.ok()) return fail_reply(line.status(), console);
    const auto notification = control::parse_notification(*line);
    if (!notification.ok()) {
      const Status last = control::parse_reply(*line).status();
      return last.code() == StatusCode::kClosed ? ExitCode::kSuccess : fail_reply(last, console);
    }
    if (notification->method != "event") {
      console.err << "stokerctl: " << printable(*line) << "\n";
      continue;
    }
    const auto text = format_event_line(notification->params);
    if (!text.ok()) return fail_reply(text.status(), console);
    if (text->substr(0, kEventTimeBytes) <= after) continue;
    if (command.json)
      console.print_json(notification->params);
    else
      console.out << *text << "\n";
    console.out.flush();
  }
  return ExitCode::kIoError;  // our output has no reader any more
}

// The time of the last line of a log that begins with one; empty: none.
std::string last_time(const std::string& log) {
  std::string time;
  for (size_t at = 0; at < log.size();) {
    const size_t end = std::min(log.find('\n', at), log.size());
    const std::string line = log.substr(at, end - at);
    if (line.size() >= kEventTimeBytes && line[kEventTimeBytes - 1] == 'Z')
      time = line.substr(0, kEventTimeBytes);
    if (line.starts_with(R"({"time":")")) time = line.substr(9, kEventTimeBytes);
    at = end + 1;
  }
  return time;
}

}  // namespace

Result<std::string> format_event_line(const std::string& event_json) {
  return parse_json_object<std::string>(event_json, "the event", [](const json::object& event) {
    std::string level = printable(std::string_view(event.at("level").as_string()));
    level.resize(std::max(level.size(), kEventLevelBytes), ' ');
    std::string line = printable(std::string_view(event.at("time").as_string())) + " " + level +
                       printable(std::string_view(event.at("event").as_string()));
    for (const auto& field : event)
      if (field.key() != "time" && field.key() != "level" && field.key() != "event")
        line += " " + printable(std::string_view(field.key())) + "=" + text_of_field(field.value());
    return line;
  });
}

ExitCode follow_events(const CommandLine& command, const Console& console) {
  auto client = DaemonClient::open(command);
  if (!client.ok()) return fail_reply(client.status(), console);
  const auto reply = client->request(command.subscription, kReplyTimeout);
  if (!reply.ok()) return fail_reply(reply.status(), console);
  return print_events(*client, command, console, "");
}

ExitCode show_remote_logs(const CommandLine& command, const Console& console) {
  // Another connection, on which no event comes between a request and its reply. It subscribes first,
  // so that no event is missing between the log and the events.
  auto events = DaemonClient::open(command);
  if (!events.ok()) return fail_reply(events.status(), console);
  if (command.follow) {
    const auto subscribed = events->request(control::Subscribe{}, kReplyTimeout);
    if (!subscribed.ok()) return fail_reply(subscribed.status(), console);
  }
  auto client = DaemonClient::open(command);
  if (!client.ok()) return fail_reply(client.status(), console);
  const control::ReadLogs request{
      .lines = std::min<uint64_t>(command.lines, control::ReadLogs::kMaxLines),
      .evaluator = command.evaluator,
      .rank = static_cast<uint64_t>(command.rank.value_or(0))};
  const auto reply = client->request(control::FileRequest(request), kReplyTimeout);
  if (!reply.ok()) return fail_reply(reply.status(), console);
  const auto text = parse_json_object<std::string>(*reply, "the reply", [](const auto& fields) {
    return std::string(fields.at("text").as_string());
  });
  if (!text.ok()) return fail_reply(text.status(), console);
  console.print_lines(*text);
  console.out.flush();
  return command.follow ? print_events(*events, command, console, last_time(*text))
                        : ExitCode::kSuccess;
}

ExitCode evaluate_remotely(const CommandLine& command, const Console& console) {
  control::Evaluate request;
  const std::string& selector = command.selector;
  std::from_chars(selector.data(), selector.data() + selector.size(), request.step);
  auto client = DaemonClient::open(command);
  if (!client.ok()) return fail_reply(client.status(), console);
  const auto reply = client->request(control::FileRequest(request), kReplyTimeout);
  if (!reply.ok()) return fail_reply(reply.status(), console);
  if (command.json)
    console.print_json(*reply);
  else
    console.out << "evaluation of step " << format_count(request.step) << " requested\n";
  return ExitCode::kSuccess;
}

}  // namespace stoker::ctl
