// Echo: a model that returns its input, so that a test sets the logits directly.
#pragma once

#include "shared/model/model.h"

namespace stoker::task {

struct Echo : model::Model {
  at::Tensor forward(const at::Tensor& input) override { return input; }
};

}  // namespace stoker::task
