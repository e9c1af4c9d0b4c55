// script files: TorchScript modules as torch.jit.save writes them, made without Python.
#pragma once

#include <cstdint>
#include <string>

namespace stoker::model::test {

struct ScriptParts {
  // Of forward(self, x), which has a module `linear` with weight and bias.
  std::string body = "return self.linear.forward(torch.flatten(x, 1))";
  int64_t inputs = 8, outputs = 3;
  bool is_tied = false;        // a parameter `again` is linear.weight
  bool knows_training = true;  // whether there is the attribute that train() and eval() set
  bool has_weights = true;     // otherwise they are constants
};

void write_script(const std::string& path, const ScriptParts& parts = {});

}  // namespace stoker::model::test
