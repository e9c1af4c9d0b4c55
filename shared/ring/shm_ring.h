// ShmRing: bounded queue of batches in one shared-memory segment, in ticket order, that survives
// its producers' deaths.
//
// Ticket t lives in slot t mod N. Producers claim the lowest free tickets, fill the slot and
// publish it; the one consumer takes tickets strictly in order. See docs/ring-layout.md for the
// bytes.
//
// Threads:  any number of producer processes (up to kMaxProducers) and threads; one consumer
//           thread.
// Blocking: claim() and pop() wait at most `timeout`, by futex in steps of at most 100 ms; close()
//           wakes both. report_sample_error() waits for room, at most a second: see ErrorReportQueue.
// Owner:    the segment is a memfd: it has no name, and the kernel frees it with its last user.
// Errors:   kTimedOut, kClosed (end of data or close()), kNoSpace (create: not enough memory; says
//           how much is needed), kInvalidArgument (create: the settings), kMismatch (attach: not a
//           ring, or version or geometry differ; claim: the producer was taken out by requeue()),
//           kCorrupt (pop: a process wrote over the slot table). End of data for a producer is when
//           every ticket has been filled: until then one may have to be done again.
// Format:   ring_layout.h, version 2; positions are offsets from the segment's start, never
//           pointers.
// Crash:    a slot claimed by a process that died was never visible to the consumer; requeue()
//           hands its ticket on. Call it only after that process has been reaped: a live one may
//           still write.
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

namespace stoker::ring {

inline constexpr uint32_t kMaxProducers = 64;

struct RingOptions {
  uint64_t slots = 8;
  uint64_t first_ticket = 0;    // where a resumed run goes on
  uint64_t end_ticket = ~0ull;  // the first ticket that is never produced
};

// Names a producer process in slot words. A generation is used once, so a late write by a dead
// owner never counts.
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

// A sample that could not be read, reported through the segment.
struct SampleError {
  uint64_t ticket = 0;
  uint64_t sample = 0;
  StatusCode code = StatusCode::kCorrupt;
  std::string reason;  // cut at 200 bytes
};

// What a supervisor needs to tell a producer that works, or has nothing to do, from one that hangs.
struct ProducerProgress {
  uint64_t claims = 0;   // tickets that it holds now
  uint64_t samples = 0;  // finished, ever: its heartbeat while it holds any
  uint64_t polls = 0;    // for a ticket, ever: its heartbeat while it holds none
};

// Of reading threads, inside Dataset::read.
struct ReadTime {
  std::chrono::nanoseconds total{0};
  std::chrono::nanoseconds decode{0};     // of total
  std::chrono::nanoseconds transform{0};  // of total
};

// Sums since creation, over all producers.
struct RingCounters {
  uint64_t published = 0;  // batches
  uint64_t consumed = 0;
  uint64_t requeued = 0;
  uint64_t sample_errors =
      0;  // reports, with the lost ones; one is made again when its ticket is reissued
  uint64_t lost_reports =
      0;                 // that found the report area full: drain_sample_errors() never gives them
  uint64_t read_ns = 0;  // time of reader threads inside Dataset::read
  uint64_t decode_ns = 0;      // of that
  uint64_t transform_ns = 0;   // of that
  uint64_t wait_slot_ns = 0;   // … waiting for a free slot
  uint64_t wait_batch_ns = 0;  // time the consumer waited for a batch
  uint64_t ready = 0;          // now: slots that are filled and not taken
};

class ShmRing {
 public:
  static Result<std::unique_ptr<ShmRing>> create(const BatchLayout& layout,
                                                 const RingOptions& options);
  static Result<std::unique_ptr<ShmRing>> attach(UniqueFd segment);
  virtual ~ShmRing() = default;

  virtual int fd() const = 0;  // of the memfd, to hand to a producer
  virtual const BatchLayout& layout() const = 0;
  virtual uint64_t slots() const = 0;
  virtual std::span<std::byte> payload() = 0;  // all slots, one mapping (CUDA registers it)

  // -- supervisor: before a producer starts, and after it was reaped
  virtual Result<ProducerId> add_producer(std::string_view name) = 0;  // kBusy: the table is full
  virtual void set_producer_pid(ProducerId producer, int pid) = 0;
  virtual uint64_t requeue(
      ProducerId crashed) = 0;  // returns the number of tickets handed back; frees the table row
  virtual ProducerProgress progress(ProducerId producer) const = 0;
  // How many of the supervisor's own reading threads may work; the others rest. 0: all.
  virtual void set_active_workers(uint32_t threads) = 0;

  // -- producer
  virtual Result<Claim> claim(ProducerId producer, std::chrono::nanoseconds timeout) = 0;
  // False when the claim had been taken away meanwhile (reissue): the work is dropped, which is
  // fine.
  virtual bool publish(ProducerId producer, const Claim& claim) = 0;
  virtual void abandon(ProducerId producer, const Claim& claim) = 0;  // gives the ticket back
  virtual void report_sample_error(
      const SampleError& error) = 0;  // only while its ticket is claimed
  virtual void add_completed_samples(ProducerId producer,
                                     uint64_t count) = 0;  // so many more are finished
  virtual void add_read_time(const ReadTime& spent) = 0;
  virtual uint32_t active_workers() const = 0;

  // -- consumer
  virtual Result<ReadyBatch> pop(std::chrono::nanoseconds timeout) = 0;
  virtual void release(uint64_t ticket) = 0;
  virtual std::vector<SampleError>
  drain_sample_errors() = 0;  // in the order of their reports; any one thread

  virtual void
  close() = 0;  // sticky: claim() and pop() return kClosed at once, here and in every process
  virtual bool closed() const = 0;
  virtual RingCounters counters() const = 0;
};

}  // namespace stoker::ring
