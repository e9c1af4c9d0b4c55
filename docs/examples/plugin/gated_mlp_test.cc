// gated_mlp_test: test of the example plugin. It needs no installed stoker to run, only LibTorch:
//
//   ./compile.sh "$prefix" gated_mlp.cc gated_mlp_test.cc gated_mlp_test && ./gated_mlp_test
#include <cstdio>
#include <exception>

#include <ATen/Context.h>
#include <ATen/ops/randn.h>
#include <stoker/testing.h>

namespace {

void test_model() {
  at::manual_seed(1);  // of the initial weights and the input
  const stoker::plugin::ModelSpec spec{.args = {"{}", {{"width", "16"}, {"blocks", "1"}}},
                                       .input_shape = {2, 4},
                                       .has_tokens = false,
                                       .num_classes = 3};
  const auto make = stoker_plugin()->make;
  const auto model = make(spec);
  const at::Tensor input = at::randn({5, 2, 4});
  stoker::testing::expect_shape(model->forward(input), {5, 3});
  stoker::testing::expect_gradients(*model, input);
  stoker::testing::expect_save_load_round_trip(make, spec, input);
  stoker::testing::expect_learns_ten_batches(*model, spec);
}

}  // namespace

int main() {
  try {
    test_model();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gated_mlp_test: %s\n", error.what());
    return 1;
  }
  return 0;
}
