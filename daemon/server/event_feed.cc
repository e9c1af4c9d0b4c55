#include "daemon/server/event_feed.h"

#include <utility>

#include <boost/asio/post.hpp>

namespace stoker::server {
namespace {

// Texts, such as paths and reasons, can contain private data: they are for operators, as the log is.
std::string format_for_readers(LogLevel level, std::string_view name, Fields fields) {
  std::string json = format_json_event(level, name, {});
  json.pop_back();
  for (const Field& field : fields)
    if (!field.is_text) json.append(",\"").append(field.key).append("\":").append(field.value);
  return json + "}";
}

}  // namespace

void EventFeed::start() {
  if (std::exchange(is_listening_, true)) return;
  listening_ = EventListening(
      [weak = weak_from_this()](LogLevel level, std::string_view name, Fields fields) {
        if (const auto self = weak.lock()) self->put(level, name, fields);
      });
}

void EventFeed::stop() {
  listening_.stop();
  is_listening_ = false;
}

void EventFeed::close() {
  stop();
  const std::lock_guard lock(mutex_);
  io_ = nullptr;
  events_.clear();
}

void EventFeed::put(LogLevel level, std::string_view name, Fields fields) {
  {
    const std::lock_guard lock(mutex_);
    if (io_ == nullptr) return;
    if (events_.size() >= kCapacity) {
      ++dropped_;
      return;
    }
  }
  Event event{.name = std::string(name),
              .json = format_json_event(level, name, fields),
              .reader_json = format_for_readers(level, name, fields)};
  const std::lock_guard lock(mutex_);
  if (io_ == nullptr) return;
  events_.push_back(std::move(event));
  if (std::exchange(scheduled_, true)) return;
  // Posted under the lock, as in ReplyQueue: after close() the io_context is not used.
  boost::asio::post(*io_, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->deliver();
  });
}

void EventFeed::deliver() {
  std::vector<Event> events;
  uint64_t dropped = 0;
  {
    const std::lock_guard lock(mutex_);
    if (io_ == nullptr) return;
    events = std::exchange(events_, {});
    dropped = std::exchange(dropped_, 0);
    scheduled_ = false;
  }
  deliver_(events, dropped);
}

}  // namespace stoker::server
