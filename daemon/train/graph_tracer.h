// GraphTracer: records the operations of one forward pass and its loss as the nodes of a graph for
// TensorBoard, with their shapes and the values that they pass on.
//
// LibTorch reports each operator that runs on this thread. An operator that takes parameters of a
// module is a node of that module. Between the first and the last of these, the others are nodes of
// the innermost module that contains the operators whose results they take; before the first they
// are in the scope `inputs`, after the last in `loss`. Operators that do not contribute to the loss
// are omitted.
//
// Threads:   one, the thread that calls the model.
// Ownership: the model must outlive this object. Keeps no tensor alive, so the step needs no more
//            memory.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include "shared/metrics/tensorboard_messages.h"
#include "shared/model/model.h"
#include "shared/task/task.h"

namespace stoker::train {

struct TracedGraph {
  // Parameters, used buffers, the tensors of the batch and the operations. The tensors of the batch
  // are named "batch/NAME" and take no inputs.
  std::vector<metrics::GraphNode> nodes = {};
  std::string loss = {};  // name of the node whose output is the loss; empty: there is none
};

class GraphTracer {
 public:
  // A pass with more operations has a graph without them.
  static constexpr size_t kMaxOperations = 5000;

  explicit GraphTracer(const model::Model& model);
  ~GraphTracer() { stop(); }
  GraphTracer(const GraphTracer&) = delete;
  GraphTracer& operator=(const GraphTracer&) = delete;

  // The batch of the pass and the names of its tensors. Call before start().
  void set_batch(const task::Batch& batch, const std::vector<std::string>& names);
  // Records the operators up to stop(). Only the first pass is recorded.
  void start();
  void stop() noexcept;
  TracedGraph take();

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  // A parameter, a buffer or a tensor of the batch.
  struct Leaf {
    metrics::GraphNode node = {};
    std::optional<size_t> maybe_module = {};  // index in modules_; empty: a tensor of the batch
    bool is_parameter = false;
    bool is_used = false;
  };
  // Where a tensor comes from.
  struct Value {
    bool is_leaf = false;
    size_t index = 0;  // in leaves_ or operations_
    size_t output = 0;
    std::optional<size_t> maybe_module = {};  // computed from parameters of this module only
  };
  struct Operation {
    std::string type;
    std::vector<Value> inputs;
    std::vector<std::vector<int64_t>> output_shapes;
    std::optional<size_t> maybe_module;  // whose parameters it takes
    bool requires_grad = false;
    bool is_used = false;  // the loss depends on it
    std::string scope;
    std::string name;
  };
  struct Call;

  static std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& call);
  static void on_end(const at::RecordFunction& call, at::ObserverContext* context);
  void add_leaf(const at::Tensor& tensor, Leaf leaf);
  void add_operation(Operation operation, const std::vector<at::Tensor>& outputs);
  std::optional<size_t> find_loss() const;
  void mark_used(size_t loss);
  void assign_scopes();
  std::string inner_scope(const Operation& operation) const;
  void assign_names();
  std::string input_name(const Value& value) const;

  std::vector<std::string> modules_;  // paths, the model first
  std::vector<Leaf> leaves_;
  std::vector<Operation> operations_;  // in the order of execution
  std::unordered_map<const c10::TensorImpl*, Value> values_;
  std::vector<WeakTensor> outputs_;  // so that no address in values_ is used again
  at::CallbackHandle handle_ = 0;
  bool is_recording_ = false;
  bool has_recorded_ = false;
  bool in_operator_ = false;  // operators that another one calls are not recorded
};

}  // namespace stoker::train
