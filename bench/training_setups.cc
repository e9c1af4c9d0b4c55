#include "bench/training_setups.h"

#include <utility>

#include <boost/json.hpp>

namespace stoker::bench {
namespace {

using config::ModelKind;
using config::TaskKind;

std::vector<TensorSpec> labelled(DType dtype, std::vector<int64_t> shape) {
  return {{.name = "input", .dtype = dtype, .shape = std::move(shape)},
          {.name = "label", .dtype = DType::kI64, .shape = {}}};
}

TrainingSetup regression(std::string name, int64_t inputs, int64_t width, uint64_t batch) {
  return {.name = std::move(name),
          .model = {.kind = ModelKind::kMlp, .hidden = {width}},
          .task = {.kind = TaskKind::kRegression},
          .sample = {{.name = "input", .dtype = DType::kF32, .shape = {inputs}},
                     {.name = "target", .dtype = DType::kF32, .shape = {1}}},
          .batch = batch};
}

TrainingSetup gpt(bool tiny) {
  TrainingSetup setup{.name = "gpt",
                      .model = {.kind = ModelKind::kGpt},
                      .task = {.kind = TaskKind::kLanguageModel},
                      .classes = 256,
                      .batch = tiny ? 2u : 16u};
  if (tiny) {
    setup.model.layers = 2;
    setup.model.width = 32;
    setup.model.heads = 2;
    setup.model.context = 16;
  }
  setup.sample = {{.name = "tokens", .dtype = DType::kU8, .shape = {setup.model.context + 1}}};
  return setup;
}

}  // namespace

std::vector<TrainingSetup> training_setups(bool tiny) {
  return {tiny ? regression("mlp", 16, 16, 4) : regression("mlp", 1024, 1024, 128),
          regression("mlp-small", 64, 64, 32),  // so small that overhead is all there is
          gpt(tiny),
          {.name = "lenet",
           .model = {.kind = ModelKind::kLenet},
           .task = {.kind = TaskKind::kClassification},
           .sample = labelled(DType::kU8, {1, 28, 28}),
           .classes = 10,
           .batch = tiny ? 2u : 64u},
          {.name = "resnet14",
           .model = {.kind = ModelKind::kResnet, .layers = 14},
           .task = {.kind = TaskKind::kClassification},
           .sample = labelled(DType::kU8, {3, 32, 32}),
           .classes = 10,
           .batch = tiny ? 2u : 128u},
          {.name = "blstm",
           .model = {.kind = ModelKind::kBlstm, .layers = 1, .width = tiny ? 8 : 128},
           .task = {.kind = TaskKind::kClassification},
           .sample = tiny ? labelled(DType::kF32, {4, 8}) : labelled(DType::kF32, {128, 512}),
           .classes = 10,
           .batch = tiny ? 2u : 400u}};
}

std::string to_json(const TrainingSetup& setup, int threads) {
  const config::ModelConfig& model = setup.model;
  boost::json::object to{{"model", setup.name},      {"batch", setup.batch},
                         {"classes", setup.classes}, {"threads", threads},
                         {"context", model.context}, {"heads", model.heads},
                         {"layers", model.layers},   {"width", model.width}};
  to["hidden"] = boost::json::value_from(model.hidden);
  to["input"] = boost::json::value_from(setup.sample.front().shape);
  return boost::json::serialize(to);
}

}  // namespace stoker::bench
