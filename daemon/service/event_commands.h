// EventCommands: runs the programs of run.on_event_command, one at a time, for the events of the log. The
// line of an event is written before its program runs.
//
// Threads:  owns one. Events arrive on the threads that log them. One object per process.
// Blocking: stop(). Logging never waits: of the events that wait for a program to end, kCapacity are
//           kept, and later ones are dropped and counted.
// Errors:   logged. Events about these programs run no program.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/coordinator.h"
#include "shared/base/glob.h"
#include "shared/base/log.h"
#include "shared/config/run_config.h"

namespace stoker::service {

class EventCommands {
 public:
  static constexpr size_t kCapacity = 64;
  static constexpr std::chrono::milliseconds kTimeout{30'000};  // of a program

  // `run_dir` is added to each event. `timeout` is for tests.
  EventCommands(const std::vector<config::EventCommand>& commands, std::string run_dir,
                std::chrono::milliseconds timeout = kTimeout);
  ~EventCommands();  // stop() without waiting
  EventCommands(const EventCommands&) = delete;
  EventCommands& operator=(const EventCommands&) = delete;

  // Runs the programs for the events so far, and then no more. A program that still runs after `grace`
  // is terminated, and the events that wait are dropped. Idempotent.
  void stop(std::chrono::milliseconds grace);

 private:
  struct Rule {
    std::vector<NameGlob> events;
    std::vector<std::string> command;
  };
  struct Event {
    std::string name;
    std::string json;
    const Rule* rule = nullptr;
  };

  void on_event(LogLevel level, std::string_view name, Fields fields);
  const Rule* find_rule(std::string_view event) const;
  Status run(const std::stop_token& stop);
  void run_program_for(const Event& event, const std::stop_token& stop) const;
  void log_dropped(std::string_view event, uint64_t count, const char* reason) const;

  // Constant after construction.
  std::vector<Rule> rules_;
  const std::string run_dir_;
  const std::chrono::milliseconds timeout_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<Event> waiting_;
  std::string first_dropped_;  // event; empty: none, or logged
  uint64_t dropped_ = 0;
  bool is_stopping_ = false;
  bool has_ended_ = false;

  EventListening listening_;
  Coordinator thread_;  // uses the members above
};

}  // namespace stoker::service
