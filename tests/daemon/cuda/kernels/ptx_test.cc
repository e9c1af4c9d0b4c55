// Runs the kernels as they are in the CUDA module, without a device: the launches that nvcc compiled for the
// host, over a runtime that gives them to a PtxMachine, with the PTX of each architecture. The results are
// those of the kernels compiled for the host, but for what a compiler contracts and the last digits of exp.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/cuda/kernels/adamw_kernel.h"
#include "daemon/cuda/kernels/host_kernels.h"
#include "daemon/cuda/kernels/launch.h"
#include "daemon/cuda/kernels/norm_kernel.h"
#include "tests/daemon/cuda/kernels/ptx_machine.h"

namespace {

// What the objects of nvcc register before main(): the names of the kernels.
std::map<const void*, std::string>& kernel_names() {
  static std::map<const void*, std::string> names;
  return names;
}

struct Launch {
  dim3 grid, block;
};
Launch configured;
stoker::cuda::PtxMachine* maybe_machine = nullptr;
std::string launch_error;

}  // namespace

// The part of CUDA's runtime library that a launch calls.
extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* host_function, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  kernel_names()[host_function] = name;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t, cudaStream_t) {
  configured = {grid, block};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                       void* stream) {
  *grid = configured.grid;
  *block = configured.block;
  *shared_bytes = 0;
  *static_cast<cudaStream_t*>(stream) = nullptr;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(host_function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t,
                               cudaStream_t) {
  try {
    maybe_machine->launch(kernel_names().at(kernel), grid.x, block.x, arguments);
  } catch (const std::exception& error) {
    launch_error = error.what();
  }
  return cudaPeekAtLastError();
}
cudaError_t cudaPeekAtLastError() {
  return launch_error.empty() ? cudaSuccess : cudaErrorLaunchFailure;
}
}

namespace stoker::cuda {
namespace {

using model::KernelTable;

// The launches without a stream.
void adamw(const model::AdamwTensor* tensors, int64_t count, const model::AdamwOptions& options) {
  EXPECT_EQ(submit_adamw(tensors, count, options, nullptr), cudaSuccess) << launch_error;
}
template <auto kSubmit, typename Arguments>
void submit(const Arguments& arguments) {
  EXPECT_EQ(kSubmit(arguments, nullptr), cudaSuccess) << launch_error;
}
constexpr KernelTable kCompiledByNvcc{.adamw = adamw,
                                      .cross_entropy = submit<submit_cross_entropy>,
                                      .gelu = submit<submit_gelu>,
                                      .gelu_backward = submit<submit_gelu_backward>,
                                      .norm = submit<submit_norm>,
                                      .norm_backward = submit<submit_norm_backward>,
                                      .swiglu = submit<submit_swiglu>,
                                      .swiglu_backward = submit<submit_swiglu_backward>,
                                      .rope = submit<submit_rope>};

// The memory of a device. The heap's alignment is 16 bytes, as kernels need it.
struct Arrays {
  std::vector<std::vector<float>> floats;
  std::vector<std::vector<Bf16>> halves;
  std::vector<int64_t> labels;

  std::vector<std::span<const std::byte>> spans() const {
    std::vector<std::span<const std::byte>> all{std::as_bytes(std::span(labels))};
    for (const auto& array : floats) all.push_back(std::as_bytes(std::span(array)));
    for (const auto& array : halves) all.push_back(std::as_bytes(std::span(array)));
    return all;
  }
};

std::vector<float> random_floats(int64_t size) {
  static std::mt19937 engine(1);
  std::uniform_real_distribution<float> distribution(-2.0F, 2.0F);
  std::vector<float> values(static_cast<size_t>(size));
  for (float& value : values) value = distribution(engine);
  return values;
}
std::vector<float> zeros(int64_t size) { return std::vector<float>(static_cast<size_t>(size)); }
std::vector<Bf16> random_halves(int64_t size) {
  const std::vector<float> floats = random_floats(size);
  std::vector<Bf16> values(floats.size());
  for (size_t i = 0; i < values.size(); ++i) from_float(values[i], floats[i]);
  return values;
}

// Sums, in which values cancel, differ relative to the largest value. Another last digit in F32 seldom
// changes how a value is rounded to BF16, and then by one digit.
template <typename T>
void expect_near(const std::vector<T>& actual, const std::vector<T>& expected) {
  const float last_digit = std::is_same_v<T, float> ? 1e-6F : 1.0F / 128;
  float largest = 0;
  for (const T& value : expected) largest = std::max(largest, std::abs(to_float(value)));
  size_t differ = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const float x = to_float(actual[i]), y = to_float(expected[i]);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    ++differ;
    ASSERT_NEAR(x, y, last_digit * std::abs(y) + 1e-6F * largest) << "at " << i;
  }
  if (!std::is_same_v<T, float>) {
    EXPECT_LE(differ, 1 + actual.size() / 200);
  }
}

constexpr int64_t kRows = 3;

class PtxTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::filesystem::path folder = STOKER_PTX;
    for (const auto& kernels : std::filesystem::directory_iterator(folder)) {
      const std::string name = kernels.path().filename();
      const auto ptx = kernels.path() / (name + ".compute_" + GetParam() + ".ptx");
      if (std::filesystem::exists(ptx)) machine_.load(ptx);
    }
    maybe_machine = &machine_;
    launch_error.clear();
  }
  void TearDown() override { maybe_machine = nullptr; }

  // Calls `launch(arrays, kernels)` for the kernels compiled for the host and by nvcc, with the same arrays.
  template <typename Launch>
  void expect_same(const Arrays& arrays, Launch&& launch) {
    Arrays expected = arrays, of_device = arrays;
    launch(expected, host_kernels());
    machine_.set_memory(of_device.spans());
    launch(of_device, kCompiledByNvcc);
    for (size_t i = 0; i < arrays.floats.size(); ++i) {
      SCOPED_TRACE("F32 array " + std::to_string(i));
      expect_near(of_device.floats[i], expected.floats[i]);
    }
    for (size_t i = 0; i < arrays.halves.size(); ++i) {
      SCOPED_TRACE("BF16 array " + std::to_string(i));
      expect_near(of_device.halves[i], expected.halves[i]);
    }
  }

  PtxMachine machine_;
};

TEST_P(PtxTest, Adamw) {
  // More tensors than one launch has, every other one not aligned, the last two with several blocks.
  constexpr size_t kTensors = AdamwLaunch::kMaxTensors + 2;
  Arrays arrays;
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < kTensors; ++i) {
    sizes.push_back(i + 2 < kTensors ? static_cast<int64_t>(i) : AdamwLaunch::kChunk + 1009);
    for (int j = 0; j < 4; ++j) arrays.floats.push_back(random_floats(sizes.back() + 1));
    for (float& value : arrays.floats.back()) value = std::abs(value);
    arrays.halves.push_back(random_halves(sizes.back() + 1));
  }
  arrays.floats.push_back({3.0F, 0.5F, 1e-3F, 0.0F});
  expect_same(arrays, [&](Arrays& of, const KernelTable& kernels) {
    std::vector<AdamwTensor> tensors;
    for (size_t i = 0; i < kTensors; ++i) {
      const size_t shift = i % 2;
      tensors.push_back({.parameter = of.floats[4 * i].data() + shift,
                         .gradient = of.floats[4 * i + 1].data() + shift,
                         .exp_avg = of.floats[4 * i + 2].data() + shift,
                         .exp_avg_sq = of.floats[4 * i + 3].data() + shift,
                         .step = of.floats.back().data(),
                         .maybe_copy = of.halves[i].data() + shift,
                         .size = sizes[i]});
    }
    kernels.adamw(tensors.data(), kTensors,
                  {.beta1 = 0.9,
                   .beta2 = 0.99,
                   .eps = 1e-8,
                   .weight_decay = 0.1,
                   .lr = 0,
                   .maybe_lr = of.floats.back().data() + 2,
                   .maybe_grad_scale = of.floats.back().data() + 1,
                   .maybe_found_inf = of.floats.back().data() + 3});
  });
}

TEST_P(PtxTest, CrossEntropy) {
  constexpr int64_t kIgnored = -100, kLabels = 4;
  for (const int64_t classes : {9, 1003, 9001}) {
    const int64_t stride = ceil_divide(classes, 8) * 8;
    const Arrays arrays{.floats = {zeros(kLabels), {0.5F}},
                        .halves = {random_halves(kLabels * stride)},
                        .labels = {7, kIgnored, classes - 1, classes}};
    for (const bool has_gradient : {true, false}) {
      expect_same(arrays, [&](Arrays& of, const KernelTable& kernels) {
        kernels.cross_entropy({.logits = of.halves[0].data(),
                               .labels = of.labels.data(),
                               .losses = of.floats[0].data(),
                               .gradient_scale = has_gradient ? of.floats[1].data() : nullptr,
                               .rows = kLabels,
                               .classes = classes,
                               .row_stride = stride,
                               .ignored_label = kIgnored});
      });
    }
  }
}

// Widths of one warp and of several, of more than one step for each thread, and not of whole vectors.
TEST_P(PtxTest, NormsAndTheirGradients) {
  for (const int64_t width : {64, 71, 768, 1001, 8208, 8209}) {
    for (const bool is_layer_norm : {true, false}) {
      SCOPED_TRACE(width);
      const int64_t parts = 2;
      const Arrays arrays{
          .floats = {random_floats(kRows * width), zeros(kRows * width), random_floats(width),
                     random_floats(width), zeros(kRows), zeros(kRows), random_floats(kRows * width),
                     zeros(kRows * width), zeros(parts * width), zeros(parts * width)},
          .halves = {random_halves(kRows * width), random_halves(kRows * width),
                     random_halves(kRows * width), random_halves(kRows * width)}};
      expect_same(arrays, [&](Arrays& of, const KernelTable& kernels) {
        float* const maybe_mean = is_layer_norm ? of.floats[4].data() : nullptr;
        kernels.norm({.x = of.floats[0].data(),
                      .maybe_delta = of.halves[0].data(),
                      .maybe_sum = of.floats[1].data(),
                      .weight = of.floats[2].data(),
                      .maybe_bias = is_layer_norm ? of.floats[3].data() : nullptr,
                      .output = of.halves[1].data(),
                      .maybe_mean = maybe_mean,
                      .rstd = of.floats[5].data(),
                      .rows = kRows,
                      .width = width,
                      .eps = 1e-5});
        kernels.norm_backward(
            {.sum = of.floats[1].data(),
             .maybe_mean = maybe_mean,
             .rstd = of.floats[5].data(),
             .weight = of.floats[2].data(),
             .output_gradient = of.halves[2].data(),
             .maybe_sum_gradient = of.floats[6].data(),
             .x_gradient = of.floats[7].data(),
             .maybe_delta_gradient = of.halves[3].data(),
             .weight_gradients = of.floats[8].data(),
             .maybe_bias_gradients = is_layer_norm ? of.floats[9].data() : nullptr,
             .rows = kRows,
             .width = width,
             .parts = parts});
      });
    }
  }
}

TEST_P(PtxTest, GeluAndItsGradients) {
  for (const int64_t width : {8, 71, 768, 1001}) {
    for (const bool is_tanh : {true, false}) {
      const int64_t parts = 2;
      const Arrays arrays{.floats = {random_floats(width), zeros(parts * width)},
                          .halves = {random_halves(kRows * width), random_halves(kRows * width),
                                     random_halves(kRows * width), random_halves(kRows * width)}};
      expect_same(arrays, [&](Arrays& of, const KernelTable& kernels) {
        kernels.gelu({.x = of.halves[0].data(),
                      .bias = of.floats[0].data(),
                      .output = of.halves[1].data(),
                      .rows = kRows,
                      .width = width,
                      .is_tanh = is_tanh});
        kernels.gelu_backward({.x = of.halves[0].data(),
                               .bias = of.floats[0].data(),
                               .output_gradient = of.halves[2].data(),
                               .x_gradient = of.halves[3].data(),
                               .maybe_bias_gradients = of.floats[1].data(),
                               .rows = kRows,
                               .width = width,
                               .parts = parts,
                               .is_tanh = is_tanh});
      });
    }
  }
}

TEST_P(PtxTest, SwigluAndItsGradient) {
  for (const int64_t size : {1, 7, 8, 4099}) {
    Arrays arrays;
    for (int i = 0; i < 6; ++i) arrays.halves.push_back(random_halves(size));
    expect_same(arrays, [&](Arrays& of, const KernelTable& kernels) {
      kernels.swiglu({of.halves[0].data(), of.halves[1].data(), of.halves[2].data(), size});
      kernels.swiglu_backward({of.halves[0].data(), of.halves[1].data(), of.halves[3].data(),
                               of.halves[4].data(), of.halves[5].data(), size});
    });
  }
}

// Also with a last step of a head that is shorter than a vector.
TEST_P(PtxTest, RotaryEmbeddings) {
  constexpr int64_t kBatch = 2, kHeads = 3, kTime = 10;
  for (const int64_t half : {7, 8, 12}) {
    for (const bool is_inverse : {false, true}) {
      const int64_t head = 2 * half, size = kBatch * kHeads * kTime * head;
      const Arrays arrays{.floats = {random_floats(kTime * half), random_floats(kTime * half)},
                          .halves = {random_halves(size), random_halves(size)}};
      expect_same(arrays, [&](Arrays& of, const KernelTable& kernels) {
        kernels.rope({.x = of.halves[0].data(),
                      .output = of.halves[1].data(),
                      .cos = of.floats[0].data(),
                      .sin = of.floats[1].data(),
                      .batch = kBatch,
                      .heads = kHeads,
                      .time = kTime,
                      .half = half,
                      .x_strides = {kTime * kHeads * head, head, kHeads * head},
                      .output_strides = {kHeads * kTime * head, kTime * head, head},
                      .is_inverse = is_inverse});
      });
    }
  }
}

TEST_P(PtxTest, ReportsAccessOutsideOfTheMemory) {
  std::vector<Bf16> values(16);
  machine_.set_memory({std::as_bytes(std::span(values).first(15))});
  EXPECT_EQ(submit_swiglu({values.data(), values.data(), values.data(), 16}, nullptr),
            cudaErrorLaunchFailure);
  EXPECT_NE(launch_error.find("outside of the memory"), std::string::npos) << launch_error;
}

INSTANTIATE_TEST_SUITE_P(Architectures, PtxTest, testing::Values("80", "90", "100"));

}  // namespace
}  // namespace stoker::cuda
