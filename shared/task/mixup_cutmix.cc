#include "shared/task/mixup_cutmix.h"

#include <ATen/ops/one_hot.h>

namespace stoker::task {

at::Tensor mix_inputs(const at::Tensor& input, const data::transform::MixParameters& mix) {
  const at::Tensor partners = input.roll({1}, {0});
  if (!mix.box) return partners.mul_(1.0 - mix.own_share).add_(input, mix.own_share);
  const data::transform::CutMixBox& box = *mix.box;
  const auto part = [&box](const at::Tensor& images) {
    return images.slice(-2, box.top, box.bottom).slice(-1, box.left, box.right);
  };
  at::Tensor mixed = input.clone();
  part(mixed).copy_(part(partners));
  return mixed;
}

at::Tensor mix_labels(const at::Tensor& label, int64_t classes,
                      const data::transform::MixParameters& mix) {
  const at::Tensor own = at::one_hot(label, classes).to(at::kFloat);
  return own.roll({1}, {0}).mul_(1.0 - mix.own_share).add_(own, mix.own_share);
}

}  // namespace stoker::task
