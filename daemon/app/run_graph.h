// build_run_graph: the data flow of a run for TensorBoard: files, worker processes, ring, the traced
// part from the batch to the loss, and the optimizer.
//
// Threads: a pure function.
#pragma once

#include <vector>

#include "daemon/train/graph_tracer.h"
#include "shared/config/config.h"
#include "shared/data/dataset.h"
#include "shared/metrics/tensorboard_messages.h"

namespace stoker::app {

std::vector<metrics::GraphNode> build_run_graph(const config::Config& config,
                                                const data::Dataset& data,
                                                train::TracedGraph traced);

}  // namespace stoker::app
