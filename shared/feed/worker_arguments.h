// WorkerArguments: what stoker-feed is started with. Its parent writes them as command line options, which
// stoker-feed parses; for_each_argument() lists them for both.
//
// Threads: values.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace stoker::feed {

// Of requests: read samples; or rewrite JPEG files or encode text, which need no index.
enum class Operation { kRead, kRewrite, kTokenize };

struct WorkerArguments {
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
  // With request_fd, instead of the plan, the ring and what refers to them.
  Operation operation = Operation::kRead;
  std::string dataset = "train";
  int request_fd = -1;
  int memory_fd = -1;
};

// Calls visit(option, member, description) for each.
template <typename Visit>
void for_each_argument(const Visit& visit) {
  using A = WorkerArguments;
  visit("--config", &A::config_path, "The run's config.yaml");
  visit("--index-dir", &A::index_dir, "Folder of the dataset index");
  visit("--dataset-fingerprint", &A::fingerprint,
        "Fingerprint of the dataset, or of the source of a stream");
  visit("--start-ticket", &A::plan_ticket, "First ticket of this dataset version");
  visit("--start-epoch", &A::plan_epoch, "Epoch that starts with that ticket");
  visit("--rank", &A::rank, "Rank of the stokerd among those that share each step");
  visit("--world-size", &A::world_size, "Number of those");
  visit("--ring-fd", &A::ring_fd, "File descriptor of the ring");
  visit("--quarantine-fd", &A::quarantine_fd, "File descriptor of the quarantine table");
  visit("--worker-index", &A::worker, "Index of this worker process in that table");
  visit("--num-workers", &A::workers, "Number of worker processes");
  visit("--producer-index", &A::producer, "Index in the ring's producer table");
  visit("--producer-generation", &A::generation, "Generation of that entry");
  visit("--num-threads", &A::threads, "Number of worker threads");
  visit("--stream-fd", &A::stream_fd,
        "File descriptor of the states of a stream, which replaces the index");
  visit("--input-fd", &A::input_fd, "File descriptor of the stream's source");
  visit("--input-name", &A::input_name, "Name of that source in messages");
  visit("--producer-user", &A::producer_users,
        "ID of a user whose processes can connect to that source");
  visit("--dataset", &A::dataset, "Name of the dataset, with --request-fd");
  visit("--request-fd", &A::request_fd, "File descriptor of the requests");
  visit("--operation", &A::operation,
        "With --request-fd: read samples, rewrite JPEG files with restart markers, or encode text "
        "with the tokenizer of the dataset");
  visit("--memory-fd", &A::memory_fd, "File descriptor of the memory for the requested data");
  visit("--parent-pid", &A::parent, "Process id of the required parent");
}

// For operation: their places are the values of Operation.
inline constexpr const char* kOperationNames[] = {"read", "rewrite", "tokenize"};

// The command line, without empty texts and descriptors that are not passed.
std::vector<std::string> to_command_line(const WorkerArguments& arguments);

}  // namespace stoker::feed
