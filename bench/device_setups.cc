#include "bench/device_setups.h"

#include <boost/json.hpp>

namespace stoker::bench {
namespace {

using config::ModelKind;
using config::TaskKind;

DeviceSetup gpt2(bool tiny) {
  DeviceSetup setup{.training = {.name = "gpt2",
                                 .model = {.kind = ModelKind::kGpt,
                                           .layers = 12,
                                           .width = 768,
                                           .heads = 12,
                                           .context = 1024,
                                           .vocab = 50304},
                                 .task = {.kind = TaskKind::kLanguageModel},
                                 .classes = 50304,
                                 .batch = 16},
                    .unit = "tokens"};
  setup.train.precision = "bf16";
  config::ModelConfig& model = setup.training.model;
  if (tiny) {
    model.layers = 2;
    model.width = 32;
    model.heads = 2;
    model.context = 16;
    model.vocab = 256;
    setup.training.classes = 256;
    setup.training.batch = 2;
  }
  setup.training.sample = {{.name = "tokens", .dtype = DType::kI32, .shape = {model.context + 1}}};
  setup.units = setup.training.batch * static_cast<uint64_t>(model.context);
  return setup;
}

DeviceSetup resnet50(bool tiny) {
  DeviceSetup setup{.training = {.name = tiny ? "resnet8" : "resnet50",
                                 .model = {.kind = ModelKind::kResnet, .layers = tiny ? 8 : 50},
                                 .task = {.kind = TaskKind::kClassification},
                                 .sample = {{.name = "input",
                                             .dtype = DType::kU8,
                                             .shape = {3, tiny ? 16 : 224, tiny ? 16 : 224}},
                                            {.name = "label", .dtype = DType::kI64, .shape = {}}},
                                 .classes = tiny ? 10u : 1000u,
                                 .batch = tiny ? 2u : 256u},
                    .unit = "images"};
  setup.train.precision = "bf16";
  setup.train.channels_last = true;
  setup.units = setup.training.batch;
  return setup;
}

DeviceSetup mlp(bool tiny) {
  const int64_t width = tiny ? 16 : 1024;
  DeviceSetup setup{
      .training = {.name = "mlp",
                   .model = {.kind = ModelKind::kMlp, .hidden = {width}},
                   .task = {.kind = TaskKind::kRegression},
                   .sample = {{.name = "input", .dtype = DType::kF32, .shape = {width}},
                              {.name = "target", .dtype = DType::kF32, .shape = {1}}},
                   .batch = tiny ? 4u : 128u},
      .unit = "samples"};
  setup.units = setup.training.batch;
  return setup;
}

}  // namespace

std::vector<DeviceSetup> device_setups(bool tiny, const std::string& device) {
  std::vector<DeviceSetup> setups{mlp(tiny), gpt2(tiny), resnet50(tiny)};
  for (DeviceSetup& setup : setups) setup.train.device = device;
  return setups;
}

std::string to_json(const DeviceSetup& setup) {
  const config::ModelConfig& model = setup.training.model;
  boost::json::object to{{"model", setup.training.name},
                         {"batch", setup.training.batch},
                         {"classes", setup.training.classes},
                         {"context", model.context},
                         {"heads", model.heads},
                         {"layers", model.layers},
                         {"width", model.width},
                         {"device", setup.train.device},
                         {"precision", setup.train.precision},
                         {"channels_last", setup.train.channels_last}};
  to["hidden"] = boost::json::value_from(model.hidden);
  to["input"] = boost::json::value_from(setup.training.sample.front().shape);
  return boost::json::serialize(to);
}

}  // namespace stoker::bench
