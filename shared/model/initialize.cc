#include "shared/model/initialize.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include <torch/nn/init.h>

#include "shared/base/glob.h"
#include "shared/base/tensor_spec.h"
#include "shared/model/torch_dtype.h"
#include "shared/model/trunc_normal.h"

namespace stoker::model {
namespace {

namespace init = torch::nn::init;

init::FanModeType to_fan_mode(config::FanMode mode) {
  switch (mode) {
    case config::FanMode::kFanIn:
      return torch::kFanIn;
    case config::FanMode::kFanOut:
      return torch::kFanOut;
  }
  return torch::kFanIn;
}

init::NonlinearityType to_nonlinearity(config::Nonlinearity nonlinearity) {
  switch (nonlinearity) {
    case config::Nonlinearity::kLinear:
      return torch::kLinear;
    case config::Nonlinearity::kSigmoid:
      return torch::kSigmoid;
    case config::Nonlinearity::kTanh:
      return torch::kTanh;
    case config::Nonlinearity::kRelu:
      return torch::kReLU;
    case config::Nonlinearity::kLeakyRelu:
      return torch::kLeakyReLU;
  }
  return torch::kLeakyReLU;
}

// Fills a parameter with an alternative of InitVariant.
struct Filler {
  const at::Tensor& parameter;

  void operator()(const config::ZerosInit&) const { init::zeros_(parameter); }
  void operator()(const config::OnesInit&) const { init::ones_(parameter); }
  void operator()(const config::ConstantInit& constant) const {
    init::constant_(parameter, constant.val);
  }
  void operator()(const config::NormalInit& normal) const {
    init::normal_(parameter, normal.mean, normal.std);
  }
  void operator()(const config::UniformInit& uniform) const {
    init::uniform_(parameter, uniform.a, uniform.b);
  }
  void operator()(const config::TruncNormalInit& normal) const {
    trunc_normal_(parameter, normal.std, normal.mean, normal.a, normal.b);
  }
  void operator()(const config::XavierUniformInit& xavier) const {
    init::xavier_uniform_(parameter, xavier.gain);
  }
  void operator()(const config::XavierNormalInit& xavier) const {
    init::xavier_normal_(parameter, xavier.gain);
  }
  void operator()(const config::KaimingUniformInit& kaiming) const {
    init::kaiming_uniform_(parameter, kaiming.a, to_fan_mode(kaiming.mode),
                           to_nonlinearity(kaiming.nonlinearity));
  }
  void operator()(const config::KaimingNormalInit& kaiming) const {
    init::kaiming_normal_(parameter, kaiming.a, to_fan_mode(kaiming.mode),
                          to_nonlinearity(kaiming.nonlinearity));
  }
  void operator()(const config::OrthogonalInit& orthogonal) const {
    init::orthogonal_(parameter, orthogonal.gain);
  }
};

// Xavier and Kaiming need the numbers of inputs and outputs, orthogonal a matrix.
bool needs_matrix(const config::InitVariant& value) {
  return std::visit(
      [](const auto& each) {
        using T = std::decay_t<decltype(each)>;
        return requires { each.gain; }
        || std::is_same_v<T, config::KaimingUniformInit> ||
            std::is_same_v<T, config::KaimingNormalInit>;
      },
      value);
}

// "weight" for "layer1.0.conv1.weight".
std::string_view last_part(std::string_view name) {
  return name.substr(name.find_last_of('.') + 1);
}

Status rule_error(const config::InitRule& rule, const std::string& message) {
  return Status(StatusCode::kInvalidArgument, "model.init: '" + rule.pattern + "' " + message);
}

}  // namespace

Status initialize(Model& model, const std::vector<config::InitRule>& rules) {
  if (rules.empty()) return {};
  const auto parameters = model.named_parameters();
  if (parameters.is_empty())
    return rule_error(rules.front(), "applies to no parameter; the model has none");
  std::vector<NameGlob> globs;
  for (const config::InitRule& rule : rules) globs.emplace_back(rule.pattern);
  std::vector<bool> applied(rules.size());
  for (const auto& parameter : parameters) {
    const std::string& name = parameter.key();
    const auto glob = std::ranges::find_if(globs, [&](const NameGlob& each) {
      return each.matches(name) || each.matches(last_part(name));
    });
    if (glob == globs.end()) continue;
    const auto index = static_cast<size_t>(glob - globs.begin());
    const config::InitRule& rule = rules[index];
    if (needs_matrix(rule.value) && parameter.value().dim() < 2)
      return rule_error(rule, "selects a function for parameters with two or more dimensions; " +
                                  to_string(to_tensor_spec(name, parameter.value())) +
                                  " needs another rule before it");
    std::visit(Filler{parameter.value()}, rule.value);
    applied[index] = true;
  }
  for (size_t i = 0; i < rules.size(); ++i)
    if (!applied[i])
      return rule_error(rules[i],
                        "applies to no parameter that an earlier pattern does not match; "
                        "the names range from '" +
                            parameters.front().key() + "' to '" + parameters.back().key() + "'");
  return {};
}

}  // namespace stoker::model
