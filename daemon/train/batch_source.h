// BatchSource: the interface of the input pipeline to the trainer: the batches of one trainer, and
// what is known about their samples.
//
// Threads:   the trainer thread only.
// Blocking:  accept(), waits_for_producer(), worker_use(), quarantined() and sample_errors_before()
//            briefly, for the lock of the supervisor of the workers; the others never: the trainer waits
//            on the ring.
// Ownership: the implementation owns the ring and the plan, and must outlive the trainer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/resource_use.h"
#include "shared/data/order/sample_plan.h"
#include "shared/feed/batch_receiver.h"
#include "shared/feed/batch_shapes.h"
#include "shared/feed/stream_state.h"
#include "shared/ring/shm_ring.h"

namespace stoker::train {

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  virtual ring::ShmRing& ring() = 0;
  virtual const data::order::SamplePlan& plan() const = 0;
  virtual feed::BatchShapes shapes() const = 0;
  // Whether a new dataset version starts at this ticket, the first of a step.
  virtual bool has_new_version_at(uint64_t ticket) const = 0;
  // Whether the trainer may use the batch, whose integers cannot change any more. A rejected batch
  // ends training like the end of the data: the state is saved. The source records the reason.
  virtual bool accept(const feed::ReceivedBatch& batch) = 0;
  // The files of the samples planned for the ticket, each once, in order; those of replaced samples
  // are not known. Empty: synthetic samples, or those of external producers.
  virtual std::vector<std::string> files_of(uint64_t ticket) const = 0;
  // The state of the stream after the last batch that was accepted; null: the data is no stream.
  virtual const feed::StreamState* maybe_stream() const { return nullptr; }
  // What a checkpoint needs of an input that cannot be read again; nullopt: nothing.
  virtual std::optional<feed::StreamHistory> history_of(const feed::StreamState& /*state*/) const {
    return std::nullopt;
  }
  // Whether the next batch waits for another program, which can take any time.
  virtual bool waits_for_producer() const { return false; }
  // What the workers use; nothing is known if they are threads of this process.
  virtual ProcessUse worker_use() const { return {}; }
  // The samples that the workers have quarantined so far.
  virtual std::vector<uint64_t> quarantined() const = 0;
  // The number of sample errors in the tickets before `ticket`, for a checkpoint.
  virtual uint64_t sample_errors_before(uint64_t ticket) = 0;
};

}  // namespace stoker::train
