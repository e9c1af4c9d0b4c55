// search_captions: the most likely caption of each image, by beam search.
//
// The score of a caption is the mean log probability of its tokens, with its end (length_penalty 1 of
// Hugging Face's generate()). The search of an image ends when no unfinished caption
// can have a better score than the best finished one, even if its further tokens were certain. One
// beam is greedy search, which ends with the first caption.
//
// Deterministic, and independent of the other images of the batch, except for rounding in the model.
//
// Threads: one at a time.
// Errors:  exceptions of LibTorch are propagated.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/model/caption_model.h"

namespace stoker::task {

struct CaptionSearch {
  int num_beams = 1;
  int64_t max_length = 20;  // tokens, with the end
  int64_t start = 0, end = 1;
};

// The tokens of one caption per image, without start and end; the start is never chosen. `encoded`:
// encode() of the images.
// `model` must be in eval mode.
std::vector<std::vector<int64_t>> search_captions(model::CaptionModel& model,
                                                  const at::Tensor& encoded,
                                                  const CaptionSearch& search);

}  // namespace stoker::task
