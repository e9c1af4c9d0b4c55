// ClusterSpec: the tasks of a cluster of parameter servers and workers, and which of them this process
// is, from the flags of TensorFlow's examples, TF_CONFIG and the configuration.
//
// Threads:  values; pure functions.
// Errors:   kInvalidArgument: some flags are missing, an address or the index is wrong, TF_CONFIG is not
//           what TensorFlow accepts, or two sources say different things. The message names them;
//           nothing is guessed from a part.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/training_config.h"

namespace stoker::parameter_server {

enum class Job { kPs, kWorker };
std::string_view to_string(Job job);  // "ps", "worker"

// Worker 0 is the chief.
struct ClusterSpec {
  std::vector<std::string> ps;      // "host:port" by index
  std::vector<std::string> worker;  // the same

  std::string chief_name() const { return "the chief (worker 0, " + worker.front() + ")"; }
  bool operator==(const ClusterSpec&) const = default;
};

struct ClusterTask {
  ClusterSpec cluster;
  Job job = Job::kWorker;
  int index = 0;

  bool is_chief() const { return job == Job::kWorker && index == 0; }
  std::string name() const;  // "worker 1 (10.0.0.5:2222)"
  bool operator==(const ClusterTask&) const = default;
};

// --ps_hosts, --worker_hosts: "host:port,host:port"; --job_name; --task_index. Empty: not set.
struct ClusterFlags {
  std::string ps_hosts;
  std::string worker_hosts;
  std::string job_name;
  std::optional<int> task_index;
};

// The addresses of the cluster are in the flags, in TF_CONFIG or in `configured`, and the task of this
// process in the flags or TF_CONFIG; nullopt: neither is anywhere. What several have must be equal.
// TF_CONFIG counts if it has a cluster with parameter servers, or only a task and the addresses are in
// another source: platforms also set it for runs of one process. Its job `chief` (or `master`) is worker 0,
// before those of `worker`.
Result<std::optional<ClusterTask>> parse_cluster_task(const ClusterFlags& flags,
                                                      std::string_view tf_config,
                                                      const config::ClusterConfig& configured = {});

// For a process that uses none: that TF_CONFIG is empty, or an object without unknown jobs. Otherwise what was
// meant as one run would be one of each task.
Status check_tf_config(std::string_view text);

}  // namespace stoker::parameter_server
