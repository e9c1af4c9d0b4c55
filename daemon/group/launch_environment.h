// LaunchEnvironment: which rank of how many this process is, from the environment variables of
// torchrun (also Kubeflow Trainer), Open MPI or Slurm. Ranks and addresses are never settings.
//
// Threads:  values; pure functions, except read_environment_variables().
// Errors:   kInvalidArgument: some variables of a launcher are missing or invalid. The message
//           names them all; nothing is guessed from a part of them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"

namespace stoker::group {

enum class Launcher { kNone, kTorchrun, kOpenMpi, kSlurm };
std::string_view to_string(Launcher launcher);  // "none", "torchrun", "Open MPI", "Slurm"

struct LaunchEnvironment {
  Launcher launcher = Launcher::kNone;
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // among the ranks of this node
  int local_world_size = 1;
  // False: the launcher counts pods instead of processes (PyTorchJob of Kubeflow). local_rank is 0,
  // which is only correct for a pod with one device.
  bool has_local_rank = true;
  std::string store_host;  // host of rank 0, or of the launcher's store
  uint16_t store_port = 0;
  bool launcher_serves_store = false;  // torchrun's agent does; otherwise rank 0
  // Restarts of the job by the launcher. Each agent of torchrun counts its own; it can differ between
  // nodes.
  int restart_count = 0;
  bool is_kubernetes = false;  // this process runs in a pod, whatever the launcher
  std::string job_id;          // empty: the launcher has none
  std::string error_file;  // in which torchrun expects the reason of a failure; empty: it does not
  std::vector<std::string> rank_hosts;  // by rank; empty: the launcher does not tell

  bool is_chief() const { return rank == 0; }
  bool is_single_node() const { return local_world_size == world_size; }
  // "rank 3 (node-2)"; "rank 3" if its host is unknown.
  std::string name_of(int of_rank) const;
};

using EnvironmentVariables = std::map<std::string, std::string, std::less<>>;
EnvironmentVariables read_environment_variables();

// An empty variable counts as missing. If launchers are nested, the innermost counts: torchrun, Open
// MPI, then Slurm. SLURM_* without a step, as in the shell of salloc, means no launcher. Without
// MASTER_PORT and reserved ports of Slurm, the port is derived from the job and `run_directory`.
Result<LaunchEnvironment> parse_launch_environment(const EnvironmentVariables& variables,
                                                   std::string_view run_directory);

// Host names of a list of Slurm, in order: "n[01-03,7],gpu-2" is n01, n02, n03, n7, gpu-2.
Result<std::vector<std::string>> expand_host_list(std::string_view list);
// Tasks per node of a list of Slurm: "2(x3),1" is 2, 2, 2, 1.
Result<std::vector<int>> expand_task_counts(std::string_view list);

}  // namespace stoker::group
