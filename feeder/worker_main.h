// worker_main: the program stoker-feed. Opens the dataset and the ring passed by stokerd and reads
// samples until the ring closes; or, with --request-fd, reads the samples, rewrites the files
// or encodes the texts that its parent requests (serve_requests.h).
//
// Errors: the exit code of the process (shared/base/status.h); the reason is on standard error, and
//         in the quarantine table or the reply to its parent. If the seccomp filter is not permitted,
//         the process logs a warning and exits with ExitCode::kSandbox; its parent reports the error
//         once for all of its workers.
// Crash:  ends with its parent (PR_SET_PDEATHSIG). sandbox.h describes the restrictions that apply
//         before the first sample is read.
#pragma once

#include "shared/base/status.h"
#include "shared/feed/quarantine_table.h"
#include "shared/feed/worker_arguments.h"

namespace stoker::feeder {

// Makes the process end with its parent, disables core dumps and new privileges, and ignores the
// signals that are meant for stokerd. kCancelled: the parent has already exited.
Status initialize_process(int parent);
// Runs until the ring closes or the end of data. Sets `sandbox_refused` if enter_sandbox() returns
// kPermission, and leaves it unchanged otherwise.
Status run_worker(const feed::WorkerArguments& arguments, const feed::QuarantineTable& quarantine,
                  bool& sandbox_refused);
// Ends the process with its error if a read hangs, so that its thread cannot be joined.
[[noreturn]] void exit_without_join(const Status& status, const feed::WorkerArguments& arguments,
                                    const feed::QuarantineTable& quarantine);
// The same as run_worker() with --request-fd; runs until the parent closes the socket.
Status run_request_worker(const feed::WorkerArguments& arguments, bool& sandbox_refused);
// The main function of stoker-feed.
ExitCode worker_main(int argc, char** argv);

}  // namespace stoker::feeder
