// UpdateLog: the order in which a parameter server has applied the gradients of an asynchronous run, so
// that the run can be replayed (ReplayOrder).
//
// A file of the run directory per server. It begins at a step, and has one record per update after it; so
// a record is at the place of its step, and the file is cut where a checkpoint is resumed. Format:
// docs/distributed.md.
//
// Threads:  one at a time; sync() also while another one appends.
// Blocking: for the disk; append() does not wait for it.
// Errors:   kCorrupt: a log is corrupt. kIoError, kNoSpace, kNotFound, kPermission. kMismatch:
//           compare_replayed_logs().
// Crash:    sync() before each checkpoint, so a log has the updates of all checkpoints. What was appended
//           later can be lost or incomplete after a power failure; it is cut when the run resumes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "daemon/parameter_server/variable_placement.h"
#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::parameter_server {

struct LoggedUpdate {
  uint64_t ticket = 0;
  uint32_t worker = 0;
  // By server: the steps of the variables that the gradient was computed from.
  std::vector<uint64_t> read_steps;
};

// Updates with as many read steps each. The logs of a long run have many, so these are stored as columns.
class LoggedUpdates {
 public:
  void reserve(size_t num_updates, size_t num_servers);
  void shrink_to_fit();
  void push_back(uint64_t ticket, uint32_t worker, std::span<const uint64_t> read_steps);

  size_t size() const { return tickets_.size(); }
  uint64_t ticket(size_t index) const { return tickets_[index]; }
  uint32_t worker(size_t index) const { return workers_[index]; }
  std::span<const uint64_t> read_steps(size_t index) const {
    return std::span(read_steps_).subspan(index * num_servers_, num_servers_);
  }

 private:
  std::vector<uint64_t> tickets_;
  std::vector<uint32_t> workers_;
  std::vector<uint64_t> read_steps_;  // num_servers_ of each
  size_t num_servers_ = 0;
};

// Of what run, and of which server, a log is.
struct UpdateLogIdentity {
  uint64_t start_id =
      0;  // random, of the last start of the servers: the logs of a run have the same one
  uint32_t server = 0;
  uint32_t num_servers = 1;
  config::VariablePlacement placement = config::VariablePlacement::kRoundRobin;
  std::string config_digest, data_fingerprint, model_digest;  // at most 64 characters each

  bool operator==(const UpdateLogIdentity&) const = default;
};

std::string update_log_path(const std::string& directory, uint32_t server);

class UpdateLog {
 public:
  // For the updates after `step`. Continues the log at `path` if it is of the same run (start_id apart) and
  // server, and has the updates before; cuts those after. Otherwise replaces it by one that begins at `step`,
  // which is logged if this loses updates before.
  // That of server 0 also removes those of servers that the run has no longer, and of a replay.
  // After an error, which is then logged likewise, there is no log at `path`, unless remove_update_log() fails, too.
  static Result<UpdateLog> open(FileSystem& files, const std::string& path,
                                const UpdateLogIdentity& identity, uint64_t step);

  // Not usable any more after an error.
  Status append(const LoggedUpdate& update);
  // What was appended before is durable.
  Status sync() const;

 private:
  static Result<UpdateLog> open_at(FileSystem& files, const std::string& path,
                                   const UpdateLogIdentity& identity, uint64_t step);
  static Result<UpdateLog> open_to_append(FileSystem& files, const std::string& path,
                                          uint64_t step);
  UpdateLog(FileSystem& files, std::string path, UniqueFd fd, uint64_t step)
      : files_(&files), path_(std::move(path)), fd_(std::move(fd)), step_(step) {}

  FileSystem* files_;  // must outlive this object
  std::string path_;
  UniqueFd fd_;
  uint64_t step_;  // of the last record
};

// Ok if there is none.
Status remove_update_log(FileSystem& files, const std::string& path);

// For a run that continues from `step` without these servers: cuts the logs of all servers in the directory
// there, if there is one, and removes those that it cannot cut, and of a replay. With 0, removes all. Leaves
// what is no log. `leads_here`: the updates in the logs led to the state of `step`; otherwise removes all, too.
// That this loses updates before is logged.
Status cut_update_logs(FileSystem& files, const std::string& directory, uint64_t step,
                       bool leads_here = true);

struct ReadUpdateLog {
  UpdateLogIdentity identity;
  uint64_t first_step = 0;
  LoggedUpdates updates;  // to first_step + 1, first_step + 2, …
};
// An incomplete last record is ignored. kCorrupt: the message has the step and the offset.
Result<ReadUpdateLog> read_update_log(const std::string& path);

// The directory of a replay has copies of the logs that it repeats, so that the next start knows whether its
// checkpoints are states of the same run.
Status copy_replayed_logs(FileSystem& files, const std::string& replayed,
                          const std::string& directory, uint32_t num_servers);
// kMismatch: other updates led to the state of `step` in `directory` than are in the logs in `replayed`.
Status compare_replayed_logs(const std::string& replayed, const std::string& directory,
                             uint32_t num_servers, uint64_t step);

}  // namespace stoker::parameter_server
