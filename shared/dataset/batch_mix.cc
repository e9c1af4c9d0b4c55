#include "shared/dataset/batch_mix.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <variant>

#include "shared/dataset/draws.h"

namespace stoker::dataset {
namespace {

// From (0, 1]: it has a logarithm.
double above_zero(Draws& draws) { return 1.0 - draws.uniform(); }

// Box and Muller's way, one number of the pair.
double normal(Draws& draws) {
  const double radius = std::sqrt(-2.0 * std::log(above_zero(draws)));
  return radius * std::cos(2.0 * std::numbers::pi * draws.uniform());
}

// The logarithm of a number from Gamma(alpha, 1), by Marsaglia and Tsang, "A simple method for
// generating gamma variables" (2000). A logarithm, because with a small alpha the number itself is
// often smaller than any double.
double log_gamma_draw(double alpha, Draws& draws) {
  // Gamma(alpha) is Gamma(alpha + 1) times U^(1 / alpha).
  const double lowered = alpha < 1 ? std::log(above_zero(draws)) / alpha : 0.0;
  const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3.0;
  while (true) {  // a try in twenty is lost, at most
    const double x = normal(draws);
    const double root = 1.0 + x / std::sqrt(9.0 * d);
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(above_zero(draws)) < 0.5 * x * x + d - d * v + d * std::log(v))
      return std::log(d * v) + lowered;
  }
}

// From Beta(alpha, alpha): a / (a + b).
double beta_draw(double alpha, Draws& draws) {
  const double a = log_gamma_draw(alpha, draws);
  const double b = log_gamma_draw(alpha, draws);
  return 1.0 / (1.0 + std::exp(b - a));
}

struct AlphasInto {
  MixSettings& settings;

  void operator()(const config::Mixup& mixup) const { settings.mixup = mixup.alpha; }
  void operator()(const config::Cutmix& cutmix) const { settings.cutmix = cutmix.alpha; }
  void operator()(const config::RandomChoice& choice) const {
    for (const auto& each : choice.transforms) std::visit(*this, each);
  }
};

}  // namespace

Result<MixSettings> mix_settings(const std::vector<config::BatchTransform>& transforms,
                                 const TensorSpec& input) {
  MixSettings settings;
  if (transforms.empty()) return settings;
  if (transforms.size() > 1)
    return Status(Code::kInvalidArgument,
                  "data.train.batch_transforms: must be one transform; write random_choice for one "
                  "of several");
  std::visit(AlphasInto{settings}, transforms.front());
  if (settings.cutmix == 0) return settings;
  if (input.shape.size() != 3) {
    return Status(Code::kMismatch,
                  "data.train.batch_transforms: cutmix needs images [channels, height, width]; the "
                  "data has " +
                      to_string(input));
  }
  settings.height = input.shape[1];
  settings.width = input.shape[2];
  return settings;
}

MixBox cutmix_box(double share, int64_t row, int64_t column, int64_t height, int64_t width) {
  const double half = 0.5 * std::sqrt(1.0 - share);
  const auto half_height = static_cast<int64_t>(half * static_cast<double>(height));
  const auto half_width = static_cast<int64_t>(half * static_cast<double>(width));
  return {.top = std::max<int64_t>(row - half_height, 0),
          .left = std::max<int64_t>(column - half_width, 0),
          .bottom = std::min(row + half_height, height),
          .right = std::min(column + half_width, width)};
}

BatchMix draw_mix(const MixSettings& settings, uint64_t seed, uint64_t ticket) {
  if (!settings.any()) return {};
  Draws draws({.seed = seed, .epoch = 0, .sample = ticket}, Purpose::kMix);
  // Drawn in any case, so that one of the two alone draws what it drew beside the other.
  const bool is_first = draws.uniform() < 0.5;
  const bool cuts = settings.cutmix > 0 && (settings.mixup == 0 || is_first);
  const double share = beta_draw(cuts ? settings.cutmix : settings.mixup, draws);
  if (!cuts) return {.own_share = share};
  const auto row = static_cast<int64_t>(draws.below(static_cast<uint32_t>(settings.height)));
  const auto column = static_cast<int64_t>(draws.below(static_cast<uint32_t>(settings.width)));
  const MixBox box = cutmix_box(share, row, column, settings.height, settings.width);
  const auto whole = static_cast<double>(settings.height * settings.width);
  return {.own_share = 1.0 - static_cast<double>(box.area()) / whole, .box = box};
}

std::string describe(const BatchMix& mix, uint64_t row, uint64_t batch) {
  const uint64_t other = (row + batch - 1) % batch;
  char text[160];
  if (mix.box) {
    const MixBox& box = *mix.box;
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

}  // namespace stoker::dataset
