#include "shared/model/chain.h"

#include <ATen/ops/dropout.h>

namespace stoker::model {

void Chain::add_dropout(double part) {
  add_step([this, part](const at::Tensor& x) {
    return part > 0 && is_training() ? at::dropout(x, part, true) : x;
  });
}

at::Tensor Chain::forward(const at::Tensor& input) {
  at::Tensor x = input;
  for (const Step& step : steps_) x = step(x);
  return x;
}

}  // namespace stoker::model
