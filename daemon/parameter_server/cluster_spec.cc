#include "daemon/parameter_server/cluster_spec.h"

#include <charconv>
#include <set>
#include <system_error>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/utf8.h"

namespace stoker::parameter_server {
namespace {

namespace json = boost::json;

constexpr int kMaxPort = 65535;

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

bool is_port(std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port >= 1 && port <= kMaxPort;
}

Status check_hosts(const std::vector<std::string>& hosts, const std::string& where,
                   std::set<std::string>& known) {
  for (const std::string& host : hosts) {
    const size_t colon = host.rfind(':');
    if (colon == std::string::npos || colon == 0 ||
        !is_port(std::string_view(host).substr(colon + 1)))
      return invalid(where + ": must be host:port with a port from 1 to 65535, got '" + host + "'");
    if (!known.insert(host).second)
      return invalid(where + ": '" + host + "' is the address of two tasks; give each its own");
  }
  return {};
}

Status check_task(const ClusterTask& task, const std::string& ps_key, const std::string& worker_key,
                  const std::string& index_key) {
  std::set<std::string> known;
  STOKER_RETURN_IF_ERROR(check_hosts(task.cluster.ps, ps_key, known));
  STOKER_RETURN_IF_ERROR(check_hosts(task.cluster.worker, worker_key, known));
  const auto& tasks = task.job == Job::kPs ? task.cluster.ps : task.cluster.worker;
  if (task.index < 0 || static_cast<size_t>(task.index) >= tasks.size())
    return invalid(index_key + ": must be from 0 to " + std::to_string(tasks.size() - 1) +
                   " for the job " + std::string(to_string(task.job)) + ", got " +
                   std::to_string(task.index));
  return {};
}

Result<ClusterTask> parse_flags(const ClusterFlags& flags) {
  std::vector<std::string> missing;
  if (flags.ps_hosts.empty()) missing.emplace_back("--ps_hosts");
  if (flags.worker_hosts.empty()) missing.emplace_back("--worker_hosts");
  if (flags.job_name.empty()) missing.emplace_back("--job_name");
  if (!flags.task_index) missing.emplace_back("--task_index");
  if (!missing.empty())
    return invalid(join(missing, ", ") + ": required for a task of a cluster of parameter servers");
  if (flags.job_name != "ps" && flags.job_name != "worker")
    return invalid("--job_name: must be ps or worker, got '" + flags.job_name + "'");
  ClusterTask task{
      .cluster = {.ps = split_hosts(flags.ps_hosts), .worker = split_hosts(flags.worker_hosts)},
      .job = flags.job_name == "ps" ? Job::kPs : Job::kWorker,
      .index = *flags.task_index};
  STOKER_RETURN_IF_ERROR(check_task(task, "--ps_hosts", "--worker_hosts", "--task_index"));
  return task;
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

// nullopt: without parameter servers.
Result<std::optional<ClusterTask>> parse_tf_config(std::string_view text) {
  boost::system::error_code error;
  const json::value parsed = json::parse(text, error);
  if (error || !parsed.is_object()) return std::optional<ClusterTask>();
  const json::value* const cluster = parsed.get_object().if_contains("cluster");
  const json::value* const task = parsed.get_object().if_contains("task");
  if (cluster == nullptr || !cluster->is_object() ||
      cluster->get_object().if_contains("ps") == nullptr)
    return std::optional<ClusterTask>();
  if (task == nullptr || !task->is_object())
    return invalid("TF_CONFIG: must have the objects cluster and task");
  for (const auto& job : cluster->get_object())
    if (job.key() != "ps" && job.key() != "worker" && job.key() != "chief" &&
        job.key() != "master" && job.key() != "evaluator")
      return invalid("TF_CONFIG: unknown job '" + std::string(job.key()) + "' in cluster");
  ClusterTask made;
  STOKER_ASSIGN_OR_RETURN(made.cluster.ps, hosts_of(cluster->get_object(), "ps"));
  STOKER_ASSIGN_OR_RETURN(made.cluster.worker, chief_of(cluster->get_object()));
  const auto num_chiefs = static_cast<int64_t>(made.cluster.worker.size());
  STOKER_ASSIGN_OR_RETURN(const auto workers, hosts_of(cluster->get_object(), "worker"));
  made.cluster.worker.insert(made.cluster.worker.end(), workers.begin(), workers.end());
  if (made.cluster.ps.empty() || made.cluster.worker.empty())
    return invalid("TF_CONFIG: cluster must have the jobs ps and worker");

  const json::value* const type = task->get_object().if_contains("type");
  const json::value* const index = task->get_object().if_contains("index");
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
  if (job == "ps") {
    made.job = Job::kPs;
  } else if (job == "worker") {
    number += num_chiefs;
  } else if ((job == "chief" || job == "master") && num_chiefs == 1) {
    if (number != 0) return invalid("TF_CONFIG: task.index must be 0 for the job " + job);
  } else {
    return invalid("TF_CONFIG: task.type must be a job of cluster, got '" + job + "'");
  }
  made.index = static_cast<int>(number);
  STOKER_RETURN_IF_ERROR(check_task(made, "TF_CONFIG: cluster.ps", "TF_CONFIG: cluster.worker",
                                    "TF_CONFIG: task.index"));
  return std::optional(std::move(made));
}

}  // namespace

std::string_view to_string(Job job) { return job == Job::kPs ? "ps" : "worker"; }

std::string ClusterTask::name() const {
  const auto& tasks = job == Job::kPs ? cluster.ps : cluster.worker;
  return std::string(to_string(job)) + " " + std::to_string(index) + " (" +
         tasks[static_cast<size_t>(index)] + ")";
}

Result<std::optional<ClusterTask>> parse_cluster_task(const ClusterFlags& flags,
                                                      std::string_view tf_config) {
  const bool has_flags = !flags.ps_hosts.empty() || !flags.worker_hosts.empty() ||
                         !flags.job_name.empty() || flags.task_index.has_value();
  if (!has_flags && tf_config.empty()) return std::optional<ClusterTask>();
  if (!has_flags) return parse_tf_config(tf_config);
  auto task = parse_flags(flags);
  if (!task.ok()) return task.status();
  return std::optional<ClusterTask>(*std::move(task));
}

}  // namespace stoker::parameter_server
