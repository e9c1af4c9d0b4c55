#include <algorithm>

#include "shared/base/glob.h"
#include "shared/model/model.h"

namespace stoker::model {

Status freeze(Model& model, const std::vector<std::string>& globs) {
  std::vector<at::Tensor> frozen;
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
      frozen.push_back(parameter.value());
    }
    if (!matched) {
      return Status(StatusCode::kInvalidArgument,
                    "model.freeze: '" + pattern + "' matches no parameter; the names range from '" +
                        parameters.front().key() + "' to '" + parameters.back().key() + "'");
    }
  }
  size_t num_trainable = 0;
  for (const auto& parameter : parameters) {
    const auto is_same = [&](const at::Tensor& tensor) {
      return tensor.is_same(parameter.value());
    };
    if (std::none_of(frozen.begin(), frozen.end(), is_same)) ++num_trainable;
  }
  if (num_trainable == 0)
    return Status(StatusCode::kInvalidArgument,
                  "model.freeze: all parameters match; at least one must remain trainable");
  for (at::Tensor& tensor : frozen) tensor.set_requires_grad(false);
  return {};
}

}  // namespace stoker::model
