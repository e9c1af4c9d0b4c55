#include "daemon/app/group_start.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <thread>
#include <utility>

#include <ATen/Version.h>

#include "daemon/app/version.h"
#include "daemon/group/gloo_group.h"
#include "shared/base/utf8.h"
#include "shared/config/load_config.h"
#include "shared/feed/dataset_versions.h"

namespace stoker::app {
namespace {

// The cores that this process may use: launchers bind ranks to some of them.
int count_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

std::string ranks(const group::LaunchEnvironment& launch) {
  return std::to_string(launch.world_size) + " ranks";
}

bool is_power_of_two(int64_t number) { return std::has_single_bit(static_cast<uint64_t>(number)); }

std::string share_error(const config::TrainConfig& train, const group::LaunchEnvironment& launch) {
  const int64_t steps = train.gradient_accumulation_steps;
  return "train.gradient_accumulation_steps: " + ranks(launch) + " cannot share " +
         std::to_string(steps) + " micro-batch" + (steps == 1 ? "" : "es") +
         " per step; set it to a multiple of " + std::to_string(launch.world_size) +
         ", with a smaller train.micro_batch_size for the same samples per step";
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(std::max<int64_t>(1, static_cast<int64_t>(seconds * 1e3)));
}

}  // namespace

Status check_group_support(const config::Config& config, const group::LaunchEnvironment& launch) {
  std::vector<std::string> errors;
  const auto require = [&errors](bool holds, std::string error) {
    if (!holds) errors.push_back(std::move(error));
  };
  const std::string in_group = " in a group of " + ranks(launch);
  require(config.distributed.reduction == config::Reduction::kOrdered,
          "distributed.reduction: must be ordered" + in_group);
  require(config.train.gradient_accumulation_steps % launch.world_size == 0,
          share_error(config.train, launch));
  require(config.run.rng == config::Rng::kPerTicket, "run.rng: must be per_ticket" + in_group);
  require(config.train.device.type != config::DeviceConfig::Type::kCuda,
          "train.device: must be cpu" + in_group);
  require(config.train.on_nonfinite != config::OnNonfinite::kRollback,
          "train.on_nonfinite: rollback is not supported" + in_group);
  require(config::training_stream(config) == nullptr,
          "data.train.stream: streams are not supported" + in_group);
  require(!feed::is_refreshable(config), "data.train: refresh is not supported" + in_group);
  require(config.feed.producers == config::ProducerMode::kInternal,
          "feed.producers: must be internal" + in_group);
  if (errors.empty()) return {};
  return Status(StatusCode::kInvalidArgument, join(errors, "; "));
}

Status check_group_support(const model::Model& model) {
  for (const auto& buffer : model.named_buffers()) {
    if (!buffer.key().ends_with("running_mean") && !buffer.key().ends_with("running_var")) continue;
    return Status(StatusCode::kInvalidArgument,
                  "model: running statistics, such as " + buffer.key() +
                      " of batch norm, are not supported in a group of several ranks; use a model "
                      "without them, or train in one process");
  }
  return {};
}

std::vector<std::string> world_size_effects(const config::Config& config,
                                            const group::LaunchEnvironment& launch) {
  std::vector<std::string> reasons;
  if (!is_power_of_two(launch.world_size))
    reasons.push_back("the number of ranks is no power of two");
  if (!is_power_of_two(config.train.gradient_accumulation_steps))
    reasons.push_back("train.gradient_accumulation_steps is no power of two");
  if (!config.train.num_threads)
    reasons.push_back("train.num_threads is not set, and by default depends on it");
  return reasons;
}

config::Config with_group_defaults(config::Config config, const group::LaunchEnvironment& launch) {
  if (!config.train.num_threads)
    config.train.num_threads = std::max(1, count_cores() / launch.local_world_size);
  config.train.device = {.type = config::DeviceConfig::Type::kCpu, .index = std::nullopt};
  return config;
}

config::Config without_duties_of_chief(config::Config config) {
  config.control.socket.reset();
  config.http.listen.reset();
  config.metrics.tensorboard = false;
  config.metrics.histogram_every_steps.reset();
  return config;
}

group::SharedSettings shared_settings(const config::Config& config) {
  group::SharedSettings settings{{"stoker version", stoker_version()},
                                 {"LibTorch version", torch_version()},
                                 {"CPU capability", at::get_cpu_capability()}};
  for (auto& setting : config::all_settings(config)) settings.push_back(std::move(setting));
  return settings;
}

Result<std::unique_ptr<group::ProcessGroup>> open_process_group(
    const config::Config& config, const group::LaunchEnvironment& launch,
    const run::RunLayout& layout, const Status& ready, const std::stop_token& stop) {
  std::error_code error;
  const auto directory = std::filesystem::absolute(layout.root(), error).lexically_normal();
  return group::open_group(
      launch,
      {.run_id = directory.string(),
       .interface = config.distributed.interface,
       .timeout = milliseconds_of(config.distributed.timeout_seconds),
       .start_timeout = milliseconds_of(config.distributed.start_timeout_seconds),
       .ready = ready,
       .on_listening = {}},
      stop);
}

run::RunLayout layout_of_rank(const run::RunLayout& layout, int rank) {
  return rank == 0 ? layout : run::RunLayout(layout.rank_dir(rank));
}

}  // namespace stoker::app
