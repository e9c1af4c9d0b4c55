#include "daemon/train/tensor_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

namespace stoker::train {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// ---- Layout of the result
constexpr int64_t kCount = 0, kFinite = 1, kSum = 2, kSquares = 3, kZeros = 4, kNan = 5, kSums = 6;
constexpr int64_t kMin = 6, kMax = 7, kHead = 8;  // then the histogram

// ---- The histogram
constexpr int kPerOctave = 4;
constexpr int kLowest = -40, kHighest = 16;  // exponents of 2
constexpr int64_t kSide = int64_t{kHighest - kLowest} * kPerOctave;
constexpr int64_t kZeroBucket = kSide;
constexpr int64_t kBuckets = 2 * kSide + 1;

double limit_of_side(int64_t i) { return std::exp2(kLowest + static_cast<double>(i) / kPerOctave); }
// The upper limit of a bucket; upper_limit(bucket - 1) is its lower limit.
double upper_limit(int64_t bucket) {
  if (bucket < kZeroBucket) return -limit_of_side(kZeroBucket - 1 - bucket);
  if (bucket == kZeroBucket) return limit_of_side(0) / 2;  // above 0 and below the next bucket
  return limit_of_side(bucket - kZeroBucket);
}

at::Tensor histogram_of(const at::Tensor& safe, const at::Tensor& finite) {
  const at::Tensor side = safe.abs().log2_().mul_(kPerOctave).floor_();
  // log2(0) is -inf, which clamp_() maps to the lowest bucket.
  const at::Tensor step = side.sub_(kLowest * kPerOctave).clamp_(0, kSide - 1);
  at::Tensor bucket = at::where(safe.gt(0), step.add(static_cast<double>(kZeroBucket + 1)),
                                step.neg().add_(static_cast<double>(kZeroBucket - 1)));
  bucket = bucket.masked_fill_(safe.eq(0), static_cast<double>(kZeroBucket));
  return at::zeros({kBuckets}, safe.options())
      .scatter_add_(0, bucket.to(at::kLong), finite.to(at::kDouble));
}

struct Sums {
  at::Tensor sums, min, max, histogram;

  void add(const at::Tensor& piece, bool with_histogram) {
    // A copy even of F64: an input is in a slot of the ring, which a worker can overwrite between
    // two of these operators.
    const at::Tensor x = piece.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
    const at::Tensor finite = x.isfinite();
    const at::Tensor safe = at::where(finite, x, at::zeros({}, x.options()));
    const auto whole = at::full({}, static_cast<double>(x.numel()), x.options());
    const at::Tensor more =
        at::stack({whole, finite.sum().to(at::kDouble), safe.sum(), safe.square().sum(),
                   x.eq(0).sum().to(at::kDouble), x.isnan().sum().to(at::kDouble)});
    const at::Tensor min_index = at::where(finite, x, at::full({}, kInfinity, x.options())).amin();
    const at::Tensor max_index = at::where(finite, x, at::full({}, -kInfinity, x.options())).amax();
    sums = sums.defined() ? sums.add_(more) : more;
    min = min.defined() ? at::minimum(min, min_index) : min_index;
    max = max.defined() ? at::maximum(max, max_index) : max_index;
    if (!with_histogram) return;
    const at::Tensor counts = histogram_of(safe, finite);
    histogram = histogram.defined() ? histogram.add_(counts) : counts;
  }
};

void read_buckets(const double* counts, metrics::TensorSummary* summary) {
  int64_t first = 0, last = kBuckets;
  while (first < kBuckets && counts[first] == 0) ++first;
  while (last > first && counts[last - 1] == 0) --last;
  if (first == last) return;
  // The outermost buckets are unbounded, so the tensor's min and max extend their limits.
  summary->below =
      std::min(summary->min, first > 0 ? upper_limit(first - 1) : -limit_of_side(kSide));
  for (int64_t i = first; i < last; ++i)
    summary->buckets.push_back({.limit = upper_limit(i), .count = counts[i]});
  summary->buckets.back().limit = std::max(summary->max, summary->buckets.back().limit);
}

}  // namespace

at::Tensor enqueue_statistics(const at::Tensor& tensor, bool with_histogram) {
  const at::NoGradGuard no_grad;
  const auto options = tensor.options().dtype(at::kDouble);
  if (tensor.numel() == 0) return at::zeros({kHead + (with_histogram ? kBuckets : 0)}, options);
  const at::Tensor flat = tensor.detach().reshape({-1});
  Sums sums;
  for (int64_t at = 0; at < flat.numel(); at += kPiece)
    sums.add(flat.narrow(0, at, std::min(kPiece, flat.numel() - at)), with_histogram);
  std::vector<at::Tensor> parts = {sums.sums, sums.min.reshape({1}), sums.max.reshape({1})};
  if (with_histogram) parts.push_back(sums.histogram);
  return at::cat(parts);
}

metrics::TensorSummary read_statistics(const at::Tensor& values) {
  const at::Tensor kept = values.contiguous();
  const double* const at = kept.const_data_ptr<double>();
  static_assert(kSums == kMin);
  metrics::TensorSummary summary;
  summary.count = static_cast<uint64_t>(at[kCount]);
  summary.zeros = static_cast<uint64_t>(at[kZeros]);
  summary.nan = static_cast<uint64_t>(at[kNan]);
  summary.inf = static_cast<uint64_t>(at[kCount] - at[kFinite] - at[kNan]);
  if (at[kFinite] == 0) return summary;
  summary.mean = at[kSum] / at[kFinite];
  summary.std = std::sqrt(std::max(0.0, at[kSquares] / at[kFinite] - summary.mean * summary.mean));
  summary.min = at[kMin];
  summary.max = at[kMax];
  summary.norm = std::sqrt(at[kSquares]);
  if (kept.numel() > kHead) read_buckets(at + kHead, &summary);
  return summary;
}

}  // namespace stoker::train
