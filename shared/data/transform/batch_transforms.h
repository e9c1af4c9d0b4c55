// MixParameters: how mixup or cutmix combines the samples of one batch. Each sample is mixed with
// the previous one, the first with the last. The parameters are a function of seed and ticket, so
// that a resumed run and `stokerctl show-batch` use the same ones.
//
// As torchvision.transforms.v2.MixUp and CutMix, which also roll the batch by one. If both are
// given, each is chosen with probability 0.5, as by RandomChoice. The mixing ratio is from
// Beta(alpha, alpha).
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/config/dataset_config.h"

namespace stoker::data::transform {

// Pixel rows [top, bottom) and columns [left, right).
struct CutMixBox {
  int64_t top = 0;
  int64_t left = 0;
  int64_t bottom = 0;
  int64_t right = 0;
  int64_t area() const { return (bottom - top) * (right - left); }
  bool operator==(const CutMixBox&) const = default;
};

struct MixParameters {
  double own_share = 1;  // weight of the sample's own label; the other label has the rest
  // Cutmix: the region copied from the other sample. Empty for mixup, a weighted sum.
  std::optional<CutMixBox> box;
};

struct MixOptions {
  double mixup = 0;    // alpha; 0: off
  double cutmix = 0;   // alpha; 0: off
  int64_t height = 0;  // of the images; used only by cutmix
  int64_t width = 0;
  bool any() const { return mixup > 0 || cutmix > 0; }
};

// The options of data.train.batch_transforms. kInvalidArgument: more than one transform. kMismatch:
// cutmix, but `input` is not an image [channels, height, width].
Result<MixOptions> make_mix_options(const std::vector<config::BatchTransform>& transforms,
                                    const TensorSpec& input);

// Without mixup and cutmix, samples are unchanged.
MixParameters sample_mix(const MixOptions& options, uint64_t seed, uint64_t ticket);

// The region that cutmix copies from the other image, centered at (row, column) and clipped at the
// edges. Its sides are sqrt(1 - share) of those of the image.
CutMixBox cutmix_box(double share, int64_t row, int64_t column, int64_t height, int64_t width);

// "mixup=0.310 with row 3", for row `row` of a batch.
std::string describe(const MixParameters& mix, uint64_t row, uint64_t batch);

}  // namespace stoker::data::transform
