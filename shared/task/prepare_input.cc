#include "shared/task/prepare_input.h"

#include <string>

namespace stoker::task {
namespace {

// In place, in one multiplication and one subtraction.
void normalize(at::Tensor values, double mean, double std) {
  values.mul_(1.0 / (255.0 * std)).sub_(mean / std);
}

}  // namespace

Result<Normalization> normalization_of(const config::TaskConfig& config, const TensorSpec& input) {
  const config::TaskConfig defaults;
  if (config.mean == defaults.mean && config.std == defaults.std) return Normalization{};
  if (input.dtype != DType::kU8) {
    return Status(Code::kMismatch,
                  "task.mean and task.std are for pictures of bytes; the data has " +
                      to_string(input) + ", which is given to the model as it is");
  }
  const size_t channels = config.mean.size();
  if (channels != 1 && (input.shape.empty() || static_cast<size_t>(input.shape[0]) != channels)) {
    return Status(Code::kMismatch, "task.mean and task.std have " + std::to_string(channels) +
                                       " numbers, one a channel; the data has " + to_string(input));
  }
  return Normalization{.mean = config.mean, .std = config.std};
}

at::Tensor prepare_input(const at::Tensor& input, const Normalization& normalization) {
  if (input.scalar_type() != at::kByte) return input;
  const at::Tensor values = input.to(at::kFloat);
  const size_t channels = normalization.mean.size();
  for (size_t i = 0; i < channels; ++i)
    normalize(channels == 1 ? values : values.select(1, static_cast<int64_t>(i)),
              normalization.mean[i], normalization.std[i]);
  return values;
}

at::Tensor prepare_tokens(const at::Tensor& tokens) { return tokens.to(at::kLong); }

}  // namespace stoker::task
