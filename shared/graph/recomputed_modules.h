// fold_modules(): the nodes of modules whose activations are recomputed in the backward pass, as one node each.
//
// Threads: pure function.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "shared/graph/graph_file.h"

namespace stoker::graph {

// Replaces consecutive nodes of each module by a node kRecompute if later nodes use one tensor of them alone. Its
// operands are the values and the tensors of the table that they use; these become inputs of its graph. `operators`:
// GraphFile::operators. Increases program.num_values.
void fold_modules(Program& program, const std::vector<std::string>& modules,
                  const std::map<std::string, std::string>& operators);

}  // namespace stoker::graph
