// EvalConfig: the settings under eval: which checkpoints are validated, how, and what follows.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stoker::config {

struct EvalConfig {
  // Names under data; when not given: valid where there is such a set, else none.
  std::vector<std::string> sets = {"valid"};
  std::string weights = "raw";     // raw | ema: which of a checkpoint's are evaluated
  std::string policy = "latest";   // latest | all | every
  uint64_t every_steps = 1000;     // policy every: one checkpoint of each so many steps
  std::string order = "oldest";    // which of several goes first: oldest | newest
  double start_delay_seconds = 0;  // --follow: before the first evaluation
  double throttle_seconds = 0;     // --follow: from the start of one evaluation to the next
  double poll_seconds = 10;        // between looks where nothing tells of changes
  int64_t batch = 64;
  int threads = 1;
  std::string priority = "low";   // beside a trainer: idle | low | normal
  uint64_t max_samples = 0;       // of each set; 0 = all
  std::string subset = "spread";  // which, where not all: spread | first
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

}  // namespace stoker::config
