// Model factories: one function per model; arguments and errors as make_model() in model.h.
// `num_classes`: model.num_classes.
#pragma once

#include <optional>

#include "shared/model/model.h"

namespace stoker::model {

using Samples = std::vector<TensorSpec>;

Result<ModelPtr> make_gpt(const config::GptConfig& config, const Samples& sample, uint64_t classes);
Result<ModelPtr> make_gpt2(const config::Gpt2Config& config, const Samples& sample,
                           uint64_t classes);
Result<ModelPtr> make_llama(const config::LlamaConfig& config, const Samples& sample,
                            uint64_t classes);
Result<ModelPtr> make_bert(const config::BertConfig& config, std::optional<int64_t> num_classes,
                           const Samples& sample, uint64_t classes);
Result<ModelPtr> make_mlp(const config::MlpConfig& config, std::optional<int64_t> num_classes,
                          const Samples& sample, uint64_t classes);
Result<ModelPtr> make_lenet5(const config::Lenet5Config& config, std::optional<int64_t> num_classes,
                             const Samples& sample, uint64_t classes);
Result<ModelPtr> make_resnet(const config::ResnetConfig& config, std::optional<int64_t> num_classes,
                             const Samples& sample, uint64_t classes);
Result<ModelPtr> make_alexnet(const config::AlexnetConfig& config,
                              std::optional<int64_t> num_classes, const Samples& sample,
                              uint64_t classes);
Result<ModelPtr> make_vgg(const config::VggConfig& config, std::optional<int64_t> num_classes,
                          const Samples& sample, uint64_t classes);
Result<ModelPtr> make_vit(const config::VitConfig& config, std::optional<int64_t> num_classes,
                          const Samples& sample, uint64_t classes);
Result<ModelPtr> make_inception_v3(const config::InceptionV3Config& config,
                                   std::optional<int64_t> num_classes, const Samples& sample,
                                   uint64_t classes);
Result<ModelPtr> make_captioner(const config::CaptionerConfig& config,
                                std::optional<int64_t> num_classes, const Samples& sample,
                                uint64_t classes);
Result<ModelPtr> make_sequential(const config::SequentialConfig& config,
                                 std::optional<int64_t> num_classes, const Samples& sample,
                                 uint64_t classes);
Result<ModelPtr> make_blstm(const config::BlstmConfig& config, std::optional<int64_t> num_classes,
                            const Samples& sample, uint64_t classes);
// model.forget_bias of a model that make_blstm() built.
void add_forget_bias(Model& model, const config::BlstmConfig& config);
Result<ModelPtr> make_lstm(const config::LstmLmConfig& config, const Samples& sample,
                           uint64_t classes);
Result<ModelPtr> make_plugin(const config::PluginConfig& config, std::optional<int64_t> num_classes,
                             const Samples& sample, uint64_t classes);
Result<ModelPtr> make_exported(const config::ExportedConfig& config, const Samples& sample);

}  // namespace stoker::model
