// RunConfig, CheckpointConfig, EvalConfig, MetricsConfig, ControlConfig, LogConfig: the settings of
// the run directory, checkpoints, evaluation, metrics, control socket and log.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/log_level.h"
#include "shared/config/enum_words.h"

namespace stoker::config {

// The random numbers of a training step, as of dropout: one sequence over the run, or one per ticket.
enum class Rng { kSequential, kPerTicket };
template <>
inline constexpr auto kWords<Rng> = words("sequential", "per_ticket");

// A program that is run for the events of the log that a pattern matches.
struct EventCommand {
  std::vector<std::string> events;   // globs of names; required
  std::vector<std::string> command;  // without a shell; required
  bool operator==(const EventCommand&) const = default;
};

struct RunConfig {
  std::string dir = "runs/demo";  // run directory; relative to the working directory
  uint64_t seed = 1;
  Rng rng = Rng::kSequential;
  bool deterministic = false;  // reject nondeterministic kernels (CPU kernels are deterministic)
  bool allow_group_access = false;  // members of its group may change and resume the run
  std::vector<EventCommand> on_event_command;

  bool operator==(const RunConfig&) const = default;
};

enum class OnWriteError { kRetry, kFail };
template <>
inline constexpr auto kWords<OnWriteError> = words("retry", "fail");

struct CheckpointConfig {
  std::optional<uint64_t> save_every_steps = 200;
  std::optional<double> save_every_seconds = 600;
  std::optional<double> save_on_loss_improvement;  // relative decrease of the training loss
  bool save_at_start = false;                      // the initial state of a new run, as step 0
  int keep_last = 3;                               // at least 2
  std::optional<uint64_t> keep_every_steps;        // keep every checkpoint at a multiple
  std::optional<double> keep_every_hours;          // keep one per interval
  int save_top_k = 1;                              // per monitor
  std::vector<std::string> monitor;                // METRIC or DATASET/METRIC; empty: eval.monitor
  double min_age_seconds = 0;                      // younger checkpoints are not deleted
  uint64_t keep_unevaluated = 0;  // number of newest checkpoints that wait for evaluation
  OnWriteError on_write_error = OnWriteError::kRetry;

  bool operator==(const CheckpointConfig&) const = default;
};

enum class CheckpointSelection { kLatest, kAll, kInterval };
template <>
inline constexpr auto kWords<CheckpointSelection> = words("latest", "all", "interval");
enum class EvaluationOrder { kOldestFirst, kNewestFirst };
template <>
inline constexpr auto kWords<EvaluationOrder> = words("oldest_first", "newest_first");
enum class EvaluationPriority { kIdle, kLow, kNormal };
template <>
inline constexpr auto kWords<EvaluationPriority> = words("idle", "low", "normal");
enum class SampleSubset { kEvenlySpaced, kFirst };
template <>
inline constexpr auto kWords<SampleSubset> = words("evenly_spaced", "first");

struct EarlyStoppingConfig {
  std::optional<uint64_t> patience;        // evaluations without improvement
  std::optional<uint64_t> patience_steps;  // steps without improvement
  double min_delta = 0;                    // a smaller change is no improvement
  std::optional<double> stopping_threshold;

  bool operator==(const EarlyStoppingConfig&) const = default;
};

struct GenerateConfig {
  int max_new_tokens = 200;
  std::string prompt;
  double temperature = 0.8;
  std::optional<int> top_k = 40;  // null: all tokens
  double top_p = 1;
  int num_beams = 1;  // captions; 1: greedy search

  bool operator==(const GenerateConfig&) const = default;
};

struct EvalConfig {
  std::vector<std::string> datasets = {"val"};  // by default val if there is one
  bool use_ema = false;
  CheckpointSelection checkpoints = CheckpointSelection::kLatest;
  uint64_t every_steps = 1000;  // kInterval
  EvaluationOrder order = EvaluationOrder::kOldestFirst;
  double start_delay_seconds = 0;
  double throttle_seconds = 0;
  double poll_interval_seconds = 10;
  int64_t batch_size = 64;
  std::optional<int> num_threads = 1;  // null: all cores
  EvaluationPriority priority = EvaluationPriority::kLow;
  std::optional<uint64_t> max_samples;  // per dataset; null: all
  SampleSubset subset = SampleSubset::kEvenlySpaced;
  std::optional<int64_t> memory_limit_mib;
  double timeout_seconds = 3600;  // per checkpoint
  int max_attempts = 3;           // per checkpoint
  std::string monitor = "loss";   // METRIC or DATASET/METRIC; default: first dataset
  EarlyStoppingConfig early_stopping;
  std::optional<int> top_k = 5;  // for classification; null: no top-k accuracy
  int num_misclassified = 16;
  std::optional<GenerateConfig> generate = GenerateConfig{};  // text and captions
  // Executed without a shell, with the path of each new best.
  std::vector<std::string> on_best_command;

  bool operator==(const EvalConfig&) const = default;
};

struct MetricsConfig {
  uint64_t log_every_steps = 10;
  bool tensorboard = true;
  std::optional<uint64_t> histogram_every_steps;  // of parameters and gradients
  int64_t num_logged_samples = 8;  // number of samples of the first batch in TensorBoard

  bool operator==(const MetricsConfig&) const = default;
};

// A phase that makes no progress for this long ends the process; null: never.
struct WatchdogConfig {
  std::optional<double> start_timeout_seconds = 600;
  std::optional<double> step_timeout_seconds = 60;
  std::optional<double> checkpoint_timeout_seconds = 600;  // of a whole checkpoint
  std::optional<double> data_timeout_seconds = 600;

  bool operator==(const WatchdogConfig&) const = default;
};

struct ControlConfig {
  std::optional<std::string> socket = "auto";  // auto, a path, or null: none
  std::vector<std::string> operators;  // users with the operate role, in addition to owner and root

  bool operator==(const ControlConfig&) const = default;
};

struct HttpConfig {
  std::optional<std::string> listen;  // parse_http_listen(); null: no server

  bool operator==(const HttpConfig&) const = default;
};

template <>
inline constexpr auto kWords<LogLevel> = words("debug", "info", "warning", "error");

template <>
inline constexpr auto kWords<LogFormat> = words("text", "json");

struct LogConfig {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;

  bool operator==(const LogConfig&) const = default;
};

}  // namespace stoker::config
