// Config: every setting of stoker as plain structs; config/stoker.yaml is the manual with the same
// names and defaults.
//
// Threads: values.
// Errors:  none here; load_config.h turns YAML into these and reports everything wrong at once.
//
// A comment that begins with kinds names those that read the field; it is refused for the others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shared/config/dataset_config.h"

namespace stoker::config {

struct RunConfig {
  std::string dir = "runs/demo";  // run directory; relative to the working directory
  uint64_t seed = 1;              // of initialisation, order of samples and augmentation
  bool deterministic = false;     // refuse nondeterministic kernels (always so on the CPU)

  bool operator==(const RunConfig&) const = default;
};

enum class Isolation { kProcess, kThread };
enum class Shuffle { kFull, kOff, kWindow, kShards };
enum class LastBatch { kSpan, kDrop, kPad };
enum class OnBadSample { kSkip, kStop };
enum class FeedSource { kReaders, kBoth, kOutside };

struct FeedConfig {
  FeedSource source = FeedSource::kReaders;
  std::optional<int> readers = 2;  // reading threads in all; nothing: auto, as many as it takes
  int processes = 1;  // reader processes (isolation: process); the threads are shared out
  Isolation isolation = Isolation::kProcess;
  int slots = 8;  // batches that the ring holds
  Shuffle shuffle = Shuffle::kFull;
  uint64_t window = 10000;   // window: samples that are mixed with each other
  uint64_t shards_open = 8;  // shards: shards whose samples are mixed with each other
  LastBatch last_batch = LastBatch::kSpan;
  OnBadSample on_bad_sample = OnBadSample::kSkip;
  double bad_sample_limit = 0.001;  // stop when more than this part of the samples was bad
  double hang_seconds = 60;         // without a sign of work, and a reader is killed; 0 = never
  int deaths_per_minute = 30;       // of reader processes; past it the run ends
  int64_t memory_mib = 2048;  // address space of a reader process, for each of its threads; 0 = any
  bool confined = true;       // reader processes may make only the system calls of reading

  bool operator==(const FeedConfig&) const = default;
};

enum class ModelKind { kGpt, kMlp, kLenet, kResnet };

// Tensors of model.init_from whose names match `from` get the name `to`: what the first * of `from`
// stands for takes the place of the first * of `to`, and so on.
struct NameRule {
  std::string from;
  std::string to;

  bool operator==(const NameRule&) const = default;
};

struct ModelConfig {
  ModelKind kind = ModelKind::kGpt;
  int64_t layers = 6;     // gpt: blocks; resnet: depth 8 14 18 20 32 34 44 50 56, 18 when not given
  int64_t width = 192;    // gpt
  int64_t heads = 6;      // gpt
  int64_t context = 128;  // gpt: tokens
  int64_t vocab = 256;    // gpt: size of the vocabulary
  double dropout = 0.0;   // gpt mlp
  std::vector<int64_t> hidden = {1024};  // mlp: widths of the hidden layers
  int64_t inputs = 0;                    // mlp: 0 = elements of the data's input
  int64_t outputs = 0;  // mlp lenet resnet: 0 = classes (or target width) of the data
  // A checkpoint directory, a .safetensors file, or one of torch.save, whose tensors are loaded first.
  std::string init_from;
  std::vector<NameRule> init_map;        // the first rule that matches a name renames it
  bool init_strict = true;               // tensors that only one side has are an error
  std::vector<std::string> init_ignore;  // globs of names that are neither loaded nor missed
  std::vector<std::string> freeze;       // globs of parameter names that are not trained

  bool operator==(const ModelConfig&) const = default;
};

enum class TaskKind { kLanguageModel, kClassification, kRegression };
struct TaskConfig {
  TaskKind kind = TaskKind::kLanguageModel;

  bool operator==(const TaskConfig&) const = default;
};

enum class OptimizerKind { kSgd, kMomentum, kAdam, kAdamW };
// Parameters with settings of their own.
struct ParameterGroup {
  std::string match;                   // glob of parameter names
  double lr_scale = 1.0;               // their learning rate is the schedule's times this
  std::optional<double> weight_decay;  // not given: optimizer.weight_decay

  bool operator==(const ParameterGroup&) const = default;
};

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double lr = 3.0e-4;                       // 0.01 for sgd and momentum when not given
  std::vector<double> betas = {0.9, 0.95};  // adam adamw
  double eps = 1e-8;                        // adam adamw
  double momentum = 0.9;                    // momentum
  bool nesterov = false;                    // momentum
  double weight_decay = 0.1;  // adamw: decoupled; others: added to the gradient, 0 when not given
  double clip_norm = 1.0;     // global norm; 0 = off
  std::vector<ParameterGroup> groups;  // a parameter is of the first that matches, or of none

  bool operator==(const OptimizerConfig&) const = default;
};

enum class ScheduleKind { kConstant, kCosine, kLinear, kStep };
struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::kCosine;
  uint64_t warmup_steps = 100;  // linear from lr / warmup_steps
  double min_lr = 3.0e-5;       // cosine linear: where train.steps ends; lr / 10 when not given
  uint64_t every_steps = 1000;  // step: how often lr is multiplied by factor
  double factor = 0.1;          // step

  bool operator==(const ScheduleConfig&) const = default;
};

struct TrainConfig {
  uint64_t steps = 2000;
  int64_t batch = 16;              // samples a micro-batch
  std::string device = "auto";     // auto | cpu | cuda | cuda:N
  std::string precision = "fp32";  // fp32 | bf16
  int64_t accumulate = 1;          // micro-batches a step
  int threads = 0;                 // of LibTorch; 0 = all cores
  // What a loss or gradient that is not a finite number leads to: stop | skip | rollback.
  std::string on_nonfinite = "stop";
  int nonfinite_limit = 10;  // skip: steps in a row; rollback: times in a run; then it is stopped
  double rollback_lr = 0.5;  // rollback: the learning rate is multiplied by it

  bool operator==(const TrainConfig&) const = default;
};

struct CheckpointConfig {
  uint64_t every_steps = 200;  // 0 = not by steps
  double every_seconds = 600;  // 0 = not by time
  double on_improvement = 0;   // 0 = off; else when the training loss fell by this part of itself
  int keep_last = 3;           // at least 2
  uint64_t keep_every_steps = 0;          // 0 = off; else every checkpoint at a multiple is kept
  double keep_every_hours = 0;            // 0 = off; else one in so many hours is kept
  int keep_best = 1;                      // by each of keep_best_by
  std::vector<std::string> keep_best_by;  // METRIC or SET/METRIC; empty: eval.metric
  double grace_seconds = 0;               // nothing younger is removed
  std::string on_failure = "continue";    // continue | stop

  bool operator==(const CheckpointConfig&) const = default;
};

struct EvalConfig {
  // Names under data; when not given: valid where there is such a set, else none.
  std::vector<std::string> sets = {"valid"};
  std::string policy = "latest";   // latest | all | every
  uint64_t every_steps = 1000;     // policy every: one checkpoint of each so many steps
  std::string order = "oldest";    // which of several goes first: oldest | newest
  double start_delay_seconds = 0;  // --follow: before the first evaluation
  double throttle_seconds = 0;     // --follow: from the start of one evaluation to the next
  double poll_seconds = 10;        // between looks where nothing tells of changes
  int64_t batch = 64;
  int threads = 1;
  uint64_t max_samples = 0;       // 0 = all; else the first so many of each set
  int64_t memory_mib = 0;         // that the evaluator may take; 0 = any
  double timeout_seconds = 3600;  // of one checkpoint
  int tries = 3;                  // of one checkpoint
  // What says which checkpoint is better: METRIC or SET/METRIC; empty: the loss of the first set.
  std::string metric;
  uint64_t patience = 0;  // evaluations in a row without a better one that end the run; 0 = off
  uint64_t patience_steps = 0;    // the same in steps; 0 = off
  double min_delta = 0;           // less than this is no improvement, for the patience
  std::optional<double> stop_at;  // ends the run when the metric is there or past it
  int top_k = 5;                  // classification: a label among so many; 0 = no such metric
  int mistakes = 16;              // classification: that are shown; 0 = none
  int sample_bytes = 200;         // language models over bytes: text that is shown; 0 = none
  std::string sample_prompt;      // what that text goes on from
  double sample_temperature = 0.8;
  std::vector<std::string> on_best;  // command (no shell) run with the path of each new best
  bool protect = false;         // checkpoints that wait for their evaluation are not removed …
  uint64_t protect_limit = 20;  // … but no more than so many, the newest

  bool operator==(const EvalConfig&) const = default;
};

struct MetricsConfig {
  uint64_t every_steps = 10;
  bool tensorboard = true;

  bool operator==(const MetricsConfig&) const = default;
};

struct ControlConfig {
  std::string socket =
      "auto";             // auto = run/control.sock, or in systemd's RuntimeDirectory; off = none
  std::string http = "";  // not served yet; must be empty
  std::vector<std::string> operators;  // users that may operate, beside the owner and root

  bool operator==(const ControlConfig&) const = default;
};

struct LogConfig {
  std::string level = "info";  // debug | info | warn | error

  bool operator==(const LogConfig&) const = default;
};

struct Config {
  RunConfig run;
  DatasetConfigs data;  // "train" is required
  FeedConfig feed;
  ModelConfig model;
  TaskConfig task;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  TrainConfig train;
  CheckpointConfig checkpoint;
  EvalConfig eval;
  MetricsConfig metrics;
  ControlConfig control;
  LogConfig log;

  bool operator==(const Config&) const = default;
};

}  // namespace stoker::config
