// Compares captioner with the same network in PyTorch, whose decoders are torch's own modules
// (make_captioner.py): logits in evaluation, gradients of the first step, some steps of AdamW, and in
// double precision the captions of a greedy search afterwards. STOKER_PARITY_CAPTIONER is the generated
// file; without it, nothing is compared.
#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "daemon/train/optimizer.h"
#include "shared/model/caption_model.h"
#include "shared/task/caption_search.h"
#include "tests/parity/case_parts.h"
#include "tests/parity/formula.h"
#include "tests/parity/generated.h"
#include "tests/parity/parity_run.h"

namespace stoker::parity {
namespace {

using config::CaptionDecoder;
using config::ImageEncoder;

// As in make_captioner.py.
constexpr int64_t kFurtherSteps = 30, kImages = 3, kCaptions = 2, kLength = 6, kVocab = 13;
constexpr int64_t kStart = 0, kEnd = 1, kPadding = -100;
constexpr double kCaptionLearningRate = 1e-2;
const config::AdamWConfig kCaptionAdamw{.betas = {0.9, 0.95}, .eps = 1e-3, .weight_decay = 0.1};
// Of double precision, relative to the largest element. It rounds at 1e-16, which ten steps of a deep
// network with batch norms amplify by 1e4, as in single precision, from 1e-7 to 1e-3. Single precision
// anywhere would appear as 1e-8 or more.
constexpr double kDoubleTolerance = 1e-9;

struct CaptionerCase {
  std::string name;
  ImageEncoder encoder;
  CaptionDecoder decoder;
  int64_t side;
  std::vector<std::string> freeze;
  bool is_double = false;
};
void PrintTo(const CaptionerCase& each, std::ostream* out) { *out << each.name; }

const char* generated_captioner() { return generated("STOKER_PARITY_CAPTIONER"); }

bool is_small(ImageEncoder encoder) { return encoder == ImageEncoder::kResnet8; }

std::vector<CaptionerCase> captioner_cases() {
  if (generated_captioner() == nullptr) return {};
  const std::vector<std::string> frozen{"encoder.*"},
      weights{"encoder.*_weight", "encoder.*.weight"};
  using enum CaptionDecoder;
  std::vector<CaptionerCase> cases{
      {"resnet8_lstm_frozen", ImageEncoder::kResnet8, kLstm, 16, frozen},
      {"resnet8_lstm_trained", ImageEncoder::kResnet8, kLstm, 16, {}},
      {"resnet8_transformer_frozen", ImageEncoder::kResnet8, kTransformer, 16, frozen},
      {"resnet8_transformer_trained", ImageEncoder::kResnet8, kTransformer, 16, {}},
      {"inception_v3_lstm_frozen", ImageEncoder::kInceptionV3, kLstm, 75, frozen},
      {"vit_b_32_transformer_trained", ImageEncoder::kVitB32, kTransformer, 64, weights}};
  for (size_t i = 0, count = cases.size(); i < count; ++i) {
    if (is_small(cases[i].encoder)) cases.push_back(cases[i]);
    cases[i].name += "_double";
    cases[i].is_double = true;
  }
  return cases;
}

class CaptionerParityTest : public testing::TestWithParam<CaptionerCase> {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    auto file = checkpoint::SafetensorsFile::open(generated_captioner());
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    file_ = *std::move(file);
    const int64_t side = GetParam().side;
    const std::vector<TensorSpec> sample{{"input", DType::kF32, {3, side, side}},
                                         {"labels", DType::kI64, {kCaptions, kLength}},
                                         {"references", DType::kU8, {8}}};
    const config::CaptionerConfig captioner{.encoder = {.name = GetParam().encoder},
                                            .decoder = {.name = GetParam().decoder,
                                                        .hidden_size = 16,
                                                        .num_layers = 2,
                                                        .num_heads = 4,
                                                        .dropout = 0},
                                            .max_length = kLength};
    auto made = model::make_model({.arch = captioner}, sample, kVocab);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    model_ = std::dynamic_pointer_cast<model::CaptionModel>(*made);
    ASSERT_NE(model_, nullptr);
    if (GetParam().is_double) model_->to(at::kDouble);
    model::NamedTensors tensors = model::named_tensors(*model_);
    std::erase_if(tensors, [](const auto& each) { return each.second.dim() == 0; });
    set_tensors(tensors);
    if (!GetParam().freeze.empty()) {
      ASSERT_TRUE(model::freeze(*model_, GetParam().freeze).ok());
    }
    auto task = task::make_task({config::CaptioningTask{}}, nullptr, sample, kVocab);
    ASSERT_TRUE(task.ok()) << task.status().to_string();
    task_ = *std::move(task);
    labels_ = read("labels");
    if (!GetParam().is_double) first_image_ = expected("first_image").item<int64_t>();
  }

  at::Tensor read(const std::string& name) const {
    const auto tensor = read_tensor(*file_, name);
    EXPECT_TRUE(tensor.ok()) << tensor.status().to_string();
    return *tensor;
  }
  at::Tensor expected(const std::string& what) const { return read(GetParam().name + "/" + what); }
  // Of single precision, the generated file has the tolerance of each tensor (reference.py).
  void expect_close(const std::string& what, const at::Tensor& actual) const {
    const at::Tensor values = expected(what);
    ASSERT_EQ(actual.sizes(), values.sizes()) << what;
    const double scale = values.abs().max().item<double>();
    EXPECT_LE((actual - values).abs().max().item<double>(),
              GetParam().is_double ? kDoubleTolerance * scale
                                   : expected(what + "#tolerance").item<double>())
        << what << ", largest element " << scale;
  }

  void expect_final(const model::NamedTensors& trained) const {
    for (const auto& [name, parameter] : trained) expect_close("final/" + name, parameter.detach());
    for (const auto& item : model_->named_buffers())
      expect_close("final/" + item.key(), item.value());
  }

  at::Tensor images(int64_t step) const {
    const int64_t batch = first_image_ + step;
    const int64_t side = GetParam().side, count = kImages * 3 * side * side;
    const at::Tensor colors = noise(static_cast<uint64_t>(batch * kImages), kImages * 3) * 3;
    const at::Tensor all =
        colors.view({kImages, 3, 1, 1}) +
        noise(static_cast<uint64_t>(batch * count), count).view({kImages, 3, side, side});
    return all.to(at::kFloat).to(GetParam().is_double ? at::kDouble : at::kFloat);
  }

  at::Tensor logits_of(int64_t batch) {
    const at::Tensor words = labels_.flatten(0, 1).narrow(1, 0, kLength - 1);
    const at::Tensor tokens =
        at::constant_pad_nd(words.masked_fill(words.eq(kPadding), kEnd), {1, 0}, kStart);
    return model_->decode(model_->encode(images(batch)).repeat_interleave(kCaptions, 0), tokens);
  }
  // The task computes it in single precision.
  at::Tensor loss_of(int64_t batch) {
    if (GetParam().is_double)
      return at::cross_entropy_loss(logits_of(batch).flatten(0, 1), labels_.flatten());
    return task_->loss(*model_, {images(batch), labels_, at::zeros({kImages, 8}, at::kByte)});
  }

  // Those of a greedy search.
  void expect_captions() {
    const at::NoGradGuard no_grad;
    model_->eval();
    const auto captions = task::search_captions(
        *model_, model_->encode(images(0)),
        {.num_beams = 1, .max_length = kLength, .start = kStart, .end = kEnd});
    const at::Tensor of_pytorch = expected("captions");
    ASSERT_EQ(static_cast<int64_t>(captions.size()), of_pytorch.size(0));
    for (size_t i = 0; i < captions.size(); ++i) {
      std::vector<int64_t> caption = captions[i];
      caption.resize(kLength, kPadding);
      for (int64_t at = 0; at < kLength; ++at)
        EXPECT_EQ(caption[static_cast<size_t>(at)],
                  of_pytorch[static_cast<int64_t>(i)][at].item<int64_t>())
            << "token " << at << " of image " << i;
    }
  }

  std::unique_ptr<checkpoint::SafetensorsFile> file_;
  std::shared_ptr<model::CaptionModel> model_;
  std::unique_ptr<task::Task> task_;
  at::Tensor labels_;
  int64_t first_image_ = 0;
};

TEST_P(CaptionerParityTest, MatchesLogitsGradientsTrainingAndCaptionsOfPyTorch) {
  {
    const at::NoGradGuard no_grad;
    model_->eval();
    expect_close("logits", logits_of(0));
  }
  model::NamedTensors trained;
  for (const auto& item : model_->named_parameters())
    if (item.value().requires_grad()) trained.emplace_back(item.key(), item.value());
  const auto optimizer = train::Optimizer::create({.method = kCaptionAdamw}, kUnclipped, trained);
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();
  model_->train();
  std::vector<at::Tensor> losses;
  const int64_t steps = expected("losses").numel();
  const bool has_captions = GetParam().is_double;
  const int64_t further = has_captions && is_small(GetParam().encoder) ? kFurtherSteps : 0;
  for (int64_t step = 0; step < steps + further; ++step) {
    if (step == steps) expect_final(trained);
    losses.push_back(loss_of(step % 2));
    losses.back().backward();
    if (step == 0)
      for (const auto& [name, parameter] : trained)
        expect_close("gradient/" + name, parameter.grad());
    (*optimizer)->step(kCaptionLearningRate);
    (*optimizer)->zero_grad();
  }
  if (further == 0) expect_final(trained);
  losses.resize(static_cast<size_t>(steps));
  expect_close("losses", at::stack(losses).detach());
  if (has_captions) expect_captions();
}

INSTANTIATE_TEST_SUITE_P(Cases, CaptionerParityTest, testing::ValuesIn(captioner_cases()),
                         [](const auto& test) { return test.param.name; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CaptionerParityTest);

}  // namespace
}  // namespace stoker::parity
