#include "bench/device_setups.h"

#include <boost/json.hpp>

namespace stoker::bench {
namespace {

DeviceSetup gpt2(bool tiny) {
  config::GptConfig model{.num_layers = 12,
                          .num_heads = 12,
                          .embed_dim = 768,
                          .context_length = 1024,
                          .vocab_size = 50304};
  if (tiny) {
    model = {
        .num_layers = 2, .num_heads = 2, .embed_dim = 32, .context_length = 16, .vocab_size = 256};
  }
  DeviceSetup setup{.training = {.name = "gpt2",
                                 .model = {.arch = model},
                                 .task = {config::LanguageModelingTask{}},
                                 .sample = {{.name = "tokens",
                                             .dtype = DType::kI32,
                                             .shape = {model.context_length + 1}}},
                                 .classes = static_cast<uint64_t>(*model.vocab_size),
                                 .batch = tiny ? 2u : 16u},
                    .unit = "tokens"};
  setup.train.precision = config::Precision::kBf16;
  setup.units = setup.training.batch * static_cast<uint64_t>(model.context_length);
  setup.embedding_parameters = (*model.vocab_size + model.context_length) * model.embed_dim;
  return setup;
}

DeviceSetup resnet50(bool tiny) {
  DeviceSetup setup{.training = {.name = tiny ? "resnet8" : "resnet50",
                                 .model = {.arch = config::ResnetConfig{.depth = tiny ? 8 : 50}},
                                 .task = {config::ClassificationTask{}},
                                 .normalize = config::Normalize{.mean = {0.5}, .std = {0.5}},
                                 .sample = {{.name = "input",
                                             .dtype = DType::kU8,
                                             .shape = {3, tiny ? 16 : 224, tiny ? 16 : 224}},
                                            {.name = "label", .dtype = DType::kI64, .shape = {}}},
                                 .classes = tiny ? 10u : 1000u,
                                 .batch = tiny ? 2u : 128u},
                    .unit = "images"};
  setup.train.precision = config::Precision::kBf16;
  setup.train.channels_last = true;
  setup.units = setup.training.batch;
  return setup;
}

DeviceSetup mlp(bool tiny) {
  const int64_t width = tiny ? 16 : 1024;
  DeviceSetup setup{
      .training = {.name = "mlp",
                   .model = {.arch = config::MlpConfig{.hidden_sizes = {width}}},
                   .task = {config::RegressionTask{}},
                   .sample = {{.name = "input", .dtype = DType::kF32, .shape = {width}},
                              {.name = "target", .dtype = DType::kF32, .shape = {1}}},
                   .batch = tiny ? 4u : 128u},
      .unit = "samples"};
  setup.units = setup.training.batch;
  return setup;
}

DeviceSetup blstm(bool tiny) {
  DeviceSetup setup{
      .training = {.name = "blstm",
                   .model = {.arch = config::BlstmConfig{.hidden_size = tiny ? 8 : 128}},
                   .task = {config::ClassificationTask{}},
                   .sample = {{.name = "input",
                               .dtype = DType::kF32,
                               .shape = {tiny ? 4 : 128, tiny ? 8 : 512}},
                              {.name = "label", .dtype = DType::kI64, .shape = {}}},
                   .classes = 10,
                   .batch = tiny ? 2u : 400u},
      .unit = "sequences"};
  setup.units = setup.training.batch;
  return setup;
}

}  // namespace

std::vector<DeviceSetup> device_setups(bool tiny, const config::DeviceConfig& device,
                                       const config::FusedKernelsConfig& fused_kernels) {
  std::vector<DeviceSetup> setups{mlp(tiny), blstm(tiny), gpt2(tiny), resnet50(tiny)};
  for (DeviceSetup& setup : setups) {
    setup.train.device = device;
    setup.train.fused_kernels = fused_kernels;
  }
  return setups;
}

std::string to_json(const DeviceSetup& setup) {
  boost::json::object to = to_object(setup.training);
  to["unit"] = setup.unit;
  to["units"] = setup.units;
  to["device"] = config::to_string(setup.train.device);
  to["precision"] = config::to_string(setup.train.precision);
  to["channels_last"] = setup.train.channels_last;
  return boost::json::serialize(to);
}

}  // namespace stoker::bench
