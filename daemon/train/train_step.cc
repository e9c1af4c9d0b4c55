#include "daemon/train/train_step.h"

#include <utility>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/variable.h>

#include "shared/model/torch_dtype.h"

namespace stoker::train {
namespace {

// Runs the enclosed forward pass in bf16 where LibTorch's autocast rules say it pays.
class Autocast {
 public:
  Autocast(bool on, c10::DeviceType device) : on_(on), device_(device) {
    if (!on_) return;
    was_enabled_ = at::autocast::is_autocast_enabled(device_);
    was_dtype_ = at::autocast::get_autocast_dtype(device_);
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::set_autocast_dtype(device_, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (!on_) return;
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, was_enabled_);
    at::autocast::set_autocast_dtype(device_, was_dtype_);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool on_;
  c10::DeviceType device_;
  bool was_enabled_ = false;
  at::ScalarType was_dtype_ = at::kFloat;
};

}  // namespace

task::Batch batch_tensors(const ring::BatchLayout& layout, std::span<const std::byte> slot,
                          c10::Device device) {
  task::Batch batch;
  batch.reserve(layout.sample().size());
  for (size_t i = 0; i < layout.sample().size(); ++i) {
    const TensorSpec& spec = layout.sample()[i];
    std::vector<int64_t> shape{static_cast<int64_t>(layout.batch())};
    shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
    // from_blob wants a mutable pointer; nothing writes to a batch.
    void* const bytes = const_cast<std::byte*>(layout.whole(slot, i).data());
    at::Tensor tensor =
        at::from_blob(bytes, shape, at::TensorOptions().dtype(model::scalar_type_of(spec.dtype)));
    batch.push_back(device.is_cpu() ? std::move(tensor) : tensor.to(device));
  }
  return batch;
}

TrainStep::TrainStep(model::Model& model, const task::Task& task, Optimizer& optimizer,
                     int64_t accumulate, bool bf16)
    : model_(model), task_(task), optimizer_(optimizer), accumulate_(accumulate), bf16_(bf16) {}

void TrainStep::add(const task::Batch& batch) {
  at::Tensor loss;
  {
    const PhaseScope forward(maybe_observer_, Phase::kForward);
    const Autocast autocast(bf16_, batch.front().device().type());
    loss = task_.loss(model_, batch);
  }
  const PhaseScope backward(maybe_observer_, Phase::kBackward);
  if (!loss_.defined()) loss_ = at::zeros({}, loss.options().dtype(at::kDouble));
  if (std::exchange(finished_, false)) loss_.zero_();
  loss_.add_(loss.detach(), 1.0 / static_cast<double>(accumulate_));
  if (accumulate_ > 1) loss = loss / static_cast<double>(accumulate_);
  loss.backward();
}

at::Tensor TrainStep::finish(double lr) {
  const PhaseScope optimizer(maybe_observer_, Phase::kOptimizer);
  at::Tensor norm = optimizer_.step(lr);
  drop();
  return norm;
}

at::Tensor TrainStep::finish_if_finite(double lr) {
  const PhaseScope optimizer(maybe_observer_, Phase::kOptimizer);
  at::Tensor norm = optimizer_.step_if_finite(lr, loss_);
  drop();
  return norm;
}

void TrainStep::drop() {
  optimizer_.zero_grad();
  finished_ = true;
}

}  // namespace stoker::train
