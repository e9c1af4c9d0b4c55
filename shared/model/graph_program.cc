#include "shared/model/graph_program.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include "shared/model/activation_checkpointing.h"
#include "shared/model/graph_operands.h"
#include "shared/model/torch_status.h"

namespace stoker::model {

// ---- The bound program

enum class SizeFunction {
  kAdd,
  kSub,
  kMul,
  kFloordiv,
  kMod,
  kTruediv,
  kNeg,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kAnd,
  kOr,
  kPow,
  kMax,
  kMin,
  kInt,
  kFloat,
  kNot,
  kIte,
  kCeil,
  kFloor,
  kTrunc,
  kSqrt,
  kGetitem
};

struct BoundNode;
struct BoundGraph {
  std::vector<int64_t> inputs;
  std::vector<BoundNode> nodes;
  std::vector<Operand> outputs;
};

struct BoundNode {
  graph::Node::Kind kind = graph::Node::Kind::kOperator;
  std::optional<c10::OperatorHandle> op;
  void (*maybe_check)(const std::vector<c10::IValue>& operands) = nullptr;  // before `op`
  SizeFunction function = SizeFunction::kAdd;
  std::string name;  // "aten::linear in blocks.0.mlp"
  std::vector<Operand> operands;
  std::vector<int64_t> results;
  std::vector<int64_t> unused;  // results that nothing uses
  std::vector<BoundGraph> graphs;
};

struct GraphProgram::State {
  BoundGraph graph;
  std::vector<std::pair<int64_t, Operand>> updates;
  int64_t num_values = 0;
};

namespace {

using c10::IValue;
using Values = std::vector<IValue>;
using Stack = std::vector<IValue>;

// ---- Functions of numbers

const std::map<std::string, SizeFunction>& size_functions() {
  using F = SizeFunction;
  static const std::map<std::string, SizeFunction> kFunctions = {
      {"add", F::kAdd},     {"sub", F::kSub},   {"mul", F::kMul},        {"floordiv", F::kFloordiv},
      {"mod", F::kMod},     {"neg", F::kNeg},   {"eq", F::kEq},          {"truediv", F::kTruediv},
      {"ne", F::kNe},       {"lt", F::kLt},     {"le", F::kLe},          {"gt", F::kGt},
      {"ge", F::kGe},       {"and", F::kAnd},   {"or", F::kOr},          {"pow", F::kPow},
      {"max", F::kMax},     {"min", F::kMin},   {"int", F::kInt},        {"float", F::kFloat},
      {"not", F::kNot},     {"ite", F::kIte},   {"ceil", F::kCeil},      {"floor", F::kFloor},
      {"trunc", F::kTrunc}, {"sqrt", F::kSqrt}, {"getitem", F::kGetitem}};
  return kFunctions;
}

double real_of(const IValue& value) { return value.toScalar().toDouble(); }
bool is_integer(const IValue& value) { return value.isInt() || value.isBool(); }
int64_t integer_of(const IValue& value) {
  return value.isBool() ? static_cast<int64_t>(value.toBool()) : value.toInt();
}

int64_t rounded(double value) {
  constexpr double kLimit = 0x1p62;
  TORCH_CHECK(std::abs(value) < kLimit, "a size is too large");
  return static_cast<int64_t>(value);
}

// As Python: rounded down.
int64_t floor_divide(int64_t a, int64_t b) {
  TORCH_CHECK(b != 0, "a size is divided by 0");
  if (b == -1) return static_cast<int64_t>(0 - static_cast<uint64_t>(a));
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

template <typename Integers, typename Reals>
IValue arithmetic(const Stack& s, const Integers& integers, const Reals& reals) {
  if (is_integer(s[0]) && is_integer(s[1]))
    // Sizes that overflow wrap around, and are then rejected by an operator.
    return static_cast<int64_t>(
        integers(static_cast<uint64_t>(integer_of(s[0])), static_cast<uint64_t>(integer_of(s[1]))));
  return reals(real_of(s[0]), real_of(s[1]));
}

template <typename Compare>
IValue compared(const Stack& s, const Compare& compare) {
  if (is_integer(s[0]) && is_integer(s[1])) return compare(integer_of(s[0]), integer_of(s[1]));
  return compare(real_of(s[0]), real_of(s[1]));
}

IValue item_of(const IValue& list, int64_t index) {
  if (list.isTensorList()) {
    const c10::List<at::Tensor> tensors = list.toTensorList();
    TORCH_CHECK_INDEX(index >= 0 && static_cast<size_t>(index) < tensors.size(), "item ", index,
                      " of ", tensors.size());
    return tensors.get(static_cast<size_t>(index));
  }
  TORCH_CHECK(list.isList(), "item of what is no list");
  const auto items = list.toListRef();
  TORCH_CHECK_INDEX(index >= 0 && static_cast<size_t>(index) < items.size(), "item ", index, " of ",
                    items.size());
  return items[static_cast<size_t>(index)];
}

IValue call(SizeFunction function, const Stack& s) {
  switch (function) {
    case SizeFunction::kAdd:
      return arithmetic(s, std::plus<>(), std::plus<>());
    case SizeFunction::kSub:
      return arithmetic(s, std::minus<>(), std::minus<>());
    case SizeFunction::kMul:
      return arithmetic(s, std::multiplies<>(), std::multiplies<>());
    case SizeFunction::kFloordiv:
      if (is_integer(s[0]) && is_integer(s[1]))
        return floor_divide(integer_of(s[0]), integer_of(s[1]));
      return std::floor(real_of(s[0]) / real_of(s[1]));
    case SizeFunction::kMod: {
      const int64_t a = integer_of(s[0]), b = integer_of(s[1]);
      TORCH_CHECK(b != 0, "a size is divided by 0");
      if (b == -1) return int64_t{0};  // the remainder of the smallest number is undefined
      const int64_t rest = a % b;
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
    case SizeFunction::kTruediv:
      return real_of(s[0]) / real_of(s[1]);
    case SizeFunction::kNeg:
      if (is_integer(s[0]))
        return static_cast<int64_t>(0 - static_cast<uint64_t>(integer_of(s[0])));
      return -real_of(s[0]);
    case SizeFunction::kEq:
      return compared(s, std::equal_to<>());
    case SizeFunction::kNe:
      return compared(s, std::not_equal_to<>());
    case SizeFunction::kLt:
      return compared(s, std::less<>());
    case SizeFunction::kLe:
      return compared(s, std::less_equal<>());
    case SizeFunction::kGt:
      return compared(s, std::greater<>());
    case SizeFunction::kGe:
      return compared(s, std::greater_equal<>());
    case SizeFunction::kAnd:
      return s[0].toBool() && s[1].toBool();
    case SizeFunction::kOr:
      return s[0].toBool() || s[1].toBool();
    case SizeFunction::kPow:
      if (is_integer(s[0]) && is_integer(s[1]) && integer_of(s[1]) >= 0)
        return rounded(std::round(std::pow(real_of(s[0]), real_of(s[1]))));
      return std::pow(real_of(s[0]), real_of(s[1]));
    case SizeFunction::kMax:
      return compared(s, std::less<>()).toBool() ? s[1] : s[0];
    case SizeFunction::kMin:
      return compared(s, std::less<>()).toBool() ? s[0] : s[1];
    case SizeFunction::kInt:
    case SizeFunction::kTrunc:
      return is_integer(s[0]) ? IValue(integer_of(s[0])) : IValue(rounded(real_of(s[0])));
    case SizeFunction::kFloat:
      return real_of(s[0]);
    case SizeFunction::kNot:
      return !s[0].toBool();
    case SizeFunction::kIte:
      return s[0].toBool() ? s[1] : s[2];
    case SizeFunction::kCeil:
      return rounded(std::ceil(real_of(s[0])));
    case SizeFunction::kFloor:
      return rounded(std::floor(real_of(s[0])));
    case SizeFunction::kSqrt:
      return std::sqrt(real_of(s[0]));
    case SizeFunction::kGetitem:
      return item_of(s[0], s[1].toInt());
  }
  TORCH_CHECK(false, "an unknown function");
}

// ---- Binding

c10::OperatorName operator_name(const std::string& name) {
  const size_t dot = name.find('.');
  return {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)};
}

// PyTorch's export writes the setting of cuDNN at the export into some operators, and it exports with cuDNN
// switched off. The operators check the setting of this process, too.
bool is_cudnn_setting(const std::string& argument) {
  return argument == "cudnn_enabled" || argument == "cudnn_enable";
}

Operand constant_operand(IValue value) {
  Operand operand;
  operand.constant = std::move(value);
  return operand;
}

// PyTorch checks it in Python, when the graph is traced, whose batch has another size. The running variance
// would be NaN.
void check_batch_norm(const Stack& stack) {
  if (!stack[0].isTensor() || !stack[5].isBool()) return;
  const at::Tensor input = stack[0].toTensor();
  if (stack[5].toBool() && input.dim() > 1 && input.numel() == input.size(1))
    TORCH_CHECK(false, "Expected more than 1 value per channel when training, got input size ",
                input.sizes());
}

// LibTorch reads as many norms as the weight has rows, however many there are.
void check_weight_norm(const Stack& stack) {
  if (!stack[0].isTensor() || !stack[1].isTensor() || !stack[2].isInt()) return;
  const at::Tensor v = stack[0].toTensor(), g = stack[1].toTensor();
  const int64_t dim = stack[2].toInt();
  if (dim < 0 || dim >= v.dim()) return;
  TORCH_CHECK(g.dim() == v.dim() && g.numel() == v.size(dim) && g.size(dim) == v.size(dim),
              "the norms have the shape ", g.sizes(), ", the weight ", v.sizes());
}

// LibTorch reads the probabilities of whatever class a target names.
void check_ctc_loss(const Stack& stack) {
  if (!stack[0].isTensor() || !stack[1].isTensor() || stack[0].toTensor().dim() == 0) return;
  const at::Tensor targets = stack[1].toTensor();
  at::Tensor is_wrong = targets.lt(0).logical_or(targets.ge(stack[0].toTensor().size(-1)));
  if (targets.dim() == 2) {  // with padding behind the length
    const at::Tensor lengths =
        stack[3].isTensor()
            ? stack[3].toTensor().to(targets.device(), at::kLong).reshape({-1})
            : at::tensor(stack[3].toIntVector(), targets.options().dtype(at::kLong));
    TORCH_CHECK(lengths.size(0) == targets.size(0), "target_lengths has ", lengths.size(0),
                " numbers, targets the shape ", targets.sizes());
    const at::Tensor step = at::arange(targets.size(1), lengths.options());
    is_wrong = is_wrong.logical_and(step.unsqueeze(0).lt(lengths.unsqueeze(1)));
  }
  TORCH_CHECK(!is_wrong.any().item<bool>(), "a target is negative or at least ",
              stack[0].toTensor().size(-1), ", the number of classes");
}

// Regions start where these numbers say.
void check_random_samples(const Stack& stack) {
  if (!stack[3].isTensor()) return;
  const at::Tensor samples = stack[3].toTensor();
  TORCH_CHECK(samples.ge(0).logical_and(samples.lt(1)).all().item<bool>(),
              "random_samples must be from 0 to below 1");
}

void bind_operator(const graph::Node& node, BoundNode& bound) {
  if (node.name.starts_with("aten::ctc_loss.")) bound.maybe_check = check_ctc_loss;
  if (node.name == "aten::fractional_max_pool2d") bound.maybe_check = check_random_samples;
  if (node.name == "aten::_weight_norm") bound.maybe_check = check_weight_norm;
  if (node.name == "aten::batch_norm") bound.maybe_check = check_batch_norm;
  bound.op = c10::Dispatcher::singleton().findSchema(operator_name(node.name));
  if (!bound.op) throw OperandError("is not in this LibTorch");
  const auto& parameters = bound.op->schema().arguments();
  if (node.arguments.size() > parameters.size()) throw OperandError("gets too many arguments");
  size_t keywords = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const c10::Argument& parameter = parameters[i];
    const auto named = std::ranges::find(node.keyword_arguments, parameter.name(),
                                         &std::pair<std::string, graph::Argument>::first);
    const bool is_positional = i < node.arguments.size();
    const bool is_named = !is_positional && named != node.keyword_arguments.end();
    if (is_named) ++keywords;
    try {
      if (is_cudnn_setting(parameter.name()))
        bound.operands.push_back(constant_operand(true));
      else if (is_positional || is_named)
        bound.operands.push_back(
            bind_operand(is_positional ? node.arguments[i] : named->second, parameter.real_type()));
      else if (parameter.default_value())
        bound.operands.push_back(constant_operand(*parameter.default_value()));
      else
        throw OperandError("is missing");
    } catch (const OperandError& error) {
      throw OperandError("argument " + parameter.name() + ": " + error.what());
    }
  }
  if (keywords != node.keyword_arguments.size())
    throw OperandError("gets a keyword argument that it does not have");
  if (node.results.size() != bound.op->schema().returns().size())
    throw OperandError("has another number of results");
}

BoundGraph bind_graph(const graph::Graph& graph);

BoundNode bind_node(const graph::Node& node) {
  BoundNode bound;
  bound.kind = node.kind;
  bound.name = node.name + (node.module.empty() ? "" : " in " + node.module);
  bound.results = node.results;
  try {
    if (node.kind == graph::Node::Kind::kOperator) {
      bind_operator(node, bound);
    } else {
      if (node.kind == graph::Node::Kind::kSize) bound.function = size_functions().at(node.name);
      for (const graph::Argument& argument : node.arguments)
        bound.operands.push_back(bind_untyped(argument));
    }
  } catch (const OperandError& error) {
    throw OperandError(bound.name + ": " + error.what());
  }
  for (const graph::Graph& each : node.graphs) bound.graphs.push_back(bind_graph(each));
  return bound;
}

template <typename Visit>
void for_each_value(std::vector<Operand>& operands, const Visit& visit) {
  for (Operand& operand : operands) {
    if (operand.kind == Operand::Kind::kValue) visit(operand);
    for_each_value(operand.items, visit);
  }
}

// Marks the last use of each value, from the end. Operands of a node are resolved in their order, so that of
// several uses the last one moves the value.
void mark_last_uses(std::vector<Operand>& operands, std::set<int64_t>& used) {
  std::map<int64_t, Operand*> last;
  for_each_value(operands, [&](Operand& operand) { last[operand.index] = &operand; });
  for (const auto& [value, operand] : last) operand->is_last_use = used.insert(value).second;
}

void mark_last_uses(BoundGraph& graph, std::set<int64_t> used) {
  mark_last_uses(graph.outputs, used);
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    node->unused.clear();
    for (const int64_t result : node->results)
      if (!used.contains(result)) node->unused.push_back(result);
    mark_last_uses(node->operands, used);
  }
}

BoundGraph bind_graph(const graph::Graph& graph) {
  BoundGraph bound;
  bound.inputs = graph.inputs;
  for (const graph::Node& node : graph.nodes) bound.nodes.push_back(bind_node(node));
  for (const graph::Argument& output : graph.outputs) bound.outputs.push_back(bind_untyped(output));
  mark_last_uses(bound, {});
  return bound;
}

// ---- CUDA graphs

bool waits_for_values(const BoundNode& node) {
  if (node.kind == graph::Node::Kind::kCond) return true;
  // Its size follows from values only if an index is a mask, which a graph does not say: a capture then fails.
  if (!node.op || node.op->operator_name().name == "aten::index") return false;
  return node.op->hasTag(at::Tag::data_dependent_output) ||
         node.op->hasTag(at::Tag::dynamic_output_shape);
}

const BoundNode* first_that_waits(const BoundGraph& graph) {
  for (const BoundNode& node : graph.nodes) {
    if (waits_for_values(node)) return &node;
    for (const BoundGraph& part : node.graphs)
      if (const BoundNode* const found = first_that_waits(part)) return found;
  }
  return nullptr;
}

// ---- Running

// As torch.cond: the operands that only the other branch uses get gradients of 0, not none, so that an
// optimizer updates them.
struct ZeroGradients : torch::autograd::Function<ZeroGradients> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& output,
                            at::TensorList operands) {
    context->save_for_backward(operands.vec());
    return output.view_as(output);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    torch::autograd::variable_list all = {gradients[0]};
    for (const at::Tensor& operand : context->get_saved_variables())
      all.push_back(at::zeros_like(operand));
    return all;
  }
};

// Autocast in a part of a program, as torch.autocast in Python.
class AutocastRegion {
 public:
  AutocastRegion(c10::DeviceType device, bool is_enabled, std::optional<at::ScalarType> maybe_dtype)
      : device_(device),
        was_enabled_(at::autocast::is_autocast_enabled(device)),
        was_dtype_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::set_autocast_enabled(device, is_enabled);
    if (maybe_dtype) at::autocast::set_autocast_dtype(device, *maybe_dtype);
    at::autocast::increment_nesting();
  }
  ~AutocastRegion() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, was_enabled_);
    at::autocast::set_autocast_dtype(device_, was_dtype_);
  }
  AutocastRegion(const AutocastRegion&) = delete;
  AutocastRegion& operator=(const AutocastRegion&) = delete;

 private:
  const c10::DeviceType device_;
  const bool was_enabled_;
  const at::ScalarType was_dtype_;
};

// One run of a program.
class Run {
 public:
  Run(const std::vector<at::Tensor>& table, c10::Device device, int64_t num_values)
      : table_(table), device_(device), values_(static_cast<size_t>(num_values)) {}

  void set(int64_t value, IValue to) { values_[static_cast<size_t>(value)] = std::move(to); }

  Stack run(const BoundGraph& graph, Stack inputs) {
    TORCH_CHECK(inputs.size() == graph.inputs.size(), "a part gets other inputs");
    for (size_t i = 0; i < inputs.size(); ++i) set(graph.inputs[i], std::move(inputs[i]));
    for (const BoundNode& node : graph.nodes) run_node(node);
    Stack outputs;
    for (const Operand& output : graph.outputs) outputs.push_back(resolve(output));
    return outputs;
  }

  IValue resolve(const Operand& operand) {
    switch (operand.kind) {
      case Operand::Kind::kConstant:
        return operand.constant;
      case Operand::Kind::kDevice:
        return device_;
      case Operand::Kind::kTensor:
        return table_[static_cast<size_t>(operand.index)];
      case Operand::Kind::kValue: {
        IValue& value = values_[static_cast<size_t>(operand.index)];
        if (operand.wraps_number && value.isScalar()) return wrap_number(value.toScalar());
        return operand.is_last_use ? std::move(value) : value;
      }
      case Operand::Kind::kList: {
        std::vector<IValue> items;
        items.reserve(operand.items.size());
        for (const Operand& item : operand.items) items.push_back(resolve(item));
        return make_list(operand.item_type, items);
      }
    }
    TORCH_CHECK(false, "an unknown operand");
  }

 private:
  void run_node(const BoundNode& node) {
    try {
      Stack stack;
      stack.reserve(std::max(node.operands.size(), node.results.size()));
      for (const Operand& operand : node.operands) stack.push_back(resolve(operand));
      call_node(node, stack);
      TORCH_CHECK(stack.size() == node.results.size(), "another number of results");
      for (size_t i = 0; i < stack.size(); ++i) set(node.results[i], std::move(stack[i]));
      for (const int64_t value : node.unused) set(value, IValue());
    } catch (c10::Error& error) {
      if (error.context().empty()) error.add_context(node.name);
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {  // such as those of oneDNN
      TORCH_CHECK(false, first_line(error.what()), " (", node.name, ")");
    }
  }

  void call_node(const BoundNode& node, Stack& stack) {
    switch (node.kind) {
      case graph::Node::Kind::kOperator:
        if (node.maybe_check != nullptr) node.maybe_check(stack);
        return node.op->callBoxed(stack);
      case graph::Node::Kind::kSize: {
        IValue result = call(node.function, stack);
        stack.assign(1, std::move(result));
        return;
      }
      case graph::Node::Kind::kSetGradEnabled: {
        const at::AutoGradMode mode(stack[0].toBool());
        stack = run(node.graphs[0], {stack.begin() + 1, stack.end()});
        return;
      }
      case graph::Node::Kind::kAutocast: {
        const bool is_default = stack[1].isNone();
        const AutocastRegion region(
            device_.type(), stack[0].toBool(),
            is_default ? std::nullopt
                       : std::make_optional(static_cast<at::ScalarType>(stack[1].toInt())));
        stack = run(node.graphs[0], {stack.begin() + 2, stack.end()});
        return;
      }
      case graph::Node::Kind::kCond:
        return call_cond(node, stack);
      case graph::Node::Kind::kRecompute:
        return call_recompute(node, stack);
    }
  }

  void call_cond(const BoundNode& node, Stack& stack) {
    const bool predicate =
        stack[0].isTensor() ? stack[0].toTensor().item().toBool() : stack[0].toBool();
    std::vector<at::Tensor> with_gradient;
    for (size_t i = 1; i < stack.size(); ++i)
      if (stack[i].isTensor() && stack[i].toTensor().requires_grad())
        with_gradient.push_back(stack[i].toTensor());
    stack = run(node.graphs[predicate ? 0 : 1], {stack.begin() + 1, stack.end()});
    if (with_gradient.empty() || !at::GradMode::is_enabled()) return;
    for (IValue& result : stack)
      if (result.isTensor() && result.toTensor().requires_grad())
        result = ZeroGradients::apply(result.toTensor(), at::TensorList(with_gradient));
  }

  // In another run, because the backward pass calls it again after this one.
  void call_recompute(const BoundNode& node, Stack& stack) {
    // Each becomes a leaf: one may be computed from another, whose graph is not that of the part.
    std::vector<at::Tensor> with_gradient;
    std::vector<size_t> places;
    for (size_t i = 0; i < stack.size(); ++i) {
      if (!stack[i].isTensor() || !stack[i].toTensor().requires_grad()) continue;
      places.push_back(i);
      with_gradient.push_back(stack[i].toTensor());
    }
    if (places.empty()) {
      stack = run(node.graphs[0], std::move(stack));
      return;
    }
    const auto part = [graph = &node.graphs[0], table = &table_, device = device_,
                       num_values = values_.size(), operands = std::move(stack),
                       places](const std::vector<at::Tensor>& given) {
      Run again(*table, device, static_cast<int64_t>(num_values));
      Stack inputs = operands;
      for (size_t i = 0; i < places.size(); ++i) inputs[places[i]] = given[i];
      return again.run(*graph, std::move(inputs))[0].toTensor();
    };
    stack.assign(1, checkpoint_activations(part, with_gradient, /*uses_random=*/true));
  }

  const std::vector<at::Tensor>& table_;
  const c10::Device device_;
  Values values_;
};

}  // namespace

GraphProgram::GraphProgram(std::unique_ptr<const State> state) : state_(std::move(state)) {}
GraphProgram::~GraphProgram() = default;

Status check_operators(const graph::GraphFile& file) {
  const auto mismatch = [&](const std::string& name, const std::string& what) {
    return Status(StatusCode::kMismatch, "operators." + name + ": " + what +
                                             "; exported with PyTorch " + file.torch +
                                             ", export the module again");
  };
  for (const auto& [name, text] : file.operators) {
    const auto found = c10::Dispatcher::singleton().findSchema(operator_name(name));
    if (!found) return mismatch(name, "is not in this LibTorch");
    try {
      const c10::FunctionSchema exported = torch::jit::parseSchema(text);
      std::ostringstream why;
      if (!found->schema().isBackwardCompatibleWith(exported, &why))
        return mismatch(name, "has another schema in this LibTorch: " + first_line(why.str()));
    } catch (const std::exception& error) {
      return mismatch(name, "is not a schema");
    }
  }
  return {};
}

Result<std::unique_ptr<const GraphProgram>> GraphProgram::make(const graph::Program& program) {
  try {
    auto state = std::make_unique<State>();
    state->num_values = program.num_values;
    state->graph = bind_graph(program.graph);
    std::set<int64_t> updating;
    for (const auto& [tensor, value] : program.updates) {
      state->updates.emplace_back(tensor, bind_untyped(value));
      updating.insert(value.integer);
    }
    mark_last_uses(state->graph, updating);
    return std::unique_ptr<const GraphProgram>(new GraphProgram(std::move(state)));
  } catch (const OperandError& error) {
    return Status(StatusCode::kCorrupt, error.what());
  } catch (const c10::Error& error) {
    return Status(StatusCode::kCorrupt, first_line(error.what_without_backtrace()));
  }
}

std::string GraphProgram::capture_obstacle() const {
  const BoundNode* const node = first_that_waits(state_->graph);
  return node == nullptr ? "" : node->name + " waits for values of the device";
}

std::vector<at::Tensor> GraphProgram::run(const std::vector<at::Tensor>& inputs,
                                          const std::vector<at::Tensor>& table) const {
  Run run(table, inputs.front().device(), state_->num_values);
  std::vector<at::Tensor> outputs;
  for (const IValue& output : run.run(state_->graph, {inputs.begin(), inputs.end()})) {
    TORCH_CHECK(output.isTensor(), "an output is not a tensor");
    outputs.push_back(output.toTensor());
  }
  const at::NoGradGuard no_grad;
  for (const auto& [tensor, value] : state_->updates)
    table[static_cast<size_t>(tensor)].copy_(run.resolve(value).toTensor());
  return outputs;
}

}  // namespace stoker::model
