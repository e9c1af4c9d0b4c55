// The start of a task of a cluster of parameter servers and workers: what it checks, and how the tasks
// meet.
//
// Threads:  functions of their arguments.
// Blocking: meet_cluster() until parameter server 0 serves the store, compare_with_chief() until the chief has
//           opened its data: see TaskWait. A stop wakes them within 100 ms.
// Errors:   kInvalidArgument: what does not work with parameter servers, or an address is not one of this
//           host. kPeerLost: server 0 cannot be reached. kMismatch: the settings of this task differ from
//           those of server 0, or its data those of the chief. kBusy: the port is taken. kClosed: the run has
//           ended. kCancelled.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string_view>

#include "daemon/app/command_line.h"
#include "daemon/group/launch_environment.h"
#include "daemon/group/process_group.h"
#include "daemon/group/tcp_store.h"
#include "daemon/parameter_server/cluster_spec.h"
#include "daemon/parameter_server/meeting.h"
#include "daemon/parameter_server/update_schedule.h"
#include "daemon/parameter_server/variable_placement.h"
#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/model/model.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

struct ClusterLaunch {
  parameter_server::ClusterTask task;
  config::ReplicaMode replicas = config::ReplicaMode::kSync;
  std::optional<uint64_t> max_staleness;
  config::VariablePlacement placement = config::VariablePlacement::kRoundRobin;
};

// The task of this process, from the command line or TF_CONFIG, of the cluster of these or the
// configuration; nullopt: none. kInvalidArgument, also if two of them differ.
Result<std::optional<ClusterLaunch>> make_cluster_launch(
    const CommandLine& command, std::string_view tf_config,
    const config::ClusterConfig& configured = {});

// What the configuration has that does not work with parameter servers: all of it, in one line.
Status check_cluster_support(const config::Config& config, const ClusterLaunch& cluster);

// The same for the section cluster of the configuration, whatever the task; ok without it.
Status check_configured_cluster(const config::Config& config, const CommandLine& command);

// Of the chief: what the workers together change about the results. Nothing for one worker.
void warn_of_several_workers(const config::Config& config, const ClusterLaunch& cluster,
                             const model::Model& model);

// The task as a rank: first the workers, then the servers. Each has the files of a rank.
group::LaunchEnvironment rank_of(const parameter_server::ClusterTask& task,
                                 group::LaunchEnvironment environment);

// Adds the options of the command line.
void add_cluster_settings(const ClusterLaunch& cluster, group::SharedSettings& settings);

parameter_server::UpdateOptions update_options(const config::Config& config,
                                               const ClusterLaunch& cluster);

struct ClusterMeeting {
  parameter_server::Meeting meeting;
  std::unique_ptr<group::TcpStore> store;
};
// `settings`: of server 0, must be the same on all tasks. `find_end`: Meeting::find_end().
Result<ClusterMeeting> meet_cluster(const config::Config& config, const ClusterLaunch& cluster,
                                    const run::RunLayout& layout,
                                    const group::SharedSettings& settings,
                                    const std::function<std::string()>& find_end,
                                    const std::stop_token& stop);

// kMismatch: it has other settings.
Status compare_with_first_server(ClusterMeeting& met, const group::SharedSettings& own);

// `own`: what is the same on all tasks, but not part of the configuration: data and model. `wait`: for the chief.
// kMismatch: the chief has others.
Status compare_with_chief(group::TcpStore& store, bool is_chief, const group::SharedSettings& own,
                          parameter_server::TaskWait wait, const std::stop_token& stop);

// Of a task that ends, but not as the chief has ended the run. Leaves `failure` for the others if `is_cause`. Of
// kPeerLost the result has the failure of the task that is the cause, if that has left it. Server 0 waits some seconds until
// the others have read it.
Status leave_cluster(ClusterMeeting& met, const parameter_server::ClusterTask& task,
                     const Status& failure, bool is_cause);

}  // namespace stoker::app
