// A compiled module as a model. The package is exported by StokerExport.Package (tests/python).
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "shared/model/model.h"
#include "tests/support/temporary_directory.h"

namespace stoker::model {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<TensorSpec> kSample = {{"input", DType::kF32, {32}}, {"label", DType::kI64, {}}};

class CompiledModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(STOKER_COMPILED "/mlp/manifest.json"))
      GTEST_SKIP() << "there is no package: StokerExport.Package needs a Python with PyTorch";
  }
  static config::ModelConfig config_of(const std::string& folder = STOKER_COMPILED "/mlp") {
    return {.arch = config::CompiledConfig{.path = folder + "/manifest.json"}};
  }
  static ModelPtr loaded() {
    auto model = make_model(config_of(), kSample, 4);
    EXPECT_TRUE(model.ok()) << model.status().message();
    return model.ok() ? *model : nullptr;
  }
  static std::vector<at::Tensor> inputs(int64_t samples) {
    torch::manual_seed(7);
    return {at::randn({samples, 32})};
  }
  static std::vector<at::Tensor> targets(int64_t samples) {
    return {at::full({samples}, 2, at::kLong)};
  }
  static at::Tensor loss_of(Model& model, int64_t samples, int seed) {
    const auto input = inputs(samples);
    torch::manual_seed(static_cast<uint64_t>(seed));
    return model.loss(input, targets(samples)).mean;
  }
  // The error of a copy of the package in which `from` of a file is replaced by `to`.
  std::string error_after(const std::string& file, const std::string& from, const std::string& to) {
    const std::string copy = copy_of_package();
    std::ifstream in(copy + "/" + file, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(in), {}};
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    std::ofstream(copy + "/" + file, std::ios::binary) << text.replace(at, from.size(), to);
    return error_of(copy);
  }
  std::string copy_of_package() {
    const std::string copy = folder_ / ("mlp" + std::to_string(copies_++));
    fs::copy(STOKER_COMPILED "/mlp", copy);
    return copy;
  }
  // Of loading, or of the preparation of training.
  static std::string error_of(const std::string& folder, const config::TrainConfig& train = {}) {
    auto model = make_model(config_of(folder), kSample, 4);
    const Status status = model.ok() ? (*model)->prepare_training(train, at::kCPU) : model.status();
    if (status.ok()) return "no error";
    EXPECT_THAT(status.message(), AllOf(Not(HasSubstr("\n")), HasSubstr("model.path")));
    return status.message();
  }

  const test::TemporaryDirectory folder_;
  int copies_ = 0;
};

at::Tensor parameter(Model& model, const std::string& name) {
  return *model.named_parameters().find(name);
}
at::Tensor buffer(Model& model, const std::string& name) {
  return *model.named_buffers().find(name);
}

TEST_F(CompiledModelTest, HasTheNamesOfPython) {
  const ModelPtr model = loaded();
  std::vector<std::string> names;
  for (const auto& [name, tensor] : named_tensors(*model)) names.push_back(name);
  EXPECT_THAT(names, ::testing::UnorderedElementsAre(
                         "hidden.weight", "hidden.bias", "delta", "norm.weight", "norm.bias",
                         "encode.weight", "out.weight", "out.bias", "norm.running_mean",
                         "norm.running_var", "norm.num_batches_tracked", "average"))
      << "without scale, which is not in the state_dict";
  EXPECT_TRUE(model->prepare_training({}, at::kCPU).ok())
      << model->prepare_training({}, at::kCPU).message();
}

TEST_F(CompiledModelTest, AddsGradientsScaledByThatOfTheLoss) {
  const ModelPtr model = loaded();
  model->train();
  loss_of(*model, 16, 3).backward();
  const at::Tensor once = parameter(*model, "hidden.weight").grad().clone();
  EXPECT_GT(once.norm().item<double>(), 0);
  (loss_of(*model, 16, 3) * 0.5).backward();
  EXPECT_TRUE(at::allclose(parameter(*model, "hidden.weight").grad(), once * 1.5, 1e-5, 1e-7));
  EXPECT_TRUE(
      at::equal(parameter(*model, "hidden.weight").grad(), parameter(*model, "delta").grad()))
      << "one result of the compiled step";
  EXPECT_GT(buffer(*model, "average").norm().item<double>(), 0) << "a buffer that Python replaces";
  EXPECT_EQ(buffer(*model, "norm.num_batches_tracked").item<int64_t>(), 2)
      << "of the two training steps, and none of loading";
}

// The loss along the gradient of a tied weight, with the same dropout masks.
TEST_F(CompiledModelTest, GradientsAreThoseOfTheLoss) {
  const ModelPtr model = loaded();
  model->train();
  loss_of(*model, 64, 3).backward();
  for (const char* const name : {"encode.weight", "hidden.weight", "norm.weight", "out.bias"}) {
    const at::Tensor weight = parameter(*model, name);
    const at::Tensor gradient = weight.grad().clone();
    const double square = gradient.square().sum().item<double>();
    const double step = 2e-2 / std::sqrt(square);
    const auto loss_at = [&](double by) {
      const at::NoGradGuard no_grad;
      weight.add_(gradient, by);
      const double loss = loss_of(*model, 64, 3).item<double>();
      weight.sub_(gradient, by);
      return loss;
    };
    EXPECT_NEAR((loss_at(step) - loss_at(-step)) / (2 * step * square), 1, 0.03) << name;
  }
}

TEST_F(CompiledModelTest, DerivesDropoutFromTheGenerator) {
  const ModelPtr model = loaded();
  model->train();
  EXPECT_TRUE(at::equal(loss_of(*model, 16, 3), loss_of(*model, 16, 3)));
  EXPECT_FALSE(at::equal(loss_of(*model, 16, 3), loss_of(*model, 16, 4)));
}

TEST_F(CompiledModelTest, LeavesNoUnpackedFilesAfterLoading) {
  const ModelPtr model = loaded();
  ASSERT_TRUE(model->prepare_training({}, at::kCPU).ok());
  std::ifstream maps("/proc/self/maps");
  int mapped = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/data/aotinductor/") == std::string::npos) continue;
    ++mapped;
    EXPECT_THAT(line, ::testing::EndsWith("(deleted)"));
  }
  EXPECT_GE(mapped, 3) << "train, predict and loss";
}

TEST_F(CompiledModelTest, FrozenParametersGetNoGradient) {
  const ModelPtr model = loaded();
  ASSERT_TRUE(freeze(*model, {"hidden.*"}).ok());
  model->train();
  loss_of(*model, 16, 3).backward();
  EXPECT_FALSE(parameter(*model, "hidden.weight").grad().defined());
  EXPECT_TRUE(parameter(*model, "out.weight").grad().defined());
}

TEST_F(CompiledModelTest, EvaluatesAnyBatchSizeInEvalMode) {
  const ModelPtr model = loaded();
  model->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor before = buffer(*model, "norm.running_mean").clone();
  for (const int64_t samples : {1, 5, 64}) {
    const at::Tensor outputs = model->forward(inputs(samples)[0]);
    EXPECT_EQ(outputs.sizes(), (std::vector<int64_t>{samples, 4}));
    EXPECT_TRUE(at::allclose(model->loss(inputs(samples), targets(samples)).mean,
                             at::cross_entropy_loss(outputs, targets(samples)[0]), 1e-5, 1e-6));
  }
  EXPECT_TRUE(at::equal(buffer(*model, "norm.running_mean"), before));
}

TEST_F(CompiledModelTest, RejectsBatchesThatItWasNotCompiledFor) {
  const ModelPtr model = loaded();
  const auto error = [&](const at::Tensor& input, const at::Tensor& target) -> std::string {
    try {
      model->loss({input}, {target});
    } catch (const c10::Error& thrown) {
      return thrown.what_without_backtrace();
    }
    return "no error";
  };
  const at::Tensor input = inputs(16)[0], target = targets(16)[0];
  EXPECT_THAT(error(inputs(4097)[0], targets(4097)[0]),
              HasSubstr("exported for 1 to 4096: lower eval.batch_size"));
  EXPECT_THAT(error(input.to(at::kDouble), target), HasSubstr("exported for F32 [16, 32]"));
  EXPECT_THAT(error(input.narrow(1, 0, 31), target), HasSubstr("the batch has Float [16, 31]"));
  EXPECT_THAT(error(input, target.to(at::kInt)), HasSubstr("the batch has Int [16]"));
}

TEST_F(CompiledModelTest, RejectsOtherSettings) {
  const std::string folder = STOKER_COMPILED "/mlp";
  EXPECT_THAT(error_of(folder, {.precision = config::Precision::kBf16}),
              HasSubstr("was exported for fp32, train.precision is bf16"));
  EXPECT_THAT(error_of(folder, {.micro_batch_size = 4097}),
              HasSubstr("1 to 4096 samples, train.micro_batch_size is 4097"));
}

TEST_F(CompiledModelTest, RejectsGpu) {
  const Status status = loaded()->prepare_training({}, c10::Device(c10::kCUDA, 0));
  EXPECT_EQ(status.code(), StatusCode::kMismatch);
  EXPECT_THAT(status.message(), HasSubstr("on the CPU only: set train.device to cpu"));
}

TEST_F(CompiledModelTest, RejectsOtherData) {
  const auto error = [](const std::vector<TensorSpec>& sample) {
    const auto model = make_model(config_of(), sample, 4);
    return model.ok() ? "no error" : model.status().message();
  };
  EXPECT_THAT(error({{"input", DType::kF32, {31}}, {"label", DType::kI64, {}}}),
              HasSubstr("with the input F32 [32] per sample; the data has F32 [31]"));
  EXPECT_THAT(error({{"input", DType::kF32, {32}}, {"target", DType::kF32, {1}}}),
              HasSubstr("with the targets I64 [] per sample; the data has F32 [1]"));
}

TEST_F(CompiledModelTest, RejectsChangedFiles) {
  EXPECT_EQ(error_of(copy_of_package()), "no error");
  EXPECT_THAT(error_after("manifest.json", "\"torch\": \"2.", "\"torch\": \"3."),
              HasSubstr("was compiled with PyTorch 3."));
  EXPECT_THAT(error_after("manifest.json", "\"cpu_flags\": [", "\"cpu_flags\": [\"avx9000\","),
              HasSubstr("for a processor with avx9000"));
  EXPECT_THAT(error_after("model.safetensors", "F32", "I32"), HasSubstr("export the module again"));
  EXPECT_THAT(error_after("model.pt2", "PK", "PL"), HasSubstr("export the module again"));
  const std::string copy = copy_of_package();
  fs::remove(copy + "/model.pt2");
  EXPECT_THAT(error_of(copy), HasSubstr("model.pt2: No such file"));
}

TEST_F(CompiledModelTest, RejectsUnsafePermissions) {
  for (const char* const file :
       {"manifest.json", "model.pt2", "model.safetensors", "self_test.safetensors"}) {
    const std::string copy = copy_of_package();
    fs::permissions(copy + "/" + file, fs::perms::others_write, fs::perm_options::add);
    EXPECT_THAT(error_of(copy), AllOf(HasSubstr(file), HasSubstr("chmod")));
  }
}

TEST_F(CompiledModelTest, RejectsFileOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  for (const char* const file :
       {"manifest.json", "model.pt2", "model.safetensors", "self_test.safetensors"}) {
    const std::string copy = copy_of_package();
    ASSERT_EQ(::chown((copy + "/" + file).c_str(), 4242, 4242), 0);
    EXPECT_THAT(error_of(copy), AllOf(HasSubstr(file), HasSubstr("belongs to uid 4242")));
  }
}

// What a defect of the compiler looks like: the numbers are not those of Python.
TEST_F(CompiledModelTest, RejectsPackageThatFailsItsSelfTest) {
  EXPECT_THAT(error_after("manifest.json", "\"loss\": ", "\"loss\": 1"),
              HasSubstr("fails its self-test: the loss with 1 threads is"));
  EXPECT_THAT(error_after("manifest.json", "\"eval_loss\": ", "\"eval_loss\": 1"),
              HasSubstr("fails its self-test: the loss in eval mode is"));
  EXPECT_THAT(
      error_after("manifest.json", "\"gradient_norms\": [\n   ", "\"gradient_norms\": [\n   1"),
      HasSubstr("the norm of the gradient of delta"));
}

}  // namespace
}  // namespace stoker::model
