// MixParameters: how mixup or cutmix joins the samples of one batch: each with the one before it, the
// first with the last. Drawn for a ticket, so that every start of a run, and whoever explains it,
// finds the same.
//
// As torchvision.transforms.v2.MixUp and CutMix, which roll the batch by one too; with both, either
// with even odds, as its RandomChoice. The share is from Beta(alpha, alpha).
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

// Rows from top and columns from left on, up to bottom and right, which are excluded.
struct CutMixBox {
  int64_t top = 0;
  int64_t left = 0;
  int64_t bottom = 0;
  int64_t right = 0;
  int64_t area() const { return (bottom - top) * (right - left); }
  bool operator==(const CutMixBox&) const = default;
};

struct MixParameters {
  double own_share = 1;          // of a sample's own label; the other's is the rest
  std::optional<CutMixBox> box;  // cutmix: what is taken from the other. Otherwise sums of both
};

struct MixOptions {
  double mixup = 0;    // alpha; 0: not at all
  double cutmix = 0;   // alpha; 0: not at all
  int64_t height = 0;  // of the pictures; cutmix alone needs it
  int64_t width = 0;
  bool any() const { return mixup > 0 || cutmix > 0; }
};

// Those of data.train.batch_transforms. kInvalidArgument: more than one of them. kMismatch: cutmix is
// asked for and `input` is no picture [channels, height, width].
Result<MixOptions> make_mix_options(const std::vector<config::BatchTransform>& transforms,
                                    const TensorSpec& input);

// With neither: every sample stays as it is.
MixParameters sample_mix(const MixOptions& options, uint64_t seed, uint64_t ticket);

// The part of a picture that cutmix takes from the other where the share drawn is `share` and the
// middle of the part is at (row, column): of the sides' lengths sqrt(1 - share), cut off at the
// edges.
CutMixBox cutmix_box(double share, int64_t row, int64_t column, int64_t height, int64_t width);

// "mixup=0.310 with row 3", for row `row` of a batch.
std::string describe(const MixParameters& mix, uint64_t row, uint64_t batch);

}  // namespace stoker::data::transform
