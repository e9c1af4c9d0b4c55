// The start of a group: what the ranks that train one run together check and set, and how they meet.
//
// Threads: functions of their arguments; open_process_group() as group::open_group().
// Errors:  kInvalidArgument: what does not work in a group. open_process_group(): as group::open_group().
#pragma once

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "daemon/group/flight_recorder.h"
#include "daemon/group/launch_environment.h"
#include "daemon/group/process_group.h"
#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/model/model.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

// A time of the configuration, at least 1 ms.
std::chrono::milliseconds milliseconds_of(double seconds);

// What the configuration has that does not work with several ranks: all of it, in one line.
Status check_group_support(const config::Config& config, const group::LaunchEnvironment& launch);

// Why the results depend on the number of ranks, one reason per line; empty: they do not.
std::vector<std::string> world_size_effects(const config::Config& config,
                                            const group::LaunchEnvironment& launch);
// The same for the device that the ranks train on.
std::vector<std::string> world_size_effects(const config::Config& config,
                                            const config::DeviceConfig& device);
// The same for the model: layers whose statistics each rank computes from its own samples.
std::vector<std::string> world_size_effects(const model::Model& model);

// train.num_threads, or by default the share of each rank in the cores that the launcher allows it; the
// same on all ranks, which must call this. Logs that the group is open.
Result<int> choose_num_threads(const config::TrainConfig& config, group::ProcessGroup& group,
                               const std::stop_token& stop);

// The device of this rank: a GPU that no other rank has, or the CPU. With train.device: auto, GPUs if all
// ranks have one, and distributed.backend is not gloo. All ranks must call this; an error is the same on
// all. Adds the GPUs to the group. Logs why there are none.
Result<config::DeviceConfig> choose_device(const config::Config& config,
                                           const group::LaunchEnvironment& launch,
                                           group::ProcessGroup& group, const std::stop_token& stop);

// The configuration without what only the chief does.
config::Config without_duties_of_chief(config::Config config);

// The settings that must be the same on all ranks.
group::SharedSettings shared_settings(const config::Config& config);

// `ready`: why this rank cannot take part, which the others are told; or ok. `maybe_recorder`:
// of the collectives; must outlive the group.
Result<std::unique_ptr<group::ProcessGroup>> open_process_group(
    const config::Config& config, const group::LaunchEnvironment& launch,
    const run::RunLayout& layout, const Status& ready, group::FlightRecorder* maybe_recorder,
    const std::stop_token& stop);

// `layout`: of the run.
group::FlightRecorder::Owner recorder_of(const group::LaunchEnvironment& launch,
                                         const run::RunLayout& layout);

// Where rank `rank` writes what only it needs: log, lock, sample errors.
run::RunLayout layout_of_rank(const run::RunLayout& layout, int rank);

}  // namespace stoker::app
