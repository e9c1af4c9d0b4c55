#include "shared/model/channels_last.h"

namespace stoker::model {

void use_channels_last(Model& model) {
  for (at::Tensor& parameter : model.parameters())
    if (parameter.dim() == 4)
      parameter.set_data(parameter.detach().contiguous(at::MemoryFormat::ChannelsLast));
}

}  // namespace stoker::model
