// gated_mlp: example of a model plugin: residual blocks of gated linear units over the flattened
// input.
//
//   model:
//     name: plugin
//     path: gated_mlp.so
//     args: {width: 64, blocks: 2, dropout: 0.1}
//
// Compile it for an installed stoker with compile.sh in this directory.
#include <stdexcept>

#include <ATen/ops/dropout.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/silu.h>
#include <stoker/plugin.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

namespace {

// x + down(silu(gate(norm(x))) * up(norm(x)))
class GatedBlock : public torch::nn::Module {
 public:
  GatedBlock(int64_t width, double dropout)
      : dropout_(dropout),
        norm_(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        gate_(register_module("gate", torch::nn::Linear(width, 2 * width))),
        up_(register_module("up", torch::nn::Linear(width, 2 * width))),
        down_(register_module("down", torch::nn::Linear(2 * width, width))) {}

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor normed = norm_(x);
    const at::Tensor inner = down_(at::silu(gate_(normed)) * up_(normed));
    return x + at::dropout(inner, dropout_, is_training());
  }

 private:
  const double dropout_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear gate_, up_, down_;
};

class GatedMlp : public stoker::plugin::Model {
 public:
  GatedMlp(int64_t inputs, int64_t width, int64_t blocks, double dropout, int64_t outputs)
      : in_(register_module("in", torch::nn::Linear(inputs, width))) {
    for (int64_t i = 0; i < blocks; ++i)
      blocks_.push_back(register_module("block" + std::to_string(i),
                                        std::make_shared<GatedBlock>(width, dropout)));
    out_ = register_module("out", torch::nn::Linear(width, outputs));
  }

  at::Tensor forward(const at::Tensor& input) override {
    at::Tensor x = in_(input.flatten(1));
    for (const auto& block : blocks_) x = block->forward(x);
    return out_(x);
  }

 private:
  torch::nn::Linear in_, out_{nullptr};
  std::vector<std::shared_ptr<GatedBlock>> blocks_;
};

std::shared_ptr<stoker::plugin::Model> make(const stoker::plugin::ModelSpec& spec) {
  if (spec.has_tokens) throw std::invalid_argument("gated_mlp reads numbers, not tokens");
  int64_t inputs = 1;
  for (const int64_t size : spec.input_shape) inputs *= size;
  const int64_t width = spec.args.get_int("width", 64);
  const int64_t blocks = spec.args.get_int("blocks", 2);
  const double dropout = spec.args.get_double("dropout", 0.0);
  if (width < 1 || blocks < 0 || dropout < 0 || dropout >= 1)
    throw std::invalid_argument("width must be above 0, blocks from 0, dropout from 0 to below 1");
  return std::make_shared<GatedMlp>(inputs, width, blocks, dropout, spec.num_classes);
}

}  // namespace

STOKER_PLUGIN(make)
