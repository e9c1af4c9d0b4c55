#include "shared/ring/shm_ring.h"

#include <algorithm>
#include <utility>

#include "shared/ring/event_count.h"
#include "shared/ring/geometry.h"
#include "shared/ring/producer_table.h"
#include "shared/ring/report_area.h"
#include "shared/ring/ring_layout.h"
#include "shared/ring/segment.h"

namespace stoker::ring {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;
constexpr nanoseconds kLongestSleep = std::chrono::milliseconds(100);

template <typename T>
std::span<T> table(std::span<std::byte> segment, uint64_t offset, size_t count) {
  return {reinterpret_cast<T*>(segment.data() + offset), count};
}

Status closed_status() { return Status(Code::kClosed, "the ring is closed"); }
Status ended_status() { return Status(Code::kClosed, "end of data"); }

class MappedRing final : public ShmRing {
 public:
  MappedRing(Segment segment, KnownSegment known)
      : segment_(std::move(segment)),
        known_(std::move(known)),
        header_(*reinterpret_cast<RingHeader*>(segment_.bytes().data())),
        slot_records_(
            table<SlotRecord>(segment_.bytes(), known_.header.slot_table, known_.header.slots)),
        producers_(
            table<ProducerRecord>(segment_.bytes(), known_.header.producer_table, kMaxProducers)),
        reports_(header_,
                 table<ReportRecord>(segment_.bytes(), known_.header.report_table, kReports)),
        slot_freed_(header_.slot_freed),
        batch_ready_(header_.batch_ready) {}

  int fd() const override { return segment_.fd(); }
  const BatchLayout& layout() const override { return known_.layout; }
  uint64_t slots() const override { return known_.header.slots; }
  std::span<std::byte> payload() override {
    return segment_.bytes().subspan(known_.header.payload,
                                    known_.header.slots * known_.header.slot_stride);
  }

  Result<ProducerId> add_producer(std::string_view name) override { return producers_.add(name); }
  void set_producer_pid(ProducerId producer, int pid) override;
  uint64_t reissue(ProducerId dead) override;

  Result<Claim> claim(ProducerId producer, nanoseconds timeout) override;
  bool publish(ProducerId producer, const Claim& claim) override;
  void abandon(ProducerId producer, const Claim& claim) override;
  void report_bad_sample(const BadSample& bad) override { reports_.report(bad); }
  void add_read_time(nanoseconds spent) override { add(header_.read_ns, spent); }

  Result<ReadyBatch> pop(nanoseconds timeout) override;
  void release(uint64_t ticket) override;
  std::vector<BadSample> take_bad_samples() override { return reports_.take(); }

  void close() override;
  bool closed() const override { return std::atomic_ref(header_.closed).load() != 0; }
  RingCounters counters() const override;

 private:
  // What one look at the ring gives: a claim or batch, trouble, or neither (wait).
  template <typename T>
  using Look = std::optional<Result<T>>;

  Look<Claim> look_for_ticket(ProducerId producer);
  Look<ReadyBatch> look_for_batch();

  struct Wait {
    EventCount& event;
    uint32_t* waiting;    // of the producer; null for the consumer
    uint64_t& waited_ns;  // counter
    const char* timed_out;
  };
  template <typename T, typename LookFunction>
  static Result<T> wait_for(Wait wait, nanoseconds timeout, LookFunction look);

  uint32_t turn_of(uint64_t ticket) const {
    return static_cast<uint32_t>(ticket / known_.header.slots);
  }
  std::atomic_ref<uint64_t> word_of(uint64_t ticket) const {
    return std::atomic_ref(slot_records_[ticket % known_.header.slots].word);
  }
  std::span<std::byte> slot_of(uint64_t ticket) const {
    const uint64_t slot = ticket % known_.header.slots;
    return segment_.bytes().subspan(known_.header.payload + slot * known_.header.slot_stride,
                                    known_.header.slot_bytes);
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
  static void add(uint64_t& counter, nanoseconds spent) {
    std::atomic_ref(counter).fetch_add(static_cast<uint64_t>(spent.count()),
                                       std::memory_order_relaxed);
  }

  // Constant after construction.
  Segment segment_;
  KnownSegment known_;

  // In the segment; own synchronisation (ring_layout.h).
  RingHeader& header_;
  std::span<SlotRecord> slot_records_;
  mutable ProducerTable producers_;
  ReportArea reports_;
  EventCount slot_freed_;
  EventCount batch_ready_;
};

template <typename T, typename LookFunction>
Result<T> MappedRing::wait_for(Wait wait, nanoseconds timeout, LookFunction look) {
  Look<T> found = look();
  if (found) return *std::move(found);
  const auto start = Clock::now();
  const auto longest = Clock::time_point::max() - start;
  const auto deadline = start + std::min<nanoseconds>(timeout, longest);
  auto now = start;
  while (!found && now < deadline) {
    // In this order, so that a kill in between leaves the event's count too high rather than too
    // low.
    const uint32_t epoch = wait.event.enter();
    if (wait.waiting != nullptr) std::atomic_ref(*wait.waiting).fetch_add(1);
    found = look();
    if (!found) wait.event.sleep(epoch, std::min<nanoseconds>(deadline - now, kLongestSleep));
    if (wait.waiting != nullptr) std::atomic_ref(*wait.waiting).fetch_sub(1);
    wait.event.leave();
    if (!found) found = look();
    now = Clock::now();
  }
  add(wait.waited_ns, now - start);
  if (found) return *std::move(found);
  return Status(Code::kTimedOut, wait.timed_out);
}

// ---- Supervisor

void MappedRing::set_producer_pid(ProducerId producer, int pid) {
  if (producers_.alive(producer)) std::atomic_ref(producers_.maybe_row(producer)->pid).store(pid);
}

uint64_t MappedRing::reissue(ProducerId dead) {
  uint32_t waiting = 0;
  if (!producers_.retire(dead, waiting)) return 0;
  if (waiting > 0) slot_freed_.leave(waiting);
  uint64_t handed_back = 0;
  const uint64_t next = next_ticket();
  for (uint64_t ticket = next; ticket < next + slots(); ++ticket) {
    uint64_t expected = claimed_word(dead, ticket);
    if (word_of(ticket).load() != expected) continue;
    reports_.clear_unfinished(ticket);
    if (word_of(ticket).compare_exchange_strong(expected, plain_word(Phase::kReissue, ticket)))
      ++handed_back;
  }
  std::atomic_ref(header_.reissued).fetch_add(handed_back, std::memory_order_relaxed);
  producers_.free_row(dead);
  slot_freed_.notify();
  return handed_back;
}

// ---- Producer

std::optional<Result<Claim>> MappedRing::look_for_ticket(ProducerId producer) {
  if (closed()) return closed_status();
  if (!producers_.alive(producer))
    return Status(Code::kMismatch, "producer " + std::to_string(producer.index) + " generation " +
                                       std::to_string(producer.generation) + " is not in the ring");
  const uint64_t end = known_.header.end_ticket;
  const uint64_t next = next_ticket();
  const uint64_t limit = std::min(next + slots(), end);
  bool all_filled = limit == end;
  for (uint64_t ticket = next; ticket < limit; ++ticket) {
    const auto word = word_of(ticket);
    uint64_t seen = word.load();
    while (seen == plain_word(Phase::kFree, ticket) ||
           seen == plain_word(Phase::kReissue, ticket)) {
      if (!word.compare_exchange_strong(seen, claimed_word(producer, ticket))) continue;
      // Either reissue() saw the claim, or this sees that the producer was taken out (both are
      // seq_cst).
      if (producers_.alive(producer)) return Claim{.ticket = ticket, .slot = slot_of(ticket)};
      abandon(producer, {.ticket = ticket, .slot = {}});
      return Status(Code::kMismatch, "this producer was taken out of the ring");
    }
    all_filled = all_filled && seen == plain_word(Phase::kReady, ticket);
  }
  if (all_filled) return ended_status();
  return std::nullopt;
}

Result<Claim> MappedRing::claim(ProducerId producer, nanoseconds timeout) {
  ProducerRecord* row = producers_.maybe_row(producer);
  const Wait wait{.event = slot_freed_,
                  .waiting = row != nullptr ? &row->waiting : nullptr,
                  .waited_ns = header_.wait_slot_ns,
                  .timed_out = "no free slot"};
  return wait_for<Claim>(wait, timeout, [this, producer] { return look_for_ticket(producer); });
}

bool MappedRing::publish(ProducerId producer, const Claim& claim) {
  uint64_t expected = claimed_word(producer, claim.ticket);
  // Release: whoever sees the word sees the slot's bytes.
  if (!word_of(claim.ticket)
           .compare_exchange_strong(expected, plain_word(Phase::kReady, claim.ticket)))
    return false;
  std::atomic_ref(producers_.maybe_row(producer)->published)
      .fetch_add(1, std::memory_order_relaxed);
  batch_ready_.notify();
  return true;
}

void MappedRing::abandon(ProducerId producer, const Claim& claim) {
  uint64_t expected = claimed_word(producer, claim.ticket);
  if (word_of(claim.ticket)
          .compare_exchange_strong(expected, plain_word(Phase::kReissue, claim.ticket)))
    slot_freed_.notify();
}

// ---- Consumer

std::optional<Result<ReadyBatch>> MappedRing::look_for_batch() {
  if (closed()) return closed_status();
  const uint64_t ticket = next_ticket();
  if (ticket >= known_.header.end_ticket) return ended_status();
  uint64_t seen = word_of(ticket).load(std::memory_order_acquire);
  if (seen == plain_word(Phase::kReady, ticket)) {
    if (!word_of(ticket).compare_exchange_strong(seen, plain_word(Phase::kInUse, ticket)))
      return std::nullopt;
    std::atomic_ref(header_.next_ticket).store(ticket + 1);
    return ReadyBatch{.ticket = ticket, .slot = slot_of(ticket)};
  }
  const SlotState state = decode(seen);
  const bool still_held = state.phase == Phase::kInUse && state.turn == turn_of(ticket) - 1;
  const bool on_its_way = state.turn == turn_of(ticket) &&
                          (state.phase == Phase::kFree || state.phase == Phase::kClaimed ||
                           state.phase == Phase::kReady || state.phase == Phase::kReissue);
  if (still_held || on_its_way) return std::nullopt;
  return Status(Code::kCorrupt, "ring slot " + std::to_string(ticket % slots()) + " holds state " +
                                    std::to_string(seen) + " instead of ticket " +
                                    std::to_string(ticket) +
                                    ": a reader process wrote over the ring");
}

Result<ReadyBatch> MappedRing::pop(nanoseconds timeout) {
  const Wait wait{.event = batch_ready_,
                  .waiting = nullptr,
                  .waited_ns = header_.wait_batch_ns,
                  .timed_out = "no batch ready"};
  return wait_for<ReadyBatch>(wait, timeout, [this] { return look_for_batch(); });
}

void MappedRing::release(uint64_t ticket) {
  uint64_t expected = plain_word(Phase::kInUse, ticket);
  if (word_of(ticket).compare_exchange_strong(expected, plain_word(Phase::kFree, ticket + slots())))
    slot_freed_.notify();
}

void MappedRing::close() {
  std::atomic_ref(header_.closed).store(1);
  slot_freed_.notify();
  batch_ready_.notify();
}

RingCounters MappedRing::counters() const {
  const auto read = [](uint64_t& counter) {
    return std::atomic_ref(counter).load(std::memory_order_relaxed);
  };
  const uint64_t next = next_ticket();
  RingCounters counters{.consumed = next - known_.header.first_ticket,
                        .reissued = read(header_.reissued),
                        .bad_samples = read(header_.bad_samples),
                        .lost_reports = read(header_.lost_reports),
                        .read_ns = read(header_.read_ns),
                        .wait_slot_ns = read(header_.wait_slot_ns),
                        .wait_batch_ns = read(header_.wait_batch_ns)};
  for (uint64_t ticket = next; ticket < next + slots(); ++ticket)
    if (word_of(ticket).load(std::memory_order_relaxed) == plain_word(Phase::kReady, ticket))
      ++counters.ready;
  counters.published = counters.consumed + counters.ready;
  return counters;
}

}  // namespace

Result<std::unique_ptr<ShmRing>> ShmRing::create(const BatchLayout& layout,
                                                 const RingSettings& settings) {
  STOKER_ASSIGN_OR_RETURN(const RingHeader header, describe(layout, settings));
  STOKER_ASSIGN_OR_RETURN(Segment segment, Segment::create(header.segment_bytes));
  write_initial(segment.bytes(), header, layout);
  return std::unique_ptr<ShmRing>(
      std::make_unique<MappedRing>(std::move(segment), KnownSegment{header, layout}));
}

Result<std::unique_ptr<ShmRing>> ShmRing::attach(UniqueFd fd) {
  STOKER_ASSIGN_OR_RETURN(Segment segment, Segment::attach(std::move(fd)));
  STOKER_ASSIGN_OR_RETURN(KnownSegment known, read_layout(segment.bytes()));
  return std::unique_ptr<ShmRing>(
      std::make_unique<MappedRing>(std::move(segment), std::move(known)));
}

}  // namespace stoker::ring
