#include "shared/task/preprocess_input.h"

#include <string>

namespace stoker::task {
namespace {

// In place, with one multiplication and one subtraction.
void normalize(at::Tensor values, double mean, double std) {
  values.mul_(1.0 / (255.0 * std));
  if (mean != 0) values.sub_(mean / std);
}

}  // namespace

Result<Normalization> find_normalization(const config::Normalize* maybe_normalize,
                                         const TensorSpec& input) {
  if (maybe_normalize == nullptr) return Normalization{};
  const config::Normalize& config = *maybe_normalize;
  if (input.dtype != DType::kU8) {
    return Status(StatusCode::kMismatch,
                  "data.train.transforms: normalize requires uint8 images; the data has " +
                      to_string(input) + ", which is passed to the model unchanged");
  }
  const size_t channels = config.mean.size();
  const bool fits =
      channels == 1 || (!input.shape.empty() && static_cast<size_t>(input.shape[0]) == channels);
  if (!fits || config.std.size() != channels) {
    return Status(StatusCode::kMismatch,
                  "data.train.transforms: normalize has " + std::to_string(channels) +
                      " means and " + std::to_string(config.std.size()) +
                      " stds; set one of each, or one per channel; the data has " +
                      to_string(input));
  }
  return Normalization{.mean = config.mean, .std = config.std};
}

at::Tensor preprocess_input(const at::Tensor& input, const Normalization& normalization) {
  if (input.scalar_type() != at::kByte) return input;
  const at::Tensor values = input.to(at::kFloat);
  const size_t channels = normalization.mean.size();
  for (size_t i = 0; i < channels; ++i)
    normalize(channels == 1 ? values : values.select(1, static_cast<int64_t>(i)),
              normalization.mean[i], normalization.std[i]);
  return values;
}

at::Tensor preprocess_tokens(const at::Tensor& tokens) { return tokens.to(at::kLong); }

}  // namespace stoker::task
