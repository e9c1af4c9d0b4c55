// write_script(): writes TorchScript modules as torch.jit.save does, without Python.
#pragma once

#include <cstdint>
#include <string>

namespace stoker::model::test {

struct ScriptParts {
  // Body of forward(self, x); it can use the module `linear`, which has weight and bias.
  std::string body = "return self.linear.forward(torch.flatten(x, 1))";
  int64_t inputs = 8, outputs = 3;
  bool is_tied = false;                // adds a parameter `again` that is linear.weight
  bool has_training_attribute = true;  // has the attribute that train() and eval() set
  bool has_weights = true;             // otherwise the weights are constants
};

void write_script(const std::string& path, const ScriptParts& parts = {});

}  // namespace stoker::model::test
