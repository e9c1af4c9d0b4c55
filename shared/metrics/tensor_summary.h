// TensorSummary: statistics of a tensor's values.
//
// Threads: a value; functions of their arguments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <boost/json/fwd.hpp>

namespace stoker::metrics {

struct TensorSummary {
  uint64_t count = 0;  // all elements
  uint64_t nan = 0;
  uint64_t inf = 0;
  uint64_t zeros = 0;
  // Of the finite values; 0 if there are none.
  double mean = 0;
  double std = 0;  // population standard deviation (divides by N)
  double min = 0;
  double max = 0;
  double norm = 0;  // Euclidean norm

  // Histogram of the finite values: `count` values are above the limit of the previous bucket and
  // not above this limit. From the first to the last nonempty bucket; empty if no histogram was
  // requested.
  struct Bucket {
    double limit = 0;
    double count = 0;
  };
  std::vector<Bucket> buckets;
  double below = 0;  // lower limit of the first bucket
};

struct NamedSummary {
  std::string name;
  TensorSummary summary;
};

// count, mean, std, min, max, norm, zeros (as a fraction), nan, inf. With buckets also `histogram`, a list of
// [limit, count] that starts with [below, 0]. Six significant digits; null for what JSON cannot represent.
boost::json::object to_json(const TensorSummary& summary);

}  // namespace stoker::metrics
