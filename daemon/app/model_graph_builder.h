// build_model_graph: converts a model's modules and tensors to a graph for TensorBoard.
//
// Threads: those that may use the model.
#pragma once

#include <string>

#include "shared/metrics/tensorboard_messages.h"
#include "shared/model/model.h"

namespace stoker::app {

metrics::ModelGraph build_model_graph(const model::Model& model, const std::string& name);

}  // namespace stoker::app
