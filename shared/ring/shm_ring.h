// ShmRing: bounded queue of batches in one shared-memory segment, in ticket order, that tolerates
// crashes of its producers.
//
// Ticket t uses slot t mod N. Producers claim the lowest free tickets, fill the slot and publish
// it. The single consumer pops tickets strictly in order. docs/ring-layout.md describes the binary
// layout. If several processes share the steps of a run, each has a ring of its tickets only
// (TicketShare). The segment then has dense numbers, and the methods of this class map them.
//
// Threads:   any number of producer processes (up to kMaxProducers) and threads; one consumer
//            thread.
// Blocking:  claim() and pop() wait at most `timeout`, on a futex in intervals of at most 100 ms;
//            close() wakes both. report_sample_error() waits for space, at most one second (see
//            ErrorReportQueue).
// Ownership: the segment is a memfd. It has no name, and the kernel frees it with its last user.
// Errors:    kTimedOut; kClosed (end of data or close()); kNoSpace (create, and pop if it is found later:
//            not enough memory, with the required size); kInvalidArgument (create, attach: invalid options); kMismatch (attach: not
//            a ring, or another version or geometry; claim: the producer was removed by requeue());
//            kCorrupt (pop: a process overwrote the header or the slot table). A producer gets end
//            of data only when every ticket has been filled, because until then a ticket can be
//            requeued.
// Trust:     every producer can write to the whole segment. What the creator needs (tickets, closed,
//            which producers and batches exist) it keeps in private memory; in the segment are
//            copies for the producers. Bytes of a slot can change at any time, also while in use.
// Format:    ring_layout.h, version 2; positions are offsets from the start of the segment, never
//            pointers.
// Crash:     a slot claimed by a process that crashed was never visible to the consumer; requeue()
//            makes its ticket available again. Call it only after that process has been reaped,
//            because a running process can still write.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/ring/batch_layout.h"
#include "shared/ring/ticket_share.h"

namespace stoker::ring {

inline constexpr uint32_t kMaxProducers = 64;

struct RingOptions {
  uint64_t slots = 8;
  uint64_t first_ticket = 0;    // first ticket of a resumed run; with a share, of one of its steps
  uint64_t end_ticket = ~0ull;  // one past the last ticket
  TicketShare share = {};       // default: all tickets
  // Of the slots, create() allocates as many as have this size, and at least one. A thread allocates
  // the others, while the first ones are filled.
  uint64_t eager_bytes = uint64_t{64} << 20;
};

// Identifies a producer process in slot words. Each generation is used once, so a late write by a
// dead owner has no effect.
struct ProducerId {
  uint32_t index = 0;  // row of the producer table
  uint32_t generation = 0;
};

struct Claim {
  uint64_t ticket = 0;
  std::span<std::byte> slot;  // valid until publish() or abandon()
};

struct ReadyBatch {
  uint64_t ticket = 0;
  std::span<const std::byte> slot;  // valid until release()
};

// A sample that could not be read.
struct SampleError {
  uint64_t ticket = 0;
  uint64_t sample = 0;
  StatusCode code = StatusCode::kCorrupt;
  std::string reason;  // truncated to 200 bytes
};

// Distinguishes, for a supervisor, a busy or idle producer from one that hangs.
struct ProducerProgress {
  uint64_t claims = 0;   // tickets that it currently holds
  uint64_t samples = 0;  // total finished: the heartbeat while it holds a ticket
  uint64_t polls = 0;    // total polls for a ticket: the heartbeat while it holds none
};

// Time that worker threads spent in Dataset::read.
struct ReadTime {
  std::chrono::nanoseconds total{0};
  std::chrono::nanoseconds decode{0};     // included in total
  std::chrono::nanoseconds transform{0};  // included in total
};

// Sums over all producers since creation.
struct RingCounters {
  uint64_t published = 0;  // batches
  uint64_t consumed = 0;
  uint64_t requeued = 0;
  uint64_t sample_errors = 0;  // reports, including lost ones; repeated if the ticket is requeued
  // Dropped because the report area was full; never returned by drain_sample_errors().
  uint64_t lost_reports = 0;
  uint64_t read_ns = 0;        // time of worker threads in Dataset::read
  uint64_t decode_ns = 0;      // included in read_ns
  uint64_t transform_ns = 0;   // included in read_ns
  uint64_t wait_slot_ns = 0;   // time of worker threads waiting for a free slot
  uint64_t wait_batch_ns = 0;  // time of the consumer waiting for a batch
  uint64_t ready = 0;          // current number of filled slots that have not been popped
  uint64_t next_ticket = 0;    // the lowest that has not been popped
};

class ShmRing {
 public:
  static Result<std::unique_ptr<ShmRing>> create(const BatchLayout& layout,
                                                 const RingOptions& options);
  // `share`: that of the creator.
  static Result<std::unique_ptr<ShmRing>> attach(UniqueFd segment, const TicketShare& share = {});
  virtual ~ShmRing() = default;

  virtual int fd() const = 0;  // memfd, to pass to a producer
  virtual const BatchLayout& layout() const = 0;
  virtual uint64_t slots() const = 0;
  // All slots in one mapping, for registration with CUDA.
  virtual std::span<std::byte> payload() = 0;

  // -- supervisor: before a producer starts, and after it was reaped
  virtual Result<ProducerId> add_producer(std::string_view name) = 0;  // kBusy: the table is full
  virtual void set_producer_pid(ProducerId producer, int pid) = 0;
  // Returns the number of requeued tickets; frees the table row.
  virtual uint64_t requeue(ProducerId crashed) = 0;
  // For a producer that hangs and cannot be ended: it can claim and publish nothing more. Returns
  // the number of requeued tickets. Repeat it until the producer has ended, then call requeue().
  virtual uint64_t retire(ProducerId hung) = 0;
  virtual ProducerProgress progress(ProducerId producer) const = 0;
  // Number of the supervisor's own worker threads that are allowed to run; 0 means all. The others
  // pause.
  virtual void set_active_workers(uint32_t threads) = 0;

  // -- producer
  virtual Result<Claim> claim(ProducerId producer, std::chrono::nanoseconds timeout) = 0;
  // False if the ticket was requeued in the meantime; the work is discarded.
  virtual bool publish(ProducerId producer, const Claim& claim) = 0;
  virtual void abandon(ProducerId producer, const Claim& claim) = 0;  // requeues the ticket
  // Only while the ticket of the sample is claimed.
  virtual void report_sample_error(const SampleError& error) = 0;
  // `count`: number of samples finished since the last call.
  virtual void add_completed_samples(ProducerId producer, uint64_t count) = 0;
  virtual void add_read_time(const ReadTime& spent) = 0;
  virtual uint32_t active_workers() const = 0;

  // -- supervisor: the data ends before `ticket`, for which there is no batch and never will be: the
  // end of a stream, which is not known at first. Only of the creator, when no producer is alive.
  // kInvalidArgument: `ticket`, which a producer named, is not first_unpublished(); has no effect.
  virtual Status end_at(uint64_t ticket) = 0;
  // The first ticket whose batch is neither ready nor consumed.
  virtual uint64_t first_unpublished() const = 0;

  // -- consumer
  virtual Result<ReadyBatch> pop(std::chrono::nanoseconds timeout) = 0;
  virtual void release(uint64_t ticket) = 0;
  // In the order in which they were reported. From one thread at a time.
  virtual std::vector<SampleError> drain_sample_errors() = 0;

  // Permanent: claim() and pop() return kClosed immediately, in every process.
  virtual void close() = 0;
  virtual bool closed() const = 0;  // the creator: by its own close() only
  // Whether there is nothing left to claim: closed, or all tickets are filled or consumed.
  virtual bool has_ended() const = 0;
  // kCorrupt: a process overwrote what the creator tells the producers, which then exit or wait.
  virtual Status check_header() const = 0;
  virtual RingCounters counters() const = 0;
};

}  // namespace stoker::ring
