#include "shared/model/conv_classifier.h"

#include <ATen/ops/adaptive_avg_pool2d.h>

namespace stoker::model {

ConvClassifier::ConvClassifier(const std::shared_ptr<Sequential>& features, int64_t pooled_side,
                               const std::shared_ptr<Sequential>& classifier)
    : pooled_side_(pooled_side),
      features_(register_module("features", features)),
      classifier_(register_module("classifier", classifier)) {}

at::Tensor ConvClassifier::forward(const at::Tensor& input) {
  at::Tensor x = features_->forward(input);
  // Images of torchvision's size already have this size here, and the backward pass of adaptive
  // average pooling is nondeterministic on a GPU.
  if (x.size(2) != pooled_side_ || x.size(3) != pooled_side_)
    x = at::adaptive_avg_pool2d(x, {pooled_side_, pooled_side_});
  return classifier_->forward(x.flatten(1));
}

at::Tensor relu_inplace(at::Tensor x) { return x.relu_(); }

}  // namespace stoker::model
