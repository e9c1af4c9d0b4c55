#include "shared/ring/mapped_ring.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>

namespace stoker::ring {

uint32_t EventCount::enter() {
  std::atomic_ref(words_.waiters).fetch_add(1);
  return std::atomic_ref(words_.epoch).load();
}

void EventCount::sleep(uint32_t epoch, std::chrono::nanoseconds timeout) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  timespec relative{};
  relative.tv_sec = seconds.count();
  relative.tv_nsec = (timeout - seconds).count();
  // Not FUTEX_WAIT_PRIVATE (which std::atomic::wait uses): it is keyed by the virtual address of
  // this process, so a wake from another process would not reach it. The result is ignored because
  // the caller polls again in any case.
  ::syscall(SYS_futex, &words_.epoch, FUTEX_WAIT, epoch, &relative, nullptr, 0);
}

void EventCount::leave(uint32_t waiters) { std::atomic_ref(words_.waiters).fetch_sub(waiters); }

void EventCount::wake_waiters(int max_waiters) {
  std::atomic_ref(words_.epoch).fetch_add(1);
  if (std::atomic_ref(words_.waiters).load() > 0)
    ::syscall(SYS_futex, &words_.epoch, FUTEX_WAKE, max_waiters, nullptr, nullptr, 0);
}

void EventCount::notify() { wake_waiters(INT_MAX); }
void EventCount::notify_one() { wake_waiters(1); }

namespace {

enum class RowState : uint64_t { kFree = 0, kAlive = 1, kRetired = 2 };

uint64_t word_of(uint32_t generation, RowState state) {
  return uint64_t{generation} << 32 | static_cast<uint64_t>(state);
}

}  // namespace

ProducerRecord* ProducerTable::find_row(ProducerId producer) {
  return producer.index < rows_.size() ? &rows_[producer.index] : nullptr;
}

Result<ProducerId> ProducerTable::add(std::string_view name) {
  for (uint32_t index = 0; index < rows_.size(); ++index) {
    ProducerRecord& row = rows_[index];
    const std::atomic_ref word(row.word);
    uint64_t seen = word.load();
    const auto generation = static_cast<uint32_t>(seen >> 32);
    if (seen != word_of(generation, RowState::kFree) || generation >= kMaxGeneration) continue;
    // Marked as removed first: no claim may succeed before the row is initialized.
    if (!word.compare_exchange_strong(seen, word_of(generation + 1, RowState::kRetired))) continue;
    std::atomic_ref(row.pid).store(0);
    std::atomic_ref(row.waiting).store(0);
    std::atomic_ref(row.samples).store(0);
    std::atomic_ref(row.polls).store(0);
    std::memset(row.name, 0, sizeof(row.name));
    std::memcpy(row.name, name.data(), std::min(name.size(), sizeof(row.name) - 1));
    word.store(word_of(generation + 1, RowState::kAlive));
    return ProducerId{.index = index, .generation = generation + 1};
  }
  return Status(StatusCode::kBusy,
                "the ring's producer table is full (" + std::to_string(rows_.size()) + " rows)");
}

bool ProducerTable::alive(ProducerId producer) const {
  if (producer.index >= rows_.size()) return false;
  const std::atomic_ref word(rows_[producer.index].word);
  return word.load() == word_of(producer.generation, RowState::kAlive);
}

bool ProducerTable::remove(ProducerId producer, uint32_t& waiting) {
  ProducerRecord* row = find_row(producer);
  if (row == nullptr) return false;
  uint64_t expected = word_of(producer.generation, RowState::kAlive);
  if (!std::atomic_ref(row->word).compare_exchange_strong(
          expected, word_of(producer.generation, RowState::kRetired)))
    return false;
  waiting = std::atomic_ref(row->waiting).exchange(0);
  return true;
}

void ProducerTable::free_row(ProducerId producer) {
  if (ProducerRecord* row = find_row(producer))
    std::atomic_ref(row->word).store(word_of(producer.generation, RowState::kFree));
}

namespace {

using namespace std::chrono_literals;
constexpr auto kMaxWait = 1s;  // for space in the queue; it is drained about ten times a second
constexpr auto kPollInterval = 1ms;
constexpr uint64_t kFreeWord = 0;
constexpr uint64_t kPhaseMask = 0xf;

uint64_t word_of(uint64_t value, ReportPhase phase) {
  return value << 4 | static_cast<uint64_t>(phase);
}
bool has_phase(uint64_t word, ReportPhase phase) {
  return (word & kPhaseMask) == static_cast<uint64_t>(phase);
}

// At most kReasonBytes, without splitting a UTF-8 character.
size_t truncated_length(const std::string& reason) {
  if (reason.size() <= kReasonBytes) return reason.size();
  size_t length = kReasonBytes;
  while (length > 0 && (static_cast<unsigned char>(reason[length]) & 0xc0) == 0x80) --length;
  return length;
}

void write_fields(ReportRecord& entry, const SampleError& error) {
  entry.ticket = error.ticket;
  entry.sample = error.sample;
  entry.code = static_cast<uint32_t>(error.code);
  entry.length = static_cast<uint32_t>(truncated_length(error.reason));
  std::memcpy(entry.reason, error.reason.data(), entry.length);
}

SampleError read_fields(const ReportRecord& entry) {
  SampleError error{.ticket = entry.ticket, .sample = entry.sample};
  // The writer can be a faulty process, so all fields are validated.
  const bool known = entry.code >= 1 && entry.code <= static_cast<uint32_t>(StatusCode::kInternal);
  error.code = known ? static_cast<StatusCode>(entry.code) : StatusCode::kCorrupt;
  error.reason.assign(entry.reason, std::min<size_t>(entry.length, kReasonBytes));
  return error;
}

}  // namespace

void ErrorReportQueue::report(const SampleError& error) {
  std::atomic_ref(header_.sample_errors).fetch_add(1, std::memory_order_relaxed);
  const auto deadline = std::chrono::steady_clock::now() + kMaxWait;
  while (!try_report(error)) {
    if (std::atomic_ref(header_.closed).load() != 0) return;  // the batch will not be consumed
    if (is_drained_.load(std::memory_order_relaxed) &&
        std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kPollInterval);
      continue;
    }
    is_drained_.store(false, std::memory_order_relaxed);
    std::atomic_ref(header_.lost_reports).fetch_add(1, std::memory_order_relaxed);
    return;
  }
  is_drained_.store(true, std::memory_order_relaxed);
}

bool ErrorReportQueue::try_report(const SampleError& error) {
  const uint64_t writing = word_of(error.ticket, ReportPhase::kWriting);
  for (auto& entry : entries_) {
    const std::atomic_ref word(entry.word);
    uint64_t expected = kFreeWord;
    if (word.load(std::memory_order_relaxed) != kFreeWord ||
        !word.compare_exchange_strong(expected, writing, std::memory_order_acquire))
      continue;
    write_fields(entry, error);
    const uint64_t sequence =
        std::atomic_ref(header_.next_report).fetch_add(1, std::memory_order_relaxed);
    expected = writing;  // fails if the ticket was requeued meanwhile; its next owner then reports
    word.compare_exchange_strong(expected, word_of(sequence, ReportPhase::kComplete),
                                 std::memory_order_release);
    return true;
  }
  return false;
}

std::vector<SampleError> ErrorReportQueue::drain() {
  std::vector<std::pair<uint64_t, SampleError>> found;
  for (auto& entry : entries_) {
    const std::atomic_ref word(entry.word);
    const uint64_t seen = word.load(std::memory_order_acquire);
    if (!has_phase(seen, ReportPhase::kComplete)) continue;
    found.emplace_back(seen, read_fields(entry));
    word.store(kFreeWord, std::memory_order_release);
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<SampleError> reports;
  reports.reserve(found.size());
  for (auto& [sequence, error] : found) reports.push_back(std::move(error));
  return reports;
}

void ErrorReportQueue::clear_unfinished(uint64_t ticket) {
  for (auto& entry : entries_) {
    uint64_t expected = word_of(ticket, ReportPhase::kWriting);
    std::atomic_ref(entry.word)
        .compare_exchange_strong(expected, kFreeWord, std::memory_order_acq_rel);
  }
}

namespace {

template <typename T>
std::span<T> table(std::span<std::byte> segment, uint64_t offset, size_t count) {
  return {reinterpret_cast<T*>(segment.data() + offset), count};
}

}  // namespace

MappedRing::MappedRing(Segment segment, SegmentView known)
    : segment_(std::move(segment)),
      view_(std::move(known)),
      header_(*reinterpret_cast<RingHeader*>(segment_.bytes().data())),
      slot_records_(
          table<SlotRecord>(segment_.bytes(), view_.header.slot_table, view_.header.slots)),
      producers_(
          table<ProducerRecord>(segment_.bytes(), view_.header.producer_table, kMaxProducers)),
      reports_(header_, table<ReportRecord>(segment_.bytes(), view_.header.report_table, kReports)),
      slot_freed_(header_.slot_freed),
      batch_ready_(header_.batch_ready) {}

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
  RingCounters counters{.consumed = next - view_.header.first_ticket,
                        .requeued = read(header_.requeued),
                        .sample_errors = read(header_.sample_errors),
                        .lost_reports = read(header_.lost_reports),
                        .read_ns = read(header_.read_ns),
                        .decode_ns = read(header_.decode_ns),
                        .transform_ns = read(header_.transform_ns),
                        .wait_slot_ns = read(header_.wait_slot_ns),
                        .wait_batch_ns = read(header_.wait_batch_ns)};
  for (uint64_t ticket = next; ticket < next + slots(); ++ticket)
    if (word_of(ticket).load(std::memory_order_relaxed) == plain_word(Phase::kReady, ticket))
      ++counters.ready;
  counters.published = counters.consumed + counters.ready;
  return counters;
}

Result<std::unique_ptr<ShmRing>> ShmRing::create(const BatchLayout& layout,
                                                 const RingOptions& options) {
  STOKER_ASSIGN_OR_RETURN(const RingHeader header, make_header(layout, options));
  STOKER_ASSIGN_OR_RETURN(Segment segment, Segment::create(header.segment_bytes));
  initialize_segment(segment.bytes(), header, layout);
  return std::unique_ptr<ShmRing>(
      std::make_unique<MappedRing>(std::move(segment), SegmentView{header, layout}));
}

Result<std::unique_ptr<ShmRing>> ShmRing::attach(UniqueFd fd) {
  STOKER_ASSIGN_OR_RETURN(Segment segment, Segment::attach(std::move(fd)));
  STOKER_ASSIGN_OR_RETURN(SegmentView known, read_layout(segment.bytes()));
  return std::unique_ptr<ShmRing>(
      std::make_unique<MappedRing>(std::move(segment), std::move(known)));
}

// ---- Supervisor: registering producers and requeueing the tickets of dead producers

void MappedRing::set_producer_pid(ProducerId producer, int pid) {
  if (producers_.alive(producer)) std::atomic_ref(producers_.find_row(producer)->pid).store(pid);
}

uint64_t MappedRing::requeue(ProducerId crashed) {
  uint32_t waiting = 0;
  if (!producers_.remove(crashed, waiting)) return 0;
  if (waiting > 0) slot_freed_.leave(waiting);
  uint64_t num_requeued = 0;
  const uint64_t next = next_ticket();
  for (uint64_t ticket = next; ticket < next + slots(); ++ticket) {
    uint64_t expected = claimed_word(crashed, ticket);
    if (word_of(ticket).load() != expected) continue;
    reports_.clear_unfinished(ticket);
    if (word_of(ticket).compare_exchange_strong(expected, plain_word(Phase::kRequeued, ticket)))
      ++num_requeued;
  }
  std::atomic_ref(header_.requeued).fetch_add(num_requeued, std::memory_order_relaxed);
  producers_.free_row(crashed);
  slot_freed_.notify();
  return num_requeued;
}

ProducerProgress MappedRing::progress(ProducerId producer) const {
  ProducerProgress progress;
  if (ProducerRecord* row = producers_.find_row(producer)) {
    progress.samples = std::atomic_ref(row->samples).load(std::memory_order_relaxed);
    progress.polls = std::atomic_ref(row->polls).load(std::memory_order_relaxed);
  }
  const uint64_t next = next_ticket();
  for (uint64_t ticket = next; ticket < next + slots(); ++ticket)
    if (word_of(ticket).load(std::memory_order_relaxed) == claimed_word(producer, ticket))
      ++progress.claims;
  return progress;
}

// ---- Producer: claim, publish, abandon

std::optional<Result<Claim>> MappedRing::poll_ticket(ProducerId producer) {
  if (closed()) return closed_status();
  if (!producers_.alive(producer))
    return Status(StatusCode::kMismatch, "producer " + std::to_string(producer.index) +
                                             " generation " + std::to_string(producer.generation) +
                                             " is not registered in the ring");
  std::atomic_ref(producers_.find_row(producer)->polls).fetch_add(1, std::memory_order_relaxed);
  const uint64_t end = view_.header.end_ticket;
  const uint64_t next = next_ticket();
  const uint64_t limit = std::min(next + slots(), end);
  bool all_filled = limit == end;
  for (uint64_t ticket = next; ticket < limit; ++ticket) {
    const auto word = word_of(ticket);
    uint64_t seen = word.load();
    while (seen == plain_word(Phase::kFree, ticket) ||
           seen == plain_word(Phase::kRequeued, ticket)) {
      if (!word.compare_exchange_strong(seen, claimed_word(producer, ticket))) continue;
      // Either requeue() saw the claim, or this check sees that the producer was removed (both are
      // seq_cst).
      if (producers_.alive(producer)) return Claim{.ticket = ticket, .slot = slot_of(ticket)};
      abandon(producer, {.ticket = ticket, .slot = {}});
      return Status(StatusCode::kMismatch, "this producer was removed from the ring");
    }
    all_filled = all_filled && seen == plain_word(Phase::kReady, ticket);
  }
  if (all_filled) return ended_status();
  return std::nullopt;
}

Result<Claim> MappedRing::claim(ProducerId producer, std::chrono::nanoseconds timeout) {
  ProducerRecord* row = producers_.find_row(producer);
  const Wait wait{.event = slot_freed_,
                  .waiting = row != nullptr ? &row->waiting : nullptr,
                  .waited_ns = header_.wait_slot_ns,
                  .timed_out = "no free slot"};
  return wait_for<Claim>(wait, timeout, [this, producer] { return poll_ticket(producer); });
}

void MappedRing::add_read_time(const ReadTime& spent) {
  add(header_.read_ns, spent.total);
  add(header_.decode_ns, spent.decode);
  add(header_.transform_ns, spent.transform);
}

bool MappedRing::publish(ProducerId producer, const Claim& claim) {
  uint64_t expected = claimed_word(producer, claim.ticket);
  // Release: a thread that sees the word also sees the bytes of the slot.
  if (!word_of(claim.ticket)
           .compare_exchange_strong(expected, plain_word(Phase::kReady, claim.ticket)))
    return false;
  std::atomic_ref(producers_.find_row(producer)->published).fetch_add(1, std::memory_order_relaxed);
  // The consumer waits for one ticket only; a wake-up for another ticket would cost it two system
  // calls.
  if (claim.ticket == next_ticket()) batch_ready_.notify();
  return true;
}

void MappedRing::abandon(ProducerId producer, const Claim& claim) {
  uint64_t expected = claimed_word(producer, claim.ticket);
  if (word_of(claim.ticket)
          .compare_exchange_strong(expected, plain_word(Phase::kRequeued, claim.ticket)))
    slot_freed_.notify();
}

void MappedRing::add_completed_samples(ProducerId producer, uint64_t count) {
  if (ProducerRecord* row = producers_.find_row(producer))
    std::atomic_ref(row->samples).fetch_add(count, std::memory_order_relaxed);
}

// ---- Consumer: batches in ticket order

std::optional<Result<ReadyBatch>> MappedRing::poll_batch() {
  if (closed()) return closed_status();
  const uint64_t ticket = next_ticket();
  if (ticket >= view_.header.end_ticket) return ended_status();
  // Sequentially consistent, like the preceding store of next_ticket: either this load sees the
  // batch, or its producer sees which ticket the consumer is waiting for (publish).
  uint64_t seen = word_of(ticket).load();
  if (seen == plain_word(Phase::kReady, ticket)) {
    if (!word_of(ticket).compare_exchange_strong(seen, plain_word(Phase::kInUse, ticket)))
      return std::nullopt;
    std::atomic_ref(header_.next_ticket).store(ticket + 1);
    return ReadyBatch{.ticket = ticket, .slot = slot_of(ticket)};
  }
  const SlotState state = decode(seen);
  const bool is_in_use = state.phase == Phase::kInUse && state.turn == turn_of(ticket) - 1;
  const bool is_pending = state.turn == turn_of(ticket) &&
                          (state.phase == Phase::kFree || state.phase == Phase::kClaimed ||
                           state.phase == Phase::kReady || state.phase == Phase::kRequeued);
  if (is_in_use || is_pending) return std::nullopt;
  return Status(StatusCode::kCorrupt, "ring slot " + std::to_string(ticket % slots()) +
                                          " has state " + std::to_string(seen) +
                                          " instead of ticket " + std::to_string(ticket) +
                                          ": a worker process overwrote the ring");
}

Result<ReadyBatch> MappedRing::pop(std::chrono::nanoseconds timeout) {
  const Wait wait{.event = batch_ready_,
                  .waiting = nullptr,
                  .waited_ns = header_.wait_batch_ns,
                  .timed_out = "no batch ready"};
  return wait_for<ReadyBatch>(wait, timeout, [this] { return poll_batch(); });
}

void MappedRing::release(uint64_t ticket) {
  uint64_t expected = plain_word(Phase::kInUse, ticket);
  if (word_of(ticket).compare_exchange_strong(expected, plain_word(Phase::kFree, ticket + slots())))
    // One slot is useful to one producer only. If the woken producer is stopped, the others poll
    // again within 100 ms.
    slot_freed_.notify_one();
}

}  // namespace stoker::ring
