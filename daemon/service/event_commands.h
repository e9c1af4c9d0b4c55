// EventCommands: runs the programs of run.on_event_command, one at a time, for the events of the log. The
// line of an event is written before its program runs.
//
// Threads:  owns one. Events arrive on the threads that log them; stop() from the owner's. One object per
//           process.
// Blocking: stop(). Logging never waits: of the events that wait for a program to end, kCapacity are
//           kept, and later ones are dropped and counted.
// Errors:   logged. Events about these programs run no program.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/glob.h"
#include "shared/base/log.h"
#include "shared/base/serial_executor.h"
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

  // For the listener, which can be called after the end of this object.
  struct Gate {
    std::shared_mutex mutex;
    bool is_open = true;  // guarded by mutex
  };

  void on_event(LogLevel level, std::string_view name, Fields fields);
  const Rule* find_rule(std::string_view event) const;
  void run_program_for(const Event& event, const std::stop_token& stop);
  void log_first_dropped();
  void log_dropped(std::string_view event, uint64_t count, const char* reason) const;

  // Constant after construction.
  std::vector<Rule> rules_;
  const std::string run_dir_;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();

  std::mutex mutex_;
  // Guarded by mutex_.
  std::string first_dropped_;  // event; empty: none, or logged
  uint64_t dropped_ = 0;

  // Only for the owner's thread.
  bool is_stopped_ = false;
  std::optional<SerialExecutor<Event>> programs_;  // uses the members above; nullopt: no commands
  EventListening listening_;                       // posts to programs_
};

}  // namespace stoker::service
