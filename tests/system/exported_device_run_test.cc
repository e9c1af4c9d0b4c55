// Python modules on a simulated device: the bytes of the CPU, from captured graphs where no operator waits for values.
#include <filesystem>

#include <gmock/gmock.h>

#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct Module {
  std::string name;
  std::string data;           // of both datasets
  std::string obstacle = {};  // why steps are not captured
};

std::string synthetic(const std::string& shape) {
  return "{format: synthetic, num_samples: 200, num_classes: 4, input_shape: " + shape + "}";
}

class ExportedDeviceRunTest : public RunTest, public testing::WithParamInterface<Module> {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    if (!fs::exists(std::string(STOKER_EXPORTED) + "/names"))
      GTEST_SKIP() << "there are no modules: StokerExport.Zoo needs a Python with PyTorch";
  }
  std::string write(const std::string& device) const {
    return write_config(
        "data: {train: " + GetParam().data + ", val: " + GetParam().data +
            "}\nmodel: {name: exported, path: " STOKER_EXPORTED "/" + GetParam().name +
            "}\ntask: {name: custom}\noptimizer: {name: adamw, lr: 0.003}\n"
            "run: {rng: per_ticket}\nfeed: {num_processes: 0}\ntrain: {max_steps: 12, "
            "micro_batch_size: 6, gradient_accumulation_steps: 2, max_grad_norm: 1, ema_decay: "
            "0.9, "
            "num_threads: 1, device: \"" +
            device + "\"}\n",
        "config.yaml");
  }
  void train_on(const std::string& device) const {
    // Otherwise MKL's sums depend on the alignment of buffers, on AMD for one.
    Process trainer({"/usr/bin/env", "MKL_CBWR=COMPATIBLE", STOKER_FAKE_DEVICE_STOKERD, "--config",
                     write(device), "--run-dir", run_dir(device)},
                    path(device + ".out"));
    ASSERT_EQ(code_of(trainer), 0) << log_of(device);
  }
};

// LibTorch's kernels of the CPU compute on both. fake:1 is a schedule in which the device lags behind.
TEST_P(ExportedDeviceRunTest, TrainsTheBytesOfTheCpu) {
  for (const std::string device : {"cpu", "fake:1"})
    ASSERT_NO_FATAL_FAILURE(train_on(device)) << device;
  const std::string log = log_of("fake:1");
  if (GetParam().obstacle.empty()) {
    EXPECT_THAT(log, HasSubstr("cuda graph captured"));
    EXPECT_EQ(count_of(log, "cuda graph capture disabled"), 0u) << log;
  } else {
    EXPECT_EQ(count_of(log, "cuda graph captured"), 0u) << log;
    EXPECT_EQ(count_of(log, "cuda graph capture disabled"), 1u) << log;
    EXPECT_THAT(log, HasSubstr(GetParam().obstacle + " waits for values of the device"));
  }
  expect_same_checkpoint(run_dir("cpu"), run_dir("fake:1"),
                         {"model.safetensors", "optimizer.safetensors", "ema.safetensors"});
}

INSTANTIATE_TEST_SUITE_P(Modules, ExportedDeviceRunTest,
                         testing::Values(
                             // Dropout, batch norm, buffers that are written to and replaced.
                             Module{"mlp", synthetic("[32]")},
                             Module{"resnet", synthetic("[3, 16, 16]")},
                             Module{"attention", synthetic("[7, 8]")},
                             Module{"noisy", synthetic("[12]")},
                             Module{"found", synthetic("[12]"), "aten::nonzero"},
                             Module{"cond", synthetic("[12]"), "cond"}),
                         [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace stoker::test
