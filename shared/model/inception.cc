// inception_v3: as in torchvision, with its auxiliary head.
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/max_pool2d.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "shared/model/data_compatibility.h"
#include "shared/model/image_model.h"
#include "shared/model/model_factories.h"
#include "shared/model/trunc_normal.h"

namespace stoker::model {
namespace {

// Smallest image sides that leave one pixel at the output, and at the output of the auxiliary head.
constexpr int64_t kInceptionMinSide = 75, kAuxiliaryMinSide = 299;

using Pair = torch::ExpandingArray<2>;

struct ConvShape {
  int64_t from, to;
  Pair kernel;
  int64_t stride = 1;
  Pair padding = 0;
};

// A convolution without bias, batch norm, ReLU.
class BasicConv : public torch::nn::Module {
 public:
  explicit BasicConv(const ConvShape& shape)
      : conv_(register_module(
            "conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(shape.from, shape.to, shape.kernel)
                                          .stride(shape.stride)
                                          .padding(shape.padding)
                                          .bias(false)))),
        bn_(register_module(
            "bn", torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(shape.to).eps(0.001)))) {}

  at::Tensor forward(const at::Tensor& x) { return bn_(conv_(x)).relu_(); }

 private:
  torch::nn::Conv2d conv_;
  torch::nn::BatchNorm2d bn_;
};
using Convs = std::vector<std::shared_ptr<BasicConv>>;

at::Tensor run_convs(const Convs& convs, at::Tensor x) {
  for (const auto& conv : convs) x = conv->forward(x);
  return x;
}

struct NamedConv {
  std::string name;
  ConvShape shape;
};

// Base class of the blocks: parallel branches whose outputs are concatenated along the channels.
// Subclasses define the branches; convolutions are created in torchvision's order.
class InceptionBlock : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x) = 0;

 protected:
  Convs branch(const std::vector<NamedConv>& convs) {
    Convs created;
    for (const NamedConv& each : convs)
      created.push_back(register_module(each.name, std::make_shared<BasicConv>(each.shape)));
    return created;
  }
  static at::Tensor avg_pool(const at::Tensor& x) { return at::avg_pool2d(x, 3, 1, 1); }
  static at::Tensor max_pool(const at::Tensor& x) { return at::max_pool2d(x, 3, 2); }
};

class BlockA : public InceptionBlock {
 public:
  BlockA(int64_t from, int64_t pooled)
      : one_(branch({{"branch1x1", {from, 64, 1}}})),
        five_(branch({{"branch5x5_1", {from, 48, 1}}, {"branch5x5_2", {48, 64, 5, 1, 2}}})),
        three_(branch({{"branch3x3dbl_1", {from, 64, 1}},
                       {"branch3x3dbl_2", {64, 96, 3, 1, 1}},
                       {"branch3x3dbl_3", {96, 96, 3, 1, 1}}})),
        pool_(branch({{"branch_pool", {from, pooled, 1}}})) {}

  at::Tensor forward(const at::Tensor& x) override {
    return at::cat({run_convs(one_, x), run_convs(five_, x), run_convs(three_, x),
                    run_convs(pool_, avg_pool(x))},
                   1);
  }

 private:
  Convs one_, five_, three_, pool_;
};

class BlockB : public InceptionBlock {
 public:
  explicit BlockB(int64_t from)
      : three_(branch({{"branch3x3", {from, 384, 3, 2}}})),
        twice_(branch({{"branch3x3dbl_1", {from, 64, 1}},
                       {"branch3x3dbl_2", {64, 96, 3, 1, 1}},
                       {"branch3x3dbl_3", {96, 96, 3, 2}}})) {}

  at::Tensor forward(const at::Tensor& x) override {
    return at::cat({run_convs(three_, x), run_convs(twice_, x), max_pool(x)}, 1);
  }

 private:
  Convs three_, twice_;
};

const Pair kWide{{1, 7}}, kTall{{7, 1}}, kWidePadding{{0, 3}}, kTallPadding{{3, 0}};

class BlockC : public InceptionBlock {
 public:
  BlockC(int64_t from, int64_t inner)
      : one_(branch({{"branch1x1", {from, 192, 1}}})),
        seven_(branch({{"branch7x7_1", {from, inner, 1}},
                       {"branch7x7_2", {inner, inner, kWide, 1, kWidePadding}},
                       {"branch7x7_3", {inner, 192, kTall, 1, kTallPadding}}})),
        twice_(branch({{"branch7x7dbl_1", {from, inner, 1}},
                       {"branch7x7dbl_2", {inner, inner, kTall, 1, kTallPadding}},
                       {"branch7x7dbl_3", {inner, inner, kWide, 1, kWidePadding}},
                       {"branch7x7dbl_4", {inner, inner, kTall, 1, kTallPadding}},
                       {"branch7x7dbl_5", {inner, 192, kWide, 1, kWidePadding}}})),
        pool_(branch({{"branch_pool", {from, 192, 1}}})) {}

  at::Tensor forward(const at::Tensor& x) override {
    return at::cat({run_convs(one_, x), run_convs(seven_, x), run_convs(twice_, x),
                    run_convs(pool_, avg_pool(x))},
                   1);
  }

 private:
  Convs one_, seven_, twice_, pool_;
};

class BlockD : public InceptionBlock {
 public:
  explicit BlockD(int64_t from)
      : three_(branch({{"branch3x3_1", {from, 192, 1}}, {"branch3x3_2", {192, 320, 3, 2}}})),
        seven_(branch({{"branch7x7x3_1", {from, 192, 1}},
                       {"branch7x7x3_2", {192, 192, kWide, 1, kWidePadding}},
                       {"branch7x7x3_3", {192, 192, kTall, 1, kTallPadding}},
                       {"branch7x7x3_4", {192, 192, 3, 2}}})) {}

  at::Tensor forward(const at::Tensor& x) override {
    return at::cat({run_convs(three_, x), run_convs(seven_, x), max_pool(x)}, 1);
  }

 private:
  Convs three_, seven_;
};

class BlockE : public InceptionBlock {
 public:
  explicit BlockE(int64_t from)
      : one_(branch({{"branch1x1", {from, 320, 1}}})),
        three_(branch({{"branch3x3_1", {from, 384, 1}}})),
        three_split_(split("branch3x3_2")),
        twice_(
            branch({{"branch3x3dbl_1", {from, 448, 1}}, {"branch3x3dbl_2", {448, 384, 3, 1, 1}}})),
        twice_split_(split("branch3x3dbl_3")),
        pool_(branch({{"branch_pool", {from, 192, 1}}})) {}

  at::Tensor forward(const at::Tensor& x) override {
    const at::Tensor three = run_convs(three_, x), twice = run_convs(twice_, x);
    return at::cat({run_convs(one_, x), three_split_[0]->forward(three),
                    three_split_[1]->forward(three), twice_split_[0]->forward(twice),
                    twice_split_[1]->forward(twice), run_convs(pool_, avg_pool(x))},
                   1);
  }

 private:
  // Two convolutions of the same input: 1 x 3 and 3 x 1.
  Convs split(const std::string& name) {
    return branch({{name + "a", {384, 384, Pair{{1, 3}}, 1, Pair{{0, 1}}}},
                   {name + "b", {384, 384, Pair{{3, 1}}, 1, Pair{{1, 0}}}}});
  }

  Convs one_, three_, three_split_, twice_, twice_split_, pool_;
};

class AuxiliaryHead : public torch::nn::Module {
 public:
  explicit AuxiliaryHead(int64_t outputs)
      : conv0(register_module("conv0", std::make_shared<BasicConv>(ConvShape{768, 128, 1}))),
        conv1(register_module("conv1", std::make_shared<BasicConv>(ConvShape{128, 768, 5}))),
        fc(register_module("fc", torch::nn::Linear(768, outputs))) {}

  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor x = conv1->forward(conv0->forward(at::avg_pool2d(input, 5, 3)));
    return fc(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }

 private:
  std::shared_ptr<BasicConv> conv0, conv1;
  torch::nn::Linear fc;
};

class InceptionV3 : public ImageModel {
 public:
  // `outputs` 0: without a head.
  InceptionV3(int64_t channels, int64_t outputs, bool has_auxiliary, double dropout)
      : dropout_(dropout) {
    add_stem(channels);
    add("Mixed_5b", std::make_shared<BlockA>(192, 32));
    add("Mixed_5c", std::make_shared<BlockA>(256, 64));
    add("Mixed_5d", std::make_shared<BlockA>(288, 64));
    add("Mixed_6a", std::make_shared<BlockB>(288));
    add("Mixed_6b", std::make_shared<BlockC>(768, 128));
    add("Mixed_6c", std::make_shared<BlockC>(768, 160));
    add("Mixed_6d", std::make_shared<BlockC>(768, 160));
    add("Mixed_6e", std::make_shared<BlockC>(768, 192));
    before_auxiliary_ = blocks_.size();
    if (has_auxiliary)
      auxiliary_ = register_module("AuxLogits", std::make_shared<AuxiliaryHead>(outputs));
    add("Mixed_7a", std::make_shared<BlockD>(768));
    add("Mixed_7b", std::make_shared<BlockE>(1280));
    add("Mixed_7c", std::make_shared<BlockE>(2048));
    if (outputs > 0) fc_ = register_module("fc", torch::nn::Linear(2048, outputs));
    initialize();
  }

  at::Tensor forward(const at::Tensor& input) override { return head(rest(trunk(input))); }

  at::Tensor features(const at::Tensor& images) override {
    return rest(trunk(images)).flatten(2).transpose(1, 2);
  }

  Outputs forward_with_aux(const at::Tensor& input) override {
    const at::Tensor x = trunk(input);
    at::Tensor auxiliary = auxiliary_ ? auxiliary_->forward(x) : at::Tensor();
    return {head(rest(x)), std::move(auxiliary)};
  }

 private:
  void add_stem(int64_t channels) {
    const auto conv = [this](const std::string& name, const ConvShape& shape) {
      return register_module(name, std::make_shared<BasicConv>(shape));
    };
    stem_ = {conv("Conv2d_1a_3x3", {channels, 32, 3, 2}), conv("Conv2d_2a_3x3", {32, 32, 3}),
             conv("Conv2d_2b_3x3", {32, 64, 3, 1, 1})};
    middle_ = {conv("Conv2d_3b_1x1", {64, 80, 1}), conv("Conv2d_4a_3x3", {80, 192, 3})};
  }
  void add(const std::string& name, const std::shared_ptr<InceptionBlock>& block) {
    blocks_.push_back(register_module(name, block));
  }

  at::Tensor trunk(const at::Tensor& input) {
    at::Tensor x =
        at::max_pool2d(run_convs(middle_, at::max_pool2d(run_convs(stem_, input), 3, 2)), 3, 2);
    for (size_t i = 0; i < before_auxiliary_; ++i) x = blocks_[i]->forward(x);
    return x;
  }
  at::Tensor rest(at::Tensor x) {
    for (size_t i = before_auxiliary_; i < blocks_.size(); ++i) x = blocks_[i]->forward(x);
    return x;
  }
  at::Tensor head(const at::Tensor& features) {
    at::Tensor x = at::adaptive_avg_pool2d(features, {1, 1});
    if (dropout_ > 0 && is_training()) x = at::dropout(x, dropout_, true);
    return fc_(x.flatten(1));
  }

  // In the order of the modules, as in torchvision. torchvision also sets a deviation of 0.01 for
  // the second convolution of the auxiliary head, but on the enclosing module, which its own
  // initialization ignores.
  void initialize() {
    for (const auto& item : named_modules("", /*include_self=*/false)) {
      const double deviation = item.key() == "AuxLogits.fc" ? 0.001 : 0.1;
      if (const auto* const conv = item.value()->as<torch::nn::Conv2dImpl>())
        trunc_normal_(conv->weight, deviation);
      else if (const auto* const linear = item.value()->as<torch::nn::LinearImpl>())
        trunc_normal_(linear->weight, deviation);
    }
  }

  const double dropout_;
  Convs stem_, middle_;
  std::vector<std::shared_ptr<InceptionBlock>> blocks_;
  size_t before_auxiliary_ = 0;
  std::shared_ptr<AuxiliaryHead> auxiliary_;
  torch::nn::Linear fc_{nullptr};
};

}  // namespace

Result<ModelPtr> make_inception_v3(const config::InceptionV3Config& config,
                                   std::optional<int64_t> num_classes, const Samples& sample,
                                   uint64_t classes) {
  const int64_t min_side = config.aux_logits ? kAuxiliaryMinSide : kInceptionMinSide;
  STOKER_ASSIGN_OR_RETURN(
      const TensorSpec input,
      find_input_tensor(sample, config.aux_logits ? "inception_v3 with aux_logits" : "inception_v3",
                        min_side));
  STOKER_ASSIGN_OR_RETURN(const int64_t outputs, num_outputs(num_classes, sample, classes));
  return ModelPtr(
      std::make_shared<InceptionV3>(input.shape[0], outputs, config.aux_logits, config.dropout));
}

Result<ImageModelPtr> make_inception_v3_encoder(const Samples& sample) {
  STOKER_ASSIGN_OR_RETURN(const TensorSpec input,
                          find_input_tensor(sample, "inception_v3", kInceptionMinSide));
  return ImageModelPtr(std::make_shared<InceptionV3>(input.shape[0], /*outputs=*/0,
                                                     /*has_auxiliary=*/false, /*dropout=*/0.0));
}

}  // namespace stoker::model
