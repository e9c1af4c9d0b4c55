// model_section: the fields of `model` by name.
//
// Threads: values that point into the ModelConfig they were made of.
#pragma once

#include "shared/config/model_config.h"
#include "shared/config/schema.h"

namespace stoker::config {

Section model_section(ModelConfig& model);

}  // namespace stoker::config
