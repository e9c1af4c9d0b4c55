#include "shared/task/generate_text.h"

#include <algorithm>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <c10/util/Exception.h>

namespace stoker::task {
namespace {

constexpr int64_t kTopK = 40;

// Puts the model into eval mode during its lifetime.
class EvalModeGuard {
 public:
  explicit EvalModeGuard(model::Model& model) : model_(model), was_training_(model.is_training()) {
    model_.eval();
  }
  ~EvalModeGuard() { model_.train(was_training_); }
  EvalModeGuard(const EvalModeGuard&) = delete;
  EvalModeGuard& operator=(const EvalModeGuard&) = delete;

 private:
  model::Model& model_;
  const bool was_training_;
};

// The last bytes of `text` that fit the context of the model, [1, time].
at::Tensor context_tokens(const std::string& text, int64_t context) {
  const auto time = std::min<int64_t>(context, static_cast<int64_t>(text.size()));
  at::Tensor tokens = at::empty({1, time}, at::kLong);
  const size_t first = text.size() - static_cast<size_t>(time);
  std::transform(text.begin() + static_cast<std::ptrdiff_t>(first), text.end(),
                 tokens.mutable_data_ptr<int64_t>(),
                 [](char byte) { return static_cast<int64_t>(static_cast<unsigned char>(byte)); });
  return tokens;
}

char sample_token(const at::Tensor& logits, double temperature, const at::Generator& generator) {
  if (temperature <= 0) return static_cast<char>(logits.argmax().item<int64_t>());
  const auto [values, bytes] = at::topk(logits, kTopK);
  const at::Tensor probabilities = at::softmax(values / temperature, 0);
  const auto index = at::multinomial(probabilities, 1, false, generator).item<int64_t>();
  return static_cast<char>(bytes[index].item<int64_t>());
}

}  // namespace

std::string generate_text(model::Model& model, std::string prompt, int bytes, double temperature,
                          uint64_t seed, const std::function<bool()>& should_continue) {
  TORCH_CHECK(model.vocab() == 256, "text generation requires a model with a vocabulary of 256 ",
              "bytes; this one has ", model.vocab());
  const at::NoGradGuard no_grad;
  const EvalModeGuard mode(model);
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  const c10::Device device = model.parameters().front().device();
  if (prompt.empty()) prompt = "\n";  // the model needs at least one token
  const size_t prompt_size = prompt.size();
  for (int i = 0; i < bytes && (!should_continue || should_continue()); ++i) {
    const at::Tensor logits = model.forward(context_tokens(prompt, model.context()).to(device));
    prompt += sample_token(logits.select(0, 0).select(0, -1).to(at::kCPU, at::kFloat), temperature,
                           generator);
  }
  return prompt.substr(prompt_size);
}

}  // namespace stoker::task
