// MappedRing: the ring as one process has it mapped. ShmRing says what it does; this header is for
// the three files that do it: supervised_ring.cc, produced_ring.cc and consumed_ring.cc, one for
// each party.
//
// Threads:  as ShmRing.
// Blocking: as ShmRing; wait_for() is the one place that waits.
// Format:   ring_layout.h.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "shared/ring/error_report_queue.h"
#include "shared/ring/event_count.h"
#include "shared/ring/producer_table.h"
#include "shared/ring/ring_layout.h"
#include "shared/ring/segment.h"
#include "shared/ring/segment_header.h"
#include "shared/ring/shm_ring.h"

namespace stoker::ring {

class MappedRing final : public ShmRing {
 public:
  MappedRing(Segment segment, SegmentView known);

  int fd() const override { return segment_.fd(); }
  const BatchLayout& layout() const override { return view_.layout; }
  uint64_t slots() const override { return view_.header.slots; }
  std::span<std::byte> payload() override {
    return segment_.bytes().subspan(view_.header.payload,
                                    view_.header.slots * view_.header.slot_stride);
  }

  Result<ProducerId> add_producer(std::string_view name) override { return producers_.add(name); }
  void set_producer_pid(ProducerId producer, int pid) override;
  uint64_t requeue(ProducerId crashed) override;
  ProducerProgress progress(ProducerId producer) const override;

  Result<Claim> claim(ProducerId producer, std::chrono::nanoseconds timeout) override;
  bool publish(ProducerId producer, const Claim& claim) override;
  void abandon(ProducerId producer, const Claim& claim) override;
  void report_sample_error(const SampleError& error) override { reports_.report(error); }
  void add_completed_samples(ProducerId producer, uint64_t count) override;
  void add_read_time(const ReadTime& spent) override;
  void set_active_workers(uint32_t threads) override {
    std::atomic_ref(header_.active_workers).store(threads);
  }
  uint32_t active_workers() const override {
    return std::atomic_ref(header_.active_workers).load(std::memory_order_relaxed);
  }

  Result<ReadyBatch> pop(std::chrono::nanoseconds timeout) override;
  void release(uint64_t ticket) override;
  std::vector<SampleError> drain_sample_errors() override { return reports_.drain(); }

  void close() override;
  bool closed() const override { return std::atomic_ref(header_.closed).load() != 0; }
  RingCounters counters() const override;

 private:
  // What one look at the ring gives: a claim or batch, trouble, or neither (wait).
  template <typename T>
  using PollResult = std::optional<Result<T>>;

  static Status closed_status() { return Status(StatusCode::kClosed, "the ring is closed"); }
  static Status ended_status() { return Status(StatusCode::kClosed, "end of data"); }
  PollResult<Claim> poll_ticket(ProducerId producer);
  PollResult<ReadyBatch> poll_batch();

  struct Wait {
    EventCount& event;
    uint32_t* waiting;    // of the producer; null for the consumer
    uint64_t& waited_ns;  // counter
    const char* timed_out;
  };
  template <typename T, typename PollFunction>
  static Result<T> wait_for(Wait wait, std::chrono::nanoseconds timeout, PollFunction poll);

  uint32_t turn_of(uint64_t ticket) const {
    return static_cast<uint32_t>(ticket / view_.header.slots);
  }
  std::atomic_ref<uint64_t> word_of(uint64_t ticket) const {
    return std::atomic_ref(slot_records_[ticket % view_.header.slots].word);
  }
  std::span<std::byte> slot_of(uint64_t ticket) const {
    const uint64_t slot = ticket % view_.header.slots;
    return segment_.bytes().subspan(view_.header.payload + slot * view_.header.slot_stride,
                                    view_.header.slot_bytes);
  }
  uint64_t claimed_word(ProducerId producer, uint64_t ticket) const {
    return encode({Phase::kClaimed, producer.index, producer.generation, turn_of(ticket)});
  }
  uint64_t plain_word(Phase phase, uint64_t ticket) const {
    return encode({.phase = phase, .turn = turn_of(ticket)});
  }
  // The lowest ticket not yet taken. Only the consumer moves it.
  uint64_t next_ticket() const { return std::atomic_ref(header_.next_ticket).load(); }
  // Statistics: nothing depends on their order.
  static void add(uint64_t& counter, std::chrono::nanoseconds spent) {
    std::atomic_ref(counter).fetch_add(static_cast<uint64_t>(spent.count()),
                                       std::memory_order_relaxed);
  }

  // Constant after construction.
  Segment segment_;
  SegmentView view_;

  // In the segment; own synchronisation (ring_layout.h).
  RingHeader& header_;
  std::span<SlotRecord> slot_records_;
  mutable ProducerTable producers_;
  ErrorReportQueue reports_;
  EventCount slot_freed_;
  EventCount batch_ready_;
};

template <typename T, typename PollFunction>
Result<T> MappedRing::wait_for(Wait wait, std::chrono::nanoseconds timeout, PollFunction poll) {
  PollResult<T> found = poll();
  if (found) return *std::move(found);
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::nanoseconds kMaxSleep = std::chrono::milliseconds(100);
  const auto start = Clock::now();
  const auto max_wait = Clock::time_point::max() - start;
  const auto deadline = start + std::min<std::chrono::nanoseconds>(timeout, max_wait);
  auto now = start;
  while (!found && now < deadline) {
    // In this order, so that a kill in between leaves the event's count too high rather than too
    // low.
    const uint32_t epoch = wait.event.enter();
    if (wait.waiting != nullptr) std::atomic_ref(*wait.waiting).fetch_add(1);
    found = poll();
    if (!found)
      wait.event.sleep(epoch, std::min<std::chrono::nanoseconds>(deadline - now, kMaxSleep));
    if (wait.waiting != nullptr) std::atomic_ref(*wait.waiting).fetch_sub(1);
    wait.event.leave();
    if (!found) found = poll();
    now = Clock::now();
  }
  add(wait.waited_ns, now - start);
  if (found) return *std::move(found);
  return Status(StatusCode::kTimedOut, wait.timed_out);
}

}  // namespace stoker::ring
