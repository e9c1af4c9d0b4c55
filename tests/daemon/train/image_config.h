// with_images(): changes a configuration to a small ResNet on small synthetic images.
#pragma once

#include <variant>

#include "shared/config/config.h"

namespace stoker::train {

inline config::Config with_images(config::Config config) {
  auto& data = std::get<config::SyntheticDataset>(config.data.at("train").source);
  data.input_shape = {3, 16, 16};
  data.num_classes = 4;
  config.model.arch = config::ResnetConfig{.depth = 8};
  config.task.task = config::ClassificationTask{};
  return config;
}

}  // namespace stoker::train
