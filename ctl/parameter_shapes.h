// parameter_shapes: compares the tensors of a checkpoint with the model of a configuration, without LibTorch.
//
// Threads: stateless functions; they access only their arguments.
#pragma once

#include <cstdint>

#include "shared/base/status.h"
#include "shared/checkpoint/tensor_source.h"
#include "shared/config/model_config.h"

namespace stoker::ctl {

// Number of outputs of a bert or an image model; 0: no output layer, or another model.
int64_t num_labels(const checkpoint::TensorRangeSource& file);

// The sizes of an image model that only its tensors show.
struct ImageModelShape {
  int64_t channels = 0, outputs = 0;
  int64_t positions = 0;  // of a vit
};
ImageModelShape image_model_shape(const checkpoint::TensorRangeSource& file);

// kMismatch: the tensors are not those of `arch`, because the settings of the run were changed after the
// checkpoint was saved. Sets vocab_size in `arch` if the settings have null, and the image_size of a vit, also
// when it then returns an error.
Status check_parameter_shapes(const checkpoint::TensorRangeSource& file,
                              config::ModelVariant& arch);

}  // namespace stoker::ctl
