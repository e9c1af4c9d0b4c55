// Compares stoker with results of PyTorch (make_golden.py).
#include <cmath>

#include <ATen/Version.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/hash.h"
#include "tests/parity/parity_run.h"

namespace stoker::parity {
namespace {

std::unique_ptr<checkpoint::SafetensorsFile> open_golden(const std::string& name) {
  auto file = checkpoint::SafetensorsFile::open(STOKER_PARITY_GOLDEN "/" + name + ".safetensors");
  EXPECT_TRUE(file.ok()) << file.status().to_string();
  return file.ok() ? std::move(*file) : nullptr;
}

std::string hex(const at::Tensor& bytes) {
  std::string text;
  for (int64_t i = 0; i < bytes.numel(); ++i) {
    const uint8_t byte = bytes[i].item<uint8_t>();
    text += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  }
  return text;
}

std::string weights_sha256(const model::Model& model) {
  Sha256 sum;
  for (const auto& [name, tensor] : model::named_tensors(model)) {
    sum.update(name + "\n");
    sum.update(std::span(static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()));
  }
  return sum.finish_hex();
}

// Without AVX2, LibTorch generates normal numbers with other functions, and uniform ones without
// fused multiply-add, so the last bits differ. With AVX2 the initial weights are byte-identical on
// every processor and with any number of threads.
bool has_comparable_bytes() {
  const std::string capability = at::get_cpu_capability();
  return capability == "AVX2" || capability == "AVX512";
}

class Golden {
 public:
  explicit Golden(const std::string& name, int64_t num_stored = 0, double absolute_tolerance = 0)
      : file_(open_golden(name)),
        num_stored_(num_stored),
        absolute_tolerance_(absolute_tolerance) {}
  const checkpoint::SafetensorsFile& file() const { return *file_; }
  bool ok() const { return file_ != nullptr; }

  at::Tensor read(const std::string& name) const {
    const auto tensor = read_tensor(*file_, name);
    EXPECT_TRUE(tensor.ok()) << tensor.status().to_string();
    return tensor.ok() ? *tensor : at::empty({0});
  }

  // Compares the complete tensor `actual` with its stored form: some elements, and the sum and norm
  // of all. The absolute tolerance of each element accumulates in the sum.
  void expect_stored(const std::string& name, const at::Tensor& actual, double tolerance,
                     double relu_tolerance = 0) const {
    const double absolute_tolerance = absolute_tolerance_ + relu_tolerance;
    const at::Tensor flat = actual.detach().flatten().to(at::kDouble);
    const int64_t stride = (flat.numel() + num_stored_ - 1) / num_stored_;
    expect_close(name, flat.slice(0, 0, flat.numel(), stride), read(name), tolerance,
                 absolute_tolerance);
    const at::Tensor sums = read(name + "#sum_norm");
    EXPECT_NEAR(flat.norm().item<double>(), sums[1].item<double>(),
                tolerance * sums[1].item<double>() +
                    absolute_tolerance * std::sqrt(static_cast<double>(flat.numel())))
        << name << ": norm";
    EXPECT_NEAR(flat.sum().item<double>(), sums[0].item<double>(),
                tolerance * flat.abs().sum().item<double>() +
                    absolute_tolerance * static_cast<double>(flat.numel()))
        << name << ": sum";
  }

  // The largest difference, relative to the largest element.
  static void expect_close(const std::string& name, const at::Tensor& actual,
                           const at::Tensor& expected, double tolerance,
                           double absolute_tolerance = 1e-9) {
    ASSERT_EQ(actual.sizes(), expected.sizes()) << name;
    const at::Tensor expected_values = expected.to(at::kDouble);
    const double scale = expected_values.abs().max().item<double>();
    const double error = (actual.to(at::kDouble) - expected_values).abs().max().item<double>();
    EXPECT_LE(error, tolerance * scale + absolute_tolerance)
        << name << ", largest element " << scale;
  }

 private:
  std::unique_ptr<checkpoint::SafetensorsFile> file_;
  const int64_t num_stored_;
  const double absolute_tolerance_;
};

class TrainingParityTest : public testing::TestWithParam<ParityCase> {
 protected:
  void SetUp() override { ASSERT_TRUE(golden_.ok()); }
  Golden golden_{GetParam().name, GetParam().num_stored, GetParam().absolute_tolerance};
};

TEST_P(TrainingParityTest, MatchesInitialWeightsByteForByte) {
  const auto model = make_seeded(GetParam());
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  for (const auto& [name, tensor] : model::named_tensors(**model))
    golden_.expect_stored("initial/" + name, tensor, 1e-5);
  if (!has_comparable_bytes()) GTEST_SKIP() << "values agree; bytes need AVX2";
  EXPECT_EQ(weights_sha256(**model), hex(golden_.read("initial_sha256")));
}

TEST_P(TrainingParityTest, MatchesLogitsLossAndGradientsOfFirstStep) {
  const auto run = run_case(GetParam(), golden_.file());
  ASSERT_TRUE(run.ok()) << run.status().to_string();
  golden_.expect_stored("logits", run->first_logits, 1e-5);
  EXPECT_NEAR(run->losses[0], golden_.read("losses")[0].item<double>(), 1e-5);
  ASSERT_FALSE(run->first_gradients.empty());
  for (const auto& [name, gradient] : run->first_gradients)
    golden_.expect_stored("gradient/" + name, gradient, 1e-5);
}

TEST_P(TrainingParityTest, MatchesWeightsAfterTenScheduledSteps) {
  auto run = run_case(GetParam(), golden_.file());
  ASSERT_TRUE(run.ok()) << run.status().to_string();
  Golden::expect_close("rates", at::tensor(run->rates, at::kDouble), golden_.read("rates"), 1e-12);
  Golden::expect_close("norms", at::tensor(run->norms, at::kDouble), golden_.read("norms"), 1e-4);
  Golden::expect_close("losses", at::tensor(run->losses, at::kDouble), golden_.read("losses"),
                       1e-5);
  for (const auto& [name, tensor] : model::named_tensors(*run->model))
    golden_.expect_stored("final/" + name, tensor, 1e-4, GetParam().relu_tolerance);
}

TEST_P(TrainingParityTest, MatchesEvaluationLossOfTrainedModel) {
  auto run = run_case(GetParam(), golden_.file());
  ASSERT_TRUE(run.ok()) << run.status().to_string();
  run->model->eval();
  const auto evaluation = run->task->start_evaluation({});
  evaluation->add(*run->model, run->batches[0]);
  const auto metrics = evaluation->report().metrics;
  EXPECT_EQ(metrics[0].first, "loss");
  EXPECT_NEAR(metrics[0].second, golden_.read("eval_loss").item<double>(), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Cases, TrainingParityTest, testing::ValuesIn(trained_cases()),
                         [](const auto& test) { return test.param.name; });

class InitialWeightsParityTest : public testing::TestWithParam<ParityCase> {};

TEST_P(InitialWeightsParityTest, MatchesPyTorchByteForByte) {
  if (!has_comparable_bytes()) GTEST_SKIP() << "bytes need AVX2";
  const Golden golden("initial_weights");
  ASSERT_TRUE(golden.ok());
  const auto model = make_seeded(GetParam());
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_EQ(weights_sha256(**model), hex(golden.read(GetParam().name)));
}

INSTANTIATE_TEST_SUITE_P(Cases, InitialWeightsParityTest, testing::ValuesIn(initial_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace stoker::parity
