#include "shared/model/graph_self_test.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>

#include "shared/base/hash.h"

namespace stoker::model {
namespace {

struct Measures {
  double norm = 0;
  double projection = 0;
};

// python/stoker_export/self_test.py: finite(), signs().
Measures measure(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().to(at::kDouble).contiguous();
  const std::span<const double> elements(values.const_data_ptr<double>(),
                                         static_cast<size_t>(values.numel()));
  constexpr uint64_t kMixer = 0x9E3779B97F4A7C15;
  Measures measures;
  double squares = 0;
  for (uint64_t i = 0; i < elements.size(); ++i) {
    const double value = std::isfinite(elements[i]) ? elements[i] : 0;
    squares += value * value;
    measures.projection += i * kMixer >> 63 == 0 ? value : -value;
  }
  measures.norm = std::sqrt(squares);
  return measures;
}

std::string nine_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

}  // namespace

Result<bool> check_tested_tensor(const std::string& what, const at::Tensor& tensor,
                                 const graph::TestedTensor& expected) {
  const at::Tensor host = tensor.detach().contiguous();
  Sha256 sum;
  sum.update(std::string_view(static_cast<const char*>(host.const_data_ptr()), host.nbytes()));
  if (sum.finish_hex() == expected.sha256) return true;
  const Measures found = measure(host);
  // The projection of a difference on signs is not bounded by its norm, but rarely larger than a few times.
  constexpr double kFew = 8;
  // Sums in another order.
  const double slack = 1e-12 * (std::abs(expected.norm) + std::abs(expected.projection));
  if (std::abs(found.norm - expected.norm) <= expected.bound + slack &&
      std::abs(found.projection - expected.projection) <= kFew * expected.bound + slack)
    return false;
  return Status(StatusCode::kMismatch,
                "fails its self-test: the norm of " + what + " is " + nine_digits(found.norm) +
                    ", expected " + nine_digits(expected.norm) + " within " +
                    nine_digits(expected.bound) +
                    "; this LibTorch computes something else than the PyTorch that exported it");
}

}  // namespace stoker::model
