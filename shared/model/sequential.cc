#include "shared/model/sequential.h"

#include <ATen/ops/dropout.h>

namespace stoker::model {

void Sequential::add_dropout(double part) {
  add_step([this, part](const at::Tensor& x) {
    return part > 0 && is_training() ? at::dropout(x, part, true) : x;
  });
}

at::Tensor Sequential::forward(const at::Tensor& input) {
  at::Tensor x = input;
  for (const Step& step : steps_) x = step(x);
  return x;
}

}  // namespace stoker::model
