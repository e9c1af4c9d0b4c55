// ImageModel: base class of the image models that can be the encoder of a captioner.
//
// Threads: as Model.
#pragma once

#include <memory>

#include "shared/model/model.h"

namespace stoker::model {

class ImageModel : public Model {
 public:
  // The features that the head of the model classifies, [batch, positions, channels]: of each pixel
  // of the last feature map, or of the class token and the patches.
  virtual at::Tensor features(const at::Tensor& images) = 0;
  // One vector of an image, [batch, channels]: the mean of its features or, with a class token,
  // the first.
  virtual at::Tensor pooled(const at::Tensor& features) { return features.mean(1); }
};

// Models without a head, whose forward() must not be called. kMismatch: the images are too small.
using ImageModelPtr = std::shared_ptr<ImageModel>;
Result<ImageModelPtr> make_resnet_encoder(const config::ResnetConfig& config,
                                          const std::vector<TensorSpec>& sample);
Result<ImageModelPtr> make_inception_v3_encoder(const std::vector<TensorSpec>& sample);
Result<ImageModelPtr> make_vit_encoder(const config::VitConfig& config,
                                       const std::vector<TensorSpec>& sample);

}  // namespace stoker::model
