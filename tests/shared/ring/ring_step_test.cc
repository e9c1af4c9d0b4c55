// A producer that is stopped or killed at any of its instructions must not block other producers:
// the segment contains no locks.
//
// The producer is a child process that is single-stepped through claim, report and publish. The
// tests are skipped if ptrace is not permitted.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/shared/ring/ring_fixture.h"

namespace stoker::ring {
namespace {

// Number of points at which a process is really killed. After every instruction it would take too
// long, and under a sanitizer there are ten times as many instructions.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kKills = 5;
#else
constexpr uint64_t kKills = 10;
#endif

class SteppedProducer {
 public:
  // Stopped before the first instruction of its work.
  SteppedProducer(ShmRing& ring, ProducerId id) : pid_(::fork()) {
    if (pid_ == 0) work(ring.fd(), id);
    ::waitpid(pid_, &status_, 0);
  }
  ~SteppedProducer() {
    if (is_stopped()) kill();
  }
  SteppedProducer(const SteppedProducer&) = delete;
  SteppedProducer& operator=(const SteppedProducer&) = delete;

  // False if it has exited.
  bool is_stopped() const { return WIFSTOPPED(status_); }
  bool is_rejected() const { return WIFEXITED(status_) && WEXITSTATUS(status_) == kRejected; }
  bool is_done() const { return WIFEXITED(status_) && WEXITSTATUS(status_) == 0; }
  void step() {
    ::ptrace(PTRACE_SINGLESTEP, pid_, nullptr, nullptr);
    ::waitpid(pid_, &status_, 0);
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, &status_, 0);
  }

 private:
  static constexpr int kRejected = 3;

  [[noreturn]] static void work(int fd, ProducerId id) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto attached = ShmRing::attach(UniqueFd(::dup(fd)));
    if (!attached.ok()) ::_exit(1);
    ShmRing& ring = **attached;
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(kRejected);
    ::raise(SIGSTOP);
    const auto claim = ring.claim(id, kTestTimeout);
    if (!claim.ok()) ::_exit(1);
    fill(claim->slot, claim->ticket);
    ring.report_sample_error({.ticket = claim->ticket, .sample = 1, .reason = "stepped"});
    ring.add_completed_samples(id, 1);
    ring.add_read_time({.total = 1ns});
    ::_exit(ring.publish(id, *claim) ? 0 : 1);
  }

  const pid_t pid_;
  int status_ = 0;
};

class RingStepTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto ring = make_ring({.slots = 2});
    const SteppedProducer probe(*ring, *ring->add_producer("probe"));
    if (probe.is_rejected()) GTEST_SKIP() << "processes cannot be single-stepped here";
  }
  static uint64_t count_steps() {
    const auto ring = make_ring({.slots = 2, .end_ticket = 3});
    SteppedProducer producer(*ring, *ring->add_producer("whole"));
    uint64_t steps = 0;
    for (; producer.is_stopped(); ++steps) producer.step();
    return steps;
  }
};

TEST_F(RingStepTest, NeverBlocksOnProducerStoppedAtAnyInstruction) {
  const auto ring = make_ring({.slots = 4});
  const auto own = ring->add_producer("mine");
  SteppedProducer other(*ring, *ring->add_producer("other"));
  uint64_t steps = 0, reports = 0;
  for (; other.is_stopped(); ++steps, other.step()) {
    const auto claim = ring->claim(*own, kTestTimeout);
    ASSERT_TRUE(claim.ok()) << "after " << steps << " steps: " << claim.status().to_string();
    ring->report_sample_error({.ticket = claim->ticket, .sample = 2, .reason = "mine"});
    reports += ring->drain_sample_errors().size();
    ring->add_completed_samples(*own, 1);
    ring->abandon(*own, *claim);
    EXPECT_LE(ring->counters().ready, 1u);
  }
  EXPECT_TRUE(other.is_done());
  EXPECT_GT(steps, 100u);
  reports += ring->drain_sample_errors().size();
  EXPECT_EQ(reports + ring->counters().lost_reports, steps + 1) << "each report must arrive once";
}

// Requeues the tickets of `victim`, fills those that are not ready, and consumes all.
void expect_all_tickets(ShmRing& ring, ProducerId victim) {
  ring.requeue(victim);
  const auto heir = ring.add_producer("heir");
  ASSERT_TRUE(heir.ok());
  for (uint64_t ticket = 0; ticket < 3; ++ticket) {
    auto batch = ring.pop(kPollOnce);
    if (!batch.ok()) {
      const auto claim = ring.claim(*heir, kTestTimeout);
      ASSERT_TRUE(claim.ok());
      ASSERT_EQ(claim->ticket, ticket);
      fill(claim->slot, ticket);
      ASSERT_TRUE(ring.publish(*heir, *claim));
      batch = ring.pop(kTestTimeout);
    }
    ASSERT_TRUE(batch.ok());
    ASSERT_EQ(batch->ticket, ticket);
    ASSERT_TRUE(holds(batch->slot, ticket));
    ring.release(ticket);
  }
  EXPECT_EQ(ring.pop(kPollOnce).status().code(), StatusCode::kClosed);
}

// A killed process leaves the segment as it was after its last instruction, so a copy of the
// segment after each instruction shows what a kill there leaves. Copies that equal the previous one
// are not examined again.
TEST_F(RingStepTest, RequeuesTicketsWhenProducerIsKilledAtAnyInstruction) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "takes minutes, because ThreadSanitizer multiplies the instructions to step over";
#endif
  const auto ring = make_ring({.slots = 2, .end_ticket = 3});
  const auto victim = ring->add_producer("victim");
  SteppedProducer producer(*ring, *victim);
  std::vector<std::byte> examined;
  uint64_t states = 0;
  for (uint64_t steps = 0; producer.is_stopped(); ++steps, producer.step()) {
    std::vector<std::byte> bytes = bytes_of(*ring);
    if (bytes == examined) continue;
    SCOPED_TRACE("killed after " + std::to_string(steps) + " steps");
    const auto copy = ShmRing::attach(memfd_of(bytes));
    ASSERT_TRUE(copy.ok()) << copy.status().to_string();
    ASSERT_NO_FATAL_FAILURE(expect_all_tickets(**copy, *victim));
    examined = std::move(bytes);
    ++states;
  }
  EXPECT_TRUE(producer.is_done());
  EXPECT_GT(states, 50u) << "the ring was not written";
}

TEST_F(RingStepTest, RequeuesTicketsOfKilledProducerAtSomeInstructions) {
  const uint64_t all = count_steps();
  ASSERT_GT(all, kKills);
  for (uint64_t kill = 0; kill < kKills; ++kill) {
    const uint64_t killed = kill * all / kKills;
    SCOPED_TRACE("killed after " + std::to_string(killed) + " steps");
    const auto ring = make_ring({.slots = 2, .end_ticket = 3});
    const auto victim = ring->add_producer("victim");
    {
      SteppedProducer producer(*ring, *victim);
      for (uint64_t step = 0; step < killed; ++step) producer.step();
      ASSERT_TRUE(producer.is_stopped());
      producer.kill();
    }
    ASSERT_NO_FATAL_FAILURE(expect_all_tickets(*ring, *victim));
  }
}

}  // namespace
}  // namespace stoker::ring
