#include "daemon/server/reply_queue.h"

#include <utility>

#include <boost/asio/post.hpp>

#include "shared/control/protocol.h"

namespace stoker::server {

void ReplyQueue::put(std::weak_ptr<Session> to, const std::string& id,
                     const Result<std::string>& result) {
  std::string line =
      result.ok() ? control::render_result(id, *result)
                  : control::render_error({id, control::ErrorCode::kFailed, result.status()});
  const std::lock_guard lock(mutex_);
  if (io_ == nullptr) return;
  replies_.push_back({std::move(to), std::move(line), !result.ok()});
  if (std::exchange(scheduled_, true)) return;
  // Posted under the lock so that close() cannot run in between: after close() the io_context is
  // not used.
  boost::asio::post(*io_, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->deliver();
  });
}

void ReplyQueue::deliver() {
  std::vector<Reply> replies;
  {
    const std::lock_guard lock(mutex_);
    replies = std::exchange(replies_, {});
    scheduled_ = false;
  }
  for (Reply& reply : replies) {
    if (reply.is_error && maybe_errors_ != nullptr) ++*maybe_errors_;
    if (const auto session = reply.to.lock()) session->finish_request(std::move(reply.line));
  }
}

void ReplyQueue::close() {
  const std::lock_guard lock(mutex_);
  io_ = nullptr;
  replies_.clear();
}

}  // namespace stoker::server
