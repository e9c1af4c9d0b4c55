// ReplyQueue: passes replies from the trainer's threads to the io_context thread.
//
// A reply can arrive long after its client, or the server, is gone. A holder of a shared_ptr to
// this object may call put() at any time.
//
// Threads:  put() from any thread; deliver() and close() from the io_context thread.
// Blocking: never for longer than a short lock.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/server/session.h"
#include "shared/base/status.h"

namespace stoker::server {

class ReplyQueue : public std::enable_shared_from_this<ReplyQueue> {
 public:
  // `io` must live until close().
  explicit ReplyQueue(boost::asio::io_context& io) : io_(&io) {}

  // `counter`: of replies that are errors; changed by deliver(), must live until close().
  void count_errors_in(uint64_t& counter) { maybe_errors_ = &counter; }

  void put(std::weak_ptr<Session> to, const std::string& id, const Result<std::string>& result);
  void deliver();  // delivers pending replies; may also be called directly
  void close();    // later replies are dropped

 private:
  struct Reply {
    std::weak_ptr<Session> to;
    std::string line;
    bool is_error = false;
  };

  // Only for the io_context thread.
  uint64_t* maybe_errors_ = nullptr;  // null: not counted

  // Guarded by mutex_.
  std::mutex mutex_;
  boost::asio::io_context* io_;  // null: closed
  std::vector<Reply> replies_;
  bool scheduled_ = false;
};

}  // namespace stoker::server
