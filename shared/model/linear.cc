#include "shared/model/linear.h"

#include <memory>
#include <string>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "shared/model/cpu_matmul.h"
#include "shared/model/lora.h"
#include "shared/model/weight_copies.h"

namespace stoker::model {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// Minimum number of multiplications for which oneDNN outweighs its call overhead.
constexpr int64_t kMinWork = 4 << 20;

// Flattens […, columns] to [rows, columns], and restores the leading dimensions of `like`.
at::Tensor as_rows(const at::Tensor& tensor, int64_t columns) {
  return tensor.dim() == 2 ? tensor : tensor.reshape({-1, columns});
}
at::Tensor with_dimensions_of(const at::Tensor& like, const at::Tensor& rows) {
  if (like.dim() == 2) return rows;
  std::vector<int64_t> shape = like.sizes().vec();
  shape.back() = rows.size(1);
  return at::_unsafe_view(rows, shape);
}

// Derives from Node like LibTorch's own functions, because torch::autograd::Function has several
// times the overhead.
class LinearBackward final : public torch::autograd::Node {
 public:
  LinearBackward(const at::Tensor& rows, const at::Tensor& weight)
      : rows_(rows, /*is_output=*/false), weight_(weight, false) {}

  std::string name() const override { return "stoker::LinearBackward"; }
  void release_variables() override {
    rows_.reset_data();
    weight_.reset_data();
  }

  variable_list apply(variable_list&& gradients) override {
    variable_list of(3);  // gradients of input, weight, bias
    if (!gradients[0].defined()) return of;
    const at::Tensor rows = rows_.unpack();
    const at::Tensor weight = weight_.unpack();
    const at::Tensor gradient = as_rows(gradients[0], weight.size(0)).contiguous();
    if (task_should_compute_output(0))
      of[0] = with_dimensions_of(gradients[0], cpu_matmul(gradient, weight.t()));
    if (task_should_compute_output(1)) of[1] = cpu_matmul(gradient.t(), rows.t());
    if (task_should_compute_output(2)) of[2] = gradient.sum(0);
    return of;
  }

 private:
  SavedVariable rows_, weight_;
};

bool onednn_is_faster() {
  static const bool faster = __builtin_cpu_is("amd") && __builtin_cpu_supports("avx512f");
  return faster;
}

}  // namespace

at::Tensor onednn_linear(const at::Tensor& input, const at::Tensor& weight,
                         const at::Tensor& bias) {
  at::Tensor rows, output;
  {
    const at::NoGradGuard no_grad;
    rows = as_rows(input, weight.size(1));
    output = with_dimensions_of(input, cpu_matmul(rows, weight, bias));
  }
  if (!torch::autograd::compute_requires_grad(input, weight, bias)) return output;
  const std::shared_ptr<LinearBackward> node(new LinearBackward(rows, weight),
                                             torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(input, weight, bias));
  torch::autograd::set_history(output, node);
  return output;
}

namespace {

at::Tensor fastest_linear(const at::Tensor& input, const at::Tensor& weight,
                          const at::Tensor& bias) {
  const bool is_plain = input.is_cpu() && input.scalar_type() == at::kFloat &&
                        weight.scalar_type() == at::kFloat && input.dim() > 1 &&
                        !at::autocast::is_autocast_enabled(at::kCPU);
  if (!is_plain || !onednn_is_faster() || input.numel() * weight.size(0) < kMinWork)
    return at::linear(input, weight, bias);
  return onednn_linear(input, weight, bias);
}

}  // namespace

at::Tensor linear(const torch::nn::Linear& layer, const at::Tensor& input) {
  return add_adapter(*layer, input, linear(input, layer->weight, layer->bias));
}

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  return fastest_linear(input, WeightCopies::or_weight(weight), bias);
}

}  // namespace stoker::model
