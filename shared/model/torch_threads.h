// LibTorch's threads.
#pragma once

#include "shared/base/status.h"

namespace stoker::model {

// Sets their number, for the process, and starts those of the calling thread, which inherit its mode of denormals and
// are used by its operations. LibTorch does not return if the system refuses a thread: its pool waits for it without
// end, and OpenMP exits with code 1. So the limits are checked immediately before, and nothing is left to start later,
// when worker processes have used up the limit. Another process of the user can still start threads in between.
// Errors: kBusy, with the limit.
Status start_threads(int num_threads);

}  // namespace stoker::model
