// Producers in C++ (include/stoker/producer.h) and Python (docs/examples) as processes that are
// killed, stopped, detached and attach again, next to one in the other language. Every ticket must
// arrive once, in order, with its bytes.
#include <span>

#include "tests/daemon/supervisor/producer_fixture.h"

namespace stoker::supervisor {
namespace {

class LiveProducerTest : public ProducerProcessTest,
                         public ::testing::WithParamInterface<Language> {
 protected:
  void SetUp() override {
    if (!python_can_attach()) GTEST_SKIP() << "no python3 with socket.recv_fds and libatomic";
    ProducerProcessTest::SetUp();
  }
  // The producer under test; `hold`: it stops itself in the middle of its first batch.
  pid_t run_tested(bool hold = false) { return run_program(GetParam(), hold); }
  pid_t run_other() {
    return run_program(GetParam() == Language::kCpp ? Language::kPython : Language::kCpp, false);
  }
  // Runs the producer under test until it is stopped with half a batch.
  pid_t run_stopped() {
    const pid_t pid = run_tested(true);
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, WUNTRACED), pid);
    EXPECT_TRUE(WIFSTOPPED(status)) << status;
    const auto id = training_.id_of(pid);
    EXPECT_TRUE(id && ring_->progress(*id).claims == 1);
    return pid;
  }
  void expect_tickets(uint64_t from, uint64_t to) {
    for (uint64_t ticket = from; ticket < to; ++ticket) {
      const auto batch = ring_->pop(kTestTimeout);
      ASSERT_TRUE(batch.ok()) << batch.status().to_string();
      ASSERT_EQ(batch->ticket, ticket);
      for (size_t tensor = 0; tensor < ring_->layout().sample().size(); ++tensor) {
        const auto bytes = ring_->layout().tensor_bytes(batch->slot, tensor);
        for (size_t i = 0; i < bytes.size(); ++i)
          ASSERT_EQ(bytes[i],
                    static_cast<std::byte>(ticket * 31 + (ring_->layout().offset(tensor) + i) * 7))
              << "ticket " << ticket;
      }
      ring_->release(ticket);
    }
  }
  void expect_end() {
    EXPECT_EQ(ring_->pop(kTestTimeout).status().code(), StatusCode::kClosed);
    for (const pid_t pid : std::vector(children_)) expect_exit(pid, 0);
  }
  void expect_exit(pid_t pid, int code) {
    const int status = wait_for_exit(pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == code) << status;
  }

  ManualClock manual_clock_;

 private:
  pid_t run_program(Language language, bool hold) {
    std::vector<std::string> command{PRODUCER_TEST_PROGRAM, directory_.path()};
    if (language == Language::kPython)
      command = {"python3", PRODUCER_TEST_SCRIPT, EXAMPLES, directory_.path()};
    if (hold) command.emplace_back("hold");
    return run(command);
  }
};

TEST_P(LiveProducerTest, FillsAllTicketsTogetherWithOther) {
  ASSERT_NO_FATAL_FAILURE(serve({.slots = 4, .first_ticket = 7, .end_ticket = 107}));
  run_tested();
  run_other();
  ASSERT_NO_FATAL_FAILURE(expect_tickets(7, 107));
  expect_end();
  EXPECT_EQ(ring_->counters().requeued, 0u);
}

TEST_P(LiveProducerTest, LosesNoTicketWhenKilledInMiddleOfBatch) {
  ASSERT_NO_FATAL_FAILURE(serve({.slots = 4, .end_ticket = 60}));
  const pid_t killed = run_stopped();
  run_other();
  ASSERT_TRUE(eventually([&] { return ring_->counters().ready == 3; }));
  ::kill(killed, SIGKILL);
  ASSERT_NO_FATAL_FAILURE(expect_tickets(0, 60));
  EXPECT_TRUE(WIFSIGNALED(wait_for_exit(killed)));
  expect_end();
  EXPECT_EQ(ring_->counters().requeued, 1u);
  EXPECT_EQ(ring_->counters().published, 60u);
}

TEST_P(LiveProducerTest, LosesNoTicketWhenKilledRepeatedly) {
  constexpr uint64_t kKills = 6;
  ASSERT_NO_FATAL_FAILURE(serve({.slots = 4}));
  run_other();
  uint64_t ticket = 0;
  for (uint64_t kill = 1; kill <= kKills; ++kill) {
    const pid_t killed = run_tested(true);
    // The trainer continues, otherwise no slot is free for it.
    int status = 0;
    test::Patience patience(60s);
    while (::waitpid(killed, &status, WUNTRACED | WNOHANG) == 0) {
      ASSERT_FALSE(patience.is_over()) << "the producer does not stop with a ticket";
      if (ring_->first_unpublished() == ticket) continue;
      ASSERT_NO_FATAL_FAILURE(expect_tickets(ticket, ticket + 1));
      ++ticket;
    }
    ASSERT_TRUE(WIFSTOPPED(status)) << status;
    ::kill(killed, SIGKILL);
    EXPECT_TRUE(WIFSIGNALED(wait_for_exit(killed)));
    // More than there are slots: with the one that was held.
    ASSERT_NO_FATAL_FAILURE(expect_tickets(ticket, ticket + 5));
    ticket += 5;
    EXPECT_EQ(ring_->counters().requeued, kill);
  }
}

TEST_P(LiveProducerTest, IsKilledWhenStoppedWithTicket) {
  clock_ = &manual_clock_;
  options_.feed.worker_timeout_seconds = 60;
  ASSERT_NO_FATAL_FAILURE(serve({.slots = 4, .end_ticket = 20}));
  const pid_t stopped = run_stopped();
  run_other();
  EXPECT_TRUE(eventually([&] {
    manual_clock_.advance(1s);
    return coordinator_.wait_for_stop(1ms) || ring_->counters().requeued == 1;
  }));
  const int status = wait_for_exit(stopped);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  ASSERT_NO_FATAL_FAILURE(expect_tickets(0, 20));
  expect_end();
}

// As a producer of another user, which the supervisor cannot kill (ExternalProducers).
TEST_P(LiveProducerTest, PublishesNothingWhenContinuedAfterDetach) {
  ASSERT_NO_FATAL_FAILURE(serve({.slots = 4, .end_ticket = 30}));
  const pid_t stopped = run_stopped();
  run_other();
  ASSERT_TRUE(eventually([&] { return ring_->counters().ready == 3; }));
  EXPECT_EQ(ring_->retire(*training_.id_of(stopped)), 1u);
  ASSERT_NO_FATAL_FAILURE(expect_tickets(0, 10));
  ::kill(stopped, SIGCONT);
  expect_exit(stopped, 3);
  ASSERT_NO_FATAL_FAILURE(expect_tickets(10, 30));
  expect_end();
}

TEST_P(LiveProducerTest, PublishesWhenContinuedInTime) {
  ASSERT_NO_FATAL_FAILURE(serve({.slots = 4, .end_ticket = 30}));
  const pid_t stopped = run_stopped();
  run_other();
  ASSERT_TRUE(eventually([&] { return ring_->counters().ready == 3; }));
  ::kill(stopped, SIGCONT);
  ASSERT_NO_FATAL_FAILURE(expect_tickets(0, 30));
  expect_end();
  EXPECT_EQ(ring_->counters().requeued, 0u);
}

TEST_P(LiveProducerTest, AttachesAgainToNextRing) {
  ASSERT_NO_FATAL_FAILURE(serve({.slots = 4}));
  run_tested();
  run_tested();
  ASSERT_NO_FATAL_FAILURE(expect_tickets(0, 10));
  close_ring();
  ASSERT_NO_FATAL_FAILURE(serve({.slots = 3, .first_ticket = 10, .end_ticket = 40}));
  ASSERT_NO_FATAL_FAILURE(expect_tickets(10, 40));
  expect_end();
}

INSTANTIATE_TEST_SUITE_P(, LiveProducerTest, ::testing::Values(Language::kCpp, Language::kPython),
                         to_string);

}  // namespace
}  // namespace stoker::supervisor
