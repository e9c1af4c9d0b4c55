// Producer and Batch of include/stoker/producer.h, on a real ring.
#include <sys/wait.h>

#include <latch>
#include <random>
#include <thread>

#include <gmock/gmock.h>

#include "shared/ring/ring_layout.h"
#include "tests/include/producer_fixture.h"
#include "tests/support/eventually.h"

namespace stoker::producer {
namespace {

using ::testing::HasSubstr;

TEST_F(ProducerTest, DeliversTypedRowsToConsumer) {
  open({.slots = 2, .first_ticket = 9, .end_ticket = 12});
  Producer producer = attach_producer();
  const auto input = producer.tensor<float>("input", {20});
  const auto label = producer.tensor<std::int64_t>("label", {});
  ASSERT_TRUE(input.ok() && label.ok());
  auto batch = producer.claim(kTestTimeout);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  EXPECT_EQ(batch->ticket(), 9u);
  ASSERT_EQ(batch->size(), 3u);
  for (uint64_t row = 0; row < batch->size(); ++row) {
    for (float& element : batch->row(*input, row)) element = static_cast<float>(row) + 0.5f;
    batch->row(*label, row)[0] = static_cast<std::int64_t>(row) - 1;
    batch->add_completed_samples(1);
  }
  EXPECT_EQ(batch->rows(*input).size(), 60u);
  EXPECT_EQ(ring_->progress(ids_[0]).samples, 3u);
  EXPECT_TRUE(batch->publish());
  const auto ready = ring_->pop(kTestTimeout);
  ASSERT_TRUE(ready.ok());
  const auto& layout = ring_->layout();
  for (uint64_t row = 0; row < 3; ++row) {
    float last = 0;
    int64_t value = 0;
    std::memcpy(&last, ready->slot.data() + layout.offset(0) + row * 80 + 76, sizeof last);
    std::memcpy(&value, ready->slot.data() + layout.offset(1) + row * 8, sizeof value);
    EXPECT_EQ(last, static_cast<float>(row) + 0.5f);
    EXPECT_EQ(value, static_cast<int64_t>(row) - 1);
  }
  EXPECT_EQ(ring_->counters().published, 1u);
}

TEST_F(ProducerTest, ThrowsOnRowBeyondBatchAndOnUseAfterPublish) {
  open();
  Producer producer = attach_producer();
  const auto input = producer.tensor<float>("input");
  auto batch = producer.claim(kTestTimeout);
  ASSERT_TRUE(batch.ok());
  EXPECT_THROW((void)batch->row(*input, 3), std::out_of_range);
  EXPECT_THROW((void)batch->row(*input, ~uint64_t{0}), std::out_of_range);
  EXPECT_TRUE(batch->publish());
  EXPECT_FALSE(batch->publish());
  EXPECT_THROW((void)batch->row(*input, 0), std::logic_error);
  EXPECT_THROW((void)batch->size(), std::logic_error);
  EXPECT_FALSE(batch->is_claimed());
  batch->abandon();
  EXPECT_THROW((void)batch.error(), std::bad_variant_access);
}

TEST_F(ProducerTest, ThrowsOnTensorOfAnotherRing) {
  open({.slots = 2}, ring::small_layout(5000));
  const auto before = attach_producer().tensor<float>("input");
  open({.slots = 2}, ring::small_layout(20));
  auto batch = attach_producer().claim(kTestTimeout);
  ASSERT_TRUE(batch.ok());
  EXPECT_THROW((void)batch->row(*before, 0), std::logic_error);
  EXPECT_THROW((void)batch->rows(*before), std::logic_error);
}

TEST_F(ProducerTest, AbandonsTicketOnDestructionAndOnException) {
  open({.slots = 2});
  Producer producer = attach_producer();
  try {
    const auto batch = producer.claim(kTestTimeout);
    ASSERT_TRUE(batch.ok());
    throw std::runtime_error("no data");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(ring_->progress(ids_[0]).claims, 0u);
  for (int round = 0; round < 3; ++round) {
    auto batch = producer.claim(kTestTimeout);
    ASSERT_TRUE(batch.ok());
    EXPECT_EQ(batch->ticket(), 0u);
    Batch moved = *std::move(batch);
    Batch& same = moved;
    moved = std::move(same);
    EXPECT_TRUE(moved.is_claimed());
  }
  auto first = producer.claim(kTestTimeout);
  auto second = producer.claim(kTestTimeout);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(second->ticket(), 1u);
  EXPECT_EQ(ring_->progress(ids_[0]).claims, 2u);
}

TEST_F(ProducerTest, KeepsBatchAfterProducerIsReplaced) {
  open();
  Producer producer = attach_producer();
  auto batch = producer.claim(kTestTimeout);
  ASSERT_TRUE(batch.ok());
  producer = attach_producer();
  EXPECT_TRUE(batch->publish());
}

TEST_F(ProducerTest, TimesOutWhenRingIsFull) {
  open({.slots = 1});
  Producer producer = attach_producer();
  const auto batch = producer.claim(0ns);
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(producer.claim(0ns).error().code, ErrorCode::kTimedOut);
  EXPECT_EQ(producer.claim(-1ns).error().code, ErrorCode::kTimedOut);
  EXPECT_EQ(producer.claim(1ms).error().code, ErrorCode::kTimedOut);
}

TEST_F(ProducerTest, EndsOnlyWhenAllBatchesAreFilled) {
  open({.slots = 4, .end_ticket = 2});
  Producer producer = attach_producer();
  auto first = producer.claim(kTestTimeout);
  auto second = producer.claim(kTestTimeout);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(producer.claim(0ns).error().code, ErrorCode::kTimedOut) << "can still be requeued";
  EXPECT_TRUE(second->publish());
  first->abandon();
  first = producer.claim(kTestTimeout);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->ticket(), 0u);
  EXPECT_TRUE(first->publish());
  EXPECT_EQ(producer.claim(kTestTimeout).error().code, ErrorCode::kEnded);
}

TEST_F(ProducerTest, ReportsClosedRing) {
  open();
  Producer producer = attach_producer();
  auto batch = producer.claim(kTestTimeout);
  ring_->close();
  const auto closed = producer.claim(std::chrono::nanoseconds::max());
  EXPECT_EQ(closed.error().code, ErrorCode::kClosed);
  EXPECT_TRUE(batch->publish());
}

TEST_F(ProducerTest, EndsIfRingIsClosedAfterLastBatch) {
  open({.slots = 2, .end_ticket = 1});
  Producer producer = attach_producer();
  auto batch = producer.claim(kTestTimeout);
  ASSERT_TRUE(batch.ok() && batch->publish());
  ASSERT_TRUE(ring_->pop(kTestTimeout).ok());
  ring_->release(0);
  ring_->close();
  EXPECT_EQ(producer.claim(kTestTimeout).error().code, ErrorCode::kEnded);
}

TEST_F(ProducerTest, ReturnsTicketOfBatchThatIsReplaced) {
  open({.slots = 2});
  Producer producer = attach_producer();
  auto first = producer.claim(kTestTimeout);
  auto second = producer.claim(kTestTimeout);
  ASSERT_TRUE(first.ok() && second.ok());
  *first = *std::move(second);
  EXPECT_EQ(first->ticket(), 1u);
  const auto again = producer.claim(kTestTimeout);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->ticket(), 0u);
}

TEST_F(ProducerTest, LosesTicketWhenItIsDetached) {
  open();
  Producer producer = attach_producer();
  auto batch = producer.claim(kTestTimeout);
  ASSERT_TRUE(batch.ok());
  EXPECT_TRUE(batch->is_claimed());
  EXPECT_EQ(ring_->retire(ids_[0]), 1u);
  EXPECT_FALSE(batch->is_claimed());
  EXPECT_FALSE(batch->publish());
  EXPECT_EQ(producer.claim(kTestTimeout).error().code, ErrorCode::kDetached);
  // It can attach again.
  Producer again = attach_producer();
  batch = again.claim(kTestTimeout);
  ASSERT_TRUE(batch.ok());
  fill(again, *batch, 0);
  EXPECT_TRUE(batch->publish());
  ASSERT_NO_FATAL_FAILURE(expect_next(0));
}

TEST_F(ProducerTest, IsNotProducerInForkedProcess) {
  open();
  Producer producer = attach_producer();
  auto batch = producer.claim(kTestTimeout);
  ASSERT_TRUE(batch.ok());
  const pid_t pid = ::fork();
  if (pid == 0) {
    const bool is_harmless =
        producer.claim(0ns).error().code == ErrorCode::kInvalidArgument && !batch->publish();
    batch->abandon();
    ::_exit(is_harmless ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(batch->is_claimed());
  EXPECT_TRUE(batch->publish());
}

TEST_F(ProducerTest, ReportsExitOfDaemon) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd in(ends[0]), out(ends[1]);
  open({.slots = 1});
  const auto id = ring_->add_producer("test");
  const std::string path = daemon_.directory() + "/killed.sock";
  const pid_t pid = ::fork();
  if (pid == 0) {
    const UniqueFd listener = listen_on(path);
    if (::write(out.get(), "x", 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(in.get(), &byte, 1), 1);
  // The ring comes from here, but the listening process is the child.
  auto connection = internal::Connection::open(path, internal::deadline_after(kTestTimeout));
  ASSERT_TRUE(connection.ok()) << connection.error().message;
  const internal::Fd ring(::fcntl(ring_->fd(), F_DUPFD_CLOEXEC, 0));
  auto region = internal::map_segment(ring, path);
  ASSERT_TRUE(region.ok());
  auto layout = internal::read_layout(
      {static_cast<std::byte*>(region->get_address()), region->get_size()}, path);
  ASSERT_TRUE(layout.ok());
  const internal::Ring mapped(*std::move(region), *std::move(layout), {id->index, id->generation},
                              connection->take_process());
  EXPECT_FALSE(mapped.has_daemon_exited());
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  EXPECT_TRUE(mapped.has_daemon_exited());
}

TEST_F(ProducerTest, ReportsSampleErrors) {
  open();
  Producer producer = attach_producer();
  auto batch = producer.claim(kTestTimeout);
  ASSERT_TRUE(batch.ok());
  batch->report_sample_error(17, SampleError::kNotFound, "a.jpg: does not exist");
  batch->report_sample_error(18, SampleError::kIoError, std::string(199, 'a') + "\u00e9");
  const auto errors = ring_->drain_sample_errors();
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0].ticket, 0u);
  EXPECT_EQ(errors[0].sample, 17u);
  EXPECT_EQ(errors[0].code, StatusCode::kNotFound);
  EXPECT_EQ(errors[0].reason, "a.jpg: does not exist");
  EXPECT_EQ(errors[1].code, StatusCode::kIoError);
  EXPECT_EQ(errors[1].reason, std::string(199, 'a')) << "no partial character";
}

TEST_F(ProducerTest, CountsReportsAsLostWhenQueueIsFull) {
  open();
  Producer producer = attach_producer();
  auto batch = producer.claim(kTestTimeout);
  ASSERT_TRUE(batch.ok());
  for (uint64_t sample = 0; sample < 300; ++sample)
    batch->report_sample_error(sample, SampleError::kCorrupt, "");
  EXPECT_EQ(ring_->counters().sample_errors, 300u);
  EXPECT_EQ(ring_->counters().lost_reports, 44u);
  EXPECT_EQ(ring_->drain_sample_errors().size(), 256u);
  batch->report_sample_error(300, SampleError::kCorrupt, "");
  EXPECT_EQ(ring_->drain_sample_errors().size(), 1u);
}

// ---- The same as the ring's own producer

// The same random operations, one after the other, of the header's producer and of ShmRing's, on
// two rings: afterwards all bytes are equal, also those of counters and epochs.
TEST_F(ProducerTest, ChangesSameBytesAsProducerOfRing) {
  const ring::RingOptions options{.slots = 3, .first_ticket = 4, .end_ticket = 60};
  open(options);
  Producer producer = attach_producer();
  const auto other = ring::make_ring(options);
  const auto id = other->add_producer("test");
  auto attached = ring::ShmRing::attach(UniqueFd(::fcntl(other->fd(), F_DUPFD_CLOEXEC, 0)));
  ASSERT_TRUE(attached.ok() && id.ok());
  std::vector<Batch> ours;
  std::vector<ring::Claim> theirs;
  std::mt19937 random(11);
  uint64_t next = options.first_ticket;
  for (int step = 0; step < 2000; ++step) {
    const size_t which = ours.empty() ? 0 : random() % ours.size();
    switch (random() % 6) {
      case 0:
      case 1: {
        auto our = producer.claim(0ns);
        const auto their = (*attached)->claim(*id, 0ns);
        ASSERT_EQ(our.ok(), their.ok()) << step;
        if (!our.ok()) {
          EXPECT_EQ(our.error().code == ErrorCode::kTimedOut,
                    their.status().code() == StatusCode::kTimedOut);
          break;
        }
        ASSERT_EQ(our->ticket(), their->ticket);
        ours.push_back(*std::move(our));
        theirs.push_back(*their);
        break;
      }
      case 2:
        if (ours.empty()) break;
        fill(producer, ours[which], ours[which].ticket());
        for (size_t tensor = 0; tensor < 2; ++tensor)
          for (uint64_t row = 0; row < 3; ++row) {
            const auto bytes = other->layout().row(theirs[which].slot, tensor, row);
            for (size_t i = 0; i < bytes.size(); ++i)
              bytes[i] = static_cast<std::byte>(ring::byte_for(
                  theirs[which].ticket, other->layout().offset(tensor) + row * bytes.size() + i));
            (*attached)->add_completed_samples(*id, 1);
          }
        ASSERT_TRUE(ours[which].publish());
        ASSERT_TRUE((*attached)->publish(*id, theirs[which]));
        std::swap(ours[which], ours.back());
        ours.pop_back();
        std::swap(theirs[which], theirs.back());
        theirs.pop_back();
        break;
      case 3:
        if (ours.empty() || random() % 3 != 0) break;
        (*attached)->abandon(*id, theirs[which]);
        ours[which].abandon();
        std::swap(ours[which], ours.back());
        ours.pop_back();
        std::swap(theirs[which], theirs.back());
        theirs.pop_back();
        break;
      case 4: {
        if (ours.empty() || random() % 4 != 0) break;
        const std::string reason(random() % 300, 'r');
        ours[which].report_sample_error(step, SampleError::kCorrupt, reason);
        (*attached)->report_sample_error({.ticket = theirs[which].ticket,
                                          .sample = static_cast<uint64_t>(step),
                                          .code = StatusCode::kCorrupt,
                                          .reason = reason});
        break;
      }
      case 5: {
        const auto our = ring_->pop(0ns);
        const auto their = other->pop(0ns);
        ASSERT_EQ(our.ok(), their.ok());
        if (!our.ok()) break;
        ASSERT_EQ(our->ticket, next++);
        EXPECT_TRUE(holds(our->slot, our->ticket));
        ring_->release(our->ticket);
        other->release(their->ticket);
        EXPECT_EQ(ring_->drain_sample_errors().size(), other->drain_sample_errors().size());
        break;
      }
    }
    ASSERT_EQ(ring::bytes_of(*ring_), ring::bytes_of(*other)) << "step " << step;
  }
  EXPECT_EQ(next, options.end_ticket);
  EXPECT_EQ(producer.claim(0ns).error().code, ErrorCode::kEnded);
}

// ---- Waiting

TEST_F(ProducerTest, WakesOnReleaseAbandonRequeueAndClose) {
  open({.slots = 1});
  Producer producer = attach_producer();
  Producer other = attach_producer();
  const auto wake = [&](const std::function<void()>& event) {
    std::optional<Result<Batch>> found;
    {
      const std::jthread waiter([&] { found = producer.claim(kTestTimeout); });
      EXPECT_TRUE(test::eventually([&] {
        ring::RingHeader header;
        std::memcpy(&header, ring::bytes_of(*ring_).data(), sizeof header);
        return header.slot_freed.waiters > 0;
      }));
      event();
    }
    return *std::move(found);
  };
  auto held = other.claim(kTestTimeout);
  ASSERT_TRUE(held.ok());
  auto batch = wake([&] { held->abandon(); });
  ASSERT_TRUE(batch.ok());
  ASSERT_TRUE(batch->publish());
  batch = wake([&] {
    ASSERT_TRUE(ring_->pop(kTestTimeout).ok());
    ring_->release(0);
  });
  ASSERT_TRUE(batch.ok());
  batch->abandon();
  held = other.claim(kTestTimeout);
  ASSERT_TRUE(held.ok());
  batch = wake([&] { ring_->requeue(ids_[1]); });
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(wake([&] { ring_->close(); }).error().code, ErrorCode::kClosed);
}

TEST_F(ProducerTest, DeliversEveryTicketOnceFromThreadsOfBothKinds) {
  constexpr uint64_t kTickets = 3000;
  open({.slots = 3, .end_ticket = kTickets});
  std::vector<Producer> producers{attach_producer(), attach_producer()};
  const auto own = ring_->add_producer("own");
  ASSERT_TRUE(own.ok());
  std::atomic<uint64_t> published{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([this, i, &published, producer = producers[i % 2]]() mutable {
      std::mt19937 random(i);
      while (true) {
        auto batch = producer.claim(kTestTimeout);
        if (!batch) return;
        if (random() % 8 == 0) continue;  // abandoned
        fill(producer, *batch, batch->ticket());
        if (batch->publish()) published.fetch_add(1);
      }
    });
  threads.emplace_back([&] {
    while (true) {
      const auto claim = ring_->claim(*own, kTestTimeout);
      if (!claim.ok()) return;
      ring::fill(claim->slot, claim->ticket);
      if (ring_->publish(*own, *claim)) published.fetch_add(1);
    }
  });
  for (uint64_t ticket = 0; ticket < kTickets; ++ticket)
    ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  threads.clear();
  EXPECT_EQ(published.load(), kTickets);
  ring::RingHeader header;
  std::memcpy(&header, ring::bytes_of(*ring_).data(), sizeof header);
  EXPECT_EQ(header.slot_freed.waiters, 0u);
  EXPECT_EQ(header.batch_ready.waiters, 0u);
}

}  // namespace
}  // namespace stoker::producer
