// TensorSummary: what a tensor's numbers look like, without the tensor.
//
// Threads: a value; functions of their arguments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stoker::metrics {

struct TensorSummary {
  uint64_t count = 0;  // of all numbers
  uint64_t nan = 0;
  uint64_t inf = 0;
  uint64_t zeros = 0;
  // Of the finite ones; 0 where there are none.
  double mean = 0;
  double std = 0;  // with N below the fraction, not N - 1
  double min = 0;
  double max = 0;
  double norm = 0;  // the root of the sum of their squares

  // Of the finite ones: how many are above the limit of the bucket before, and at most at this one.
  // From the first bucket that holds any to the last; empty where none was made.
  struct Bucket {
    double limit = 0;
    double count = 0;
  };
  std::vector<Bucket> buckets;
  double below = 0;  // the limit before the first bucket's
};

struct NamedSummary {
  std::string name;
  TensorSummary summary;
};

// One JSON object: count, mean, std, min, max, norm, zeros (their share), nan, inf; and where there
// are buckets `histogram`: [limit, count] each, after [below, 0].
std::string to_json_fields(const TensorSummary& summary);

}  // namespace stoker::metrics
