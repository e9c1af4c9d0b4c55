// EvalResult and Best: what one evaluation of one checkpoint found, as run/eval/step-N.json holds
// it.
//
// The manifest's SHA-256 is in it, so that a result can never be taken for another checkpoint's,
// not even for one that a later run saved at the same step.
//
// Threads: values; the functions from one thread.
// Errors:  kCorrupt: not the JSON that is written here; kNotFound, kIoError.
// Crash:   written to a temporary file, synced and renamed: a result is there as a whole or not at
//          all.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"

namespace stoker::run {

using MetricValues = std::vector<std::pair<std::string, double>>;  // the first is what "best" goes
                                                                   // by; lower is better

struct SetResult {
  std::string set;
  uint64_t samples = 0;
  MetricValues metrics;
};

struct EvalResult {
  uint64_t step = 0;
  std::string manifest_sha256;
  std::vector<SetResult> sets;
  double seconds = 0;
  std::string created;  // ISO 8601, for people
};

std::string to_json(const EvalResult& result);
Result<EvalResult> parse_eval_result(std::string_view json, const std::string& path_in_messages);

Status write_eval_result(FileSystem& files, const std::string& eval_dir, const EvalResult& result);
std::string eval_result_path(const std::string& eval_dir, uint64_t step);

// The best result so far of the first metric of the first set. A restart reads it back, so the best
// cannot regress.
struct Best {
  std::string set;
  std::string metric;
  double value = 0;
  uint64_t step = 0;
  std::string manifest_sha256;
};

std::string to_json(const Best& best);
Result<Best> parse_best(std::string_view json, const std::string& path_in_messages);
// From the file; kNotFound before the first evaluation.
Result<Best> read_best(const std::string& path);

}  // namespace stoker::run
