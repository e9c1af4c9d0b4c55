// Mailbox: bounded queue of commands that the trainer handles between steps.
//
// Threads:  post() from any thread; take(), put_back() and wait() from the trainer thread.
// Blocking: post() never; wait() at most `timeout`.
// Errors:   post() replies through `done` with kBusy if the mailbox is full and the command is not
//           Stop, and with kClosed after training has ended; the request is then not queued. put_back()
//           does the same with kClosed. close() replies to all pending requests with its reason, which is
//           kClosed, so every request gets exactly one reply.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include "shared/base/status.h"
#include "shared/control/command.h"

namespace stoker::train {

// Receives the reply: a JSON object on one line, or the error. Can be empty.
using Done = std::function<void(Result<std::string>)>;

void answer(const Done& done, Result<std::string> reply);
// With the step, and these fields.
void answer_at_step(const Done& done, uint64_t step, const boost::json::object& fields = {});

// kClosed: the reply to requests that training no longer handles. `failure`: why it has ended; ok: regularly.
Status training_ended(const Status& failure = {});

// Receives the progress of a request, on one thread, before the reply: bytes or steps. Can be empty.
using OnProgress = std::function<void(uint64_t done, uint64_t total)>;

struct Request {
  control::Command command;
  Done done;
  OnProgress on_progress = {};
};

class Mailbox {
 public:
  static constexpr size_t kCapacity = 64;

  ~Mailbox() { close(); }
  void post(Request request);
  std::vector<Request> take();
  // Requests that were taken, to answer them later: before those that were posted since, also if the
  // mailbox is full.
  void put_back(std::vector<Request> requests);
  // Returns when a request is pending, after close(), or after `timeout`.
  void wait(std::chrono::milliseconds timeout);
  // Only the first call has an effect.
  void close(const Status& why = training_ended());

 private:
  std::mutex mutex_;
  std::condition_variable posted_;
  // Guarded by mutex_.
  std::vector<Request> requests_;
  Status closed_;  // why; ok: open
};

}  // namespace stoker::train
