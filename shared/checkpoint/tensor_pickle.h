// tensor_pickle: the pickle (protocol 2) of a torch.save file that holds a dict of tensors. Each
// tensor has a storage of its own, in C order: "0", "1" and so on, in the order given.
//
// Threads: functions of their arguments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shared/base/tensor_spec.h"

namespace stoker::checkpoint {

// {name: tensor, …}
std::string pickle_tensors(const std::vector<TensorSpec>& tensors);

struct PickledPart {
  std::string name;
  std::vector<TensorSpec> tensors;
};
// {"model": {name: tensor, …}, …, "step": 1200}; the storages are numbered through.
std::string pickle_parts(const std::vector<PickledPart>& parts, uint64_t step);

}  // namespace stoker::checkpoint
