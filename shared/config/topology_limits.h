// TopologyLimits: what a run of several processes cannot do that one process can: of each setting which values it must have,
// and of each command why it is rejected. The only place where this is listed: the start and --check-config report what the
// configuration has of it, and docs/distributed.md has the table.
//
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/config/config.h"

namespace stoker::config {

enum class Topology { kGroup, kSyncServers, kAsyncServers };

// "train.device: must be cpu (reason)" of all that this configuration has. `world_size`: ranks of a group.
std::vector<std::string> broken_limits(const Config& config, Topology topology, int world_size = 1);

// Why the command, as "pause --release", is rejected; nullopt: it works.
std::optional<std::string_view> command_limit(std::string_view command, Topology topology);

std::string topology_limits_markdown();

}  // namespace stoker::config
