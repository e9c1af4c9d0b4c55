#include "shared/model/data_compatibility.h"

namespace stoker::model {

const TensorSpec* find_tensor(const std::vector<TensorSpec>& sample, TensorRole role) {
  for (const TensorSpec& spec : sample)
    if (role_of(spec) == role) return &spec;
  return nullptr;
}

std::string describe(const std::vector<TensorSpec>& sample) {
  std::string text;
  for (const TensorSpec& spec : sample) text += (text.empty() ? "" : ", ") + to_string(spec);
  return text.empty() ? "nothing" : text;
}

Result<TensorSpec> find_input_tensor(const std::vector<TensorSpec>& sample,
                                     const std::string& model, int64_t min_side) {
  const TensorSpec* const input = find_tensor(sample, TensorRole::kInput);
  if (input == nullptr) {
    return Status(
        StatusCode::kMismatch,
        "model " + model + " needs samples with `input`; the data has " + describe(sample));
  }
  if (min_side == 0) return *input;
  const auto& shape = input->shape;
  if (shape.size() != 3 || shape[0] < 1 || shape[1] < min_side || shape[2] < min_side) {
    const std::string side = std::to_string(min_side);
    return Status(StatusCode::kMismatch,
                  "model " + model + " needs images [channels, height, width] of at least " + side +
                      " x " + side + " pixels; the data has " + to_string(*input));
  }
  return *input;
}

TensorSpec as_field(TensorSpec spec) {
  if (role_of(spec) == TensorRole::kTokens) spec.dtype = DType::kI64;
  if (role_of(spec) == TensorRole::kInput) spec.dtype = DType::kF32;
  if (role_of(spec) == TensorRole::kMask) spec.dtype = DType::kI64;
  return spec;
}

Result<int64_t> num_outputs(std::optional<int64_t> num_classes,
                            const std::vector<TensorSpec>& sample, uint64_t classes) {
  const TensorSpec* const target = find_tensor(sample, TensorRole::kTarget);
  const int64_t wanted =
      classes > 0 ? static_cast<int64_t>(classes) : (target == nullptr ? 0 : target->elements());
  const std::string data = classes > 0 ? std::to_string(classes) + " classes"
                                       : "targets of width " + std::to_string(wanted);
  if (!num_classes && wanted > 0) return wanted;
  if (!num_classes) {
    return Status(StatusCode::kMismatch,
                  "model.num_classes: is required; set it to the number of outputs, because the "
                  "data has neither classes nor targets: " +
                      describe(sample));
  }
  // The model may have more outputs than classes (a head trained elsewhere), or one logit for two
  // classes (binary_classification); the width of a target must match exactly.
  const bool is_logit = classes == 2 && *num_classes == 1;
  const bool fits =
      classes > 0 ? is_logit || *num_classes >= wanted : (wanted == 0 || *num_classes == wanted);
  if (fits) return *num_classes;
  return Status(StatusCode::kMismatch, "model.num_classes is " + std::to_string(*num_classes) +
                                           ", but the data has " + data);
}

Status validate_vocab(const TokenLimits& limits, const std::vector<TensorSpec>& sample,
                      uint64_t classes, const std::string& model) {
  const TensorSpec* const tokens = find_tensor(sample, TensorRole::kTokens);
  if (tokens == nullptr || tokens->shape.size() != 1 || tokens->shape[0] < 2) {
    return Status(StatusCode::kMismatch,
                  "model " + model + " needs samples with `tokens` [2 or more]; the data has " +
                      describe(sample));
  }
  if (tokens->shape[0] - 1 > limits.context_length) {
    return Status(StatusCode::kMismatch,
                  "model.context_length is " + std::to_string(limits.context_length) +
                      ", but the data's samples have " + std::to_string(tokens->shape[0] - 1) +
                      " tokens and the one to predict");
  }
  if (classes > static_cast<uint64_t>(limits.vocab_size)) {
    return Status(StatusCode::kMismatch, "model.vocab_size is " +
                                             std::to_string(limits.vocab_size) +
                                             ", but the data has " + std::to_string(classes) +
                                             " different tokens; set it to that, or to null");
  }
  return {};
}

}  // namespace stoker::model
