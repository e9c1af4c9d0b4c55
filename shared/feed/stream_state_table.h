// StreamStateTable: the state of a stream after each batch of the ring, and the one from which a
// worker process starts, in one sealed memfd next to the ring; with the last bytes of an input that
// cannot be read again.
//
// The worker writes the state of a ticket before it publishes the batch, so a ready batch has its
// state until its slot is released. stokerd keeps those that a checkpoint needs, and restarts a dead
// worker from the state of the last batch that was published.
//
// Threads:   set_initial() in stokerd before a worker starts, record() and end_at() in one thread of
//            the worker; set_waits_for() likewise, set_threads() and set_receiving(). read() of a
//            ticket that is ready or in use; the others any thread.
// Blocking:  never.
// Ownership: the kernel frees the memfd after its last user.
// Errors:    create(): as ring::Segment. attach(): kMismatch. record(), set_initial(): kNoSpace.
//            read(), initial(): kCorrupt.
// Trust:     the worker can write to the whole segment at any time. What is read is copied first.
// Format:    version 5. Only stokerd and its own stoker-feed process share it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/base/thread_registry.h"
#include "shared/data/stream/byte_history.h"
#include "shared/feed/stream_state.h"
#include "shared/ring/segment.h"

namespace stoker::feed {

class StreamStateTable {
 public:
  // `slots`: those of the ring. `capacity`: elements of the queue. `history_bytes`: 0, or a multiple
  // of 8.
  static Result<StreamStateTable> create(uint64_t slots, uint64_t capacity,
                                         uint64_t history_bytes = 0);
  static Result<StreamStateTable> attach(UniqueFd fd);

  int fd() const { return segment_.fd(); }
  // Of an input that cannot be read again; nullopt without history_bytes.
  std::optional<data::stream::ByteHistory> maybe_history() const;

  // ---- worker
  Status record(uint64_t ticket, const StreamState& after) const;
  // The stream has ended; `ticket` has no batch, but the state of the end.
  void end_at(uint64_t ticket) const;
  // The source whose producer all readers wait for; empty: they do not wait.
  void set_waits_for(std::string_view source) const;
  // Those of its queues. At most kMaxThreads are passed on.
  void set_threads(const ThreadList& list) const;
  static constexpr size_t kMaxThreads = 128;
  // Whether it may have received what is not in the history. Remains true if it is killed.
  void set_receiving(bool is_receiving) const;

  // ---- stokerd
  Result<StreamState> read(uint64_t ticket) const;
  std::optional<uint64_t> end_ticket() const;
  // As the worker reported them last, since set_initial(). Texts are printable.
  std::string waits_for() const;
  ThreadList threads() const;
  bool is_receiving() const;

  // From which the worker continues; nullopt: from the start of the stream.
  Status set_initial(const std::optional<StreamState>& state) const;
  Result<std::optional<StreamState>> initial() const;

 private:
  struct Header;
  template <size_t kMaxBytes>
  struct Report;
  explicit StreamStateTable(ring::Segment segment) : segment_(std::move(segment)) {}
  Header& header() const;
  std::span<std::byte> entry(uint64_t index) const;
  Status write(uint64_t index, uint64_t key, const StreamState& state) const;
  Result<StreamState> read(uint64_t index, uint64_t key) const;

  ring::Segment segment_;
  uint64_t slots_ = 0;  // one more entry is the initial state
  uint64_t entry_bytes_ = 0;
  uint64_t history_bytes_ = 0;  // behind the entries, after the words of the history
};

}  // namespace stoker::feed
