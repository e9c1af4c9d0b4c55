#include "shared/config/schema.h"

#include <algorithm>
#include <array>

#include "shared/config/model_schema.h"
#include "shared/config/optimizer_schema.h"
#include "shared/config/task_schema.h"
#include "shared/config/training_sets.h"

namespace stoker::config {
namespace {

using namespace std::string_view_literals;

constexpr auto kIsolations = std::to_array({"process"sv, "thread"sv});
constexpr auto kShuffles = std::to_array({"full"sv, "off"sv, "window"sv, "shards"sv});
constexpr auto kLastBatches = std::to_array({"span"sv, "drop"sv, "pad"sv});
constexpr auto kFeedSources = std::to_array({"readers"sv, "both"sv, "outside"sv});
constexpr auto kOnBadSample = std::to_array({"skip"sv, "stop"sv});

// Large enough for every use, small enough that no product of two overflows.
constexpr double kManySteps = 1e15;
constexpr double kManySamples = 1e9;
constexpr double kAnySeed = 18446744073709551616.0;  // 2^64: what a double makes of the largest

Section run_section(RunConfig& run) {
  return {"run",
          {{.name = "dir", .target = &run.dir},
           {.name = "seed", .target = &run.seed, .min = 0, .max = kAnySeed, .decides = true},
           {.name = "deterministic", .target = &run.deterministic}}};
}

Section feed_section(FeedConfig& feed) {
  return {"feed",
          {{.name = "source", .target = choice(feed.source, kFeedSources)},
           {.name = "readers", .target = &feed.readers, .min = 1, .max = 1024},
           {.name = "processes", .target = &feed.processes, .min = 1, .max = 64},
           {.name = "isolation", .target = choice(feed.isolation, kIsolations)},
           {.name = "slots", .target = &feed.slots, .min = 2, .max = 1024},
           {.name = "shuffle", .target = choice(feed.shuffle, kShuffles), .decides = true},
           {.name = "window",
            .target = &feed.window,
            .min = 2,
            .max = kManySteps,
            .kinds = "window",
            .decides = true},
           {.name = "shards_open",
            .target = &feed.shards_open,
            .min = 1,
            .max = kManySamples,
            .kinds = "shards",
            .decides = true},
           {.name = "last_batch", .target = choice(feed.last_batch, kLastBatches), .decides = true},
           {.name = "buckets", .target = &feed.buckets, .min = 2, .max = 1e6, .decides = true},
           {.name = "on_bad_sample", .target = choice(feed.on_bad_sample, kOnBadSample)},
           {.name = "bad_sample_limit", .target = &feed.bad_sample_limit, .min = 0, .max = 1},
           {.name = "rescan_seconds",
            .target = &feed.rescan_seconds,
            .min = 0,
            .max = 1e6,
            .above_min = true},
           {.name = "hang_seconds", .target = &feed.hang_seconds, .min = 0, .max = 1e6},
           {.name = "deaths_per_minute", .target = &feed.deaths_per_minute, .min = 1, .max = 1e6},
           {.name = "memory_mib", .target = &feed.memory_mib, .min = 0, .max = 1e9},
           {.name = "confined", .target = &feed.confined},
           {.name = "read_ahead", .target = &feed.read_ahead, .min = 0, .max = 1024},
           {.name = "read_ahead_mib", .target = &feed.read_ahead_mib, .min = 1, .max = 1e6}},
          "shuffle"};
}

Section train_section(TrainConfig& train) {
  return {
      "train",
      {{.name = "steps", .target = &train.steps, .min = 1, .max = kManySteps, .decides = true},
       {.name = "batch", .target = &train.batch, .min = 1, .max = 1e6, .decides = true},
       {.name = "device", .target = &train.device},
       {.name = "precision",
        .target = &train.precision,
        .words = "fp32 tf32 bf16 fp16",
        .decides = true},
       {.name = "channels_last", .target = &train.channels_last, .decides = true},
       {.name = "flush_denormals", .target = &train.flush_denormals, .decides = true},
       {.name = "ema", .target = &train.ema, .min = 0, .max = 0.999999, .decides = true},
       {.name = "cuda_graph", .target = &train.cuda_graph, .words = "auto off"},
       {.name = "accumulate", .target = &train.accumulate, .min = 1, .max = 1e6, .decides = true},
       {.name = "threads", .target = &train.threads, .min = 0, .max = 4096},
       {.name = "on_nonfinite",
        .target = &train.on_nonfinite,
        .words = "stop skip rollback",
        .decides = true},
       {.name = "nonfinite_limit", .target = &train.nonfinite_limit, .min = 1, .max = 1e6},
       {.name = "rollback_lr",
        .target = &train.rollback_lr,
        .min = 0,
        .max = 1,
        .above_min = true,
        .decides = true}}};
}

Section checkpoint_section(CheckpointConfig& checkpoint) {
  return {
      "checkpoint",
      {{.name = "every_steps", .target = &checkpoint.every_steps, .min = 0, .max = kManySteps},
       {.name = "every_seconds", .target = &checkpoint.every_seconds, .min = 0, .max = 1e9},
       {.name = "on_improvement", .target = &checkpoint.on_improvement, .min = 0, .max = 0.99},
       {.name = "keep_last", .target = &checkpoint.keep_last, .min = 2, .max = 1e6},
       {.name = "keep_every_steps",
        .target = &checkpoint.keep_every_steps,
        .min = 0,
        .max = kManySteps},
       {.name = "keep_every_hours", .target = &checkpoint.keep_every_hours, .min = 0, .max = 1e6},
       {.name = "keep_best", .target = &checkpoint.keep_best, .min = 0, .max = 1e6},
       {.name = "keep_best_by", .target = &checkpoint.keep_best_by, .may_stand_alone = true},
       {.name = "grace_seconds", .target = &checkpoint.grace_seconds, .min = 0, .max = 1e9},
       {.name = "on_failure", .target = &checkpoint.on_failure, .words = "continue stop"}}};
}

Section eval_section(EvalConfig& eval) {
  return {
      "eval",
      {{.name = "sets", .target = &eval.sets},
       {.name = "weights", .target = &eval.weights, .words = "raw ema"},
       {.name = "policy", .target = &eval.policy, .words = "latest all every"},
       {.name = "every_steps", .target = &eval.every_steps, .min = 1, .max = kManySteps},
       {.name = "order", .target = &eval.order, .words = "oldest newest"},
       {.name = "start_delay_seconds", .target = &eval.start_delay_seconds, .min = 0, .max = 1e6},
       {.name = "throttle_seconds", .target = &eval.throttle_seconds, .min = 0, .max = 1e6},
       {.name = "poll_seconds", .target = &eval.poll_seconds, .min = 0.1, .max = 1e6},
       {.name = "batch", .target = &eval.batch, .min = 1, .max = 1e6},
       {.name = "threads", .target = &eval.threads, .min = 0, .max = 4096},
       {.name = "priority", .target = &eval.priority, .words = "idle low normal"},
       {.name = "max_samples", .target = &eval.max_samples, .min = 0, .max = kManySamples},
       {.name = "subset", .target = &eval.subset, .words = "spread first"},
       {.name = "memory_mib", .target = &eval.memory_mib, .min = 0, .max = 1e9},
       {.name = "timeout_seconds", .target = &eval.timeout_seconds, .min = 1, .max = 1e9},
       {.name = "tries", .target = &eval.tries, .min = 1, .max = 100},
       {.name = "metric", .target = &eval.metric},
       {.name = "patience", .target = &eval.patience, .min = 0, .max = 1e6},
       {.name = "patience_steps", .target = &eval.patience_steps, .min = 0, .max = kManySteps},
       {.name = "min_delta", .target = &eval.min_delta, .min = 0, .max = 1e9},
       {.name = "stop_at", .target = &eval.stop_at},
       {.name = "top_k", .target = &eval.top_k, .min = 0, .max = 1e6},
       {.name = "mistakes", .target = &eval.mistakes, .min = 0, .max = 25},
       {.name = "sample_bytes", .target = &eval.sample_bytes, .min = 0, .max = 1e5},
       {.name = "sample_prompt", .target = &eval.sample_prompt},
       {.name = "sample_temperature", .target = &eval.sample_temperature, .min = 0.01, .max = 10},
       {.name = "on_best", .target = &eval.on_best},
       {.name = "protect", .target = &eval.protect},
       {.name = "protect_limit", .target = &eval.protect_limit, .min = 1, .max = 1e6}}};
}

Section metrics_section(MetricsConfig& metrics) {
  return {
      "metrics",
      {{.name = "every_steps", .target = &metrics.every_steps, .min = 1, .max = kManySteps},
       {.name = "tensorboard", .target = &metrics.tensorboard},
       {.name = "histogram_steps", .target = &metrics.histogram_steps, .min = 0, .max = kManySteps},
       {.name = "samples", .target = &metrics.samples, .min = 0, .max = 64}}};
}

Section control_section(ControlConfig& control) {
  return {"control",
          {{.name = "socket", .target = &control.socket},
           {.name = "http", .target = &control.http},
           {.name = "operators", .target = &control.operators}}};
}

Section log_section(LogConfig& log) {
  return {"log", {{.name = "level", .target = &log.level, .words = "debug info warn error"}}};
}

}  // namespace

const Field* Section::find(std::string_view name) const {
  const auto found = std::ranges::find(fields, name, &Field::name);
  return found == fields.end() ? nullptr : &*found;
}

std::string_view Section::kind() const {
  const Field* field = find(kind_field);
  if (field == nullptr) return {};
  if (const auto* const text = std::get_if<std::string*>(&field->target)) return **text;
  const auto& kind = std::get<Choice>(field->target);
  return kind.words[static_cast<size_t>(kind.get(kind.target))];
}

bool Section::reads(const Field& field) const {
  if (!field.kinds.empty()) return is_word_of(field.kinds, kind());
  return field.not_kinds.empty() || !is_word_of(field.not_kinds, kind());
}

bool is_word_of(std::string_view words, std::string_view word) {
  for (size_t from = 0; from <= words.size();) {
    const size_t space = std::min(words.find(' ', from), words.size());
    if (words.substr(from, space - from) == word) return true;
    from = space + 1;
  }
  return false;
}

std::vector<Section> sections_of(Config& config) {
  std::vector<Section> sections = {run_section(config.run)};
  const std::vector<std::string> trained_on = training_sets(config);
  if (const auto train = config.data.find("train"); train != config.data.end())
    sections.push_back(dataset_section(train->first, train->second, true));
  for (auto& [name, set] : config.data)
    if (name != "train")
      sections.push_back(dataset_section(name, set, std::ranges::count(trained_on, name) > 0));
  sections.push_back(feed_section(config.feed));
  sections.push_back(model_section(config.model));
  sections.push_back(task_section(config.task));
  sections.push_back(optimizer_section(config.optimizer));
  sections.push_back(schedule_section(config.schedule));
  sections.push_back(train_section(config.train));
  sections.push_back(checkpoint_section(config.checkpoint));
  sections.push_back(eval_section(config.eval));
  sections.push_back(metrics_section(config.metrics));
  sections.push_back(control_section(config.control));
  sections.push_back(log_section(config.log));
  return sections;
}

}  // namespace stoker::config
