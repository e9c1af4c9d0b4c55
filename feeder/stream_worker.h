// stream_worker: stoker-feed as the worker process of a stream: reads its inputs and fills the ring,
// from the state that stokerd left in the table of states.
//
// Errors: as run_worker().
// Crash:  stokerd starts another process from the state of the last batch that was published.
#pragma once

#include "feeder/worker_main.h"
#include "shared/base/status.h"
#include "shared/feed/quarantine_table.h"

namespace stoker::feeder {

// Runs until the ring closes or the stream ends. Sets `sandbox_refused` as run_worker().
Status run_stream_worker(const feed::WorkerArguments& arguments,
                         const feed::QuarantineTable& quarantine, bool& sandbox_refused);

}  // namespace stoker::feeder
