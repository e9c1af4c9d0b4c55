// graph_of: a model's modules and their tensors, as TensorBoard's page of graphs shows them.
//
// Threads: as the model.
#pragma once

#include <string>

#include "shared/metrics/model_graph.h"
#include "shared/model/model.h"

namespace stoker::daemon_app {

metrics::ModelGraph graph_of(const model::Model& model, const std::string& name);

}  // namespace stoker::daemon_app
