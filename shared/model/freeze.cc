#include <algorithm>

#include "shared/base/glob.h"
#include "shared/model/model.h"

namespace stoker::model {

Status freeze(Model& model, const std::vector<std::string>& globs) {
  std::vector<at::Tensor> frozen;
  const auto parameters = model.named_parameters();
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
                    "model.freeze: '" + pattern + "' matches no parameter; the names begin with '" +
                        parameters.front().key() + "' and end with '" + parameters.back().key() +
                        "'");
    }
  }
  size_t left = 0;
  for (const auto& parameter : parameters) {
    const auto is_it = [&](const at::Tensor& tensor) { return tensor.is_same(parameter.value()); };
    if (std::none_of(frozen.begin(), frozen.end(), is_it)) ++left;
  }
  if (left == 0)
    return Status(StatusCode::kInvalidArgument,
                  "model.freeze: the globs leave no parameter to train");
  for (at::Tensor& tensor : frozen) tensor.set_requires_grad(false);
  return {};
}

}  // namespace stoker::model
