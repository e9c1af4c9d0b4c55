#include "daemon/train/mailbox.h"

#include <iterator>
#include <utility>
#include <variant>

#include <boost/json.hpp>

namespace stoker::train {

void answer(const Done& done, Result<std::string> reply) {
  if (done) done(std::move(reply));
}

void answer_at_step(const Done& done, uint64_t step, const boost::json::object& fields) {
  boost::json::object reply{{"step", step}};
  reply.insert(fields.begin(), fields.end());
  answer(done, boost::json::serialize(reply));
}

Status training_ended(const Status& failure) {
  const std::string why = failure.ok() ? "" : ": " + failure.to_string();
  return Status(StatusCode::kClosed, "training has ended" + why);
}

void Mailbox::post(Request request) {
  Status reason;
  {
    const std::lock_guard lock(mutex_);
    if (!closed_.ok()) {
      reason = closed_;
    } else if (requests_.size() >= kCapacity &&
               !std::holds_alternative<control::Stop>(request.command)) {
      reason = Status(StatusCode::kBusy, "the trainer has " + std::to_string(kCapacity) +
                                             " requests to answer; try again after the next step");
    } else {
      requests_.push_back(std::move(request));
      posted_.notify_one();
      return;
    }
  }
  answer(request.done, std::move(reason));  // outside the lock, because `done` can call post()
}

std::vector<Request> Mailbox::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(requests_, {});
}

void Mailbox::put_back(std::vector<Request> requests) {
  Status why;
  {
    const std::lock_guard lock(mutex_);
    why = closed_;
    if (why.ok()) {
      requests_.insert(requests_.begin(), std::make_move_iterator(requests.begin()),
                       std::make_move_iterator(requests.end()));
      posted_.notify_one();
      return;
    }
  }
  for (const Request& request : requests) answer(request.done, why);
}

void Mailbox::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  posted_.wait_for(lock, timeout, [this] { return !requests_.empty() || !closed_.ok(); });
}

void Mailbox::close(const Status& why) {
  std::vector<Request> left;
  {
    const std::lock_guard lock(mutex_);
    if (closed_.ok()) closed_ = why;
    left = std::exchange(requests_, {});
    posted_.notify_all();
  }
  for (const Request& request : left) answer(request.done, why);
}

}  // namespace stoker::train
