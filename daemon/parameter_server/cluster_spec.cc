#include "daemon/parameter_server/cluster_spec.h"

#include <set>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/utf8.h"
#include "shared/config/config.h"

namespace stoker::parameter_server {
namespace {

namespace json = boost::json;

Status invalid(const std::string& message) { return Status(StatusCode::kInvalidArgument, message); }

std::vector<std::string> split_hosts(std::string_view list) {
  std::vector<std::string> hosts;
  while (true) {
    const size_t comma = list.find(',');
    hosts.emplace_back(list.substr(0, comma));
    if (comma == std::string_view::npos) return hosts;
    list.remove_prefix(comma + 1);
  }
}

Status check_hosts(const std::vector<std::string>& hosts, const std::string& where,
                   std::set<std::string>& known) {
  for (const std::string& host : hosts) {
    if (!config::is_task_address(host))
      return invalid(where + ": must be host:port with a port from 1 to 65535, got '" + host + "'");
    if (!known.insert(host).second)
      return invalid(where + ": '" + host + "' is the address of two tasks; give each its own");
  }
  return {};
}

// What one source says: the flags, TF_CONFIG or the configuration.
struct Source {
  std::string cluster_name;  // for messages
  std::optional<ClusterSpec> cluster;
  std::string task_name, index_name;
  std::optional<ClusterTask> task;  // without its cluster
};

Status check_index(const ClusterTask& task, const std::string& index_name) {
  const auto& tasks = task.job == Job::kPs ? task.cluster.ps : task.cluster.worker;
  if (task.index < 0 || static_cast<size_t>(task.index) >= tasks.size())
    return invalid(index_name + ": must be from 0 to " + std::to_string(tasks.size() - 1) +
                   " for the job " + std::string(to_string(task.job)) + ", got " +
                   std::to_string(task.index));
  return {};
}

Result<Source> parse_flags(const ClusterFlags& flags) {
  Source source{.cluster_name = "--ps_hosts and --worker_hosts",
                .cluster = {},
                .task_name = "--job_name and --task_index",
                .index_name = "--task_index",
                .task = {}};
  std::vector<std::string> missing;
  const bool has_hosts = !flags.ps_hosts.empty() || !flags.worker_hosts.empty();
  const bool has_task = !flags.job_name.empty() || flags.task_index.has_value();
  if (has_hosts && flags.ps_hosts.empty()) missing.emplace_back("--ps_hosts");
  if (has_hosts && flags.worker_hosts.empty()) missing.emplace_back("--worker_hosts");
  if (has_task && flags.job_name.empty()) missing.emplace_back("--job_name");
  if (has_task && !flags.task_index) missing.emplace_back("--task_index");
  if (!missing.empty())
    return invalid(join(missing, ", ") + ": required for a task of a cluster of parameter servers");
  if (has_hosts) {
    source.cluster = {.ps = split_hosts(flags.ps_hosts), .worker = split_hosts(flags.worker_hosts)};
    std::set<std::string> known;
    STOKER_RETURN_IF_ERROR(check_hosts(source.cluster->ps, "--ps_hosts", known));
    STOKER_RETURN_IF_ERROR(check_hosts(source.cluster->worker, "--worker_hosts", known));
  }
  if (!has_task) return source;
  if (flags.job_name != "ps" && flags.job_name != "worker")
    return invalid("--job_name: must be ps or worker, got '" + flags.job_name + "'");
  source.task = ClusterTask{.cluster = {},
                            .job = flags.job_name == "ps" ? Job::kPs : Job::kWorker,
                            .index = *flags.task_index};
  return source;
}

// ---- TF_CONFIG -----------------------------------------------------------------------------------

Result<std::vector<std::string>> hosts_of(const json::object& cluster, const char* job) {
  std::vector<std::string> hosts;
  const json::value* const list = cluster.if_contains(job);
  if (list == nullptr) return hosts;
  const std::string error =
      "TF_CONFIG: cluster." + std::string(job) + " must be a list of \"host:port\"";
  if (!list->is_array()) return invalid(error);
  for (const json::value& host : list->get_array()) {
    if (!host.is_string()) return invalid(error);
    hosts.emplace_back(host.get_string());
  }
  return hosts;
}

// The name of the job of the chief, if the cluster has one in addition to `worker`.
Result<std::vector<std::string>> chief_of(const json::object& cluster) {
  for (const char* const job : {"chief", "master"}) {
    STOKER_ASSIGN_OR_RETURN(auto hosts, hosts_of(cluster, job));
    if (hosts.size() > 1)
      return invalid("TF_CONFIG: cluster." + std::string(job) + " must have one task");
    if (!hosts.empty()) return hosts;
  }
  return std::vector<std::string>();
}

struct TfCluster {
  ClusterSpec spec;
  int64_t num_chiefs = 0;  // workers that are not of the job `worker`
};

Result<TfCluster> parse_tf_cluster(const json::object& cluster) {
  TfCluster made;
  STOKER_ASSIGN_OR_RETURN(made.spec.ps, hosts_of(cluster, "ps"));
  STOKER_ASSIGN_OR_RETURN(made.spec.worker, chief_of(cluster));
  made.num_chiefs = static_cast<int64_t>(made.spec.worker.size());
  STOKER_ASSIGN_OR_RETURN(const auto workers, hosts_of(cluster, "worker"));
  made.spec.worker.insert(made.spec.worker.end(), workers.begin(), workers.end());
  if (made.spec.ps.empty() || made.spec.worker.empty())
    return invalid("TF_CONFIG: cluster must have the jobs ps and worker");
  std::set<std::string> known;
  STOKER_RETURN_IF_ERROR(check_hosts(made.spec.ps, "TF_CONFIG: cluster.ps", known));
  STOKER_RETURN_IF_ERROR(check_hosts(made.spec.worker, "TF_CONFIG: cluster.worker", known));
  return made;
}

// `num_chiefs`: of the cluster of TF_CONFIG; nullopt: it has none.
Result<ClusterTask> parse_tf_task(const json::object& task, std::optional<int64_t> num_chiefs) {
  const json::value* const type = task.if_contains("type");
  const json::value* const index = task.if_contains("index");
  if (type == nullptr || !type->is_string() || index == nullptr || !index->is_int64())
    return invalid("TF_CONFIG: task must have type, a text, and index, a number");
  const std::string job(type->get_string());
  int64_t number = index->get_int64();
  constexpr int64_t kMaxIndex = 1'000'000;
  if (number < 0 || number > kMaxIndex)
    return invalid("TF_CONFIG: task.index must be the number of a task, got " +
                   std::to_string(number));
  if (job == "evaluator")
    return invalid("TF_CONFIG: task.type is evaluator; start stoker-eval --follow instead");
  ClusterTask made;
  if (job == "ps") {
    made.job = Job::kPs;
  } else if (job == "worker") {
    number += num_chiefs.value_or(0);
  } else if ((job == "chief" || job == "master") && !num_chiefs) {
    return invalid("TF_CONFIG: task.type is " + job +
                   ", but without a cluster in TF_CONFIG the number of each worker is unknown; add "
                   "the cluster, or name the chief as worker 0");
  } else if ((job == "chief" || job == "master") && num_chiefs == 1) {
    if (number != 0) return invalid("TF_CONFIG: task.index must be 0 for the job " + job);
  } else {
    return invalid("TF_CONFIG: task.type must be a job of cluster, got '" + job + "'");
  }
  made.index = static_cast<int>(number);
  return made;
}

// null: empty text.
Result<json::value> parse_tf_object(std::string_view text) {
  if (text.empty()) return json::value();
  boost::system::error_code error;
  json::value parsed = json::parse(text, error);
  if (error || !parsed.is_object())
    return invalid("TF_CONFIG: must be a JSON object, got " + quote_for_message(std::string(text)) +
                   "; correct or unset it");
  const json::value* const cluster = parsed.get_object().if_contains("cluster");
  if (cluster == nullptr) return parsed;
  if (!cluster->is_object()) return invalid("TF_CONFIG: cluster must be an object");
  for (const auto& job : cluster->get_object())
    if (job.key() != "ps" && job.key() != "worker" && job.key() != "chief" &&
        job.key() != "master" && job.key() != "evaluator")
      return invalid("TF_CONFIG: unknown job '" + printable(std::string(job.key())) +
                     "' in cluster; the jobs are ps, worker, chief, master and evaluator");
  return parsed;
}

// Empty if it is not of a cluster with parameter servers. `has_cluster`: another source has one.
Result<Source> parse_tf_config(std::string_view text, bool has_cluster) {
  Source source{.cluster_name = "TF_CONFIG (cluster)",
                .cluster = {},
                .task_name = "TF_CONFIG (task)",
                .index_name = "TF_CONFIG: task.index",
                .task = {}};
  STOKER_ASSIGN_OR_RETURN(const json::value parsed, parse_tf_object(text));
  if (parsed.is_null()) return source;
  const json::value* const cluster = parsed.get_object().if_contains("cluster");
  const json::value* const task = parsed.get_object().if_contains("task");
  const bool is_other_kind = cluster != nullptr && !cluster->get_object().contains("ps");
  if (is_other_kind || (cluster == nullptr && (!has_cluster || task == nullptr))) return source;
  if (task == nullptr || !task->is_object()) return invalid("TF_CONFIG: must have the object task");
  std::optional<int64_t> num_chiefs;
  if (cluster != nullptr) {
    STOKER_ASSIGN_OR_RETURN(auto made, parse_tf_cluster(cluster->get_object()));
    num_chiefs = made.num_chiefs;
    source.cluster = std::move(made.spec);
  }
  STOKER_ASSIGN_OR_RETURN(source.task, parse_tf_task(task->get_object(), num_chiefs));
  return source;
}

// ---- all sources ---------------------------------------------------------------------------------

std::string text_of(const ClusterSpec& cluster) {
  return "ps " + join(cluster.ps, ",") + ", worker " + join(cluster.worker, ",");
}

std::string text_of(const ClusterTask& task) {
  return std::string(to_string(task.job)) + " " + std::to_string(task.index);
}

template <typename T>
Status conflict(const std::string& name, const T& value, const std::string& other_name,
                const T& other) {
  return invalid(name + " and " + other_name + " are different: '" + text_of(value) + "' and '" +
                 text_of(other) + "'; make them equal, or set only one");
}

}  // namespace

std::string_view to_string(Job job) { return job == Job::kPs ? "ps" : "worker"; }

std::string ClusterTask::name() const {
  const auto& tasks = job == Job::kPs ? cluster.ps : cluster.worker;
  return std::string(to_string(job)) + " " + std::to_string(index) + " (" +
         tasks[static_cast<size_t>(index)] + ")";
}

Status check_tf_config(std::string_view text) { return parse_tf_object(text).status(); }

Result<std::optional<ClusterTask>> parse_cluster_task(const ClusterFlags& flags,
                                                      std::string_view tf_config,
                                                      const config::ClusterConfig& configured) {
  STOKER_ASSIGN_OR_RETURN(const Source from_flags, parse_flags(flags));
  const auto spec = configured.ps.empty()
                        ? std::optional<ClusterSpec>()
                        : ClusterSpec{.ps = configured.ps, .worker = configured.worker};
  const Source from_config{.cluster_name = "cluster.ps and cluster.worker of the configuration",
                           .cluster = spec,
                           .task_name = {},
                           .index_name = {},
                           .task = {}};
  const bool has_cluster = from_flags.cluster || from_config.cluster;
  STOKER_ASSIGN_OR_RETURN(const Source from_variable, parse_tf_config(tf_config, has_cluster));

  const Source* cluster = nullptr;
  const Source* task = nullptr;
  for (const Source* const source : {&from_flags, &from_variable, &from_config}) {
    if (source->cluster && cluster != nullptr && *source->cluster != *cluster->cluster)
      return conflict(cluster->cluster_name, *cluster->cluster, source->cluster_name,
                      *source->cluster);
    if (source->cluster && cluster == nullptr) cluster = source;
    if (source->task && task != nullptr && *source->task != *task->task)
      return conflict(task->task_name, *task->task, source->task_name, *source->task);
    if (source->task && task == nullptr) task = source;
  }
  if (cluster == nullptr && task == nullptr) return std::optional<ClusterTask>();
  if (cluster == nullptr)
    return invalid(
        "--ps_hosts, --worker_hosts: required for a task of a cluster of parameter servers, or "
        "cluster.ps and cluster.worker in the configuration");
  if (task == nullptr)
    return invalid("--job_name, --task_index: required for a task of the cluster of " +
                   cluster->cluster_name + ", or TF_CONFIG with a task");
  ClusterTask made = *task->task;
  made.cluster = *cluster->cluster;
  STOKER_RETURN_IF_ERROR(check_index(made, task->index_name));
  return std::optional(std::move(made));
}

}  // namespace stoker::parameter_server
