// ConvClassifier: the common structure of alexnet and vgg: convolutions ("features"), average
// pooling to a fixed size, fully connected layers ("classifier").
//
// Threads: as torch::nn::Module: one thread at a time.
#pragma once

#include <memory>

#include "shared/model/model.h"
#include "shared/model/sequential.h"

namespace stoker::model {

class ConvClassifier : public Model {
 public:
  ConvClassifier(const std::shared_ptr<Sequential>& features, int64_t pooled_side,
                 const std::shared_ptr<Sequential>& classifier);

  at::Tensor forward(const at::Tensor& input) override;

 private:
  const int64_t pooled_side_;
  std::shared_ptr<Sequential> features_, classifier_;
};

at::Tensor relu_inplace(at::Tensor x);

}  // namespace stoker::model
