// use_channels_last(): converts convolution weights to PyTorch's channels_last memory format.
// Convolution inputs and outputs then use that format automatically.
//
// Threads: as Model.
#pragma once

#include "shared/model/model.h"

namespace stoker::model {

// Call it before the optimizer is created, because optimizer state uses the memory format of its
// parameter.
void use_channels_last(Model& model);

}  // namespace stoker::model
