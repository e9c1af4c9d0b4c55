#include "shared/data/transform/batch_transforms.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <variant>

#include "shared/data/counter_rng.h"
#include "shared/data/transform/gamma_variate.h"

namespace stoker::data::transform {
namespace {

// A Beta(alpha, alpha) variate: a / (a + b).
double sample_beta(double alpha, CounterRng& rng) {
  const double a = sample_log_gamma(alpha, rng);
  const double b = sample_log_gamma(alpha, rng);
  return 1.0 / (1.0 + std::exp(b - a));
}

struct AlphasInto {
  MixOptions& options;

  void operator()(const config::Mixup& mixup) const { options.mixup = mixup.alpha; }
  void operator()(const config::Cutmix& cutmix) const { options.cutmix = cutmix.alpha; }
  void operator()(const config::RandomChoice& choice) const {
    for (const auto& each : choice.transforms) std::visit(*this, each);
  }
};

}  // namespace

Result<MixOptions> make_mix_options(const std::vector<config::BatchTransform>& transforms,
                                    const TensorSpec& input) {
  MixOptions options;
  if (transforms.empty()) return options;
  if (transforms.size() > 1)
    return Status(StatusCode::kInvalidArgument,
                  "data.train.batch_transforms: must be one transform; write random_choice for one "
                  "of several");
  std::visit(AlphasInto{options}, transforms.front());
  if (options.cutmix == 0) return options;
  if (input.shape.size() != 3) {
    return Status(StatusCode::kMismatch,
                  "data.train.batch_transforms: cutmix needs images [channels, height, width]; the "
                  "data has " +
                      to_string(input));
  }
  options.height = input.shape[1];
  options.width = input.shape[2];
  return options;
}

CutMixBox cutmix_box(double share, int64_t row, int64_t column, int64_t height, int64_t width) {
  const double half = 0.5 * std::sqrt(1.0 - share);
  const auto half_height = static_cast<int64_t>(half * static_cast<double>(height));
  const auto half_width = static_cast<int64_t>(half * static_cast<double>(width));
  return {.top = std::max<int64_t>(row - half_height, 0),
          .left = std::max<int64_t>(column - half_width, 0),
          .bottom = std::min(row + half_height, height),
          .right = std::min(column + half_width, width)};
}

MixParameters sample_mix(const MixOptions& options, uint64_t seed, uint64_t ticket) {
  if (!options.any()) return {};
  CounterRng rng({.seed = seed, .epoch = 0, .sample = ticket}, RandomStream::kMix);
  // Always consume this random number, so that a single transform uses the same ones as in a random
  // choice.
  const bool is_first = rng.uniform() < 0.5;
  const bool cuts = options.cutmix > 0 && (options.mixup == 0 || is_first);
  const double share = sample_beta(cuts ? options.cutmix : options.mixup, rng);
  if (!cuts) return {.own_share = share};
  const auto row = static_cast<int64_t>(rng.below(static_cast<uint32_t>(options.height)));
  const auto column = static_cast<int64_t>(rng.below(static_cast<uint32_t>(options.width)));
  const CutMixBox box = cutmix_box(share, row, column, options.height, options.width);
  const auto whole = static_cast<double>(options.height * options.width);
  return {.own_share = 1.0 - static_cast<double>(box.area()) / whole, .box = box};
}

std::string describe(const MixParameters& mix, uint64_t row, uint64_t batch) {
  const uint64_t other = (row + batch - 1) % batch;
  char text[160];
  if (mix.box) {
    const CutMixBox& box = *mix.box;
    std::snprintf(text, sizeof text, "cutmix=%.3f rows=%lld..%lld columns=%lld..%lld with row %llu",
                  mix.own_share, static_cast<long long>(box.top),
                  static_cast<long long>(box.bottom), static_cast<long long>(box.left),
                  static_cast<long long>(box.right), static_cast<unsigned long long>(other));
  } else {
    std::snprintf(text, sizeof text, "mixup=%.3f with row %llu", mix.own_share,
                  static_cast<unsigned long long>(other));
  }
  return text;
}

}  // namespace stoker::data::transform
