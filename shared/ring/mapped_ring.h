// MappedRing and its parts in shared memory: EventCount, ProducerTable, ErrorReportQueue.
//
// Format:   ring_layout.h.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/coordinator.h"
#include "shared/base/status.h"
#include "shared/ring/atomics.h"
#include "shared/ring/ring_layout.h"
#include "shared/ring/segment.h"
#include "shared/ring/segment_header.h"
#include "shared/ring/shm_ring.h"

namespace stoker::ring {

// EventCount: waits for a change of shared memory across processes, without a system call if there
// is no waiter.
//
//   waiter:   enter(); check again; sleep() if nothing has changed; leave()
//   notifier: change something; notify()
//
// Threads:  any number of waiters and notifiers, in any process that maps the words.
// Blocking: sleep() at most `timeout`; it can return early.
// Crash:    a killed waiter leaves `waiters` too high. Each notify() then makes an unnecessary
//           system call.
class EventCount {
 public:
  explicit EventCount(EventWords& words) : words_(words) {}

  // All four are sequentially consistent: either the waiter sees the change after enter(), or the
  // notifier sees the waiter.
  uint32_t enter();  // returns the epoch for sleep()
  void sleep(uint32_t epoch, std::chrono::nanoseconds timeout);
  void leave(uint32_t waiters = 1);
  void notify();      // wakes all waiters
  void notify_one();  // if the change is useful to one waiter only

 private:
  void wake_waiters(int max_waiters);

  EventWords& words_;
};

// ProducerTable: registry of the producers. A row is reused only under a higher generation.
//
// The creator of the ring decides from a private copy and only writes to the words of the rows,
// because every producer can overwrite them.
//
// Threads:  every method may be called from any thread.
// Crash:    a row stays in use until remove(), which only the supervisor of a dead producer calls.
class ProducerTable {
 public:
  // `own_words`: the creator's copy of the words, one per row; empty in other processes.
  ProducerTable(std::span<ProducerRecord> rows, std::span<uint64_t> own_words)
      : rows_(rows), own_words_(own_words) {}

  Result<ProducerId> add(std::string_view name);  // kBusy
  bool alive(ProducerId producer) const;
  // Whether the producer is alive or retired.
  bool is_registered(ProducerId producer) const;
  // Prevents further claims by the producer; does nothing unless it is alive.
  void retire(ProducerId producer);
  // Number of its threads that were waiting; only after the producer has ended.
  uint32_t take_waiting(ProducerId producer);
  void free_row(ProducerId producer);  // after retire(), when none of its claims is left
  ProducerRecord* find_row(ProducerId producer);

 private:
  // Does nothing unless the word is `expected`.
  void replace(ProducerId producer, uint64_t expected, uint64_t word);
  // The word that decides.
  AtomicRef<uint64_t> word_at(uint32_t index) const {
    return atomic(own_words_.empty() ? rows_[index].word : own_words_[index]);
  }
  void store(uint32_t index, uint64_t word);

  std::span<ProducerRecord> rows_;
  std::span<uint64_t> own_words_;
};

// ErrorReportQueue: bounded, lock-free queue of sample error reports from any producer to the
// consumer.
//
// A report belongs to the ticket that its writer holds. If the writer is killed, its incomplete
// reports can therefore be found and cleared when its tickets are requeued.
//
// Threads:  report() from any thread; drain() from one thread at a time.
// Blocking: report() waits at most one second while the queue is full, and not at all once `closed`
//           is set. It then counts the report as lost. Further calls do not wait until a report
//           finds space again, because the queue is not being drained.
// Crash:    a report becomes visible only when it is complete, because its word is stored last.
class ErrorReportQueue {
 public:
  // `closed`: as in the header.
  ErrorReportQueue(RingHeader& header, uint32_t& closed, std::span<ReportRecord> entries)
      : header_(header), closed_(closed), entries_(entries) {}

  void report(const SampleError& error);
  // In the order in which they were reported. Frees entries that no producer can be writing: those
  // of tickets before `next_ticket` and those in an unknown state.
  std::vector<SampleError> drain(uint64_t next_ticket);
  // Clears the incomplete reports of the dead owner of `ticket`. Call it before the ticket is
  // requeued.
  void clear_unfinished(uint64_t ticket);

 private:
  bool try_report(const SampleError& error);  // false: the queue is full

  RingHeader& header_;
  uint32_t& closed_;
  std::span<ReportRecord> entries_;
  // Local to this process; written by all reporting threads. A hint without ordering requirements.
  std::atomic<bool> is_drained_{true};
};

// MappedRing: the implementation of ShmRing on a mapped segment.
//
// Every process that maps the segment can write to all of it. The creator therefore keeps what it
// depends on in private memory (OwnState), stores copies in the segment for the producers, and
// never reads those back, except to detect that they were overwritten.
//
// Threads:  as ShmRing.
// Blocking: as ShmRing; only wait_for() waits.
// Format:   ring_layout.h.
class MappedRing final : public ShmRing {
 public:
  enum class Role { kCreator, kAttached };
  MappedRing(Segment segment, SegmentView known, Role role, const TicketShare& share = {});
  // Of a ring that is not used any more, except to destroy it.
  Segment take_segment() { return std::move(segment_); }

  // Allocates the slots of the creator from number `first` on (as given to initialize_segment()), in
  // the order of their tickets, in a thread. Until all are allocated, pop() waits, because the slot of
  // a popped ticket could be claimed before theirs. `allocate`: null: Segment::allocate().
  using Allocate = std::function<Status(uint64_t offset, uint64_t bytes)>;
  void start_allocation(uint64_t first, Allocate allocate = nullptr);

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
  uint64_t retire(ProducerId hung) override;
  ProducerProgress progress(ProducerId producer) const override;

  Result<Claim> claim(ProducerId producer, std::chrono::nanoseconds timeout) override;
  bool publish(ProducerId producer, const Claim& claim) override;
  void abandon(ProducerId producer, const Claim& claim) override;
  void report_sample_error(const SampleError& error) override;
  void add_completed_samples(ProducerId producer, uint64_t count) override;
  void add_read_time(const ReadTime& spent) override;
  void set_active_workers(uint32_t threads) override {
    atomic(active_workers_).store(threads);
    atomic(header_.active_workers).store(threads);
  }
  uint32_t active_workers() const override {
    return atomic(active_workers_).load(std::memory_order_relaxed);
  }

  Status end_at(uint64_t ticket) override;
  uint64_t first_unpublished() const override;

  Result<ReadyBatch> pop(std::chrono::nanoseconds timeout) override;
  void release(uint64_t ticket) override;
  std::vector<SampleError> drain_sample_errors() override;

  void close() override;
  bool closed() const override { return atomic(closed_).load() != 0; }
  bool has_ended() const override;
  Status check_header() const override { return check_header(/*concurrent_takes=*/1); }
  RingCounters counters() const override;

 private:
  // Result of one poll: a claim or batch, an error, or nullopt (wait).
  template <typename T>
  using PollResult = std::optional<Result<T>>;

  static Status closed_status() { return Status(StatusCode::kClosed, "the ring is closed"); }
  static Status ended_status() { return Status(StatusCode::kClosed, "end of data"); }
  // All below have the numbers of the segment, in which the tickets of the share are dense.
  uint64_t to_ticket(uint64_t number) const {
    const uint64_t first = view_.header.first_ticket;
    return first + share_.ticket_at(number - first);
  }
  uint64_t to_number(uint64_t ticket) const {
    const uint64_t first = view_.header.first_ticket;
    return first + share_.count_before(ticket - first);
  }
  PollResult<Claim> poll_ticket(ProducerId producer);
  void requeue_ticket(ProducerId producer, uint64_t ticket);
  uint64_t find_unpublished() const;
  PollResult<ReadyBatch> poll_batch();
  Status check_header(uint64_t concurrent_takes) const;
  Status allocate_slots(uint64_t first, const Allocate& allocate, const std::stop_token& stop);
  bool can_become_ready(uint64_t ticket, uint64_t word) const;
  Status overwritten(const std::string& what) const;
  // False: the word was overwritten.
  bool free_slot(uint64_t for_ticket, uint64_t in_use);
  void wake_producers(uint64_t released);
  uint64_t requeue_claims(ProducerId producer);

  struct Wait {
    EventCount& event;
    uint32_t* waiting;    // waiting counter of the producer; null for the consumer
    uint64_t& waited_ns;  // counter
    const char* timed_out;
  };
  template <typename T, typename PollFunction>
  static Result<T> wait_for(Wait wait, std::chrono::nanoseconds timeout, PollFunction poll);

  uint32_t turn_of(uint64_t ticket) const {
    return static_cast<uint32_t>(ticket / view_.header.slots);
  }
  AtomicRef<uint64_t> word_of(uint64_t ticket) const {
    return atomic(slot_records_[ticket % view_.header.slots].word);
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
  // The lowest ticket that has not been popped. Written by the consumer only.
  uint64_t next_ticket() const { return atomic(next_ticket_).load(); }
  void store_next_ticket(uint64_t ticket) {
    atomic(next_ticket_).store(ticket);
    atomic(header_.next_ticket).store(ticket);
  }
  // 1 + the ticket whose batch the consumer holds in this slot, 0 if none.
  uint64_t& held_in(uint64_t ticket) { return own_.held[ticket % view_.header.slots]; }
  uint64_t held_in(uint64_t ticket) const { return own_.held[ticket % view_.header.slots]; }
  // Statistics; no ordering required.
  static void add(uint64_t& counter, std::chrono::nanoseconds spent) {
    atomic(counter).fetch_add(static_cast<uint64_t>(spent.count()), std::memory_order_relaxed);
  }

  // What the creator knows. Accessed as the fields of the same names in the segment, through
  // atomic(); `held` by the consumer thread only.
  struct OwnState {
    uint64_t next_ticket = 0;
    uint32_t closed = 0;
    uint32_t active_workers = 0;
    std::vector<uint64_t> producer_words;
    std::vector<uint64_t> held;  // by slot
  };

  // Constant after construction.
  Segment segment_;
  SegmentView view_;
  const TicketShare share_;
  const Role role_;

  OwnState own_;  // of the creator; empty in other processes

  // One past the last ticket. Lowered by end_at(), only in this process.
  std::atomic<uint64_t> end_ticket_;

  // Whether all slots of the creator are. Set by the thread of allocation_, after their words.
  std::atomic<bool> is_allocated_{true};

  // In the segment; own synchronization (ring_layout.h).
  RingHeader& header_;
  std::span<SlotRecord> slot_records_;

  // In own_ for the creator, otherwise in the segment.
  uint64_t& next_ticket_;
  uint32_t& closed_;
  uint32_t& active_workers_;

  mutable ProducerTable producers_;
  ErrorReportQueue reports_;
  EventCount slot_freed_;
  EventCount batch_ready_;

  // Null: there is no thread. Last member, because the thread uses the others.
  std::unique_ptr<Coordinator> allocation_;
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
    // In this order, so that a kill in between leaves the waiter count of the event too high rather
    // than too low.
    const uint32_t epoch = wait.event.enter();
    if (wait.waiting != nullptr) atomic(*wait.waiting).fetch_add(1);
    found = poll();
    if (!found)
      wait.event.sleep(epoch, std::min<std::chrono::nanoseconds>(deadline - now, kMaxSleep));
    if (wait.waiting != nullptr) atomic(*wait.waiting).fetch_sub(1);
    wait.event.leave();
    if (!found) found = poll();
    now = Clock::now();
  }
  add(wait.waited_ns, now - start);
  if (found) return *std::move(found);
  return Status(StatusCode::kTimedOut, wait.timed_out);
}

}  // namespace stoker::ring
