#include "tests/parity/parity_case.h"

#include <algorithm>
#include <iterator>

#include "tests/parity/case_parts.h"
#include "tests/parity/image_cases.h"
#include "tests/parity/sequence_cases.h"
#include "tests/parity/update_cases.h"

namespace stoker::parity {

std::vector<ParityCase> trained_cases() {
  std::vector<ParityCase> cases = image_cases();
  std::ranges::move(sequence_cases(), std::back_inserter(cases));
  std::ranges::move(update_cases(), std::back_inserter(cases));
  return cases;
}

std::vector<ParityCase> published_cases() {
  std::vector<ParityCase> cases;
  const auto add = [&cases](const std::string& name, const config::ModelConfig& model) {
    cases.push_back({.name = name,
                     .model = model,
                     .sample = labeled(DType::kU8, {3, 224, 224}),
                     .classes = 1000});
  };
  for (const int depth : {18, 34, 50, 101, 152})
    add("resnet" + std::to_string(depth), resnet(depth));
  add("alexnet", alexnet(4096, 0.5));
  add("vit_b_16", vit(12, 12, 768, 16));
  add("vit_b_32", vit(12, 12, 768, 32));
  for (const int depth : {11, 13, 16, 19}) {
    add("vgg" + std::to_string(depth), vgg(depth, false, 4096, 0.5));
    add("vgg" + std::to_string(depth) + "_bn", vgg(depth, true, 4096, 0.5));
  }
  add("inception_v3", inception(true, 0.5));
  cases.back().sample = labeled(DType::kU8, {3, 299, 299});
  return cases;
}

namespace {

// INIT of cases.py.
std::vector<config::InitRule> init_rules() {
  using config::FanMode, config::Nonlinearity;
  return {{"0.weight", config::NormalInit{.mean = 0.5, .std = 0.1}},
          {"2.weight", config::UniformInit{.a = -0.2, .b = 0.3}},
          {"4.weight", config::TruncNormalInit{.mean = 0.1, .std = 0.3, .a = -0.2, .b = 0.5}},
          {"6.weight", config::XavierUniformInit{.gain = 2}},
          {"8.weight", config::XavierNormalInit{}},
          {"10.weight", config::KaimingUniformInit{.a = 0.1}},
          {"12.weight", config::KaimingNormalInit{.mode = FanMode::kFanOut,
                                                  .nonlinearity = Nonlinearity::kRelu}},
          {"14.weight", config::KaimingUniformInit{.mode = FanMode::kFanOut,
                                                   .nonlinearity = Nonlinearity::kTanh}},
          {"0.bias", config::OnesInit{}},
          {"2.bias", config::ConstantInit{.val = 0.1}},
          {"4.bias", config::NormalInit{}},
          {"bias", config::ZerosInit{}}};
}

ParityCase mlp_init() {
  ParityCase parity_case{.name = "mlp_init",
                         .model = mlp({20, 18, 16, 14, 12, 10, 8}, 0),
                         .sample = labeled(DType::kF32, {12}),
                         .classes = 3};
  parity_case.model.init = init_rules();
  return parity_case;
}

}  // namespace

std::vector<ParityCase> initial_cases() {
  const auto image_spec = [](int64_t channels) { return labeled(DType::kU8, {channels, 64, 64}); };
  return {
      {.name = "resnet18",
       .model = resnet(18),
       .sample = labeled(DType::kU8, {3, 64, 64}),
       .classes = 10},
      {.name = "resnet20",
       .model = resnet(20),
       .sample = labeled(DType::kU8, {3, 32, 32}),
       .classes = 10},
      {.name = "resnet50",
       .model = resnet(50),
       .sample = labeled(DType::kU8, {1, 64, 64}),
       .classes = 5},
      {.name = "resnet101", .model = resnet(101), .sample = image_spec(3), .classes = 5},
      {.name = "resnet152", .model = resnet(152), .sample = image_spec(3), .classes = 5},
      {.name = "alexnet", .model = alexnet(4096, 0.5), .sample = image_spec(3), .classes = 10},
      {.name = "vgg11", .model = vgg(11, false, 4096, 0.5), .sample = image_spec(3), .classes = 10},
      {.name = "vgg13_bn", .model = vgg(13, true, 8, 0.5), .sample = image_spec(3), .classes = 5},
      {.name = "vgg16", .model = vgg(16, false, 8, 0.5), .sample = image_spec(1), .classes = 5},
      {.name = "vgg19_bn", .model = vgg(19, true, 8, 0.5), .sample = image_spec(3), .classes = 5},
      {.name = "vit_b_32", .model = vit(12, 12, 768, 32), .sample = image_spec(3), .classes = 5},
      {.name = "inception_v3",
       .model = inception(true, 0.5),
       .sample = labeled(DType::kU8, {3, 299, 299}),
       .classes = 5},
      {.name = "mlp_dropout",
       .model = mlp({7, 5}, 0.1),
       .sample = labeled(DType::kF32, {12}),
       .classes = 3},
      mlp_init(),
      {.name = "gpt", .model = gpt(3, 24, 3, 16, 256), .sample = tokens(17), .classes = 256},
      {.name = "blstm",
       .model = blstm(2, 16, config::Pooling::kLast),
       .sample = sequences(7, 9),
       .classes = 3},
      {.name = "lstm", .model = lstm(2, 24, 100, false), .sample = tokens(17), .classes = 100},
  };
}

}  // namespace stoker::parity
