// StreamRecovery: where the worker process of a stream starts and continues: the state after the last
// batch, and what was read of an input that cannot be read again.
//
// Threads:   one at a time; supply() any.
// Ownership: the ring, and the descriptor of the input, must outlive this object.
// Errors:    open(), prepare(), end_state(): those of StreamStateTable. check_input(): kIoError.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/status.h"
#include "shared/feed/stream_state.h"
#include "shared/feed/stream_state_table.h"
#include "shared/feed/worker_arguments.h"
#include "shared/ring/shm_ring.h"

namespace stoker::supervisor {

// A source without an index: one worker process fills all batches, and continues where it stopped.
struct StreamSupply {
  uint64_t first_ticket = 0;                    // of the ring
  std::optional<feed::StreamState> state = {};  // before that ticket; nullopt: from the start
  std::string fingerprint = {};                 // of data.train
  uint64_t capacity = 1000;                     // elements of the queue
  int num_threads = 1;                          // readers
  bool has_indexed = false;                     // a mixture: feed.num_workers more read the others
  int input_fd = -1;                            // of the source, open until the end; -1: files
  std::string input_name = {};
  // input_fd is a socket that external producers connect to, with these users in addition to root and
  // that of this process.
  bool has_producers = false;
  std::vector<uid_t> producer_users = {};
  // Of an input that cannot be read again: how much is held, and what the checkpoint has.
  uint64_t history_bytes = 0;
  std::optional<feed::StreamHistory> history = {};
  // The next bytes of the input continue this history, and do not begin with a record.
  bool continues_history = false;
  bool finds_records = true;  // in bytes that do not begin with one
};

class StreamRecovery {
 public:
  StreamRecovery(StreamSupply supply, ring::ShmRing& ring)
      : supply_(std::move(supply)), ring_(ring) {}

  // Once, before the others but forget_unsaved_ends() and history_of().
  Status open();
  const StreamSupply& supply() const { return supply_; }
  const feed::StreamStateTable& states() const { return *states_; }
  // Sets the state from which the next worker continues.
  Status prepare() const;
  // What the worker is started with. Returns the descriptors that follow those of all workers.
  std::vector<int> pass_to(feed::WorkerArguments& arguments) const;
  // After the end of a worker.
  Status check_input() const;
  // After a worker that has lost what it received.
  void forget_unsaved_ends() const;
  bool end();  // false: the stream has not ended
  // As FeedSupervisor. `is_read`: a worker runs.
  std::optional<feed::StreamHistory> history_of(const feed::StreamState& state, bool is_read) const;
  Result<feed::StreamState> end_state() const;

 private:
  void restore_history();
  void continue_input(feed::StreamState& state) const;

  StreamSupply supply_;
  ring::ShmRing& ring_;
  std::optional<feed::StreamStateTable> states_;
};

}  // namespace stoker::supervisor
