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
  programs_.emplace(
      "event commands", kCapacity,
      [this](const Event& event, const std::stop_token& stop) { run_program_for(event, stop); });
  listening_ =
      EventListening([this, gate = gate_](LogLevel level, std::string_view name, Fields fields) {
        const std::shared_lock lock(gate->mutex);
        if (gate->is_open) on_event(level, name, fields);
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
  const PostResult posted =
      programs_->post({.name = std::string(name), .json = std::move(json) + "\n", .rule = rule});
  if (posted != PostResult::kFull) return;
  const std::lock_guard lock(mutex_);
  if (dropped_++ == 0) first_dropped_ = name;
}

void EventCommands::run_program_for(const Event& event, const std::stop_token& stop) {
  log_first_dropped();
  flush_log();
  const auto began = std::chrono::steady_clock::now();
  const Status ran = run_program(event.rule->command, event.json, timeout_, stop);
  if (ran.ok()) return;
  const Seconds duration = std::chrono::steady_clock::now() - began;
  log_warn("event command failed", {{"for_event", event.name},
                                    {"error", ran.message()},
                                    {"duration_seconds", duration.count()}});
}

void EventCommands::log_first_dropped() {
  std::string dropped;
  {
    const std::lock_guard lock(mutex_);
    dropped.swap(first_dropped_);
  }
  if (!dropped.empty()) log_dropped(dropped, 1, "the programs take longer than the events");
}

void EventCommands::log_dropped(std::string_view event, uint64_t count, const char* reason) const {
  log_warn("event command skipped", {{"for_event", event}, {"count", count}, {"reason", reason}});
}

void EventCommands::stop(milliseconds grace) {
  if (!programs_ || std::exchange(is_stopped_, true)) return;
  listening_.stop();
  {
    const std::lock_guard lock(gate_->mutex);
    gate_->is_open = false;
  }
  (void)programs_->drain(grace);
  const auto waiting = programs_->close();
  (void)programs_->join(kTerminationGrace);
  if (!waiting.empty()) log_dropped(waiting.front().name, waiting.size(), "stokerd exits");
  const std::lock_guard lock(mutex_);
  if (dropped_ > 0) log_dropped("*", dropped_, "the programs took longer than the events");
}

}  // namespace stoker::service
