#include "shared/model/model.h"

#include <new>
#include <optional>
#include <variant>

#include "shared/base/hash.h"
#include "shared/model/initialize.h"
#include "shared/model/lora.h"
#include "shared/model/model_factories.h"
#include "shared/model/torch_dtype.h"
#include "shared/model/torch_status.h"

namespace stoker::model {
namespace {

struct ModelFactory {
  std::optional<int64_t> num_classes;
  const Samples& sample;
  uint64_t classes;

  Result<ModelPtr> operator()(const config::GptConfig& config) const {
    return make_gpt(config, sample, classes);
  }
  Result<ModelPtr> operator()(const config::Gpt2Config& config) const {
    return make_gpt2(config, sample, classes);
  }
  Result<ModelPtr> operator()(const config::LlamaConfig& config) const {
    return make_llama(config, sample, classes);
  }
  Result<ModelPtr> operator()(const config::LstmLmConfig& config) const {
    return make_lstm(config, sample, classes);
  }
  Result<ModelPtr> operator()(const config::BertConfig& config) const {
    return make_bert(config, num_classes, sample, classes);
  }
  Result<ModelPtr> operator()(const config::BlstmConfig& config) const {
    return make_blstm(config, num_classes, sample, classes);
  }
  Result<ModelPtr> operator()(const config::MlpConfig& config) const {
    return make_mlp(config, num_classes, sample, classes);
  }
  Result<ModelPtr> operator()(const config::Lenet5Config& config) const {
    return make_lenet5(config, num_classes, sample, classes);
  }
  Result<ModelPtr> operator()(const config::ResnetConfig& config) const {
    return make_resnet(config, num_classes, sample, classes);
  }
  Result<ModelPtr> operator()(const config::VggConfig& config) const {
    return make_vgg(config, num_classes, sample, classes);
  }
  Result<ModelPtr> operator()(const config::AlexnetConfig& config) const {
    return make_alexnet(config, num_classes, sample, classes);
  }
  Result<ModelPtr> operator()(const config::InceptionV3Config& config) const {
    return make_inception_v3(config, num_classes, sample, classes);
  }
  Result<ModelPtr> operator()(const config::VitConfig& config) const {
    return make_vit(config, num_classes, sample, classes);
  }
  Result<ModelPtr> operator()(const config::CaptionerConfig& config) const {
    return make_captioner(config, num_classes, sample, classes);
  }
  Result<ModelPtr> operator()(const config::SequentialConfig& config) const {
    return make_sequential(config, num_classes, sample, classes);
  }
  Result<ModelPtr> operator()(const config::PluginConfig& config) const {
    return make_plugin(config, num_classes, sample, classes);
  }
  Result<ModelPtr> operator()(const config::ExportedConfig& config) const {
    return make_exported(config, sample);
  }
};

}  // namespace

at::Tensor Model::forward_packed(const at::Tensor& /*input*/, const at::Tensor& /*position_ids*/) {
  TORCH_CHECK(false, "this model reads across the documents of a sample (sequence.packing)");
}

StepOutput Model::step(const NamedTensors& /*fields*/) {
  TORCH_CHECK(false, "this model has no own loss");
}

namespace {

// Sets model.vocab_size: null to the number of tokens in the data.
Status set_vocab_size(config::ModelConfig& model, uint64_t classes) {
  std::optional<int64_t>* const vocabulary = model.output_vocabulary();
  if (vocabulary == nullptr || *vocabulary) return {};
  if (classes == 0)
    return Status(StatusCode::kMismatch,
                  "model.vocab_size: null needs data with a tokenizer, or text whose "
                  "tokens are bytes; set it to the number of tokens");
  *vocabulary = static_cast<int64_t>(classes);
  return {};
}

}  // namespace

Result<ModelPtr> make_model(const config::ModelConfig& config,
                            const std::vector<TensorSpec>& sample, uint64_t classes) {
  try {
    config::ModelConfig sized = config;
    STOKER_RETURN_IF_ERROR(set_vocab_size(sized, classes));
    STOKER_ASSIGN_OR_RETURN(
        ModelPtr model, std::visit(ModelFactory{config.num_classes, sample, classes}, sized.arch));
    STOKER_RETURN_IF_ERROR(initialize(*model, config.init));
    if (const auto* const blstm = std::get_if<config::BlstmConfig>(&config.arch))
      add_forget_bias(*model, *blstm);
    if (config.lora) STOKER_RETURN_IF_ERROR(apply_lora(*model, sized));
    return model;
  } catch (const c10::Error& error) {
    return to_status(error, "create the model");
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "create the model: not enough host memory");
  }
}

NamedTensors named_tensors(const Model& model) {
  NamedTensors tensors;
  for (const auto& item : model.named_parameters()) tensors.emplace_back(item.key(), item.value());
  for (const auto& item : model.named_buffers()) tensors.emplace_back(item.key(), item.value());
  if (const Model::Adapter* const adapter = model.adapter())
    std::erase_if(tensors, [&](const auto& each) { return adapter->base.contains(each.first); });
  return tensors;
}

std::string digest(const Model& model) {
  Sha256 sum;
  for (const auto& [name, tensor] : named_tensors(model))
    sum.update(to_string(to_tensor_spec(name, tensor)) + "\n");
  return sum.finish_hex();
}

}  // namespace stoker::model
