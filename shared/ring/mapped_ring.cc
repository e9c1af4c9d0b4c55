#include "shared/ring/mapped_ring.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cassert>
#include <climits>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <utility>

namespace stoker::ring {

#ifndef STOKER_RING_ATOMICS
void futex_wait(uint32_t& word, uint32_t expected, std::chrono::nanoseconds timeout) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  timespec relative{};
  relative.tv_sec = seconds.count();
  relative.tv_nsec = (timeout - seconds).count();
  // Not FUTEX_WAIT_PRIVATE (which std::atomic::wait uses): it is keyed by the virtual address of
  // this process, so a wake from another process would not reach it. The result is ignored because
  // the caller polls again in any case.
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &relative, nullptr, 0);
}

void futex_wake(uint32_t& word, int max_waiters) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, max_waiters, nullptr, nullptr, 0);
}
#endif

uint32_t EventCount::enter() {
  atomic(words_.waiters).fetch_add(1);
  return atomic(words_.epoch).load();
}

void EventCount::sleep(uint32_t epoch, std::chrono::nanoseconds timeout) {
  futex_wait(words_.epoch, epoch, timeout);
}

void EventCount::leave(uint32_t waiters) { atomic(words_.waiters).fetch_sub(waiters); }

void EventCount::wake_waiters(int max_waiters) {
  atomic(words_.epoch).fetch_add(1);
  if (atomic(words_.waiters).load() > 0) futex_wake(words_.epoch, max_waiters);
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
    const AtomicRef<uint64_t> word = word_at(index);
    uint64_t seen = word.load();
    const auto generation = static_cast<uint32_t>(seen >> 32);
    if (seen != word_of(generation, RowState::kFree) || generation >= kMaxGeneration) continue;
    // Marked as removed first: no claim may succeed before the row is initialized.
    if (!word.compare_exchange_strong(seen, word_of(generation + 1, RowState::kRetired))) continue;
    atomic(row.pid).store(0);
    atomic(row.waiting).store(0);
    atomic(row.samples).store(0);
    atomic(row.polls).store(0);
    std::memset(row.name, 0, sizeof(row.name));
    std::memcpy(row.name, name.data(), std::min(name.size(), sizeof(row.name) - 1));
    store(index, word_of(generation + 1, RowState::kAlive));
    return ProducerId{.index = index, .generation = generation + 1};
  }
  return Status(StatusCode::kBusy,
                "the ring's producer table is full (" + std::to_string(rows_.size()) + " rows)");
}

bool ProducerTable::alive(ProducerId producer) const {
  return producer.index < rows_.size() &&
         word_at(producer.index).load() == word_of(producer.generation, RowState::kAlive);
}

bool ProducerTable::is_registered(ProducerId producer) const {
  if (producer.index >= rows_.size()) return false;
  const uint64_t word = word_at(producer.index).load();
  return word == word_of(producer.generation, RowState::kAlive) ||
         word == word_of(producer.generation, RowState::kRetired);
}

void ProducerTable::store(uint32_t index, uint64_t word) {
  word_at(index).store(word);
  if (!own_words_.empty()) atomic(rows_[index].word).store(word);
}

void ProducerTable::replace(ProducerId producer, uint64_t expected, uint64_t word) {
  if (producer.index >= rows_.size() ||
      !word_at(producer.index).compare_exchange_strong(expected, word))
    return;
  if (!own_words_.empty()) atomic(rows_[producer.index].word).store(word);
}

void ProducerTable::retire(ProducerId producer) {
  replace(producer, word_of(producer.generation, RowState::kAlive),
          word_of(producer.generation, RowState::kRetired));
}

uint32_t ProducerTable::take_waiting(ProducerId producer) {
  return atomic(rows_[producer.index].waiting).exchange(0);
}

void ProducerTable::free_row(ProducerId producer) {
  replace(producer, word_of(producer.generation, RowState::kRetired),
          word_of(producer.generation, RowState::kFree));
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

// Reads a field exactly once: the compiler must not read it again after the check.
template <typename T>
T read_once(T& field) {
  return atomic(field).load(std::memory_order_relaxed);
}

// The writer can be a faulty process that still writes, so all fields are copied, then validated.
SampleError read_fields(ReportRecord& entry) {
  SampleError error{.ticket = read_once(entry.ticket), .sample = read_once(entry.sample)};
  const uint32_t code = read_once(entry.code);
  const bool known = code >= 1 && code <= static_cast<uint32_t>(StatusCode::kInternal);
  error.code = known ? static_cast<StatusCode>(code) : StatusCode::kCorrupt;
  const size_t length = std::min<size_t>(read_once(entry.length), kReasonBytes);
  error.reason.assign(entry.reason, length);
  return error;
}

}  // namespace

void ErrorReportQueue::report(const SampleError& error) {
  atomic(header_.sample_errors).fetch_add(1, std::memory_order_relaxed);
  std::chrono::steady_clock::time_point deadline{};  // read only if the queue is full
  while (!try_report(error)) {
    if (deadline == std::chrono::steady_clock::time_point{})
      deadline = std::chrono::steady_clock::now() + kMaxWait;
    if (atomic(closed_).load() != 0) return;  // the batch will not be consumed
    if (is_drained_.load(std::memory_order_relaxed) &&
        std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kPollInterval);
      continue;
    }
    is_drained_.store(false, std::memory_order_relaxed);
    // Release: who sees it also sees that it was counted as a report (counters()).
    atomic(header_.lost_reports).fetch_add(1, std::memory_order_release);
    return;
  }
  is_drained_.store(true, std::memory_order_relaxed);
}

bool ErrorReportQueue::try_report(const SampleError& error) {
  const uint64_t writing = word_of(error.ticket, ReportPhase::kWriting);
  for (auto& entry : entries_) {
    const AtomicRef<uint64_t> word(entry.word);
    uint64_t expected = kFreeWord;
    if (word.load(std::memory_order_relaxed) != kFreeWord ||
        !word.compare_exchange_strong(expected, writing, std::memory_order_acquire))
      continue;
    write_fields(entry, error);
    const uint64_t sequence = atomic(header_.next_report).fetch_add(1, std::memory_order_relaxed);
    expected = writing;  // fails if the ticket was requeued meanwhile; its next owner then reports
    word.compare_exchange_strong(expected, word_of(sequence, ReportPhase::kComplete),
                                 std::memory_order_release);
    return true;
  }
  return false;
}

std::vector<SampleError> ErrorReportQueue::drain(uint64_t next_ticket) {
  std::vector<std::pair<uint64_t, SampleError>> found;
  for (auto& entry : entries_) {
    const AtomicRef<uint64_t> word(entry.word);
    uint64_t seen = word.load(std::memory_order_acquire);
    if (seen == kFreeWord) continue;
    if (has_phase(seen, ReportPhase::kComplete)) {
      found.emplace_back(seen, read_fields(entry));
      word.store(kFreeWord, std::memory_order_release);
    } else if (!has_phase(seen, ReportPhase::kWriting) || seen >> 4 < next_ticket) {
      // Overwritten; a producer reports only while it holds the ticket.
      word.compare_exchange_strong(seen, kFreeWord, std::memory_order_acq_rel);
    }
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
    atomic(entry.word).compare_exchange_strong(expected, kFreeWord, std::memory_order_acq_rel);
  }
}

namespace {

template <typename T>
std::span<T> table(std::span<std::byte> segment, uint64_t offset, size_t count) {
  return {reinterpret_cast<T*>(segment.data() + offset), count};
}

}  // namespace

MappedRing::MappedRing(Segment segment, SegmentView known, Role role, const TicketShare& share)
    : segment_(std::move(segment)),
      view_(std::move(known)),
      share_(share),
      role_(role),
      own_(role == Role::kAttached
               ? OwnState{}
               : OwnState{.next_ticket = view_.header.first_ticket,
                          .producer_words = std::vector<uint64_t>(kMaxProducers),
                          .held = std::vector<uint64_t>(view_.header.slots)}),
      end_ticket_(view_.header.end_ticket),
      header_(*reinterpret_cast<RingHeader*>(segment_.bytes().data())),
      slot_records_(
          table<SlotRecord>(segment_.bytes(), view_.header.slot_table, view_.header.slots)),
      next_ticket_(role == Role::kCreator ? own_.next_ticket : header_.next_ticket),
      closed_(role == Role::kCreator ? own_.closed : header_.closed),
      active_workers_(role == Role::kCreator ? own_.active_workers : header_.active_workers),
      producers_(
          table<ProducerRecord>(segment_.bytes(), view_.header.producer_table, kMaxProducers),
          own_.producer_words),
      reports_(header_, closed_,
               table<ReportRecord>(segment_.bytes(), view_.header.report_table, kReports)),
      slot_freed_(header_.slot_freed),
      batch_ready_(header_.batch_ready) {}

void MappedRing::start_allocation(uint64_t first, Allocate allocate) {
  assert(role_ == Role::kCreator);
  if (first == slots()) return;
  is_allocated_ = false;
  if (!allocate)
    allocate = [this](uint64_t offset, uint64_t bytes) { return segment_.allocate(offset, bytes); };
  allocation_ = std::make_unique<Coordinator>();
  allocation_->start("ring-allocation", [this, first, allocate](const std::stop_token& stop) {
    return allocate_slots(first, allocate, stop);
  });
}

Status MappedRing::allocate_slots(uint64_t first, const Allocate& allocate,
                                  const std::stop_token& stop) {
  const RingHeader& header = view_.header;
  for (uint64_t i = first; i < slots(); ++i) {
    if (stop.stop_requested()) return {};
    const uint64_t ticket = header.first_ticket + i;
    STOKER_RETURN_IF_ERROR(
        allocate(header.payload + ticket % header.slots * header.slot_stride, header.slot_stride));
    // If it was overwritten, pop() reports that when it needs the slot.
    if (free_slot(ticket, encode(unallocated_state(turn_of(ticket))))) slot_freed_.notify();
  }
  is_allocated_ = true;
  batch_ready_.notify();
  return {};
}

// The own flag first: the consumer must not take its copy in the segment for an overwritten one.
void MappedRing::close() {
  atomic(closed_).store(1);
  atomic(header_.closed).store(1);
  slot_freed_.notify();
  batch_ready_.notify();
}

RingCounters MappedRing::counters() const {
  const auto read = [](uint64_t& counter) {
    return atomic(counter).load(std::memory_order_relaxed);
  };
  const uint64_t next = next_ticket();
  // Before sample_errors, which includes them.
  const uint64_t lost_reports = atomic(header_.lost_reports).load(std::memory_order_acquire);
  RingCounters counters{.consumed = next - view_.header.first_ticket,
                        .requeued = read(header_.requeued),
                        .sample_errors = read(header_.sample_errors),
                        .lost_reports = lost_reports,
                        .read_ns = read(header_.read_ns),
                        .decode_ns = read(header_.decode_ns),
                        .transform_ns = read(header_.transform_ns),
                        .wait_slot_ns = read(header_.wait_slot_ns),
                        .wait_batch_ns = read(header_.wait_batch_ns),
                        .next_ticket = to_ticket(next)};
  for (uint64_t ticket = next; ticket < next + slots(); ++ticket)
    if (word_of(ticket).load(std::memory_order_relaxed) == plain_word(Phase::kReady, ticket))
      ++counters.ready;
  counters.published = counters.consumed + counters.ready;
  return counters;
}

namespace {

// The same options with the numbers of the segment.
RingOptions to_numbers(RingOptions options) {
  if (!options.share.is_valid()) return options;  // make_header() returns the error
  const uint64_t end = std::min(options.end_ticket, kMaxTicket);
  if (end > options.first_ticket)
    options.end_ticket =
        options.first_ticket + options.share.count_before(end - options.first_ticket);
  return options;
}

// With the tables and the slots of the first tickets.
Result<Segment> reserve_segment(const RingHeader& header, uint64_t slots) {
  STOKER_ASSIGN_OR_RETURN(Segment segment, Segment::reserve(header.segment_bytes));
  STOKER_RETURN_IF_ERROR(segment.allocate(0, header.payload));
  for (uint64_t i = 0; i < slots; ++i) {
    const uint64_t slot = (header.first_ticket + i) % header.slots;
    STOKER_RETURN_IF_ERROR(
        segment.allocate(header.payload + slot * header.slot_stride, header.slot_stride));
  }
  return segment;
}

}  // namespace

Result<std::unique_ptr<ShmRing>> ShmRing::create(const BatchLayout& layout,
                                                 const RingOptions& options) {
  STOKER_ASSIGN_OR_RETURN(const RingHeader header, make_header(layout, to_numbers(options)));
  const uint64_t eager =
      std::clamp<uint64_t>(options.eager_bytes / header.slot_stride, 1, header.slots);
  STOKER_ASSIGN_OR_RETURN(Segment segment, eager == header.slots
                                               ? Segment::create(header.segment_bytes)
                                               : reserve_segment(header, eager));
  initialize_segment(segment.bytes(), header, layout, eager);
  auto ring = std::make_unique<MappedRing>(std::move(segment), SegmentView{header, layout},
                                           MappedRing::Role::kCreator, options.share);
  ring->start_allocation(eager);
  return std::unique_ptr<ShmRing>(std::move(ring));
}

Result<std::unique_ptr<ShmRing>> ShmRing::attach(UniqueFd fd, const TicketShare& share) {
  if (!share.is_valid())
    return Status(StatusCode::kInvalidArgument, "ring: invalid rank, or number of ranks");
  STOKER_ASSIGN_OR_RETURN(Segment segment, Segment::attach(std::move(fd)));
  STOKER_ASSIGN_OR_RETURN(SegmentView known, read_layout(segment.bytes()));
  return std::unique_ptr<ShmRing>(std::make_unique<MappedRing>(std::move(segment), std::move(known),
                                                               MappedRing::Role::kAttached, share));
}

// ---- Supervisor: registering producers and requeueing the tickets of dead producers

void MappedRing::set_producer_pid(ProducerId producer, int pid) {
  if (producers_.alive(producer)) atomic(producers_.find_row(producer)->pid).store(pid);
}

uint64_t MappedRing::requeue(ProducerId crashed) {
  if (!producers_.is_registered(crashed)) return 0;
  producers_.retire(crashed);
  if (const uint32_t waiting = producers_.take_waiting(crashed); waiting > 0)
    slot_freed_.leave(waiting);
  const uint64_t num_requeued = requeue_claims(crashed);
  producers_.free_row(crashed);
  return num_requeued;
}

// Its threads leave the events themselves, and one of them may just be claiming another ticket, so
// the row is not free until requeue().
uint64_t MappedRing::retire(ProducerId hung) {
  if (!producers_.is_registered(hung)) return 0;
  producers_.retire(hung);
  return requeue_claims(hung);
}

uint64_t MappedRing::requeue_claims(ProducerId producer) {
  uint64_t num_requeued = 0;
  const uint64_t next = next_ticket();
  for (uint64_t ticket = next; ticket < next + slots(); ++ticket) {
    uint64_t expected = claimed_word(producer, ticket);
    if (word_of(ticket).load() != expected) continue;
    reports_.clear_unfinished(ticket);
    if (word_of(ticket).compare_exchange_strong(expected, plain_word(Phase::kRequeued, ticket)))
      ++num_requeued;
  }
  atomic(header_.requeued).fetch_add(num_requeued, std::memory_order_relaxed);
  slot_freed_.notify();
  batch_ready_.notify();  // it can have been killed between publishing and notifying
  return num_requeued;
}

ProducerProgress MappedRing::progress(ProducerId producer) const {
  ProducerProgress progress;
  if (ProducerRecord* row = producers_.find_row(producer)) {
    progress.samples = atomic(row->samples).load(std::memory_order_relaxed);
    progress.polls = atomic(row->polls).load(std::memory_order_relaxed);
  }
  const uint64_t next = next_ticket();
  for (uint64_t ticket = next; ticket < next + slots(); ++ticket)
    if (word_of(ticket).load(std::memory_order_relaxed) == claimed_word(producer, ticket))
      ++progress.claims;
  return progress;
}

Status MappedRing::end_at(uint64_t ticket) {
  assert(role_ == Role::kCreator);
  const uint64_t number = find_unpublished();
  if (ticket != to_ticket(number))
    return Status(StatusCode::kInvalidArgument,
                  "the data cannot end at ticket " + std::to_string(ticket) + ": ticket " +
                      std::to_string(to_ticket(number)) + " is the first without a batch");
  end_ticket_ = number;
  batch_ready_.notify();  // the consumer can wait for this ticket
  slot_freed_.notify();
  return {};
}

bool MappedRing::has_ended() const { return closed() || find_unpublished() >= end_ticket_; }

uint64_t MappedRing::first_unpublished() const { return to_ticket(find_unpublished()); }

// A ticket that is popped meanwhile is in use, then below next_ticket().
uint64_t MappedRing::find_unpublished() const {
  const uint64_t end = end_ticket_;
  for (uint64_t ticket = next_ticket(); ticket < end; ++ticket) {
    const uint64_t word = word_of(ticket).load();
    if (word != plain_word(Phase::kReady, ticket) && word != plain_word(Phase::kInUse, ticket) &&
        ticket >= next_ticket())
      return ticket;
  }
  return end;
}

// ---- Producer: claim, publish, abandon

std::optional<Result<Claim>> MappedRing::poll_ticket(ProducerId producer) {
  if (closed()) return closed_status();
  if (!producers_.alive(producer))
    return Status(StatusCode::kMismatch, "producer " + std::to_string(producer.index) +
                                             " generation " + std::to_string(producer.generation) +
                                             " is not registered in the ring");
  atomic(producers_.find_row(producer)->polls).fetch_add(1, std::memory_order_relaxed);
  const uint64_t end = end_ticket_;
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
      requeue_ticket(producer, ticket);
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
  auto claim = wait_for<Claim>(wait, timeout, [this, producer] { return poll_ticket(producer); });
  if (claim.ok()) claim->ticket = to_ticket(claim->ticket);
  return claim;
}

void MappedRing::report_sample_error(const SampleError& error) {
  SampleError numbered = error;
  numbered.ticket = to_number(error.ticket);
  reports_.report(numbered);
}

std::vector<SampleError> MappedRing::drain_sample_errors() {
  std::vector<SampleError> errors = reports_.drain(next_ticket());
  for (SampleError& error : errors) error.ticket = to_ticket(error.ticket);
  return errors;
}

void MappedRing::add_read_time(const ReadTime& spent) {
  add(header_.read_ns, spent.total);
  add(header_.decode_ns, spent.decode);
  add(header_.transform_ns, spent.transform);
}

bool MappedRing::publish(ProducerId producer, const Claim& claim) {
  const uint64_t ticket = to_number(claim.ticket);
  uint64_t expected = claimed_word(producer, ticket);
  // Release: a thread that sees the word also sees the bytes of the slot.
  if (!word_of(ticket).compare_exchange_strong(expected, plain_word(Phase::kReady, ticket)))
    return false;
  atomic(producers_.find_row(producer)->published).fetch_add(1, std::memory_order_relaxed);
  // The consumer waits for one ticket only; a wake-up for another ticket would cost it two system
  // calls.
  if (ticket == next_ticket()) batch_ready_.notify();
  return true;
}

void MappedRing::abandon(ProducerId producer, const Claim& claim) {
  requeue_ticket(producer, to_number(claim.ticket));
}

void MappedRing::requeue_ticket(ProducerId producer, uint64_t ticket) {
  uint64_t expected = claimed_word(producer, ticket);
  if (word_of(ticket).compare_exchange_strong(expected, plain_word(Phase::kRequeued, ticket)))
    slot_freed_.notify();
}

void MappedRing::add_completed_samples(ProducerId producer, uint64_t count) {
  if (ProducerRecord* row = producers_.find_row(producer))
    atomic(row->samples).fetch_add(count, std::memory_order_relaxed);
}

// ---- Consumer: batches in ticket order

Status MappedRing::overwritten(const std::string& what) const {
  return Status(StatusCode::kCorrupt, what + ": a producer overwrote the ring");
}

// The copies for the producers. If they are wrong, the producers wait or exit, and no batch arrives. The consumer, which
// stores its own number before the copy, takes up to `concurrent_takes` batches meanwhile.
Status MappedRing::check_header(uint64_t concurrent_takes) const {
  if (role_ != Role::kCreator) return {};
  const uint64_t before = next_ticket();
  const uint64_t copy = atomic(header_.next_ticket).load();
  const uint64_t after = next_ticket();
  if (copy + concurrent_takes < before || copy > after)
    return overwritten("the ring's next_ticket is " + std::to_string(copy) + " instead of " +
                       std::to_string(after));
  if (const uint32_t closed_copy = atomic(header_.closed).load(); closed_copy != 0 && !closed())
    return overwritten("the ring's closed is " + std::to_string(closed_copy) + " instead of 0");
  return {};
}

// Compares whole words, as producers do.
bool MappedRing::can_become_ready(uint64_t ticket, uint64_t word) const {
  const bool is_creator = role_ == Role::kCreator;
  const uint64_t in_use = plain_word(Phase::kInUse, ticket - slots());
  if (is_creator && held_in(ticket) != 0) return word == in_use;
  if (!is_creator && word == in_use) return true;
  for (const Phase phase : {Phase::kFree, Phase::kReady, Phase::kRequeued})
    if (word == plain_word(phase, ticket)) return true;
  const SlotState state = decode(word);
  const ProducerId owner{.index = state.owner, .generation = state.generation};
  if (word != claimed_word(owner, ticket)) return false;
  // The claims of a dead producer are requeued before it is unregistered, so the word is read again.
  return !is_creator || producers_.is_registered(owner) || word_of(ticket).load() != word;
}

std::optional<Result<ReadyBatch>> MappedRing::poll_batch() {
  if (closed()) return closed_status();
  const uint64_t ticket = next_ticket();
  if (ticket >= end_ticket_) return ended_status();
  STOKER_RETURN_IF_ERROR(check_header(/*concurrent_takes=*/0));
  if (!is_allocated_) {
    if (allocation_->should_stop()) return allocation_->reason();
    return std::nullopt;
  }
  // Sequentially consistent, like the preceding store of next_ticket: either this load sees the
  // batch, or its producer sees which ticket the consumer is waiting for (publish).
  uint64_t seen = word_of(ticket).load();
  const bool is_held = role_ == Role::kCreator && held_in(ticket) != 0;
  if (seen == plain_word(Phase::kReady, ticket) && !is_held) {
    if (!word_of(ticket).compare_exchange_strong(seen, plain_word(Phase::kInUse, ticket)))
      return std::nullopt;
    if (role_ == Role::kCreator) held_in(ticket) = ticket + 1;
    store_next_ticket(ticket + 1);
    return ReadyBatch{.ticket = ticket, .slot = slot_of(ticket)};
  }
  if (can_become_ready(ticket, seen)) return std::nullopt;
  return overwritten("ring slot " + std::to_string(ticket % slots()) + " has state " +
                     std::to_string(seen) + " instead of ticket " + std::to_string(ticket));
}

Result<ReadyBatch> MappedRing::pop(std::chrono::nanoseconds timeout) {
  const Wait wait{.event = batch_ready_,
                  .waiting = nullptr,
                  .waited_ns = header_.wait_batch_ns,
                  .timed_out = "no batch ready"};
  auto batch = wait_for<ReadyBatch>(wait, timeout, [this] { return poll_batch(); });
  if (batch.ok()) batch->ticket = to_ticket(batch->ticket);
  return batch;
}

// One slot is useful to one producer only; if that is stopped, the others poll again within 100 ms.
// A slot that no ticket needs can be the last event before the end of data, which is for all.
void MappedRing::wake_producers(uint64_t released) {
  if (released + slots() < end_ticket_) return slot_freed_.notify_one();
  slot_freed_.notify();
}

bool MappedRing::free_slot(uint64_t for_ticket, uint64_t in_use) {
  return word_of(for_ticket).compare_exchange_strong(in_use, plain_word(Phase::kFree, for_ticket));
}

void MappedRing::release(uint64_t of_ticket) {
  const uint64_t ticket = to_number(of_ticket);
  if (role_ == Role::kCreator && held_in(ticket) != ticket + 1) return;
  // If the word was overwritten, the batch stays held, which pop() reports when it needs the slot.
  if (!free_slot(ticket + slots(), plain_word(Phase::kInUse, ticket))) return;
  if (role_ == Role::kCreator) held_in(ticket) = 0;
  wake_producers(ticket);
}

}  // namespace stoker::ring
