// layer_rows: the fields of model.stack by name, and of the lists of layers inside its layers.
//
// Threads: values that point into the list they were made of.
#pragma once

#include <vector>

#include "shared/config/layer_config.h"
#include "shared/config/schema.h"

namespace stoker::config {

Rows layer_rows(std::vector<LayerConfig>& layers);

}  // namespace stoker::config
