// build_model_graph: a model's modules and their tensors, as TensorBoard's page of graphs shows them.
//
// Threads: as the model.
#pragma once

#include <string>

#include "shared/metrics/tensorboard_messages.h"
#include "shared/model/model.h"

namespace stoker::app {

metrics::ModelGraph build_model_graph(const model::Model& model, const std::string& name);

}  // namespace stoker::app
