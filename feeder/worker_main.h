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

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/feed/quarantine_table.h"

namespace stoker::feeder {

// Of requests: read samples; or rewrite JPEG files or encode text, which need no index.
enum class Operation { kRead, kRewrite, kTokenize };

struct FeederArguments {
  std::string config_path;
  std::string index_dir;
  std::string fingerprint;
  uint64_t plan_ticket = 0;  // start of the plan for this dataset version
  uint64_t plan_epoch = 0;
  uint64_t rank = 0;  // of the processes that share the steps of the run
  uint64_t world_size = 1;
  int ring_fd = -1;
  int quarantine_fd = -1;
  uint32_t worker = 0;   // index in the quarantine table
  uint32_t workers = 1;  // total number of processes
  uint32_t producer = 0;
  uint32_t generation = 0;
  int threads = 1;
  int parent = 0;  // 0: not checked
  // With a table of states, the data is a stream: index and number of threads are those of the other
  // datasets of a mixture.
  int stream_fd = -1;
  int input_fd = -1;  // of the stream's source; -1: the worker opens files
  std::string input_name;
  std::vector<uid_t> producer_users;  // of a socket for producers: that may connect
  // With --request-fd, instead of the plan, the ring and what refers to them.
  Operation operation = Operation::kRead;
  std::string dataset = "train";
  int request_fd = -1;
  int memory_fd = -1;
};

// Makes the process end with its parent, disables core dumps and new privileges, and ignores the
// signals that are meant for stokerd. kCancelled: the parent has already exited.
Status initialize_process(int parent);
// Runs until the ring closes or the end of data. Sets `sandbox_refused` if enter_sandbox() returns
// kPermission, and leaves it unchanged otherwise.
Status run_worker(const FeederArguments& arguments, const feed::QuarantineTable& quarantine,
                  bool& sandbox_refused);
// Ends the process with its error if a read hangs, so that its thread cannot be joined.
[[noreturn]] void exit_without_join(const Status& status, const FeederArguments& arguments,
                                    const feed::QuarantineTable& quarantine);
// The same as run_worker() with --request-fd; runs until the parent closes the socket.
Status run_request_worker(const FeederArguments& arguments, bool& sandbox_refused);
// The main function of stoker-feed.
ExitCode worker_main(int argc, char** argv);

}  // namespace stoker::feeder
