#include <algorithm>

#include "shared/base/glob.h"
#include "shared/model/model.h"

namespace stoker::model {

Result<std::set<std::string>> freeze(Model& model, const std::vector<std::string>& globs) {
  std::vector<at::Tensor> matches;
  const auto parameters = model.named_parameters();
  if (parameters.is_empty())
    return Status(StatusCode::kInvalidArgument,
                  "the model has no parameters; nothing would be trained");
  for (const std::string& pattern : globs) {
    const NameGlob glob(pattern);
    bool matched = false;
    for (const auto& parameter : parameters) {
      if (!glob.matches(parameter.key())) continue;
      matched = true;
      matches.push_back(parameter.value());
    }
    if (!matched) {
      return Status(StatusCode::kInvalidArgument,
                    "model.freeze: '" + pattern + "' matches no parameter; the names range from '" +
                        parameters.front().key() + "' to '" + parameters.back().key() + "'");
    }
  }
  std::set<std::string> frozen;
  size_t num_trainable = 0;
  for (const auto& parameter : parameters) {
    if (!parameter.value().requires_grad()) continue;
    const auto is_same = [&](const at::Tensor& tensor) {
      return tensor.is_same(parameter.value());
    };
    if (std::ranges::any_of(matches, is_same))
      frozen.insert(parameter.key());
    else
      ++num_trainable;
  }
  if (num_trainable == 0 && !frozen.empty())
    return Status(
        StatusCode::kInvalidArgument,
        "model.freeze: all trainable parameters match; at least one must remain trainable");
  for (at::Tensor& tensor : matches) tensor.set_requires_grad(false);
  return frozen;
}

}  // namespace stoker::model
