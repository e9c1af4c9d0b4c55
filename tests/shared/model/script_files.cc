#include "tests/shared/model/script_files.h"

#include <ATen/ops/randn.h>
#include <torch/csrc/jit/api/module.h>

namespace stoker::model::test {
namespace {

using torch::jit::Module;

void add_mode(Module& module, const ScriptParts& parts) {
  if (parts.has_training_attribute)
    module.register_attribute("training", c10::BoolType::get(), true);
}

}  // namespace

void write_script(const std::string& path, const ScriptParts& parts) {
  const auto unit = std::make_shared<torch::jit::CompilationUnit>();
  Module linear("__torch__.Linear", unit), whole("__torch__.Whole", unit);
  add_mode(linear, parts);
  add_mode(whole, parts);
  const at::Tensor weight = at::randn({parts.outputs, parts.inputs}).mul(0.1);
  const at::Tensor bias = at::randn({parts.outputs}).mul(0.1);
  if (parts.has_weights) {
    linear.register_parameter("weight", weight.set_requires_grad(true), false);
    linear.register_parameter("bias", bias.set_requires_grad(true), false);
  } else {
    linear.register_attribute("weight", c10::TensorType::get(), weight);
    linear.register_attribute("bias", c10::TensorType::get(), bias);
  }
  linear.define("def forward(self, x):\n    return torch.linear(x, self.weight, self.bias)\n");
  whole.register_module("linear", linear);
  if (parts.is_tied) whole.register_parameter("again", weight, false);
  whole.register_buffer("seen", at::randn({2}));
  whole.define("def forward(self, x):\n    " + parts.body + "\n");
  whole.save(path);
}

}  // namespace stoker::model::test
