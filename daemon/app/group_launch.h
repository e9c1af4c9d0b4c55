// GroupLaunch: how this process was started as a rank of a group, or as a task of a cluster.
//
// Threads: values.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "daemon/app/cluster_start.h"
#include "daemon/group/launch_environment.h"
#include "daemon/group/process_group.h"

namespace stoker::app {

struct GroupLaunch {
  group::LaunchEnvironment environment;
  group::SharedSettings settings;  // those that must be the same on all ranks
  std::optional<ClusterLaunch> maybe_cluster = std::nullopt;  // nullopt: a group
  std::string finished_because = {};  // on the chief, why the run is not continued; empty: it is
  // Of a task of a cluster: Meeting::find_end().
  std::function<std::string()> find_end = {};
};

}  // namespace stoker::app
