#include "shared/model/model.h"

#include <new>

#include "shared/base/sha256.h"
#include "shared/model/torch_dtype.h"
#include "shared/model/torch_status.h"
#include "shared/model/zoo.h"

namespace stoker::model {
namespace {

Result<ModelPtr> make_kind(const config::ModelConfig& config, const Samples& sample,
                           uint64_t classes) {
  switch (config.kind) {
    case config::ModelKind::kGpt:
      return make_gpt(config, sample, classes);
    case config::ModelKind::kMlp:
      return make_mlp(config, sample, classes);
    case config::ModelKind::kLenet:
      return make_lenet(config, sample, classes);
    case config::ModelKind::kResnet:
      return make_resnet(config, sample, classes);
    case config::ModelKind::kAlexnet:
      return make_alexnet(config, sample, classes);
    case config::ModelKind::kVgg:
      return make_vgg(config, sample, classes);
    case config::ModelKind::kVit:
      return make_vit(config, sample, classes);
    case config::ModelKind::kInceptionV3:
      return make_inception_v3(config, sample, classes);
    case config::ModelKind::kLayers:
      return make_layers(config, sample, classes);
    case config::ModelKind::kBlstm:
      return make_blstm(config, sample, classes);
    case config::ModelKind::kLstm:
      return make_lstm(config, sample, classes);
    case config::ModelKind::kPlugin:
      return make_plugin(config, sample, classes);
    case config::ModelKind::kTorchscript:
      return make_torchscript(config, sample, classes);
  }
  return Status(Code::kInvalidArgument, "model.kind: not a kind of model");
}

}  // namespace

Result<ModelPtr> make_model(const config::ModelConfig& config,
                            const std::vector<TensorSpec>& sample, uint64_t classes) {
  try {
    return make_kind(config, sample, classes);
  } catch (const c10::Error& error) {
    return status_of(error, "make the model");
  } catch (const std::bad_alloc&) {
    return Status(Code::kOutOfMemory, "make the model: not enough host memory");
  }
}

NamedTensors named_tensors(const Model& model) {
  NamedTensors tensors;
  for (const auto& item : model.named_parameters()) tensors.emplace_back(item.key(), item.value());
  for (const auto& item : model.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

std::string digest(const Model& model) {
  Sha256 sum;
  for (const auto& [name, tensor] : named_tensors(model))
    sum.update(to_string(spec_of(name, tensor)) + "\n");
  return sum.finish_hex();
}

}  // namespace stoker::model
