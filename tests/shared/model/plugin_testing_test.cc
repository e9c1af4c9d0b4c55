// The checks of include/stoker/testing.h: each accepts a correct model and rejects an incorrect one.
#include <ATen/Context.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/testing.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

namespace stoker::model {
namespace {

using ::testing::HasSubstr;
namespace checks = stoker::testing;

class PluginTestingTest : public ::testing::Test {
 protected:
  PluginTestingTest() { at::manual_seed(7); }  // of initial weights and inputs
};

// The message of the failed check; empty if it passed.
template <typename Check>
std::string failure_of(Check check) {
  try {
    check();
  } catch (const checks::Failure& failure) {
    return failure.what();
  }
  return "";
}

plugin::ModelSpec spec_of(std::vector<int64_t> input_shape, bool has_tokens = false) {
  return {.args = plugin::Args("{}", {}),
          .input_shape = std::move(input_shape),
          .has_tokens = has_tokens,
          .num_classes = 3};
}

class LinearModel : public plugin::Model {
 public:
  explicit LinearModel(int64_t inputs = 4)
      : linear_(register_module("linear", torch::nn::Linear(inputs, 3))),
        dropout_(register_module("dropout", torch::nn::Dropout(0.1))) {}
  at::Tensor forward(const at::Tensor& input) override {
    return linear_(dropout_(input.flatten(1)));
  }

 private:
  torch::nn::Linear linear_;
  torch::nn::Dropout dropout_;
};

// Its gradient is that of another function.
class WrongGradientModel : public LinearModel {
 public:
  at::Tensor forward(const at::Tensor& input) override {
    const at::Tensor outputs = LinearModel::forward(input);
    return outputs + outputs.detach();
  }
};

// A checkpoint has no `scale_`.
class UnregisteredTensorModel : public LinearModel {
 public:
  at::Tensor forward(const at::Tensor& input) override {
    return LinearModel::forward(input) * scale_;
  }

 private:
  at::Tensor scale_ = at::rand({3}) + 0.5;
};

class ConstantModel : public LinearModel {
 public:
  at::Tensor forward(const at::Tensor& input) override { return LinearModel::forward(input) * 0; }
};

class RandomModel : public LinearModel {
 public:
  at::Tensor forward(const at::Tensor& input) override {
    return LinearModel::forward(input) + at::rand({3}, at::kDouble);
  }
};

class TokenModel : public plugin::Model {
 public:
  at::Tensor forward(const at::Tensor& input) override { return table_(input); }

 private:
  torch::nn::Embedding table_ = register_module("table", torch::nn::Embedding(3, 3));
};

template <typename M>
std::shared_ptr<plugin::Model> make(const plugin::ModelSpec&) {
  return std::make_shared<M>();
}

TEST_F(PluginTestingTest, ComparesShapes) {
  EXPECT_EQ(failure_of([] { checks::expect_shape(at::zeros({2, 3}), {2, 3}); }), "");
  EXPECT_EQ(failure_of([] {
              checks::expect_shape(at::zeros({2, 3}), {3, 2});
            }),
            "shape is [2, 3], expected [3, 2]");
  EXPECT_EQ(failure_of([] { checks::expect_shape(at::Tensor(), {}); }),
            "shape is undefined, expected []");
}

TEST_F(PluginTestingTest, ComparesTensorsWithinTolerance) {
  const at::Tensor one = at::tensor({1.0, 2.0, 3.0});
  EXPECT_EQ(failure_of([&] { checks::expect_all_close(one * (1 + 1e-6), one); }), "");
  EXPECT_EQ(failure_of([&] {
              checks::expect_all_close(one, one.view({3, 1}));
            }),
            "tensors: shape is [3], expected [3, 1]");
  EXPECT_EQ(failure_of([&] {
              checks::expect_all_close(at::tensor({1.0, 2.5, 3.25}), one, 1e-5, 1e-8, "logits");
            }),
            "logits: 2 of 3 elements differ, most at flat index 1: 2.5, expected 2");
  EXPECT_THAT(failure_of([&] {
                checks::expect_all_close(at::tensor({1.0, std::nan(""), 9.0}), one);
              }),
              HasSubstr("flat index 1: nan"));
}

TEST_F(PluginTestingTest, ChecksGradientsAndRestoresModel) {
  LinearModel model;
  model.train();
  const at::Tensor before = model.parameters()[0].detach().clone();
  EXPECT_EQ(failure_of([&] { checks::expect_gradients(model, at::randn({2, 4})); }), "");
  EXPECT_TRUE(model.is_training());
  EXPECT_EQ(model.parameters()[0].scalar_type(), at::kFloat);
  EXPECT_TRUE(model.parameters()[0].equal(before));
  TokenModel tokens;
  EXPECT_EQ(failure_of([&] {
              checks::expect_gradients(tokens, at::randint(3, {2, 5}, at::kLong));
            }),
            "");
}

TEST_F(PluginTestingTest, RejectsWrongGradientAndRandomOutputs) {
  WrongGradientModel wrong;
  EXPECT_THAT(failure_of([&] {
                checks::expect_gradients(wrong, at::ones({2, 4}));
              }),
              HasSubstr("gradient of linear.weight at flat index 0 is "));
  RandomModel random;
  EXPECT_THAT(failure_of([&] {
                checks::expect_gradients(random, at::ones({2, 4}));
              }),
              HasSubstr("different outputs for the same input"));
}

TEST_F(PluginTestingTest, DetectsTensorThatIsNotSaved) {
  const auto spec = spec_of({4});
  const at::Tensor input = at::ones({2, 4});
  EXPECT_EQ(
      failure_of([&] { checks::expect_save_load_round_trip(make<LinearModel>, spec, input); }), "");
  EXPECT_THAT(failure_of([&] {
                checks::expect_save_load_round_trip(make<UnregisteredTensorModel>, spec, input);
              }),
              HasSubstr("outputs after saving and loading: 6 of 6 elements differ"));
}

TEST_F(PluginTestingTest, ExpectsLossToFall) {
  LinearModel model;
  EXPECT_EQ(failure_of([&] { checks::expect_learns_ten_batches(model, spec_of({2, 2})); }), "");
  TokenModel tokens;
  EXPECT_EQ(failure_of([&] { checks::expect_learns_ten_batches(tokens, spec_of({5}, true)); }), "");
  ConstantModel constant;
  EXPECT_THAT(failure_of([&] { checks::expect_learns_ten_batches(constant, spec_of({4})); }),
              HasSubstr("after 30 passes over ten batches"));
}

}  // namespace
}  // namespace stoker::model
