#include "shared/data/transform/gamma_variate.h"

#include <cmath>
#include <numbers>

namespace stoker::data::transform {
namespace {

// From (0, 1], so that it has a logarithm.
double above_zero(CounterRng& rng) { return 1.0 - rng.uniform(); }

// Box-Muller transform, using one value of the pair.
double normal(CounterRng& rng) {
  const double radius = std::sqrt(-2.0 * std::log(above_zero(rng)));
  return radius * std::cos(2.0 * std::numbers::pi * rng.uniform());
}

}  // namespace

double sample_log_gamma(double alpha, CounterRng& rng) {
  // Gamma(alpha) is Gamma(alpha + 1) times U^(1 / alpha).
  const double lowered = alpha < 1 ? std::log(above_zero(rng)) / alpha : 0.0;
  const double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3.0;
  while (true) {  // rejects at most one attempt in twenty
    const double x = normal(rng);
    const double root = 1.0 + x / std::sqrt(9.0 * d);
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(above_zero(rng)) < 0.5 * x * x + d - d * v + d * std::log(v))
      return std::log(d * v) + lowered;
  }
}

}  // namespace stoker::data::transform
