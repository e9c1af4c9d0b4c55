#include "ctl/job_progress.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "shared/base/json_parser.h"
#include "shared/base/readable_format.h"
#include "shared/control/grammar.h"

namespace stoker::ctl {
namespace {

constexpr std::chrono::milliseconds kSubscribeTimeout{10'000};

struct JobEvent {
  std::string event;
  std::string command;
  uint64_t job = 0;
  uint64_t done = 0;
  uint64_t total = 0;
  std::string unit;
};

// kCorrupt: another event.
Result<JobEvent> parse_job_event(const std::string& json) {
  return parse_json_object<JobEvent>(json, "the event", [](const auto& fields) {
    JobEvent event{.event = std::string(fields.at("event").as_string()),
                   .command = std::string(fields.at("command").as_string()),
                   .job = fields.at("job").template to_number<uint64_t>(),
                   .done = 0,
                   .total = 0,
                   .unit = ""};
    if (event.event != "job progress") return event;
    event.done = fields.at("done").template to_number<uint64_t>();
    event.total = fields.at("total").template to_number<uint64_t>();
    event.unit = std::string(fields.at("unit").as_string());
    return event;
  });
}

// The line of the first job that is started with the command after this object is created.
class JobLine {
 public:
  JobLine(const Console& console, std::string label, std::string command)
      : console_(console), label_(std::move(label)), command_(std::move(command)) {}
  JobLine(const JobLine&) = delete;
  JobLine& operator=(const JobLine&) = delete;
  ~JobLine() {
    if (is_drawn_) console_.out << kClearLine << std::flush;
  }

  void handle(const control::Notification& notification) {
    const auto event = parse_job_event(notification.params);
    if (!event.ok() || event->command != command_) return;
    if (event->event == "job started" && !maybe_job_) maybe_job_ = event->job;
    if (event->event == "job progress" && maybe_job_ == event->job) draw(*event);
  }

 private:
  void draw(const JobEvent& event) {
    const bool is_bytes = event.unit == "bytes";
    const auto amount = [is_bytes](uint64_t number) {
      return is_bytes ? format_bytes(number) : format_count(number);
    };
    const double fraction =
        event.total == 0 ? 0 : static_cast<double>(event.done) / static_cast<double>(event.total);
    console_.out << kClearLine << label_ << ": "
                 << static_cast<int>(100 * std::clamp(fraction, 0.0, 1.0)) << " % of "
                 << amount(event.total) << (is_bytes ? "" : " steps") << std::flush;
    is_drawn_ = true;
  }

  const Console& console_;
  const std::string label_;
  const std::string command_;
  std::optional<uint64_t> maybe_job_;
  bool is_drawn_ = false;
};

}  // namespace

Result<std::string> request_job(DaemonClient& client, const control::Command& command,
                                const std::string& label, const Console& console,
                                std::chrono::milliseconds timeout) {
  if (!console.style.live) return client.request(command, timeout);
  const auto subscribed = client.request(control::Subscribe{.events = "job *"}, kSubscribeTimeout);
  // No reply has come, and a late one would be taken for that of the command.
  const StatusCode code = subscribed.status().code();
  if (code == StatusCode::kTimedOut || code == StatusCode::kUnreachable ||
      code == StatusCode::kCorrupt)
    return subscribed;
  // An earlier stokerd does not know it.
  if (!subscribed.ok()) return client.request(command, timeout);
  JobLine line(console, label, control::to_words(command));
  return client.request(command, timeout,
                        [&](const auto& notification) { line.handle(notification); });
}

}  // namespace stoker::ctl
