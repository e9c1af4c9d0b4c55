// PreemptionPolicy: what SIGTERM means to a process that a launcher or Kubernetes started. They send it
// to free the machine, kill the process some time later, and start the run again: the run is preempted,
// not stopped by its user.
//
// Threads: values; pure functions.
#pragma once

#include <chrono>
#include <optional>

#include "daemon/group/launch_environment.h"
#include "shared/base/status.h"

namespace stoker::group {

struct PreemptionPolicy {
  // Part of the 30 s that torchrun, Slurm (KillWait) and Kubernetes wait by default.
  static constexpr double kDefaultDeadlineSeconds = 25;
  // Of a process that SIGTERM killed: 0 would complete a Job of Kubernetes.
  static constexpr int kKubernetesExitCode = 143;
  // The most steps between the signal and the last checkpoint: the current one, the next, whose control
  // record carries the request, and a margin.
  static constexpr int kSteps = 4;

  bool is_possible = false;
  int exit_code = 0;
  // Of a rank that stopped because another one got SIGTERM: an agent of torchrun whose own ranks exit
  // with 0 takes the run for finished, although only another node has left.
  int exit_code_of_others = 0;
  std::chrono::duration<double> deadline{kDefaultDeadlineSeconds};  // from SIGTERM

  // How long a stop takes, by the times of the last step and checkpoint.
  static std::chrono::duration<double> needed(double step_time_ms, double commit_ms) {
    return std::chrono::duration<double, std::milli>(kSteps * step_time_ms + commit_ms);
  }
};

// nullopt: automatic.
inline PreemptionPolicy make_preemption_policy(const LaunchEnvironment& environment,
                                               std::optional<double> deadline_seconds,
                                               std::optional<int> exit_code) {
  PreemptionPolicy policy;
  policy.is_possible = environment.launcher != Launcher::kNone || environment.is_kubernetes;
  policy.exit_code =
      exit_code.value_or(environment.is_kubernetes ? PreemptionPolicy::kKubernetesExitCode : 0);
  // Only torchrun's agents set the id of a run; SIGTERM to the agent of a node reaches all its ranks.
  const bool has_other_agents = environment.launcher == Launcher::kTorchrun &&
                                !environment.job_id.empty() && !environment.is_single_node();
  policy.exit_code_of_others =
      has_other_agents ? static_cast<int>(ExitCode::kCollectiveTimedOut) : policy.exit_code;
  if (deadline_seconds) policy.deadline = std::chrono::duration<double>(*deadline_seconds);
  return policy;
}

}  // namespace stoker::group
