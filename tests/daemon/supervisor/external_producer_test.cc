// Producers that stokerd did not start: attached, read from, killed, hanging. Uses real processes.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/supervisor/external_producers.h"
#include "tests/daemon/supervisor/feed_fixture.h"

namespace stoker::supervisor {
namespace {

using ::testing::HasSubstr;

class ExternalProducersTest : public FeedTest {
 protected:
  void SetUp() override {
    FeedTest::SetUp();
    options_.feed.producers = config::ProducerMode::kExternal;
    options_.feed_program = FEED_PROGRAM;
    write_config("{format: synthetic, num_samples: 500, input_shape: [3, 10], num_classes: 4}");
  }
  void TearDown() override {
    for (const pid_t pid : children_) end(pid);
    FeedTest::TearDown();
  }
  static void end(pid_t pid) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }

  // Starts a process that attaches and then runs `what` with the ring in its own mapping.
  Result<ring::ProducerId> attach_process(
      const std::function<void(ring::ShmRing&, ring::ProducerId)>& what) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ring::ProducerId id;
      if (::read(ends[0], &id, sizeof id) != sizeof id) ::_exit(1);
      auto attached = ring::ShmRing::attach(UniqueFd(::dup(ring_->fd())));
      if (attached.ok()) what(**attached, id);
      ::_exit(0);
    }
    children_.push_back(pid);
    auto attachment = supervisor_->attach(
        {.pid = pid, .pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)))});
    if (attachment.ok()) {
      EXPECT_TRUE(attachment->ring.valid());
      EXPECT_EQ(::write(ends[1], &attachment->producer, sizeof(ring::ProducerId)),
                static_cast<ssize_t>(sizeof(ring::ProducerId)));
    }
    ::close(ends[0]);
    ::close(ends[1]);
    if (!attachment.ok()) return attachment.status();
    return attachment->producer;
  }

  // Fills each slot with its ticket.
  static void fill_with_tickets(ring::ShmRing& ring, ring::ProducerId id) {
    while (true) {
      const auto claim = ring.claim(id, kTestTimeout);
      if (!claim.ok()) return;
      std::memset(claim->slot.data(), static_cast<int>(claim->ticket), claim->slot.size());
      for (uint64_t row = 0; row < kBatch; ++row) ring.add_completed_samples(id, 1);
      ring.publish(id, *claim);
    }
  }
  static void hold(ring::ShmRing& ring, ring::ProducerId id) {
    (void)ring.claim(id, kTestTimeout);
    while (true) ::pause();
  }
  void expect_tickets(uint64_t from, uint64_t to) {
    for (uint64_t ticket = from; ticket < to; ++ticket) {
      const auto batch = ring_->pop(kTestTimeout);
      ASSERT_TRUE(batch.ok()) << batch.status().to_string();
      ASSERT_EQ(batch->ticket, ticket);
      ASSERT_EQ(batch->slot.front(), static_cast<std::byte>(ticket));
      ASSERT_EQ(batch->slot.back(), static_cast<std::byte>(ticket));
      ring_->release(ticket);
    }
  }

  ManualClock manual_clock_;
  std::vector<pid_t> children_;
};

TEST_F(ExternalProducersTest, FillsRingWithoutWorkerProcesses) {
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  EXPECT_TRUE(supervisor_->process_ids().empty());
  ASSERT_TRUE(attach_process(fill_with_tickets).ok());
  ASSERT_TRUE(attach_process(fill_with_tickets).ok());
  EXPECT_EQ(supervisor_->external_producers(), 2u);
  ASSERT_NO_FATAL_FAILURE(expect_tickets(0, 100));
}

TEST_F(ExternalProducersTest, RequeuesTicketOfKilledProducerInOrder) {
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  const auto holder = attach_process(hold);
  ASSERT_TRUE(holder.ok());
  ASSERT_TRUE(eventually([&] { return ring_->progress(*holder).claims == 1; }));
  ASSERT_TRUE(attach_process(fill_with_tickets).ok());
  ASSERT_TRUE(eventually([&] { return ring_->counters().ready == 3; }));
  ::kill(children_[0], SIGKILL);
  ASSERT_NO_FATAL_FAILURE(expect_tickets(0, 50));
  EXPECT_TRUE(eventually([&] { return supervisor_->external_producers() == 1; }));
  EXPECT_EQ(ring_->counters().requeued, 1u);
  EXPECT_EQ(supervisor_->crashes(), 0u) << "not a reader of ours";
}

TEST_F(ExternalProducersTest, KillsHungProducerButNotWaitingProducer) {
  clock_ = &manual_clock_;
  options_.feed.worker_timeout_seconds = 60;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  const auto waiting = attach_process([](ring::ShmRing&, ring::ProducerId) {
    while (true) ::pause();
  });
  const auto timed_out = attach_process(hold);
  ASSERT_TRUE(waiting.ok() && timed_out.ok());
  ASSERT_TRUE(eventually([&] { return ring_->progress(*timed_out).claims == 1; }));
  EXPECT_TRUE(eventually([&] {
    manual_clock_.advance(1s);
    return coordinator_.wait_for_stop(1ms) || supervisor_->external_producers() == 1;
  }));
  int status = 0;
  EXPECT_EQ(::waitpid(children_[1], &status, 0), children_[1]);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_EQ(::waitpid(children_[0], &status, WNOHANG), 0) << "it lives";
  children_.pop_back();
  EXPECT_EQ(ring_->counters().requeued, 1u);
}

// A run whose user may not signal that of the producer: this process, while it is another user.
TEST_F(ExternalProducersTest, RequeuesTicketOfHungProducerOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to start a process of another user";
  open_ring({.slots = 4});
  ExternalProducers producers(*ring_, 1, 60s);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    constexpr uid_t kOther = 65533;
    if (::setresuid(kOther, kOther, kOther) != 0) ::_exit(1);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ring::ProducerId id;
    auto attached = ring::ShmRing::attach(UniqueFd(::dup(ring_->fd())));
    if (attached.ok() && ::read(ready[0], &id, sizeof id) == sizeof id) hold(**attached, id);
    ::_exit(1);
  }
  children_.push_back(pid);
  const auto attachment = producers.attach(
      {.pid = pid, .pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)))});
  ASSERT_TRUE(attachment.ok());
  const ring::ProducerId id = attachment->producer;
  ASSERT_EQ(::write(ready[1], &id, sizeof id), static_cast<ssize_t>(sizeof id));
  ASSERT_TRUE(eventually([&] { return ring_->progress(id).claims == 1; }));

  constexpr uid_t kUnprivileged = 65534;
  ASSERT_EQ(::seteuid(kUnprivileged), 0);
  for (auto now = 0s; now < 120s; now += 1s) producers.check_producers(now);
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), 0) << "it lives";
  EXPECT_EQ(producers.size(), 0u);
  EXPECT_EQ(ring_->counters().requeued, 1u);
  // Another producer gets the ticket; the hung one has no claim to publish.
  const auto next = ring_->add_producer("next");
  ASSERT_TRUE(next.ok());
  const auto claim = ring_->claim(*next, kTestTimeout);
  ASSERT_TRUE(claim.ok());
  EXPECT_EQ(claim->ticket, 0u);
  EXPECT_FALSE(ring_->publish(id, *claim));
  EXPECT_TRUE(ring_->publish(*next, *claim));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(ExternalProducersTest, PreservesTicketOrderNextToWorkers) {
  options_.feed.producers = config::ProducerMode::kBoth;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  // The external producer follows the plan, as it must here.
  ASSERT_TRUE(attach_process([this](ring::ShmRing& ring, ring::ProducerId id) {
                while (true) {
                  const auto claim = ring.claim(id, kTestTimeout);
                  if (!claim.ok()) return;
                  const auto batch = expected_batch(claim->ticket);
                  std::memcpy(claim->slot.data(), batch.data(), batch.size());
                  ring.publish(id, *claim);
                }
              }).ok());
  for (uint64_t ticket = 0; ticket < 60; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
}

TEST_F(ExternalProducersTest, RejectsProducerInInternalMode) {
  options_.feed.producers = config::ProducerMode::kInternal;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  const auto rejected = attach_process(hold);
  ASSERT_FALSE(rejected.ok());
  EXPECT_EQ(rejected.status().code(), StatusCode::kPermission);
  EXPECT_THAT(rejected.status().message(), HasSubstr("feed.producers"));
}

TEST_F(ExternalProducersTest, RejectsProducerAfterFeedStopped) {
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  supervisor_->stop();
  EXPECT_EQ(attach_process(hold).status().code(), StatusCode::kClosed);
}

TEST_F(ExternalProducersTest, LimitsNumberOfProducers) {
  open_ring({.slots = 4});
  ExternalProducers outside(*ring_, 1, 0ns);
  const auto process = [] {
    return ExternalProcess{
        .pid = ::getpid(),
        .pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)))};
  };
  EXPECT_TRUE(outside.attach(process()).ok());
  EXPECT_EQ(outside.attach(process()).status().code(), StatusCode::kBusy);
}

}  // namespace
}  // namespace stoker::supervisor
