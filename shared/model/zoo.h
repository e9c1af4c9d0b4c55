// The zoo: one function per kind of model, each as make_model() in model.h.
#pragma once

#include "shared/model/model.h"

namespace stoker::model {

using Samples = std::vector<TensorSpec>;

Result<ModelPtr> make_gpt(const config::ModelConfig& config, const Samples& sample,
                          uint64_t classes);
Result<ModelPtr> make_mlp(const config::ModelConfig& config, const Samples& sample,
                          uint64_t classes);
Result<ModelPtr> make_lenet(const config::ModelConfig& config, const Samples& sample,
                            uint64_t classes);
Result<ModelPtr> make_resnet(const config::ModelConfig& config, const Samples& sample,
                             uint64_t classes);
Result<ModelPtr> make_alexnet(const config::ModelConfig& config, const Samples& sample,
                              uint64_t classes);
Result<ModelPtr> make_vgg(const config::ModelConfig& config, const Samples& sample,
                          uint64_t classes);
Result<ModelPtr> make_vit(const config::ModelConfig& config, const Samples& sample,
                          uint64_t classes);
Result<ModelPtr> make_inception_v3(const config::ModelConfig& config, const Samples& sample,
                                   uint64_t classes);
Result<ModelPtr> make_layers(const config::ModelConfig& config, const Samples& sample,
                             uint64_t classes);
Result<ModelPtr> make_blstm(const config::ModelConfig& config, const Samples& sample,
                            uint64_t classes);
Result<ModelPtr> make_lstm(const config::ModelConfig& config, const Samples& sample,
                           uint64_t classes);
Result<ModelPtr> make_plugin(const config::ModelConfig& config, const Samples& sample,
                             uint64_t classes);
Result<ModelPtr> make_torchscript(const config::ModelConfig& config, const Samples& sample,
                                  uint64_t classes);

}  // namespace stoker::model
