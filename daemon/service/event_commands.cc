#include "daemon/service/event_commands.h"

#include <algorithm>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/run_program.h"

namespace stoker::service {
namespace {

using std::chrono::milliseconds;
using Seconds = std::chrono::duration<double>;

// Events of this class, which must not cause others without end.
constexpr std::string_view kOwnEvents = "event command ";
constexpr milliseconds kTerminationGrace{5'000};

}  // namespace

EventCommands::EventCommands(const std::vector<config::EventCommand>& commands, std::string run_dir,
                             milliseconds timeout)
    : run_dir_(std::move(run_dir)), timeout_(timeout) {
  for (const config::EventCommand& command : commands) {
    Rule& rule = rules_.emplace_back();
    for (const std::string& pattern : command.events) rule.events.emplace_back(pattern);
    rule.command = command.command;
  }
  if (rules_.empty()) return;
  thread_.start("event commands", [this](const std::stop_token& stop) { return run(stop); });
  listening_ = EventListening([this](LogLevel level, std::string_view name, Fields fields) {
    on_event(level, name, fields);
  });
}

EventCommands::~EventCommands() { stop(milliseconds(0)); }

const EventCommands::Rule* EventCommands::find_rule(std::string_view event) const {
  if (event.starts_with(kOwnEvents)) return nullptr;
  for (const Rule& rule : rules_)
    for (const NameGlob& pattern : rule.events)
      if (pattern.matches(event)) return &rule;
  return nullptr;
}

void EventCommands::on_event(LogLevel level, std::string_view name, Fields fields) {
  const Rule* const rule = find_rule(name);
  if (rule == nullptr) return;
  std::string json = format_json_event(level, name, fields);
  if (std::ranges::find(fields, "run_dir", &Field::key) == fields.end()) {
    json.pop_back();
    json += ",\"run_dir\":" + boost::json::serialize(boost::json::string(run_dir_)) + "}";
  }
  const std::lock_guard lock(mutex_);
  if (is_stopping_) return;
  if (waiting_.size() < kCapacity) {
    waiting_.push_back({.name = std::string(name), .json = std::move(json) + "\n", .rule = rule});
  } else if (dropped_++ == 0) {
    first_dropped_ = name;
  }
  changed_.notify_all();
}

Status EventCommands::run(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  });
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop.stop_requested() || is_stopping_ || !waiting_.empty(); });
    if (waiting_.empty() || stop.stop_requested()) break;
    const Event event = std::move(waiting_.front());
    waiting_.pop_front();
    const std::string dropped = std::exchange(first_dropped_, {});
    lock.unlock();
    if (!dropped.empty()) log_dropped(dropped, 1, "the programs take longer than the events");
    run_program_for(event, stop);
    lock.lock();
  }
  has_ended_ = true;
  changed_.notify_all();
  return {};
}

void EventCommands::run_program_for(const Event& event, const std::stop_token& stop) const {
  flush_log();
  const auto began = std::chrono::steady_clock::now();
  const Status ran = run_program(event.rule->command, event.json, timeout_, stop);
  if (ran.ok()) return;
  const Seconds duration = std::chrono::steady_clock::now() - began;
  log_warn("event command failed", {{"for_event", event.name},
                                    {"error", ran.message()},
                                    {"duration_seconds", duration.count()}});
}

void EventCommands::log_dropped(std::string_view event, uint64_t count, const char* reason) const {
  log_warn("event command skipped", {{"for_event", event}, {"count", count}, {"reason", reason}});
}

void EventCommands::stop(milliseconds grace) {
  if (rules_.empty()) return;
  listening_.stop();
  {
    std::unique_lock lock(mutex_);
    if (std::exchange(is_stopping_, true)) return;
    changed_.notify_all();
    changed_.wait_for(lock, grace, [this] { return has_ended_; });
  }
  thread_.request_stop();
  (void)thread_.join(kTerminationGrace);
  const std::lock_guard lock(mutex_);
  if (!waiting_.empty()) log_dropped(waiting_.front().name, waiting_.size(), "stokerd exits");
  if (dropped_ > 0) log_dropped("*", dropped_, "the programs took longer than the events");
}

}  // namespace stoker::service
