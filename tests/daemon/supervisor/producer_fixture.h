// ProducerProcessTest: external producers as processes that attach over a real control socket.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "daemon/server/control_server.h"
#include "tests/daemon/supervisor/feed_fixture.h"

namespace stoker::supervisor {

// The part of the daemon that serves `attach`.
class RingForProducers final : public server::TrainingControl {
 public:
  explicit RingForProducers(const config::FeedConfig& feed) : feed_(feed) {}

  // Null: between two rings.
  void set_supervisor(FeedSupervisor* supervisor) {
    const std::lock_guard lock(mutex_);
    supervisor_ = supervisor;
  }
  // Of a process that has attached.
  std::optional<ring::ProducerId> id_of(pid_t pid) {
    const std::lock_guard lock(mutex_);
    const auto found = ids_.find(pid);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

  std::shared_ptr<const control::TrainerStatus> status() const override { return nullptr; }
  ThreadList threads() const override { return {}; }
  void post(control::Command, Done done, OnProgress) override {
    done(Status(StatusCode::kBusy, "no trainer"));
  }
  Result<server::AttachedRing> attach(pid_t pid, UniqueFd pidfd) override {
    const std::lock_guard lock(mutex_);
    if (supervisor_ == nullptr) return Status(StatusCode::kBusy, "training is being prepared");
    STOKER_ASSIGN_OR_RETURN(auto attachment,
                            supervisor_->attach({.pid = pid, .pidfd = std::move(pidfd)}));
    ids_[pid] = attachment.producer;
    return server::AttachedRing{.answer = to_json(attachment, feed_),
                                .ring = std::move(attachment.ring)};
  }
  Result<std::string> settings(const std::string&, bool) const override {
    return Status(StatusCode::kNotFound, "no trainer");
  }
  Result<std::string> read_inspection(uint64_t, uint64_t) override {
    return Status(StatusCode::kNotFound, "no trainer");
  }
  Result<std::string> peek_inspection(uint64_t, uint64_t) override {
    return Status(StatusCode::kNotFound, "no trainer");
  }
  Status close_inspection(uint64_t) override { return Status(StatusCode::kNotFound, "no trainer"); }

 private:
  const config::FeedConfig& feed_;
  std::mutex mutex_;  // guards the following
  FeedSupervisor* supervisor_ = nullptr;
  std::map<pid_t, ring::ProducerId> ids_;
};

inline bool python_can_attach() {
  // recv_fds requires Python 3.9; libatomic comes with GCC's runtime.
  return std::system(
             "python3 -c 'import socket, ctypes; socket.recv_fds; "
             "ctypes.CDLL(\"libatomic.so.1\")' 2>/dev/null") == 0;
}

// The parameter of tests for producers in both languages.
enum class Language { kCpp, kPython };
inline std::string to_string(const ::testing::TestParamInfo<Language>& parameter) {
  return parameter.param == Language::kCpp ? "Cpp" : "Python";
}

class ProducerProcessTest : public FeedTest {
 protected:
  void SetUp() override {
    FeedTest::SetUp();
    options_.feed.producers = config::ProducerMode::kExternal;
    options_.feed_program = FEED_PROGRAM;
    write_config("{format: synthetic, num_samples: 500, input_shape: [3, 10], num_classes: 4}");
  }
  void TearDown() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
    server_.reset();
    for (const pid_t pid : children_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    FeedTest::TearDown();
  }

  // Opens a ring, starts its supervisor and serves it.
  void serve(const ring::RingOptions& options) {
    open_ring(options);
    ASSERT_TRUE(start().ok());
    training_.set_supervisor(supervisor_.get());
    if (server_ != nullptr) return;
    auto run = control::identify_run(directory_.path());
    ASSERT_TRUE(run.ok());
    server_ = std::make_unique<server::ControlServer>(
        io_, system_clock(), training_,
        server::ServerOptions{.socket_path = path("control.sock"), .run = *std::move(run)});
    ASSERT_TRUE(server_->start().ok());
    thread_ = std::jthread([this] { io_.run(); });
  }
  // As at a new dataset version: the ring is closed, and another one is opened later.
  void close_ring() {
    training_.set_supervisor(nullptr);
    supervisor_->stop();
    // The supervisor's thread uses both until TearDown() joins it.
    stopped_.emplace_back(std::move(ring_), std::move(supervisor_));
  }
  pid_t run(const std::vector<std::string>& command) {
    std::vector<char*> arguments;
    for (const auto& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::execvp(arguments[0], arguments.data());
      ::_exit(127);
    }
    children_.push_back(pid);
    return pid;
  }
  // The status of waitpid(), when the process has exited.
  int wait_for_exit(pid_t pid) {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    std::erase(children_, pid);
    return status;
  }

  std::vector<pid_t> children_;
  std::vector<std::pair<std::unique_ptr<ring::ShmRing>, std::unique_ptr<FeedSupervisor>>> stopped_;
  boost::asio::io_context io_{1};
  RingForProducers training_{options_.feed};
  std::unique_ptr<server::ControlServer> server_;
  std::jthread thread_;
};

}  // namespace stoker::supervisor
