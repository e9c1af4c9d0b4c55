#include "shared/model/two_part_net.h"

#include <ATen/ops/adaptive_avg_pool2d.h>

namespace stoker::model {

TwoPartNet::TwoPartNet(const std::shared_ptr<Chain>& features, int64_t pooled_side,
                       const std::shared_ptr<Chain>& classifier)
    : pooled_side_(pooled_side),
      features_(register_module("features", features)),
      classifier_(register_module("classifier", classifier)) {}

at::Tensor TwoPartNet::forward(const at::Tensor& input) {
  at::Tensor x = features_->forward(input);
  // Pictures of torchvision's size leave that side already; and on a GPU the pooling's backward pass
  // does not give the same bits each time.
  if (x.size(2) != pooled_side_ || x.size(3) != pooled_side_)
    x = at::adaptive_avg_pool2d(x, {pooled_side_, pooled_side_});
  return classifier_->forward(x.flatten(1));
}

at::Tensor relu_in_place(at::Tensor x) { return x.relu_(); }

}  // namespace stoker::model
