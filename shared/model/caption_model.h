// CaptionModel: base class of models that describe an image in words.
//
// Threads: as Model.
#pragma once

#include "shared/model/model.h"

namespace stoker::model {

class CaptionModel : public Model {
 public:
  // What decode() needs of the images, [batch, …].
  virtual at::Tensor encode(const at::Tensor& images) = 0;
  // `tokens` I64 [batch, time], of which the first is the start of a caption -> the logits of the
  // token after each of them, [batch, time, vocab].
  virtual at::Tensor decode(const at::Tensor& encoded, const at::Tensor& tokens) = 0;
  // In eval mode: the logits of the token after the last one, [batch, vocab]. `cache`: as for
  // next_logits(); its rows are those of `encoded`.
  virtual at::Tensor decode_last(const at::Tensor& encoded, const at::Tensor& tokens,
                                 KeyValueCache& /*cache*/) {
    return decode(encoded, tokens).select(1, -1);
  }
};

}  // namespace stoker::model
