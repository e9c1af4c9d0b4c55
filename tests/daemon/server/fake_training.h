// FakeTraining: receives commands like the trainer and replies when the test tells it to.
//
// Threads: every method may be called from any thread.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "daemon/server/training_control.h"

namespace stoker::server {

class FakeTraining : public TrainingControl {
 public:
  std::shared_ptr<const control::TrainerStatus> status() const override {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  ThreadList threads() const override {
    ++thread_lists_;
    const std::lock_guard lock(mutex_);
    return threads_;
  }
  using TrainingControl::post;
  void post(control::Command command, Done done, OnProgress on_progress) override {
    std::unique_lock lock(mutex_);
    on_progress_ = std::move(on_progress);
    commands_.push_back(std::move(command));
    if (is_withholding_) {
      pending_.push_back(std::move(done));
      posted_.notify_all();
      return;
    }
    const Result<std::string> answer = answer_;
    lock.unlock();
    done(answer);
  }

  Result<std::string> settings(const std::string& key, bool with_secrets) const override {
    if (key == "unknown") return Status(StatusCode::kInvalidArgument, "unknown setting 'unknown'");
    return R"({"settings":[{"key":")" + (key.empty() ? "optimizer.lr" : key) + R"(","value":)" +
           (with_secrets ? R"("secret")" : "0.1") + R"(,"origin":"file","can_change":true}]})";
  }
  Result<std::string> read_inspection(uint64_t inspection, uint64_t after) override {
    ++reads_;
    return peek_inspection(inspection, after);
  }
  Result<std::string> peek_inspection(uint64_t inspection, uint64_t after) override {
    if (inspection != 3)
      return Status(StatusCode::kNotFound, "there is no inspection " + std::to_string(inspection));
    return R"({"inspection":3,"records":[],"next":)" + std::to_string(after) + "}";
  }
  Status close_inspection(uint64_t inspection) override {
    return peek_inspection(inspection, 0).status();
  }
  int thread_lists() const { return thread_lists_; }  // calls of threads()
  int reads() const { return reads_; }                // calls of read_inspection()
  Result<AttachedRing> attach(pid_t pid, UniqueFd pidfd) override {
    const std::lock_guard lock(mutex_);
    attached_.push_back(pid);
    if (!pidfd.valid()) return Status(StatusCode::kInternal, "invalid pidfd");
    UniqueFd file(::memfd_create("ring", MFD_CLOEXEC));
    if (::write(file.get(), "the ring", 8) != 8) return Status(StatusCode::kInternal, "write");
    return AttachedRing{.answer = R"({"producer":3})", .ring = std::move(file)};
  }
  std::vector<pid_t> attached() const {
    const std::lock_guard lock(mutex_);
    return attached_;
  }

  void publish(const control::TrainerStatus& status) {
    const std::lock_guard lock(mutex_);
    status_ = std::make_shared<const control::TrainerStatus>(status);
  }
  void set_threads(ThreadList threads) {
    const std::lock_guard lock(mutex_);
    threads_ = std::move(threads);
  }
  void answer_with(Result<std::string> answer) {
    const std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
  }
  // From now on replies are withheld until take_pending().
  void withhold_replies() {
    const std::lock_guard lock(mutex_);
    is_withholding_ = true;
  }
  // Waits until `count` commands are waiting for their replies; returns fewer on timeout.
  std::vector<Done> take_pending(size_t count) {
    std::unique_lock lock(mutex_);
    posted_.wait_for(lock, std::chrono::seconds(60), [&] { return pending_.size() >= count; });
    return std::exchange(pending_, {});
  }
  // Of the last command.
  OnProgress on_progress() const {
    const std::lock_guard lock(mutex_);
    return on_progress_;
  }
  std::vector<control::Command> commands() const {
    const std::lock_guard lock(mutex_);
    return commands_;
  }

 private:
  std::atomic<int> reads_ = 0;
  mutable std::atomic<int> thread_lists_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable posted_;
  // Guarded by mutex_.
  std::shared_ptr<const control::TrainerStatus> status_;
  ThreadList threads_;
  Result<std::string> answer_ = std::string(R"({"step":1200})");
  bool is_withholding_ = false;
  std::vector<Done> pending_;
  OnProgress on_progress_;
  std::vector<control::Command> commands_;
  std::vector<pid_t> attached_;
};

}  // namespace stoker::server
