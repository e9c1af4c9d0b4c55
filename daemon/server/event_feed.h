// EventFeed: passes events of the log from the threads that log them to the io_context thread, for
// the clients that subscribe to them.
//
// A holder of a shared_ptr to this object may call its listener at any time, also after close().
//
// Threads:  events arrive on the threads that log them; every method but put() on the io_context
//           thread.
// Blocking: never for longer than a short lock: of the events that the io_context thread has not
//           taken yet, kCapacity are kept, and later ones are dropped and counted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "shared/base/log.h"

namespace stoker::server {

class EventFeed : public std::enable_shared_from_this<EventFeed> {
 public:
  static constexpr size_t kCapacity = 256;
  struct Event {
    std::string name;
    std::string json;         // as a line of the log in the format json
    std::string reader_json;  // the same without fields that are text
  };
  // `dropped`: events after these that were not kept.
  using Deliver = std::function<void(const std::vector<Event>& events, uint64_t dropped)>;

  // `io` must live until close(), and so must what `deliver` uses.
  EventFeed(boost::asio::io_context& io, Deliver deliver)
      : deliver_(std::move(deliver)), io_(&io) {}

  void start();  // has no effect after the first call or close()
  void stop();   // start() starts it again
  void close();  // later events are dropped

  // An event. Also for those that are only sent to subscribers and not logged; from any thread.
  void put(LogLevel level, std::string_view name, Fields fields);

 private:
  void deliver();

  const Deliver deliver_;
  EventListening listening_;
  bool is_listening_ = false;

  // Guarded by mutex_.
  std::mutex mutex_;
  boost::asio::io_context* io_;  // null: closed
  std::vector<Event> events_;
  uint64_t dropped_ = 0;
  bool scheduled_ = false;
};

}  // namespace stoker::server
