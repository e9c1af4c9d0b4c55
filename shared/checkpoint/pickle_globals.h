// The names of types and functions in PyTorch's pickles, and what they stand for: a table, behind
// which nothing is called.
//
// Threads: functions of their arguments.
// Errors:  kCorrupt: arguments that do not fit, a tensor that lies beyond its storage.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/checkpoint/pickle_reader.h"

namespace stoker::checkpoint {

bool is_allowed_global(std::string_view name);  // "torch._utils._rebuild_tensor_v2"
// The type of storage in which PyTorch keeps a dtype: "FloatStorage"; empty: it has none, and the
// tensor says its dtype itself.
std::string_view storage_type_name(DType dtype);
// "torch.uint16"
std::string_view torch_dtype_name(DType dtype);

// What a persistent id refers to: ("storage", type, key, place, elements).
Result<PickledStorage> parse_storage(const Pickle& pickle, const PickleValue& id);

// What the function gives for these arguments.
struct ReduceResult {
  std::optional<uint32_t> maybe_same;  // one of its arguments, as it is; else:
  PickleValue value;
};
// Adds to pickle.tensors.
Result<ReduceResult> apply_reduce(Pickle& pickle, std::string_view function,
                                  const std::vector<uint32_t>& arguments);

// A name in a message: what could move a terminal's cursor replaced, cut where it is long.
std::string printable(std::string_view name);

}  // namespace stoker::checkpoint
