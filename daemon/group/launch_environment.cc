#include "daemon/group/launch_environment.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "shared/base/utf8.h"

namespace stoker::group {
namespace {

constexpr int kMaxRanks = 1 << 16;
constexpr int kMaxPort = 65535;
constexpr size_t kMaxHosts = kMaxRanks;
// Derived ports are below the ephemeral range (from 32768), in which any program can use one.
constexpr uint64_t kFirstDerivedPort = 20000;
constexpr uint64_t kDerivedPorts = 10000;
// Step ids from here on are no tasks of srun: the batch script, the shell of salloc.
constexpr uint64_t kFirstSpecialStep = 0xfffffff0;
constexpr const char* kLoopback = "127.0.0.1";

Status invalid(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

template <typename T>
std::optional<T> parse_integer(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// ---- variables -----------------------------------------------------------------------------------

class Variables {
 public:
  explicit Variables(const EnvironmentVariables& all) : all_(all) {}

  const std::string* find(std::string_view name) const {
    const auto found = all_.find(name);
    return found == all_.end() || found->second.empty() ? nullptr : &found->second;
  }
  std::string text(std::string_view name) const {
    const std::string* const value = find(name);
    return value == nullptr ? std::string() : *value;
  }
  std::vector<std::string> present(std::span<const std::string_view> names) const {
    return select(names, true);
  }
  std::vector<std::string> missing(std::span<const std::string_view> names) const {
    return select(names, false);
  }

  // The number in a variable that is set.
  Result<int> number(std::string_view name, int min, int max) const {
    const std::string value = text(name);
    const auto number = parse_integer<int>(value);
    if (number && *number >= min && *number <= max) return *number;
    return invalid("environment variable " + std::string(name) + " must be a number from " +
                   std::to_string(min) + " to " + std::to_string(max) + ", got '" + value + "'");
  }
  Result<int> number_or(std::string_view name, int min, int max, int default_value) const {
    if (find(name) == nullptr) return default_value;
    return number(name, min, max);
  }

 private:
  std::vector<std::string> select(std::span<const std::string_view> names, bool is_set) const {
    std::vector<std::string> selected;
    for (const std::string_view name : names) {
      if ((find(name) != nullptr) == is_set) selected.emplace_back(name);
    }
    return selected;
  }

  const EnvironmentVariables& all_;
};

// All of `names` must be set; `fix` completes the message: "start stokerd with torchrun".
Status check_complete(const Variables& variables, Launcher launcher,
                      std::span<const std::string_view> names, std::string_view fix) {
  const auto missing = variables.missing(names);
  if (missing.empty()) return {};
  const auto present = variables.present(names);
  return invalid("the environment of " + std::string(to_string(launcher)) +
                 " is incomplete: " + join(missing, ", ") + (missing.size() == 1 ? " is" : " are") +
                 " not set, but " + join(present, ", ") + (present.size() == 1 ? " is" : " are") +
                 "; " + std::string(fix) + ", or unset " + join(present, ", ") +
                 " for a run of one process");
}

Status check_below(std::string_view name, int value, std::string_view limit_name, int limit) {
  if (value < limit) return {};
  return invalid("environment variable " + std::string(name) + " (" + std::to_string(value) +
                 ") must be below " + std::string(limit_name) + " (" + std::to_string(limit) + ")");
}

struct RankNames {
  std::string_view rank, world_size, local_rank, local_world_size;
};

Status read_ranks(const Variables& variables, const RankNames& names, LaunchEnvironment& to) {
  STOKER_ASSIGN_OR_RETURN(to.world_size, variables.number(names.world_size, 1, kMaxRanks));
  STOKER_ASSIGN_OR_RETURN(to.rank, variables.number(names.rank, 0, kMaxRanks));
  STOKER_RETURN_IF_ERROR(check_below(names.rank, to.rank, names.world_size, to.world_size));
  if (!to.has_local_rank) return {};
  STOKER_ASSIGN_OR_RETURN(to.local_world_size,
                          variables.number(names.local_world_size, 1, to.world_size));
  STOKER_ASSIGN_OR_RETURN(to.local_rank, variables.number(names.local_rank, 0, kMaxRanks));
  return check_below(names.local_rank, to.local_rank, names.local_world_size, to.local_world_size);
}

uint16_t derive_port(std::string_view job_id, std::string_view run_directory) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a: the same in all processes of a job
  const auto add = [&hash](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  };
  add(job_id);
  add("\n");
  add(run_directory);
  return static_cast<uint16_t>(kFirstDerivedPort + hash % kDerivedPorts);
}

// MASTER_PORT, or the derived port.
Status read_port(const Variables& variables, std::string_view run_directory,
                 LaunchEnvironment& to) {
  const int derived = derive_port(to.job_id, run_directory);
  STOKER_ASSIGN_OR_RETURN(const int port, variables.number_or("MASTER_PORT", 1, kMaxPort, derived));
  to.store_port = static_cast<uint16_t>(port);
  return {};
}

// ---- torchrun ------------------------------------------------------------------------------------

constexpr std::string_view kTorchrunRanks[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK",
                                               "LOCAL_WORLD_SIZE"};

Result<LaunchEnvironment> parse_torchrun(const Variables& variables) {
  LaunchEnvironment environment{.launcher = Launcher::kTorchrun};
  std::vector<std::string_view> names{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
  environment.has_local_rank =
      variables.find("LOCAL_RANK") != nullptr || variables.find("LOCAL_WORLD_SIZE") != nullptr;
  if (environment.has_local_rank) {
    names.emplace_back("LOCAL_RANK");
    names.emplace_back("LOCAL_WORLD_SIZE");
  }
  STOKER_RETURN_IF_ERROR(check_complete(variables, environment.launcher, names,
                                        "start stokerd with torchrun, or set them all"));
  STOKER_RETURN_IF_ERROR(
      read_ranks(variables, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, environment));
  environment.store_host = variables.text("MASTER_ADDR");
  STOKER_ASSIGN_OR_RETURN(const int port, variables.number("MASTER_PORT", 1, kMaxPort));
  environment.store_port = static_cast<uint16_t>(port);
  environment.launcher_serves_store = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  environment.job_id = variables.text("TORCHELASTIC_RUN_ID");
  environment.error_file = variables.text("TORCHELASTIC_ERROR_FILE");
  STOKER_ASSIGN_OR_RETURN(environment.restart_count,
                          variables.number_or("TORCHELASTIC_RESTART_COUNT", 0, 1 << 30, 0));
  return environment;
}

// ---- Open MPI ------------------------------------------------------------------------------------

constexpr std::string_view kOpenMpiRanks[] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                              "OMPI_COMM_WORLD_LOCAL_RANK",
                                              "OMPI_COMM_WORLD_LOCAL_SIZE"};

Result<LaunchEnvironment> parse_open_mpi(const Variables& variables,
                                         std::string_view run_directory) {
  LaunchEnvironment environment{.launcher = Launcher::kOpenMpi};
  STOKER_RETURN_IF_ERROR(
      check_complete(variables, environment.launcher, kOpenMpiRanks, "start stokerd with mpirun"));
  STOKER_RETURN_IF_ERROR(read_ranks(
      variables, {kOpenMpiRanks[0], kOpenMpiRanks[1], kOpenMpiRanks[2], kOpenMpiRanks[3]},
      environment));
  environment.store_host = variables.text("MASTER_ADDR");
  if (environment.store_host.empty()) {
    if (!environment.is_single_node())
      return invalid(
          "Open MPI does not tell the host of rank 0; start stokerd with mpirun -x "
          "MASTER_ADDR=HOST");
    environment.store_host = kLoopback;
  }
  environment.job_id = variables.text("PMIX_NAMESPACE");
  STOKER_RETURN_IF_ERROR(read_port(variables, run_directory, environment));
  return environment;
}

// ---- Slurm ---------------------------------------------------------------------------------------

// A task of srun: SLURM_STEP_ID is the number of a step.
bool is_slurm_task(const Variables& variables) {
  const auto step = parse_integer<uint64_t>(variables.text("SLURM_STEP_ID"));
  return step && *step < kFirstSpecialStep;
}

// Host of each rank, if ranks fill the nodes one after the other.
std::vector<std::string> hosts_by_rank(const std::vector<std::string>& nodes,
                                       const std::vector<int>& tasks) {
  std::vector<std::string> hosts;
  for (size_t node = 0; node < nodes.size(); ++node)
    hosts.insert(hosts.end(), static_cast<size_t>(tasks[node]), nodes[node]);
  return hosts;
}

Status read_slurm_nodes(const Variables& variables, LaunchEnvironment& to) {
  STOKER_ASSIGN_OR_RETURN(const auto nodes,
                          expand_host_list(variables.text("SLURM_STEP_NODELIST")));
  STOKER_ASSIGN_OR_RETURN(const auto tasks,
                          expand_task_counts(variables.text("SLURM_STEP_TASKS_PER_NODE")));
  const int64_t total = std::accumulate(tasks.begin(), tasks.end(), int64_t{0});
  if (nodes.size() != tasks.size() || total != to.world_size)
    return invalid("the environment of Slurm is inconsistent: SLURM_STEP_NODELIST has " +
                   std::to_string(nodes.size()) + " nodes, SLURM_STEP_TASKS_PER_NODE has " +
                   std::to_string(tasks.size()) + " nodes and " + std::to_string(total) +
                   " tasks, and the step has " + std::to_string(to.world_size) +
                   " tasks; start stokerd with srun");
  STOKER_ASSIGN_OR_RETURN(const int node,
                          variables.number("SLURM_NODEID", 0, static_cast<int>(nodes.size()) - 1));
  to.local_world_size = tasks[static_cast<size_t>(node)];
  STOKER_ASSIGN_OR_RETURN(to.local_rank, variables.number("SLURM_LOCALID", 0, kMaxRanks));
  STOKER_RETURN_IF_ERROR(
      check_below("SLURM_LOCALID", to.local_rank, "the tasks of its node", to.local_world_size));
  to.store_host = nodes.front();
  const std::string distribution = variables.text("SLURM_DISTRIBUTION");
  if (distribution.empty() || distribution.starts_with("block"))
    to.rank_hosts = hosts_by_rank(nodes, tasks);
  return {};
}

Result<LaunchEnvironment> parse_slurm(const Variables& variables, std::string_view run_directory) {
  LaunchEnvironment environment{.launcher = Launcher::kSlurm};
  // The number of tasks of the step; in some versions SLURM_NTASKS is that of the job.
  const std::string_view world_name =
      variables.find("SLURM_STEP_NUM_TASKS") != nullptr ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  const std::string_view names[] = {"SLURM_STEP_ID",      "SLURM_PROCID",
                                    world_name,           "SLURM_LOCALID",
                                    "SLURM_NODEID",       "SLURM_STEP_TASKS_PER_NODE",
                                    "SLURM_STEP_NODELIST"};
  STOKER_RETURN_IF_ERROR(
      check_complete(variables, environment.launcher, names, "start stokerd with srun"));
  STOKER_ASSIGN_OR_RETURN(environment.world_size, variables.number(world_name, 1, kMaxRanks));
  STOKER_ASSIGN_OR_RETURN(environment.rank, variables.number("SLURM_PROCID", 0, kMaxRanks));
  STOKER_RETURN_IF_ERROR(
      check_below("SLURM_PROCID", environment.rank, world_name, environment.world_size));
  STOKER_RETURN_IF_ERROR(read_slurm_nodes(variables, environment));
  if (const std::string* const host = variables.find("MASTER_ADDR")) environment.store_host = *host;
  environment.job_id = variables.text("SLURM_JOB_ID") + "." + variables.text("SLURM_STEP_ID");
  STOKER_ASSIGN_OR_RETURN(environment.restart_count,
                          variables.number_or("SLURM_RESTART_COUNT", 0, 1 << 30, 0));
  STOKER_RETURN_IF_ERROR(read_port(variables, run_directory, environment));
  const std::string reserved = variables.text("SLURM_STEP_RESV_PORTS");  // "12000-12003"
  if (variables.find("MASTER_PORT") == nullptr && !reserved.empty()) {
    const auto first = parse_integer<uint16_t>(reserved.substr(0, reserved.find_first_of("-,")));
    if (!first || *first == 0)
      return invalid("environment variable SLURM_STEP_RESV_PORTS must begin with a port, got '" +
                     reserved + "'");
    environment.store_port = *first;
  }
  return environment;
}

// ---- lists of Slurm ------------------------------------------------------------------------------

Status invalid_host_list(std::string_view list) {
  return invalid("'" + std::string(list) + "' is not a host list of Slurm, such as n[01-03,7]");
}

// "01-03" or "7" as the texts of its numbers, with the leading zeros of the first.
std::optional<std::vector<std::string>> expand_range(std::string_view range) {
  const size_t dash = range.find('-');
  const std::string_view first_text = range.substr(0, dash);
  const auto first = parse_integer<uint32_t>(first_text);
  const auto last =
      dash == std::string_view::npos ? first : parse_integer<uint32_t>(range.substr(dash + 1));
  if (!first || !last || *last < *first || *last - *first >= kMaxHosts) return std::nullopt;
  std::vector<std::string> numbers;
  for (uint64_t number = *first; number <= *last; ++number) {  // 64 bits: the last can be 2^32 - 1
    const std::string digits = std::to_string(number);
    const size_t zeros = first_text.size() - std::min(first_text.size(), digits.size());
    numbers.push_back(std::string(zeros, '0') + digits);
  }
  return numbers;
}

// The content of brackets: "01-03,7".
std::optional<std::vector<std::string>> expand_brackets(std::string_view ranges) {
  std::vector<std::string> numbers;
  while (true) {
    const size_t comma = ranges.find(',');
    const auto range = expand_range(ranges.substr(0, comma));
    if (!range || numbers.size() + range->size() > kMaxHosts) return std::nullopt;
    numbers.insert(numbers.end(), range->begin(), range->end());
    if (comma == std::string_view::npos) return numbers;
    ranges.remove_prefix(comma + 1);
  }
}

// Appends each of `endings` to each of `hosts`. False: too many hosts.
bool append_each(std::vector<std::string>& hosts, const std::vector<std::string>& endings) {
  if (hosts.size() * endings.size() > kMaxHosts) return false;
  std::vector<std::string> all;
  all.reserve(hosts.size() * endings.size());
  for (const std::string& host : hosts) {
    for (const std::string& ending : endings) all.push_back(host + ending);
  }
  hosts = std::move(all);
  return true;
}

// One element of a host list, such as "rack[1-2]n[01-03]-ib".
std::optional<std::vector<std::string>> expand_host_name(std::string_view name) {
  if (name.empty()) return std::nullopt;
  std::vector<std::string> hosts{""};
  while (!name.empty()) {
    const size_t open = name.find('[');
    const std::string literal(name.substr(0, open));
    if (literal.find(']') != std::string::npos) return std::nullopt;
    for (std::string& host : hosts) host += literal;
    if (open == std::string_view::npos) break;
    const size_t close = name.find(']', open);
    if (close == std::string_view::npos) return std::nullopt;
    const auto numbers = expand_brackets(name.substr(open + 1, close - open - 1));
    if (!numbers || !append_each(hosts, *numbers)) return std::nullopt;
    name.remove_prefix(close + 1);
  }
  return hosts;
}

// Position of the first comma outside brackets.
size_t find_separator(std::string_view list) {
  bool in_brackets = false;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] == '[') in_brackets = true;
    if (list[i] == ']') in_brackets = false;
    if (list[i] == ',' && !in_brackets) return i;
  }
  return std::string_view::npos;
}

}  // namespace

std::string_view to_string(Launcher launcher) {
  switch (launcher) {
    case Launcher::kNone:
      return "none";
    case Launcher::kTorchrun:
      return "torchrun";
    case Launcher::kOpenMpi:
      return "Open MPI";
    case Launcher::kSlurm:
      return "Slurm";
  }
  return "unknown";
}

std::string LaunchEnvironment::name_of(int of_rank) const {
  const std::string name = "rank " + std::to_string(of_rank);
  const auto index = static_cast<size_t>(of_rank);
  return index < rank_hosts.size() ? name + " (" + rank_hosts[index] + ")" : name;
}

EnvironmentVariables read_environment_variables() {
  EnvironmentVariables variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos)
      variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

namespace {

Result<LaunchEnvironment> parse_launcher(const Variables& variables,
                                         std::string_view run_directory) {
  if (!variables.present(kTorchrunRanks).empty()) return parse_torchrun(variables);
  if (!variables.present(kOpenMpiRanks).empty()) return parse_open_mpi(variables, run_directory);
  if (is_slurm_task(variables)) return parse_slurm(variables, run_directory);
  return LaunchEnvironment{};
}

}  // namespace

Result<LaunchEnvironment> parse_launch_environment(const EnvironmentVariables& all,
                                                   std::string_view run_directory) {
  const Variables variables(all);
  auto environment = parse_launcher(variables, run_directory);
  if (environment.ok())
    environment->is_kubernetes = variables.find("KUBERNETES_SERVICE_HOST") != nullptr;
  return environment;
}

Result<std::vector<std::string>> expand_host_list(std::string_view list) {
  std::vector<std::string> hosts;
  std::string_view rest = list;
  while (true) {
    const size_t comma = find_separator(rest);
    const auto expanded = expand_host_name(rest.substr(0, comma));
    if (!expanded || hosts.size() + expanded->size() > kMaxHosts) return invalid_host_list(list);
    hosts.insert(hosts.end(), expanded->begin(), expanded->end());
    if (comma == std::string_view::npos) return hosts;
    rest.remove_prefix(comma + 1);
  }
}

Result<std::vector<int>> expand_task_counts(std::string_view list) {
  const auto wrong = [list] {
    return invalid("'" + std::string(list) +
                   "' is not a list of task counts of Slurm, such as 2(x3),1");
  };
  std::vector<int> counts;
  std::string_view rest = list;
  while (true) {
    const size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    std::optional<int> nodes = 1;
    if (const size_t open = item.find("(x"); open != std::string_view::npos) {
      if (!item.ends_with(')')) return wrong();
      nodes = parse_integer<int>(item.substr(open + 2, item.size() - open - 3));
      item = item.substr(0, open);
    }
    const auto tasks = parse_integer<int>(item);
    if (!nodes || !tasks || *nodes < 1 || *tasks < 1 || *tasks > kMaxRanks ||
        static_cast<size_t>(*nodes) > kMaxHosts - counts.size())
      return wrong();
    counts.insert(counts.end(), static_cast<size_t>(*nodes), *tasks);
    if (comma == std::string_view::npos) return counts;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace stoker::group
