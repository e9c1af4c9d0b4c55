// The producer in docs/examples as a process, over a real control socket.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "daemon/server/control_server.h"
#include "tests/daemon/supervisor/feed_fixture.h"

namespace stoker::supervisor {
namespace {

class RingForProducers final : public server::TrainingControl {
 public:
  RingForProducers(FeedSupervisor& supervisor, const config::FeedConfig& feed)
      : supervisor_(supervisor), feed_(feed) {}
  std::shared_ptr<const control::TrainerStatus> status() const override { return nullptr; }
  ThreadList threads() const override { return {}; }
  void post(control::Command, Done done) override { done(Status(StatusCode::kBusy, "no trainer")); }
  Result<server::AttachedRing> attach(pid_t pid, UniqueFd pidfd) override {
    STOKER_ASSIGN_OR_RETURN(auto attachment,
                            supervisor_.attach({.pid = pid, .pidfd = std::move(pidfd)}));
    return server::AttachedRing{.answer = to_json(attachment, feed_),
                                .ring = std::move(attachment.ring)};
  }
  Result<std::string> read_inspection(uint64_t, uint64_t) override {
    return Status(StatusCode::kNotFound, "no trainer");
  }
  Result<std::string> peek_inspection(uint64_t, uint64_t) override {
    return Status(StatusCode::kNotFound, "no trainer");
  }
  Status close_inspection(uint64_t) override { return Status(StatusCode::kNotFound, "no trainer"); }

 private:
  FeedSupervisor& supervisor_;
  const config::FeedConfig& feed_;
};

bool python_can_attach() {
  // recv_fds requires Python 3.9; libatomic comes with GCC's runtime.
  return std::system(
             "python3 -c 'import socket, ctypes; socket.recv_fds; "
             "ctypes.CDLL(\"libatomic.so.1\")' 2>/dev/null") == 0;
}

class PythonProducerTest : public FeedTest {
 protected:
  void SetUp() override {
    if (!python_can_attach()) GTEST_SKIP() << "no python3 with socket.recv_fds and libatomic";
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
  void serve() {
    training_ = std::make_unique<RingForProducers>(*supervisor_, options_.feed);
    server_ = std::make_unique<server::ControlServer>(
        io_, system_clock(), *training_,
        server::ServerOptions{.socket_path = path("control.sock")});
    ASSERT_TRUE(server_->start().ok());
    thread_ = std::jthread([this] { io_.run(); });
  }
  pid_t run_python() {
    const std::string folder = directory_;
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::execlp("python3", "python3", RING_PRODUCER, folder.c_str(), nullptr);
      ::_exit(127);
    }
    children_.push_back(pid);
    return pid;
  }

  std::vector<pid_t> children_;
  boost::asio::io_context io_{1};
  std::unique_ptr<RingForProducers> training_;
  std::unique_ptr<server::ControlServer> server_;
  std::jthread thread_;
};

TEST_F(PythonProducerTest, FillsRingToEndAfterAnotherProducerIsKilled) {
  open_ring({.slots = 4, .end_ticket = 40});
  ASSERT_TRUE(start().ok());
  ASSERT_NO_FATAL_FAILURE(serve());
  const pid_t first = run_python();
  std::vector<std::vector<std::byte>> batches;
  const auto take = [&](uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      const auto batch = ring_->pop(kTestTimeout);
      ASSERT_TRUE(batch.ok()) << batch.status().to_string();
      ASSERT_EQ(batch->ticket, batches.size());
      batches.emplace_back(batch->slot.begin(), batch->slot.end());
      ring_->release(batch->ticket);
    }
  };
  ASSERT_NO_FATAL_FAILURE(take(10));
  ::kill(first, SIGKILL);
  const pid_t second = run_python();
  ASSERT_NO_FATAL_FAILURE(take(30));
  EXPECT_EQ(ring_->pop(kTestTimeout).status().code(), StatusCode::kClosed);
  int status = 0;
  ASSERT_EQ(::waitpid(second, &status, 0), second);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  children_.pop_back();
  // Its samples: a label and an input derived from it.
  const auto& layout = ring_->layout();
  for (const auto& batch : batches)
    for (uint64_t row = 0; row < kBatch; ++row) {
      int64_t label = -1;
      float input[30];
      std::memcpy(&label, batch.data() + layout.offset(1) + row * sizeof label, sizeof label);
      std::memcpy(input, batch.data() + layout.offset(0) + row * sizeof input, sizeof input);
      ASSERT_TRUE(label == 0 || label == 1) << label;
      float mean = 0;
      for (const float value : input) mean += value / 30;
      ASSERT_NEAR(mean, static_cast<float>(label), 0.5f);
    }
}

TEST_F(PythonProducerTest, ExitsWithErrorWhenAttachIsDenied) {
  options_.feed.producers = config::ProducerMode::kInternal;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  ASSERT_NO_FATAL_FAILURE(serve());
  int status = 0;
  ASSERT_GT(::waitpid(run_python(), &status, 0), 0);
  children_.pop_back();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
}

}  // namespace
}  // namespace stoker::supervisor
