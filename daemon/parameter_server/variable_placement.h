// place_variables: which parameter server has which variable, the same on all tasks of a cluster.
//
// Threads: a pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shared/config/training_config.h"

namespace stoker::parameter_server {

// The server of each variable, from 0. `bytes`: the sizes of the variables, in the order in which the
// model has them. `num_servers` > 0.
// kRoundRobin: one server after the other. kBytes: each variable on the server with the fewest bytes so
// far, the first one of several.
std::vector<size_t> place_variables(const std::vector<uint64_t>& bytes, size_t num_servers,
                                    config::VariablePlacement placement);

}  // namespace stoker::parameter_server
