// A plugin whose model has the defect selected by the argument `does`.
#include <unistd.h>

#include <stdexcept>

#include <ATen/ops/zeros.h>
#include <stoker/plugin.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

namespace {

using stoker::plugin::ModelSpec;

class DefectiveModel : public stoker::plugin::Model {
 public:
  DefectiveModel(std::string does, const ModelSpec& spec)
      : does_(std::move(does)), outputs_(spec.num_classes) {
    if (does_ == "no parameters") return;
    linear_ = register_module("linear", torch::nn::Linear(elements(spec.input_shape), outputs_));
    if (does_ == "frozen") linear_->weight.set_requires_grad(false);
    if (does_ == "frozen") linear_->bias.set_requires_grad(false);
    if (does_ == "doubles") linear_->to(at::kDouble);
    if (does_ == "complex buffer") register_buffer("wave", at::zeros({2}, at::kComplexFloat));
    if (does_ == "unused parameter") register_parameter("unused", at::zeros({3}) + 2);
    if (does_ == "two names") register_parameter("again", linear_->weight);
    if (does_ == "ten tokens")
      table_ = register_module("table", torch::nn::Embedding(10, outputs_));
    if (does_ == "additional tensors") {
      scale_ = register_parameter("scale", at::zeros({outputs_}) + 1);
      num_samples_ = register_buffer("seen", at::zeros({}, at::kLong));
    }
  }

  at::Tensor forward(const at::Tensor& input) override {
    if (does_ == "hangs" && ++num_calls_ > 20)
      while (true) ::pause();
    if (does_ == "throws in forward") throw std::runtime_error("failed\nin a layer");
    if (does_ == "fails in forward") return linear_(input.narrow(1, 0, 100000));
    if (does_ == "wrong shape") return linear_(input.flatten(1)).unsqueeze(1);
    if (does_ == "ten tokens") return table_(input).mean(1);
    if (does_ == "per-token output")
      return linear_->bias.expand({input.size(0), input.size(1), outputs_});
    const at::Tensor logits = linear_(input.flatten(1));
    if (does_ != "additional tensors") return logits;
    if (is_training()) num_samples_.add_(input.size(0));
    return logits * scale_;
  }
  stoker::plugin::Outputs forward_with_aux(const at::Tensor& input) override {
    const at::Tensor logits = forward(input);
    return {logits, does_ == "auxiliary" ? logits * 2 : at::Tensor()};
  }

 private:
  static int64_t elements(const std::vector<int64_t>& shape) {
    int64_t product = 1;
    for (const int64_t size : shape) product *= size;
    return product;
  }

  const std::string does_;
  const int64_t outputs_;
  int num_calls_ = 0;
  torch::nn::Linear linear_{nullptr};
  torch::nn::Embedding table_{nullptr};
  at::Tensor scale_, num_samples_;
};

std::shared_ptr<stoker::plugin::Model> make(const ModelSpec& spec) {
  const std::string does = spec.args.get_string("does", "");
  if (does == "throws") throw std::runtime_error("no model");
  if (does == "throws a number") throw 7;
  if (does == "returns null") return nullptr;
  if (does == "asks for a number") spec.args.get_int("width", 1);
  return std::make_shared<DefectiveModel>(does, spec);
}

}  // namespace

STOKER_PLUGIN(make)
