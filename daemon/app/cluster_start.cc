#include "daemon/app/cluster_start.h"

#include <charconv>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "daemon/app/group_start.h"
#include "daemon/group/authenticated_store.h"
#include "daemon/group/socket_address.h"
#include "daemon/group/start_checks.h"
#include "shared/base/deadline.h"
#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/base/utf8.h"
#include "shared/config/topology_limits.h"

namespace stoker::app {
namespace {

using config::ReplicaMode;
using parameter_server::Job;

constexpr const char* kStorePrefix = "stoker";
constexpr const char* kSettingsKey = "settings";
constexpr const char* kDataKey = "data_and_model";
// Counted by the tasks that do not serve the store.
constexpr const char* kMetKey = "met";
constexpr const char* kLeftKey = "left";
// For the failure of a task whose connections are closed already, and for the others to read it.
constexpr std::chrono::seconds kRecordGrace{1};
constexpr std::chrono::seconds kStoreGrace{5};

std::string host_of(const std::string& address) { return address.substr(0, address.rfind(':')); }

uint16_t port_of(const std::string& address) {
  const size_t colon = address.rfind(':');
  uint16_t port = 0;
  std::from_chars(address.data() + colon + 1, address.data() + address.size(), port);
  return port;
}

// The first difference from the settings under `key`.
Status compare_settings(group::TcpStore& store, const char* key, const group::SharedSettings& own,
                        const std::string& owner, const std::string& hint) {
  STOKER_ASSIGN_OR_RETURN(const auto text, store.get(key));
  const auto others = group::parse_settings(text.value_or(""), key);
  if (!others.ok())
    return Status(StatusCode::kMismatch,
                  owner + " has other settings than this version of stokerd");
  const auto difference = group::find_difference(*others, own);
  if (!difference) return {};
  return Status(StatusCode::kMismatch, difference->name + ": is '" + difference->own +
                                           "' here, and '" + difference->other + "' on " + owner +
                                           "; " + hint);
}

template <typename Enum>
std::string word_of(const std::optional<Enum>& value) {
  return value ? std::string(config::to_string(*value)) : std::string();
}

// What is set; empty: neither. If both are, they must be equal.
Result<std::string> option_or_setting(const std::string& option, const std::string& value,
                                      const std::string& key, const std::string& configured) {
  if (!value.empty() && !configured.empty() && value != configured)
    return Status(StatusCode::kInvalidArgument, option + " is " + value + ", but " + key + " is " +
                                                    configured +
                                                    "; make them equal, or set only one");
  return value.empty() ? configured : value;
}

}  // namespace

Result<std::optional<ClusterLaunch>> make_cluster_launch(const CommandLine& command,
                                                         std::string_view tf_config,
                                                         const config::ClusterConfig& configured) {
  STOKER_ASSIGN_OR_RETURN(
      auto task, parameter_server::parse_cluster_task(command.cluster, tf_config, configured));
  const bool has_options =
      !command.replicas.empty() || !command.placement.empty() || command.max_staleness.has_value();
  if (!task && has_options)
    return Status(StatusCode::kInvalidArgument,
                  "--replicas, --placement, --max-staleness: require the section cluster, "
                  "--ps_hosts and --worker_hosts, or TF_CONFIG");
  if (!task) return std::optional<ClusterLaunch>();
  ClusterLaunch launch{.task = *std::move(task)};
  STOKER_ASSIGN_OR_RETURN(const std::string replicas,
                          option_or_setting("--replicas", command.replicas, "cluster.replicas",
                                            word_of(configured.replicas)));
  STOKER_ASSIGN_OR_RETURN(const std::string placement,
                          option_or_setting("--placement", command.placement, "cluster.placement",
                                            word_of(configured.placement)));
  const auto number = [](const std::optional<uint64_t>& value) {
    return value ? std::to_string(*value) : std::string();
  };
  STOKER_RETURN_IF_ERROR(option_or_setting("--max-staleness", number(command.max_staleness),
                                           "cluster.max_staleness",
                                           number(configured.max_staleness))
                             .status());
  launch.replicas = replicas == "async" ? ReplicaMode::kAsync : ReplicaMode::kSync;
  launch.placement = placement == "bytes" ? config::VariablePlacement::kBytes
                                          : config::VariablePlacement::kRoundRobin;
  launch.max_staleness = command.max_staleness ? command.max_staleness : configured.max_staleness;
  return std::optional(std::move(launch));
}

Status check_cluster_support(const config::Config& config, const ClusterLaunch& cluster) {
  config::Config checked = config;
  checked.cluster.max_staleness = cluster.max_staleness;  // also if an option has set it
  const auto errors = config::broken_limits(checked, cluster.replicas == ReplicaMode::kAsync
                                                         ? config::Topology::kAsyncServers
                                                         : config::Topology::kSyncServers);
  if (errors.empty()) return {};
  return Status(StatusCode::kInvalidArgument, "with parameter servers: " + join(errors, "; "));
}

Status check_configured_cluster(const config::Config& config, const CommandLine& command) {
  if (config.cluster.ps.empty()) return {};
  const bool is_async =
      command.replicas == "async" || config.cluster.replicas == ReplicaMode::kAsync;
  return check_cluster_support(
      config, {.task = {},
               .replicas = is_async ? ReplicaMode::kAsync : ReplicaMode::kSync,
               .max_staleness =
                   command.max_staleness ? command.max_staleness : config.cluster.max_staleness});
}

void warn_of_several_workers(const config::Config& config, const ClusterLaunch& cluster,
                             const model::Model& model) {
  if (cluster.task.cluster.worker.size() < 2) return;
  if (cluster.replicas == ReplicaMode::kSync) {
    for (const std::string& reason : world_size_effects(model))
      log_warn("results depend on the number of ranks", {{"reason", reason}});
    return;
  }
  const bool has_momentum = std::visit(
      [](const auto& method) {
        if constexpr (requires { method.momentum; }) return method.momentum > 0;
        return false;
      },
      config.optimizer.method);
  if (has_momentum && !cluster.max_staleness)
    log_warn(
        "settings contradictory",
        {{"key", "cluster.max_staleness"},
         {"reason",
          "null is no bound: with optimizer.momentum, gradients of parameters that others have "
          "updated meanwhile can raise the loss; set it, such as to 1, or set "
          "optimizer.momentum to 0"}});
}

group::LaunchEnvironment rank_of(const parameter_server::ClusterTask& task,
                                 group::LaunchEnvironment environment) {
  const auto num_workers = static_cast<int>(task.cluster.worker.size());
  environment.rank = task.job == Job::kWorker ? task.index : num_workers + task.index;
  environment.world_size = num_workers + static_cast<int>(task.cluster.ps.size());
  environment.local_world_size = 1;
  return environment;
}

void add_cluster_settings(const ClusterLaunch& cluster, group::SharedSettings& settings) {
  settings.emplace_back("--ps_hosts", join(cluster.task.cluster.ps, ","));
  settings.emplace_back("--worker_hosts", join(cluster.task.cluster.worker, ","));
  settings.emplace_back("--replicas", config::to_string(cluster.replicas));
  settings.emplace_back("--max-staleness", cluster.max_staleness
                                               ? std::to_string(*cluster.max_staleness)
                                               : std::string("none"));
  settings.emplace_back("--placement", config::to_string(cluster.placement));
}

parameter_server::UpdateOptions update_options(const config::Config& config,
                                               const ClusterLaunch& cluster) {
  return {.replicas = cluster.replicas,
          .num_workers = cluster.task.cluster.worker.size(),
          .gradients_per_step = static_cast<uint64_t>(config.train.gradient_accumulation_steps),
          .max_steps = config.train.max_steps,
          .max_staleness = cluster.max_staleness};
}

Result<ClusterMeeting> meet_cluster(const config::Config& config, const ClusterLaunch& cluster,
                                    const run::RunLayout& layout,
                                    const group::SharedSettings& settings,
                                    const std::function<std::string()>& find_end,
                                    const std::stop_token& stop) {
  const parameter_server::ClusterTask& task = cluster.task;
  const std::string& first = task.cluster.ps.front();
  const bool is_first = task.job == Job::kPs && task.index == 0;
  ClusterMeeting made;
  parameter_server::Meeting& meeting = made.meeting;
  meeting.timeout = milliseconds_of(config.distributed.timeout_seconds);
  meeting.start_timeout = milliseconds_of(config.distributed.start_timeout_seconds);
  meeting.store.prefix = kStorePrefix;
  meeting.store.server = "ps 0 (" + first + ")";
  meeting.store.port_hint = "give ps 0 a free port, the same for all tasks";
  meeting.find_end = find_end;
  meeting.is_chief_running = [lock = layout.lock_file()] {
    const auto locked = is_locked(lock);
    return locked.ok() && *locked;
  };
  STOKER_ASSIGN_OR_RETURN(meeting.store.secret,
                          group::read_or_create_secret(layout.group_secret_file()));
  meeting.store_port = port_of(first);
  if (is_first) {
    auto listening = group::listen_on(host_of(first), port_of(first));
    if (listening.status().code() == StatusCode::kBusy)
      return Status(StatusCode::kBusy,
                    listening.status().message() + "; " + meeting.store.port_hint);
    if (listening.status().code() == StatusCode::kInvalidArgument)
      return Status(StatusCode::kInvalidArgument,
                    listening.status().message() + "; start ps 0 on the host of its address");
    if (!listening.ok()) return listening.status();
    meeting.store_address = listening->address;
    STOKER_ASSIGN_OR_RETURN(made.store,
                            group::TcpStore::serve(*std::move(listening), meeting.store));
  } else {
    parameter_server::TaskWait wait(meeting, meeting.store.server);
    const auto check = [&wait](const Status& last) -> Status {
      const Status waited = wait.check();
      if (waited.code() != StatusCode::kPeerLost) return waited;
      return Status(StatusCode::kPeerLost, waited.message() + ": " + last.message());
    };
    STOKER_ASSIGN_OR_RETURN(
        meeting.store_address,
        group::wait_for_listener(host_of(first), port_of(first), kNoDeadline, stop, check));
    STOKER_ASSIGN_OR_RETURN(
        made.store,
        group::TcpStore::connect(meeting.store_address, meeting.store_port, meeting.store));
    STOKER_RETURN_IF_ERROR(made.store->add(kMetKey, 1).status());
  }
  STOKER_ASSIGN_OR_RETURN(meeting.address,
                          group::own_address(config.distributed.interface, meeting.store_address));
  if (is_first) STOKER_RETURN_IF_ERROR(made.store->set(kSettingsKey, group::to_json(settings)));
  STOKER_RETURN_IF_ERROR(parameter_server::wait_for_task(
      *made.store, kSettingsKey, stop, parameter_server::TaskWait(meeting, meeting.store.server)));
  return made;
}

Status compare_with_first_server(ClusterMeeting& met, const group::SharedSettings& own) {
  return compare_settings(*met.store, kSettingsKey, own, "parameter server 0",
                          "start all tasks with the same configuration and options");
}

Status compare_with_chief(group::TcpStore& store, bool is_chief, const group::SharedSettings& own,
                          parameter_server::TaskWait wait, const std::stop_token& stop) {
  if (is_chief) return store.set(kDataKey, group::to_json(own));
  STOKER_RETURN_IF_ERROR(parameter_server::wait_for_task(store, kDataKey, stop, std::move(wait)));
  return compare_settings(store, kDataKey, own, "worker 0, the chief",
                          "all tasks must read the same files");
}

Status leave_cluster(ClusterMeeting& met, const parameter_server::ClusterTask& task,
                     const Status& failure, bool is_cause) {
  group::TcpStore& store = *met.store;
  const bool is_lost = failure.code() == StatusCode::kPeerLost;
  if (is_cause) parameter_server::announce_failure(store, task, failure);
  const bool may_follow = is_lost && !is_cause && failure.cause() == StatusCode::kOk;
  const Status announced =
      parameter_server::check_failure(store, may_follow ? kRecordGrace : std::chrono::seconds(0));
  if (task.job != Job::kPs || task.index != 0) {
    (void)store.add(kLeftKey, 1);
  } else if (!announced.ok()) {
    using std::chrono::steady_clock;
    const auto have_left = [&store] {
      const auto all = store.add(kMetKey, 0), left = store.add(kLeftKey, 0);
      return !all.ok() || !left.ok() || *left >= *all;
    };
    const Deadline end = steady_clock::now() + kStoreGrace;
    while (steady_clock::now() < end && !have_left())
      sleep_until({}, steady_clock::now() + std::chrono::milliseconds(20));
  }
  if (!may_follow || announced.cause() == StatusCode::kOk) return failure;
  return Status(StatusCode::kPeerLost, announced.message() + "; " + failure.message(),
                announced.cause());
}

}  // namespace stoker::app
