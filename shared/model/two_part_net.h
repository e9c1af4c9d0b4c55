// TwoPartNet: the form of alexnet and vgg: convolutions ("features"), an average pooling to a fixed
// side, fully connected layers ("classifier").
//
// Threads: as torch::nn::Module: one thread at a time.
#pragma once

#include <memory>

#include "shared/model/chain.h"
#include "shared/model/model.h"

namespace stoker::model {

class TwoPartNet : public Model {
 public:
  TwoPartNet(const std::shared_ptr<Chain>& features, int64_t pooled_side,
             const std::shared_ptr<Chain>& classifier);

  at::Tensor forward(const at::Tensor& input) override;

 private:
  const int64_t pooled_side_;
  std::shared_ptr<Chain> features_, classifier_;
};

at::Tensor relu_in_place(at::Tensor x);

}  // namespace stoker::model
