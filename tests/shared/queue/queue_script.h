// QueueScript: runs operations on queues in named threads, as lines of JSON (docs/queues.md).
//
// Threads:  one thread may use it. It has a thread for each name in "at".
// Blocking: run_line() waits until no thread can progress, but not for operations with "at"; an
//           error after kIdleTimeout.
// Errors:   kInvalidArgument: not a valid line.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <ostream>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "shared/base/status.h"
#include "shared/queue/queue.h"

namespace stoker::queue {

class QueueScript : private WaitObserver {
 public:
  static constexpr std::chrono::seconds kIdleTimeout{60};

  explicit QueueScript(std::ostream& out) : out_(out) {}
  ~QueueScript() override;  // cancels the operations in progress

  // Lines with "id" are skipped: they are output of an earlier run.
  Status run_line(std::string_view line);
  // Waits until no thread can progress, and writes the outcomes that are not yet written, in the
  // order of the operations.
  Status finish();

 private:
  struct Step {
    int64_t id = 0;
    boost::json::object operation;
    std::stop_source stop;
    boost::json::object outcome;  // empty: not completed
    bool started = false;
    bool reported_blocked = false;
  };
  struct ScriptThread {
    std::deque<std::shared_ptr<Step>> steps;  // the first one is in progress
    std::jthread thread;
  };

  void wait_started() override;
  void wait_ended() override;

  Status run_object(boost::json::object operation);
  Status make(const boost::json::object& operation);
  Status submit(boost::json::object operation);
  Status cancel(const std::string& thread);
  Result<Queue*> find_queue(const boost::json::object& operation);
  Status wait_idle();
  void run_thread(const std::stop_token& stop, ScriptThread& thread);
  void report(const Step& step, const boost::json::object& outcome);

  std::ostream& out_;
  int64_t line_ = 0;
  int64_t id_ = 0;  // number of the operation, from 1
  std::map<std::string, std::unique_ptr<Queue>, std::less<>> queues_;

  // Guarded by mutex_, which is locked after that of a queue.
  std::mutex mutex_;
  std::condition_variable_any changed_;
  int64_t active_ = 0;  // threads that run an operation and do not wait in a queue
  std::list<std::shared_ptr<Step>> unreported_;  // in the order of their ids

  std::map<std::string, ScriptThread, std::less<>> threads_;  // destroyed first
};

}  // namespace stoker::queue
