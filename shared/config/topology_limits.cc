#include "shared/config/topology_limits.h"

#include <algorithm>
#include <initializer_list>

namespace stoker::config {
namespace {

struct Limit {
  std::string_view name;      // a key, or a command
  std::string_view required;  // of a key: "must be cpu"; empty: a command
  std::string_view reason;
  std::initializer_list<Topology> topologies;
  bool (*holds)(const Config& config, int world_size) = nullptr;  // of a key
  // Instead of `required` and `reason`, with numbers.
  std::string (*explain)(const Config& config, int world_size) = nullptr;
};

std::string explain_share(const Config& config, int world_size) {
  const int64_t steps = config.train.gradient_accumulation_steps;
  return std::to_string(world_size) + " ranks cannot share " + std::to_string(steps) +
         " micro-batch" + (steps == 1 ? "" : "es") + " per step; set it to a multiple of " +
         std::to_string(world_size) +
         ", with a smaller train.micro_batch_size for the same samples per step";
}

using enum Topology;
using Type = DeviceConfig::Type;

bool is_refreshable(const Config& config) {
  return std::ranges::any_of(sampled_datasets(config), [&](const std::string& name) {
    const auto set = config.data.find(name);
    return set != config.data.end() && set->second.is_refreshable();
  });
}

constexpr std::string_view kNoGpus = "parameter servers are on the CPU so far";

// A reason with "so far" is one of this version, the others hold for any.
const Limit kLimits[] = {
    {"distributed.reduction",
     "must be ordered or allreduce",
     "the ranks must add gradients in the same way",
     {kGroup},
     [](const Config& config, int) { return config.distributed.reduction.has_value(); }},
    {"distributed.reduction",
     "must be ordered with cluster.replicas sync",
     "servers add the gradients of a step in the order of tickets",
     {kSyncServers},
     [](const Config& config, int) { return config.distributed.reduction == Reduction::kOrdered; }},
    {"train.gradient_accumulation_steps",
     "must be a multiple of the number of ranks",
     "a step would take as long as with the next multiple, while ranks with one micro-batch less "
     "wait",
     {kGroup},
     [](const Config& config, int world_size) {
       return config.train.gradient_accumulation_steps % world_size == 0;
     },
     explain_share},
    {"train.gradient_accumulation_steps",
     "must be 1 with cluster.replicas async",
     "each gradient is an update",
     {kAsyncServers},
     [](const Config& config, int) { return config.train.gradient_accumulation_steps == 1; }},
    {"cluster.max_staleness",
     "requires cluster.replicas async",
     "a synchronous step has no stale gradients",
     {kSyncServers},
     [](const Config& config, int) { return !config.cluster.max_staleness; }},
    {"run.rng",
     "must be per_ticket",
     "a micro-batch must not depend on which process computes it",
     {kGroup, kSyncServers, kAsyncServers},
     [](const Config& config, int) { return config.run.rng == Rng::kPerTicket; }},
    {"data.train.stream",
     "must not be set",
     "a stream has one reader",
     {kGroup, kSyncServers, kAsyncServers},
     [](const Config& config, int) { return training_stream(config) == nullptr; }},
    {"feed.producers",
     "must be internal",
     "an external producer fills the ring of one process",
     {kGroup, kSyncServers, kAsyncServers},
     [](const Config& config, int) { return config.feed.producers == ProducerMode::kInternal; }},
    {"train.device",
     "must be auto, cpu or cuda",
     "each rank has its own GPU",
     {kGroup},
     [](const Config& config, int) {
       return config.train.device.type != Type::kFake && !config.train.device.index;
     }},
    {"distributed.backend",
     "nccl is for train.device: cuda; set it to auto or gloo",
     "NCCL adds in the memory of GPUs",
     {kGroup},
     [](const Config& config, int) {
       return config.train.device.type != Type::kCpu ||
              config.distributed.backend != GroupBackend::kNccl;
     }},
    {"distributed.backend",
     "gloo is for train.device: cpu; set it to auto or nccl",
     "Gloo adds in host memory",
     {kGroup},
     [](const Config& config, int) {
       return config.train.device.type != Type::kCuda ||
              config.distributed.backend != GroupBackend::kGloo;
     }},
    {"train.device",
     "must be auto or cpu",
     kNoGpus,
     {kSyncServers, kAsyncServers},
     [](const Config& config, int) {
       return config.train.device.type == Type::kAuto || config.train.device.type == Type::kCpu;
     }},
    {"distributed.backend",
     "must be auto or gloo",
     kNoGpus,
     {kSyncServers, kAsyncServers},
     [](const Config& config, int) { return config.distributed.backend != GroupBackend::kNccl; }},
    {"distributed.shard",
     "must be none",
     "the servers have the optimizer state",
     {kSyncServers, kAsyncServers},
     [](const Config& config, int) { return config.distributed.shard == Shard::kNone; }},
    {"train.ema_decay",
     "must be null",
     "servers have no averages so far",
     {kSyncServers, kAsyncServers},
     [](const Config& config, int) { return !config.train.ema_decay; }},
    {"optimizer.name",
     "must not be schedule_free_adamw",
     "servers have no averages so far",
     {kSyncServers, kAsyncServers},
     [](const Config& config, int) { return !config.optimizer.averages(); }},
    {"scheduler.name",
     "must not be reduce_on_plateau",
     "servers change the learning rate by live settings and the step only so far",
     {kSyncServers, kAsyncServers},
     [](const Config& config, int) {
       return config.scheduler.name() != SchedulerName::kReduceOnPlateau;
     }},
    {"train.channels_last",
     "must be false",
     "gradients are sent in the usual layout so far",
     {kSyncServers, kAsyncServers},
     [](const Config& config, int) { return !config.train.channels_last; }},
    {"train.precision",
     "must not be fp16",
     "workers have no common loss scale so far",
     {kSyncServers, kAsyncServers},
     [](const Config& config, int) { return config.train.precision != Precision::kFp16; }},
    {"train.on_nonfinite",
     "must be fail",
     "servers cannot undo an update so far",
     {kSyncServers, kAsyncServers},
     [](const Config& config, int) { return config.train.on_nonfinite == OnNonfinite::kFail; }},
    {"model.unfreeze_at_step",
     "must be null",
     "servers update all of their variables so far",
     {kSyncServers, kAsyncServers},
     [](const Config& config, int) { return !config.model.unfreeze_at_step; }},
    {"checkpoint.save_at_start",
     "must be false",
     "the chief saves after the first step at the earliest so far",
     {kSyncServers, kAsyncServers},
     [](const Config& config, int) { return !config.checkpoint.save_at_start; }},
    {"checkpoint.save_on_loss_improvement",
     "must be null",
     "the chief learns the loss of a step some steps later so far",
     {kSyncServers, kAsyncServers},
     [](const Config& config, int) { return !config.checkpoint.save_on_loss_improvement; }},
    {"metrics.histogram_every_steps",
     "must be null",
     "the chief does not see each step so far",
     {kSyncServers, kAsyncServers},
     [](const Config& config, int) { return !config.metrics.histogram_every_steps; }},
    {"data.train.refresh",
     "must be never",
     "workers do not change to another version of the data together so far",
     {kSyncServers, kAsyncServers},
     [](const Config& config, int) { return !is_refreshable(config); }},
    {"feed.on_sample_error",
     "must be fail",
     "workers do not tell each other which samples they replace so far",
     {kSyncServers, kAsyncServers},
     [](const Config& config, int) { return config.feed.on_sample_error == OnSampleError::kFail; }},
    {"pause --release",
     "",
     "ranks do not continue from a checkpoint together so far; omit release",
     {kGroup}},
    {"set feed.num_workers",
     "",
     "each worker reads with one thread so far",
     {kSyncServers, kAsyncServers}},
    {"show-batch", "", "a step has no single batch", {kAsyncServers}},
};

bool is_in(const Limit& limit, Topology topology) {
  return std::ranges::find(limit.topologies, topology) != limit.topologies.end();
}

}  // namespace

std::vector<std::string> broken_limits(const Config& config, Topology topology, int world_size) {
  std::vector<std::string> errors;
  const std::string in_group = " in a group of " + std::to_string(world_size) + " ranks";
  for (const Limit& limit : kLimits) {
    if (!is_in(limit, topology) || limit.holds == nullptr || limit.holds(config, world_size))
      continue;
    const std::string text = limit.explain != nullptr
                                 ? limit.explain(config, world_size)
                                 : std::string(limit.required) +
                                       (topology == kGroup ? in_group : std::string()) + " (" +
                                       std::string(limit.reason) + ")";
    errors.push_back(std::string(limit.name) + ": " + text);
  }
  return errors;
}

std::optional<std::string_view> command_limit(std::string_view command, Topology topology) {
  for (const Limit& limit : kLimits)
    if (limit.required.empty() && limit.name == command && is_in(limit, topology))
      return limit.reason;
  return std::nullopt;
}

std::string topology_limits_markdown() {
  std::string text =
      "| setting or command | group | servers, sync | servers, async | reason |\n"
      "|---|---|---|---|---|\n";
  for (const Limit& limit : kLimits) {
    text += "| `" + std::string(limit.name) + "` |";
    for (const Topology topology : {kGroup, kSyncServers, kAsyncServers})
      text += std::string(" ") +
              (!is_in(limit, topology)  ? ""
               : limit.required.empty() ? "error"
                                        : std::string(limit.required)) +
              " |";
    text += ' ' + std::string(limit.reason) + " |\n";
  }
  return text;
}

}  // namespace stoker::config
