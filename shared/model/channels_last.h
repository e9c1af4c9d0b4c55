// use_channels_last(): lays the weights of convolutions pixel by pixel in memory (PyTorch's
// channels_last); their inputs and outputs then take the same order by themselves.
//
// Threads: as Model.
#pragma once

#include "shared/model/model.h"

namespace stoker::model {

// Before an optimizer is made of the parameters: what it keeps for each lies as the parameter does.
void use_channels_last(Model& model);

}  // namespace stoker::model
