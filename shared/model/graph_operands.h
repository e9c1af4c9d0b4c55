// Operand: an argument of a node of a graph program, converted to the type that the operator's schema has for it.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include "shared/graph/graph_file.h"

namespace stoker::model {

struct Operand {
  enum class Kind {
    kConstant,
    kDevice,  // that of the run, whatever that of the export was
    kValue,   // `index`
    kTensor,  // `index` in the table
    kList
  };
  Kind kind = Kind::kConstant;
  c10::IValue constant;
  int64_t index = 0;
  bool is_last_use = false;   // of the value: it is moved
  bool wraps_number = false;  // a value that is a number becomes a tensor
  std::vector<Operand> items;
  c10::TypePtr item_type;
};

// The argument does not fit the schema.
struct OperandError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws OperandError.
Operand bind_operand(const graph::Argument& argument, const c10::TypePtr& type);
// An argument of a function of numbers, or an operand of a subgraph, which have no schema.
Operand bind_untyped(const graph::Argument& argument);

// A list of the type of its items. Throws c10::Error if an item has another type.
c10::IValue make_list(const c10::TypePtr& item_type, const std::vector<c10::IValue>& items);
// A number as a tensor that does not decide the dtype of a result.
at::Tensor wrap_number(const at::Scalar& number);

at::ScalarType scalar_type_named(const std::string& name);  // throws OperandError

}  // namespace stoker::model
