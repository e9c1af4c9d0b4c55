#include "shared/task/prepare_input.h"

namespace stoker::task {

at::Tensor prepare_input(const at::Tensor& input) {
  if (input.scalar_type() != at::kByte) return input;
  return input.to(at::kFloat).mul_(2.0 / 255.0).sub_(1.0);
}

at::Tensor prepare_tokens(const at::Tensor& tokens) { return tokens.to(at::kLong); }

}  // namespace stoker::task
