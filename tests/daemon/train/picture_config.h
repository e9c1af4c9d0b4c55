// with_pictures(): a run of a small ResNet on small made-up pictures.
#pragma once

#include "shared/config/config.h"

namespace stoker::train {

inline config::Config with_pictures(config::Config config) {
  config.data["train"].features = {3, 16, 16};
  config.data["train"].targets = 0;
  config.data["train"].classes = 4;
  config.model.kind = config::ModelKind::kResnet;
  config.model.layers = 8;
  config.task.kind = config::TaskKind::kClassification;
  return config;
}

}  // namespace stoker::train
