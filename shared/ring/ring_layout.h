// ring_layout: binary layout of the ring segment, version 2. docs/ring-layout.md describes the same
// format, with an example.
//
// Little-endian, fixed-width, no pointers: every position is an offset from the start of the
// segment. Fields marked "atomic" are accessed only through std::atomic_ref; all others are written
// once, before `magic`.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "shared/base/status.h"

namespace stoker::ring {

static_assert(std::endian::native == std::endian::little, "the ring's format is little-endian");
static_assert(std::atomic_ref<uint64_t>::is_always_lock_free);
static_assert(std::atomic_ref<uint32_t>::is_always_lock_free);

inline constexpr uint64_t kMagic = 0x474e49524b4f5453;  // "STOKRING"
inline constexpr uint32_t kVersion = 2;
inline constexpr size_t kCacheLine = 64;
inline constexpr size_t kPayloadAlignment = 4096;
inline constexpr uint32_t kMaxTensors = 64;
inline constexpr uint32_t kMaxRank = 8;
inline constexpr uint32_t kMaxNameBytes = 31;
inline constexpr uint64_t kMaxSlots = 1 << 16;
inline constexpr uint64_t kMaxSegmentBytes = uint64_t{1} << 46;
inline constexpr uint64_t kMaxTicket = uint64_t{1} << 60;
inline constexpr uint32_t kReports = 256;
inline constexpr size_t kReasonBytes = 200;

// ---- Slot word: the complete state of a slot
//
//  63            32 31         12 11     4 3    0
//  |     turn      | generation  | owner  | phase|
//
// Owner and generation are 0 unless the phase is kClaimed.
// Ticket t uses slot t mod N; its turn is t / N, modulo 2^32. "free, turn k" means that the slot
// can be claimed for the ticket of turn k. A word therefore refers to exactly one ticket, and a
// late compare-and-swap never affects another ticket.
enum class Phase : uint32_t { kFree = 1, kClaimed = 2, kReady = 3, kInUse = 4, kRequeued = 5 };

struct SlotState {
  Phase phase = Phase::kFree;
  uint32_t owner = 0;
  uint32_t generation = 0;
  uint32_t turn = 0;
  bool operator==(const SlotState&) const = default;
};

inline constexpr uint32_t kMaxGeneration = (1u << 20) - 1;

constexpr uint64_t encode(const SlotState& state) {
  return uint64_t{state.turn} << 32 | uint64_t{state.generation} << 12 |
         uint64_t{state.owner} << 4 | static_cast<uint64_t>(state.phase);
}
constexpr SlotState decode(uint64_t word) {
  return {.phase = static_cast<Phase>(word & 0xf),
          .owner = static_cast<uint32_t>(word >> 4 & 0xff),
          .generation = static_cast<uint32_t>(word >> 12 & kMaxGeneration),
          .turn = static_cast<uint32_t>(word >> 32)};
}

// Of a new slot whose memory is not allocated yet: in use by the turn before its first.
constexpr SlotState unallocated_state(uint32_t first_turn) {
  return {.phase = Phase::kInUse, .turn = first_turn - 1};
}

// ---- Records

struct EventWords {  // see EventCount in mapped_ring.h
  uint32_t epoch;    // atomic
  uint32_t waiters;  // atomic
};

struct RingHeader {
  uint64_t magic;  // atomic; stored last, with release
  uint32_t version;
  uint32_t header_bytes;
  uint64_t segment_bytes;
  uint64_t slots;
  uint64_t batch;        // rows of every tensor
  uint64_t slot_bytes;   // used bytes of a slot
  uint64_t slot_stride;  // distance between slots
  uint64_t first_ticket;
  uint64_t end_ticket;  // one past the last ticket
  uint32_t tensors;
  uint32_t producers;  // rows of the producer table
  uint32_t reports;    // entries of the report area
  uint32_t reserved0;
  uint64_t tensor_table;  // offsets of the tables …
  uint64_t slot_table;
  uint64_t producer_table;
  uint64_t report_table;
  uint64_t payload;  // … and of slot 0

  // Each group has its own cache line to avoid false sharing.
  uint64_t next_ticket;    // atomic; written by the consumer: all lower tickets have been popped
  uint64_t wait_batch_ns;  // atomic; written by the consumer
  uint64_t pad0[6];
  EventWords slot_freed;
  uint64_t pad1[7];
  EventWords batch_ready;
  uint64_t pad2[7];
  uint32_t closed;          // atomic; 0, then permanently 1
  uint32_t active_workers;  // atomic; worker threads of stokerd that are allowed to run; 0 = all
  uint32_t pad3[14];
  uint64_t requeued;       // this and all following counters are atomic
  uint64_t sample_errors;  // reports, including lost ones
  uint64_t lost_reports;   // reports that were dropped because the report area was full
  uint64_t next_report;    // sequence number of the next report
  uint64_t read_ns;
  uint64_t wait_slot_ns;
  uint64_t decode_ns;  // of read_ns
  uint64_t transform_ns;
};

struct TensorRecord {
  char name[kMaxNameBytes + 1];  // padded with zeros
  uint32_t dtype;                // stoker::DType
  uint32_t rank;                 // without the batch dimension
  int64_t shape[kMaxRank];
  uint64_t offset;     // of row 0, from the start of the slot
  uint64_t row_bytes;  // distance between rows
  uint64_t reserved;
};

struct SlotRecord {
  uint64_t word;  // atomic; SlotState
  uint64_t reserved[7];
};

struct ProducerRecord {
  uint64_t word;     // atomic; generation << 32 | 1 while in use
  int32_t pid;       // atomic
  uint32_t waiting;  // atomic; its threads that are waiting for a slot
  char name[24];
  uint64_t polls;      // atomic; polls for a ticket: the heartbeat while it holds no ticket
  uint64_t published;  // atomic; batches
  // Atomic; samples finished by this producer: the heartbeat while it holds a ticket.
  uint64_t samples;
};

// Word of a report: 0 = free; ticket << 4 | 1 = being written by the owner of the ticket; sequence
// << 4 | 2 = complete.
enum class ReportPhase : uint64_t { kFree = 0, kWriting = 1, kComplete = 2 };

struct ReportRecord {
  uint64_t word;  // atomic
  uint64_t ticket;
  uint64_t sample;
  uint32_t code;    // stoker::StatusCode
  uint32_t length;  // of reason
  char reason[kReasonBytes];
  uint64_t reserved[3];
};

// ---- Compile-time checks of the layout
static_assert(std::is_trivially_copyable_v<RingHeader> && std::is_standard_layout_v<RingHeader>);
static_assert(sizeof(RingHeader) == 448);
static_assert(offsetof(RingHeader, segment_bytes) == 16 &&
              offsetof(RingHeader, first_ticket) == 56);
static_assert(offsetof(RingHeader, tensors) == 72 && offsetof(RingHeader, tensor_table) == 88);
static_assert(offsetof(RingHeader, payload) == 120 && offsetof(RingHeader, next_ticket) == 128);
static_assert(offsetof(RingHeader, slot_freed) == 192 && offsetof(RingHeader, batch_ready) == 256);
static_assert(offsetof(RingHeader, closed) == 320 && offsetof(RingHeader, requeued) == 384);
static_assert(offsetof(RingHeader, active_workers) == 324);
static_assert(offsetof(RingHeader, next_report) == 408 &&
              offsetof(RingHeader, wait_slot_ns) == 424 &&
              offsetof(RingHeader, transform_ns) == 440);
static_assert(std::is_trivially_copyable_v<TensorRecord> && sizeof(TensorRecord) == 128);
static_assert(offsetof(TensorRecord, dtype) == 32 && offsetof(TensorRecord, shape) == 40);
static_assert(offsetof(TensorRecord, offset) == 104 && offsetof(TensorRecord, row_bytes) == 112);
static_assert(std::is_trivially_copyable_v<SlotRecord> && sizeof(SlotRecord) == kCacheLine);
static_assert(std::is_trivially_copyable_v<ProducerRecord> && sizeof(ProducerRecord) == kCacheLine);
static_assert(offsetof(ProducerRecord, pid) == 8 && offsetof(ProducerRecord, published) == 48 &&
              offsetof(ProducerRecord, polls) == 40 && offsetof(ProducerRecord, samples) == 56);
static_assert(std::is_trivially_copyable_v<ReportRecord> && sizeof(ReportRecord) == 256);
static_assert(offsetof(ReportRecord, code) == 24 && offsetof(ReportRecord, reason) == 32);
static_assert(static_cast<int>(StatusCode::kNotFound) == 2 &&
              static_cast<int>(StatusCode::kCorrupt) == 7 &&
              static_cast<int>(StatusCode::kIoError) == 9 &&
              static_cast<int>(StatusCode::kInternal) == 16);

}  // namespace stoker::ring
