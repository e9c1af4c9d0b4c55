#include "daemon/app/group_start.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include <ATen/Version.h>

#include "daemon/app/version.h"
#include "daemon/group/authenticated_store.h"
#include "daemon/group/core_share.h"
#include "daemon/group/device_share.h"
#include "daemon/group/gloo_group.h"
#include "daemon/group/recorded_group.h"
#include "daemon/train/device.h"
#include "shared/base/cgroup.h"
#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/base/utf8.h"
#include "shared/config/load_config.h"
#include "shared/config/topology_limits.h"

namespace stoker::app {
namespace {

constexpr const char* kNumaNodesDirectory = "/sys/devices/system/node";

bool is_power_of_two(int64_t number) { return std::has_single_bit(static_cast<uint64_t>(number)); }

Result<group::DeviceChoice> choose_for_all(const std::vector<std::string>& texts,
                                           const std::string& needed_by,
                                           group::ProcessGroup& group) {
  std::vector<group::RankDevice> devices;
  for (const std::string& text : texts) {
    STOKER_ASSIGN_OR_RETURN(devices.emplace_back(), group::parse_rank_device(text));
  }
  return group::choose_devices(devices, needed_by, [&](int rank) { return group.name_of(rank); });
}

constexpr int kMaxNumThreads = 4096;

Result<int> parse_num_threads(const std::string& text) {
  int number = 0;
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || next != end || number < 1 || number > kMaxNumThreads)
    return Status(StatusCode::kCorrupt, "rank 0 sent '" + text +
                                            "' as the number of threads, not 1 to " +
                                            std::to_string(kMaxNumThreads));
  return number;
}

// Those of this rank and, on the chief, of ranks that the group no longer has.
void set_aside_flight_records(const group::LaunchEnvironment& launch,
                              const run::RunLayout& layout) {
  const auto set_aside = [&layout](int rank) {
    group::set_aside_flight_record(default_file_system(),
                                   layout_of_rank(layout, rank).flight_recorder_file());
  };
  set_aside(launch.rank);
  if (!launch.is_chief()) return;
  const std::string ranks_dir = std::filesystem::path(layout.rank_dir(0)).parent_path().string();
  const auto names = list_directory(ranks_dir);
  if (!names.ok()) return;  // a run that never had several ranks
  for (const std::string& name : *names) {
    int rank = 0;
    const char* const end = name.data() + name.size();
    const auto [next, error] = std::from_chars(name.data(), end, rank);
    if (error == std::errc() && next == end && rank >= launch.world_size) set_aside(rank);
  }
}

}  // namespace

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(std::max<int64_t>(1, static_cast<int64_t>(seconds * 1e3)));
}

Status check_group_support(const config::Config& config, const group::LaunchEnvironment& launch) {
  const auto errors = config::broken_limits(config, config::Topology::kGroup, launch.world_size);
  if (errors.empty()) return {};
  return Status(StatusCode::kInvalidArgument, join(errors, "; "));
}

std::vector<std::string> world_size_effects(const config::Config& config,
                                            const group::LaunchEnvironment& launch) {
  std::vector<std::string> reasons;
  if (config.distributed.reduction == config::Reduction::kAllReduce)
    reasons.push_back("distributed.reduction is allreduce");
  if (!is_power_of_two(launch.world_size))
    reasons.push_back("the number of ranks is no power of two");
  if (!is_power_of_two(config.train.gradient_accumulation_steps))
    reasons.push_back("train.gradient_accumulation_steps is no power of two");
  if (!config.train.num_threads)
    reasons.push_back("train.num_threads is not set, and by default depends on it");
  return reasons;
}

std::vector<std::string> world_size_effects(const config::Config& config,
                                            const config::DeviceConfig& device) {
  if (device.type == config::DeviceConfig::Type::kCpu || config.run.deterministic) return {};
  return {"run.deterministic is false, and the ranks train on GPUs"};
}

std::vector<std::string> world_size_effects(const model::Model& model) {
  for (const auto& buffer : model.named_buffers()) {
    if (!buffer.key().ends_with("running_mean") && !buffer.key().ends_with("running_var")) continue;
    return {"batch norm's statistics, such as " + buffer.key() +
            ", are of the micro-batches of one rank"};
  }
  return {};
}

Result<int> choose_num_threads(const config::TrainConfig& config, group::ProcessGroup& group,
                               const std::stop_token& stop) {
  const group::AllowedCores own = group::read_allowed_cores();
  // Of a CPU quota no more cores than it pays for.
  group::AllowedCores usable = own;
  usable.cores.resize(std::min(own.cores.size(), static_cast<size_t>(num_usable_cores())));
  STOKER_ASSIGN_OR_RETURN(const auto texts, group.gather(group::to_text(usable), stop));
  std::vector<group::AllowedCores> all;
  for (const std::string& text : texts) all.push_back(group::parse_allowed_cores(text));
  STOKER_ASSIGN_OR_RETURN(
      const std::string shared,
      group.text_of_chief(group.is_chief() ? std::to_string(group::share_cores(all)) : "", stop));
  STOKER_ASSIGN_OR_RETURN(const int share, parse_num_threads(shared));
  const int num_threads = config.num_threads.value_or(share);
  log_info("group opened", {{"world_size", group.world_size()},
                            {"num_threads", num_threads},
                            {"cores", group::format_cores(own.cores)},
                            {"numa_nodes", group::numa_nodes_of(own.cores, kNumaNodesDirectory)}});
  return num_threads;
}

Result<config::DeviceConfig> choose_device(const config::Config& config,
                                           const group::LaunchEnvironment& launch,
                                           group::ProcessGroup& group,
                                           const std::stop_token& stop) {
  using Type = config::DeviceConfig::Type;
  const config::DeviceConfig cpu{.type = Type::kCpu, .index = std::nullopt};
  const Type type = config.train.device.type;
  const bool uses_gloo = config.distributed.backend == config::GroupBackend::kGloo;
  if (type == Type::kCpu || (type == Type::kAuto && uses_gloo)) return cpu;
  std::string needed_by;
  if (config.distributed.backend == config::GroupBackend::kNccl)
    needed_by = "distributed.backend: nccl";
  else if (type == Type::kCuda)
    needed_by = "train.device: cuda";
  const group::RankDevice own = train::find_rank_device(launch.local_rank, launch.local_world_size);
  STOKER_ASSIGN_OR_RETURN(const auto texts, group.gather(group::to_text(own), stop));
  const std::string of_chief =
      group.is_chief() ? group::to_text(choose_for_all(texts, needed_by, group)) : "";
  STOKER_ASSIGN_OR_RETURN(const std::string text, group.text_of_chief(of_chief, stop));
  STOKER_ASSIGN_OR_RETURN(const group::DeviceChoice choice, group::parse_device_choice(text));
  if (!choice.uses_gpus) {
    log_info("device fallback", {{"device", "cpu"}, {"reason", choice.reason}});
    return cpu;
  }
  STOKER_ASSIGN_OR_RETURN(const auto collectives, train::find_collectives(own.index));
  STOKER_RETURN_IF_ERROR(group.add_devices(collectives));
  const config::DeviceConfig gpu{.type = Type::kCuda, .index = own.index};
  for (const std::string& reason : world_size_effects(config, gpu))
    log_warn("results depend on the number of ranks", {{"reason", reason}});
  return gpu;
}

config::Config without_duties_of_chief(config::Config config) {
  config.control.socket.reset();
  config.http.listen.reset();
  config.metrics.tensorboard = false;
  config.metrics.histogram_every_steps.reset();
  config.epochs.erase("metrics.histogram_every_steps");
  return config;
}

group::SharedSettings shared_settings(const config::Config& config) {
  group::SharedSettings settings{{"stoker version", stoker_version()},
                                 {"LibTorch version", torch_version()},
                                 {"CPU capability", at::get_cpu_capability()}};
  for (const config::Setting& setting : config::all_settings(config))
    settings.emplace_back(setting.key, setting.public_value());
  return settings;
}

Result<std::unique_ptr<group::ProcessGroup>> open_process_group(
    const config::Config& config, const group::LaunchEnvironment& launch,
    const run::RunLayout& layout, const Status& ready, group::FlightRecorder* maybe_recorder,
    const std::stop_token& stop) {
  std::error_code error;
  const auto directory = std::filesystem::absolute(layout.root(), error).lexically_normal();
  auto opened = group::open_group(
      launch,
      {.run_id = directory.string(),
       .secret = [layout] { return group::read_or_create_secret(layout.group_secret_file()); },
       .interface = config.distributed.interface,
       .timeout = milliseconds_of(config.distributed.timeout_seconds),
       .start_timeout = milliseconds_of(config.distributed.start_timeout_seconds),
       // The kernel releases the lock of a process however it ends.
       .has_exited =
           [layout](int rank) {
             const std::string lock = layout_of_rank(layout, rank).lock_file();
             // Without the file, the rank has another run directory than this one.
             std::error_code missing;
             if (!std::filesystem::exists(lock, missing)) return false;
             const auto locked = is_locked(lock);
             return locked.ok() && !*locked;
           },
       .ready = ready,
       .on_listening = {}},
      stop);
  if (!opened.ok() || maybe_recorder == nullptr) return opened;
  set_aside_flight_records(launch, layout);
  return std::unique_ptr<group::ProcessGroup>(
      std::make_unique<group::RecordedGroup>(*std::move(opened), *maybe_recorder));
}

group::FlightRecorder::Owner recorder_of(const group::LaunchEnvironment& launch,
                                         const run::RunLayout& layout) {
  return {.rank = launch.rank,
          .world_size = launch.world_size,
          .path = layout_of_rank(layout, launch.rank).flight_recorder_file()};
}

run::RunLayout layout_of_rank(const run::RunLayout& layout, int rank) {
  return rank == 0 ? layout : run::RunLayout(layout.rank_dir(rank));
}

}  // namespace stoker::app
