// Echo: a model that answers what it is given, so that a test says what the model says.
#pragma once

#include "shared/model/model.h"

namespace stoker::task {

struct Echo : model::Model {
  at::Tensor forward(const at::Tensor& input) override { return input; }
};

}  // namespace stoker::task
