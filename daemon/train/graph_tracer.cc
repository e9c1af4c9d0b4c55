#include "daemon/train/graph_tracer.h"

#include <algorithm>
#include <map>
#include <string_view>

#include <ATen/core/ivalue.h>

#include "shared/model/torch_dtype.h"

namespace stoker::train {
namespace {

// RecordFunction callbacks are plain functions, so the tracer of a thread is found through this
// pointer.
thread_local GraphTracer* tracer_of_thread = nullptr;

std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  if (value.isTensorList()) return value.toTensorVector();
  return {};
}

std::string with_slashes(std::string path) {
  std::ranges::replace(path, '.', '/');
  return path;
}

// "model/layer1/0" for "layer1.0", "model" for the model itself.
std::string scope_of(const std::string& module) {
  return module.empty() ? "model" : "model/" + with_slashes(module);
}

std::string parent_scope(const std::string& scope) {
  const size_t slash = scope.rfind('/');
  return slash == std::string::npos ? scope : scope.substr(0, slash);
}

// The innermost scope that contains both.
std::string common_scope(const std::string& one, const std::string& other) {
  size_t end = 0;  // of the last common component
  for (size_t i = 0;; ++i) {
    const bool ends_one = i == one.size() || one[i] == '/';
    const bool ends_other = i == other.size() || other[i] == '/';
    if (ends_one && ends_other) end = i;
    if (i >= one.size() || i >= other.size() || one[i] != other[i]) break;
  }
  return one.substr(0, end);
}

// "linear" for "aten::linear".
std::string short_name(std::string_view name) {
  const size_t colon = name.rfind(':');
  return std::string(colon == std::string_view::npos ? name : name.substr(colon + 1));
}

}  // namespace

// State that on_start() passes to on_end().
struct GraphTracer::Call : at::ObserverContext {
  Operation operation;
};

GraphTracer::GraphTracer(const model::Model& model) {
  const auto add_tensors = [this](const std::string& path, const torch::nn::Module& module) {
    modules_.push_back(path);
    const auto add = [&](const std::string& name, const at::Tensor& tensor, bool is_parameter) {
      Leaf leaf{.node = {.name = scope_of(path) + "/" + name,
                         .type = is_parameter ? "Parameter" : "Buffer",
                         .output_shapes = {tensor.sizes().vec()}},
                .maybe_module = modules_.size() - 1,
                .is_parameter = is_parameter};
      if (is_parameter && !tensor.requires_grad())
        leaf.node.attributes.emplace_back("attr", "frozen");
      add_leaf(tensor, std::move(leaf));
    };
    for (const auto& item : module.named_parameters(/*recurse=*/false))
      add(item.key(), item.value(), true);
    for (const auto& item : module.named_buffers(/*recurse=*/false))
      add(item.key(), item.value(), false);
  };
  add_tensors("", model);
  for (const auto& item : model.named_modules("", /*include_self=*/false))
    add_tensors(item.key(), *item.value());
}

// A tensor that several modules share belongs to the first.
void GraphTracer::add_leaf(const at::Tensor& tensor, Leaf leaf) {
  if (!tensor.defined()) return;
  const Value value{.is_leaf = true, .index = leaves_.size(), .maybe_module = leaf.maybe_module};
  if (values_.try_emplace(tensor.unsafeGetTensorImpl(), value).second)
    leaves_.push_back(std::move(leaf));
}

void GraphTracer::set_batch(const task::Batch& batch, const std::vector<std::string>& names) {
  if (has_recorded_) return;
  for (size_t i = 0; i < batch.size() && i < names.size(); ++i) {
    const TensorSpec spec = model::to_tensor_spec(names[i], batch[i]);
    outputs_.emplace_back(batch[i].getIntrusivePtr());
    add_leaf(batch[i], {.node = {.name = "batch/" + names[i],
                                 .type = std::string(to_string(spec.dtype)),
                                 .output_shapes = {spec.shape}}});
  }
}

void GraphTracer::start() {
  if (is_recording_ || std::exchange(has_recorded_, true)) return;
  tracer_of_thread = this;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&on_start, &on_end)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
  is_recording_ = true;
}

void GraphTracer::stop() noexcept {
  if (!std::exchange(is_recording_, false)) return;
  at::removeCallback(handle_);
  tracer_of_thread = nullptr;
  in_operator_ = false;
}

std::unique_ptr<at::ObserverContext> GraphTracer::on_start(const at::RecordFunction& call) {
  GraphTracer* const tracer = tracer_of_thread;
  if (tracer == nullptr || tracer->in_operator_) return nullptr;
  auto known = std::make_unique<Call>();
  Operation& operation = known->operation;
  operation.type = short_name(call.name());
  for (const c10::IValue& input : call.inputs()) {
    for (const at::Tensor& tensor : tensors_of(input)) {
      if (!tensor.defined()) continue;
      const auto value = tracer->values_.find(tensor.unsafeGetTensorImpl());
      if (value == tracer->values_.end()) continue;
      operation.inputs.push_back(value->second);
      if (!operation.maybe_module) operation.maybe_module = value->second.maybe_module;
    }
  }
  tracer->in_operator_ = true;  // until on_end()
  return known;
}

void GraphTracer::on_end(const at::RecordFunction& call, at::ObserverContext* context) {
  GraphTracer* const tracer = tracer_of_thread;
  auto* const known = static_cast<Call*>(context);
  if (tracer == nullptr || known == nullptr) return;
  tracer->in_operator_ = false;
  std::vector<at::Tensor> outputs;
  for (const c10::IValue& output : call.outputs())
    for (at::Tensor& tensor : tensors_of(output)) outputs.push_back(std::move(tensor));
  tracer->add_operation(std::move(known->operation), outputs);
}

void GraphTracer::add_operation(Operation operation, const std::vector<at::Tensor>& outputs) {
  if (operations_.size() > kMaxOperations) return;
  const bool has_only_parameters =
      !operation.inputs.empty() && std::ranges::all_of(operation.inputs, [](const Value& input) {
        return input.maybe_module.has_value();
      });
  for (size_t i = 0; i < outputs.size(); ++i) {
    const at::Tensor& output = outputs[i];
    operation.output_shapes.push_back(output.defined() ? output.sizes().vec()
                                                       : std::vector<int64_t>());
    if (!output.defined()) continue;
    operation.requires_grad = operation.requires_grad || output.requires_grad();
    Value value{.index = operations_.size(), .output = i};
    if (has_only_parameters) value.maybe_module = operation.maybe_module;
    values_[output.unsafeGetTensorImpl()] = value;
    outputs_.emplace_back(output.getIntrusivePtr());
  }
  operations_.push_back(std::move(operation));
}

// ---- The graph

// The last result that has a gradient. The training metric has none.
std::optional<size_t> GraphTracer::find_loss() const {
  if (operations_.size() > kMaxOperations) return std::nullopt;
  for (size_t i = operations_.size(); i > 0; --i)
    if (operations_[i - 1].requires_grad) return i - 1;
  return std::nullopt;
}

void GraphTracer::mark_used(size_t loss) {
  operations_[loss].is_used = true;
  for (size_t i = loss + 1; i > 0; --i) {
    if (!operations_[i - 1].is_used) continue;
    for (const Value& input : operations_[i - 1].inputs)
      (input.is_leaf ? leaves_[input.index].is_used : operations_[input.index].is_used) = true;
  }
}

// Of an operation between those that take parameters.
std::string GraphTracer::inner_scope(const Operation& operation) const {
  std::optional<std::string> maybe_scope;
  for (const Value& input : operation.inputs) {
    if (input.is_leaf) continue;
    const Operation& source = operations_[input.index];
    if (!source.scope.starts_with("model")) continue;
    const std::string scope = source.maybe_module ? parent_scope(source.scope) : source.scope;
    maybe_scope = maybe_scope ? common_scope(*maybe_scope, scope) : scope;
  }
  return maybe_scope.value_or("model");
}

void GraphTracer::assign_scopes() {
  const auto takes_parameters = [](const Operation& operation) {
    return operation.is_used && operation.maybe_module.has_value();
  };
  const auto first = std::ranges::find_if(operations_, takes_parameters);
  const auto last = std::find_if(operations_.rbegin(), operations_.rend(), takes_parameters).base();
  for (auto operation = operations_.begin(); operation != operations_.end(); ++operation) {
    if (!operation->is_used) continue;
    if (operation->maybe_module) {
      operation->scope = scope_of(modules_[*operation->maybe_module]);
    } else if (operation < first) {
      operation->scope = "inputs";
    } else {
      operation->scope = operation >= last ? "loss" : inner_scope(*operation);
    }
  }
}

// As TensorFlow: "linear", "linear_1", …
void GraphTracer::assign_names() {
  std::map<std::string, int> used;
  for (const Leaf& leaf : leaves_) used[leaf.node.name] = 1;
  for (Operation& operation : operations_) {
    if (!operation.is_used) continue;
    const std::string name = operation.scope + "/" + operation.type;
    const int count = used[name]++;
    operation.name = count == 0 ? name : name + "_" + std::to_string(count);
  }
}

std::string GraphTracer::input_name(const Value& value) const {
  const std::string& name =
      value.is_leaf ? leaves_[value.index].node.name : operations_[value.index].name;
  return value.output == 0 ? name : name + ":" + std::to_string(value.output);
}

TracedGraph GraphTracer::take() {
  stop();
  TracedGraph graph;
  const auto loss = find_loss();
  if (loss) {
    mark_used(*loss);
    assign_scopes();
    assign_names();
  }
  for (const Leaf& leaf : leaves_)
    if (leaf.is_used || leaf.is_parameter || !leaf.maybe_module) graph.nodes.push_back(leaf.node);
  if (!loss) return graph;
  for (const Operation& operation : operations_) {
    if (!operation.is_used) continue;
    metrics::GraphNode node{
        .name = operation.name, .type = operation.type, .output_shapes = operation.output_shapes};
    for (const Value& input : operation.inputs) node.inputs.push_back(input_name(input));
    graph.nodes.push_back(std::move(node));
  }
  graph.loss = operations_[*loss].name;
  return graph;
}

}  // namespace stoker::train
