#include "shared/model/torchscript_validation.h"

#include <optional>
#include <string>

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>

namespace stoker::model {
namespace {

// The constant passed to `node` for that argument; nullopt: it has no such argument, or the value
// is computed at run time.
std::optional<c10::IValue> constant_of(const torch::jit::Node& node, const char* argument) {
  const c10::FunctionSchema* const schema = node.maybeSchema();
  if (schema == nullptr) return std::nullopt;
  const auto index = schema->argumentIndexWithName(argument);
  if (!index || static_cast<size_t>(*index) >= node.inputs().size()) return std::nullopt;
  return torch::jit::toIValue(node.inputs()[static_cast<size_t>(*index)]);
}

// Dropout with p = 0 is the same in both modes.
bool is_identity(const torch::jit::Node& node) {
  for (const char* const name : {"p", "dropout"}) {
    const auto p = constant_of(node, name);
    if (p && p->isDouble()) return p->toDouble() == 0;
  }
  return false;
}

// The mode of the node if it is a constant.
std::optional<bool> find_fixed_mode(const torch::jit::Node& node) {
  for (const char* const name : {"train", "training"}) {
    const auto mode = constant_of(node, name);
    if (mode && mode->isBool() && !is_identity(node)) return mode->toBool();
  }
  return std::nullopt;
}

Status check_block(const torch::jit::Block& block) {
  for (const torch::jit::Node* const node : block.nodes()) {
    if (const auto fixed_mode = find_fixed_mode(*node)) {
      const std::string effect =
          *fixed_mode ? "uses training mode in evaluation" : "uses evaluation mode in training";
      return Status(
          StatusCode::kMismatch,
          std::string("its ") + node->kind().toUnqualString() + ' ' + effect +
              ": it was traced, or written with a constant, which fixes the mode; save it "
              "with torch.jit.script, which preserves both modes");
    }
    for (const torch::jit::Block* const inner : node->blocks())
      STOKER_RETURN_IF_ERROR(check_block(*inner));
  }
  return {};
}

bool has_parameters(const torch::jit::Module& module) {
  const auto parameters = module.parameters();
  return parameters.begin() != parameters.end();
}

}  // namespace

Status validate_training_mode(const torch::jit::Module& module) {
  const auto forward = module.find_method("forward");
  if (!forward) return Status(StatusCode::kMismatch, "has no forward()");
  if (!has_parameters(module) || !module.hasattr("training"))
    return Status(
        StatusCode::kMismatch,
        "is frozen (torch.jit.freeze, or optimize_for_inference): its weights are constants "
        "and it has no training mode; save the module before freezing it");
  const auto graph = forward->graph()->copy();
  torch::jit::Inline(*graph);
  return check_block(*graph->block());
}

}  // namespace stoker::model
