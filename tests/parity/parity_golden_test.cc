// Compares stoker with results of PyTorch in double precision (make_golden.py).
#include <cmath>

#include <ATen/Version.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
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
  explicit Golden(const std::string& name, int64_t num_stored = 0)
      : file_(open_golden(name)), num_stored_(num_stored) {}
  const checkpoint::SafetensorsFile& file() const { return *file_; }
  bool ok() const { return file_ != nullptr; }

  at::Tensor read(const std::string& name) const {
    const auto tensor = read_tensor(*file_, name);
    EXPECT_TRUE(tensor.ok()) << tensor.status().to_string();
    return tensor.ok() ? *tensor : at::zeros({3});
  }

  // Compares the complete tensor `actual` with its stored form: some elements, the sum and norm of
  // all, and the tolerance of each element. The file has the values in double precision; reference.py
  // explains how far single precision may be from them.
  void expect_close(const std::string& name, const at::Tensor& actual) const {
    const at::Tensor flat = actual.detach().flatten().to(at::kDouble);
    const int64_t stride = (flat.numel() + num_stored_ - 1) / num_stored_;
    const at::Tensor values = flat.slice(0, 0, flat.numel(), stride);
    const at::Tensor expected = read(name).to(at::kDouble);
    const at::Tensor summary = read(name + "#summary");
    const double sum = summary[0].item<double>(), norm = summary[1].item<double>(),
                 tolerance = summary[2].item<double>();
    ASSERT_EQ(values.sizes(), expected.sizes()) << name;
    EXPECT_LE((values - expected).abs().max().item<double>(), tolerance)
        << name << ", largest element " << expected.abs().max().item<double>();
    const auto count = static_cast<double>(flat.numel());
    EXPECT_NEAR(flat.norm().item<double>(), norm, tolerance * std::sqrt(count)) << name << ": norm";
    EXPECT_NEAR(flat.sum().item<double>(), sum, tolerance * count) << name << ": sum";
  }
  void expect_close(const std::string& name, const std::vector<double>& actual) const {
    expect_close(name, at::tensor(actual, at::kDouble));
  }

 private:
  std::unique_ptr<checkpoint::SafetensorsFile> file_;
  const int64_t num_stored_;
};

class TrainingParityTest : public testing::TestWithParam<ParityCase> {
 protected:
  void SetUp() override { ASSERT_TRUE(golden_.ok()); }
  Golden golden_{GetParam().name, GetParam().num_stored};
};

TEST_P(TrainingParityTest, MatchesInitialWeightsByteForByte) {
  const auto model = make_seeded(GetParam());
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  for (const auto& [name, tensor] : model::named_tensors(**model))
    golden_.expect_close("initial/" + name, tensor);
  if (!has_comparable_bytes()) GTEST_SKIP() << "values agree; bytes need AVX2";
  EXPECT_EQ(weights_sha256(**model), hex(golden_.read("initial_sha256")));
}

TEST_P(TrainingParityTest, MatchesLogitsAndGradientsOfFirstStep) {
  const auto run = run_case(GetParam(), golden_.file());
  ASSERT_TRUE(run.ok()) << run.status().to_string();
  golden_.expect_close("logits", run->first_logits);
  ASSERT_FALSE(run->first_gradients.empty());
  for (const auto& [name, gradient] : run->first_gradients)
    golden_.expect_close("gradient/" + name, gradient);
}

TEST_P(TrainingParityTest, MatchesLossesNormsAndWeightsOfScheduledSteps) {
  auto run = run_case(GetParam(), golden_.file());
  ASSERT_TRUE(run.ok()) << run.status().to_string();
  const at::Tensor rates = golden_.read("rates");
  ASSERT_EQ(run->rates.size(), static_cast<size_t>(rates.numel()));
  for (size_t step = 0; step < run->rates.size(); ++step)
    EXPECT_NEAR(run->rates[step], rates[static_cast<int64_t>(step)].item<double>(), 1e-15);
  golden_.expect_close("norms", run->norms);
  golden_.expect_close("losses", run->losses);
  for (const auto& [name, tensor] : model::named_tensors(*run->model))
    golden_.expect_close("final/" + name, tensor);
}

TEST_P(TrainingParityTest, MatchesEvaluationLossOfTrainedModel) {
  auto run = run_case(GetParam(), golden_.file());
  ASSERT_TRUE(run.ok()) << run.status().to_string();
  run->model->eval();
  const auto evaluation = run->task->start_evaluation({});
  evaluation->add(*run->model, run->batches[0]);
  const auto metrics = evaluation->report().metrics;
  EXPECT_EQ(metrics[0].first, "loss");
  golden_.expect_close("eval_loss", std::vector{metrics[0].second});
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
