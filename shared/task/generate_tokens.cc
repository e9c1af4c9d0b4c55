#include "shared/task/generate_tokens.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>

#include "shared/task/host_values.h"

namespace stoker::task {
namespace {

constexpr float kExcluded = -std::numeric_limits<float>::infinity();
constexpr double kMinTemperature = 1e-6;  // division by less could overflow

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

at::Tensor exclude_beyond_top_k(const at::Tensor& logits, int64_t top_k) {
  if (top_k >= logits.size(1)) return logits;
  const at::Tensor last = std::get<0>(at::topk(logits, top_k)).narrow(1, top_k - 1, 1);
  return logits.masked_fill(logits < last, kExcluded);
}

// From the least likely on, the tokens whose probability, with that of all that are less likely, is
// at most 1 - top_p.
at::Tensor exclude_beyond_top_p(const at::Tensor& logits, double top_p) {
  if (top_p >= 1) return logits;
  const auto [sorted, order] = at::sort(logits, /*dim=*/1, /*descending=*/false);
  at::Tensor is_excluded = at::softmax(sorted, 1).cumsum(1) <= 1 - top_p;
  is_excluded.narrow(1, is_excluded.size(1) - 1, 1).fill_(false);
  return logits.masked_fill(is_excluded.scatter(1, order, is_excluded), kExcluded);
}

// I64 [rows, 1].
at::Tensor draw_tokens(const at::Tensor& logits, const Sampling& sampling,
                       const at::Generator& generator) {
  if (sampling.temperature < kMinTemperature) return logits.argmax(1, /*keepdim=*/true);
  return at::multinomial(at::softmax(filter_logits(logits, sampling), 1), 1, false, generator);
}

// Appends a token to each sequence that has not ended. False: all have ended.
class Sequences {
 public:
  Sequences(int64_t rows, std::optional<int64_t> end)
      : tokens_(static_cast<size_t>(rows)), has_ended_(tokens_.size()), end_(end) {}

  bool append(const at::Tensor& next) {
    const HostValues<int64_t> values(next);
    for (size_t row = 0; row < tokens_.size(); ++row) {
      const int64_t token = values.span()[row];
      if (token == end_) has_ended_[row] = true;
      if (!has_ended_[row]) tokens_[row].push_back(token);
    }
    return std::ranges::count(has_ended_, false) > 0;
  }
  std::vector<std::vector<int64_t>> tokens() && { return std::move(tokens_); }

 private:
  std::vector<std::vector<int64_t>> tokens_;
  std::vector<bool> has_ended_;
  const std::optional<int64_t> end_;
};

}  // namespace

at::Tensor filter_logits(const at::Tensor& logits, const Sampling& sampling) {
  at::Tensor filtered = logits / sampling.temperature;
  if (sampling.top_k) filtered = exclude_beyond_top_k(filtered, *sampling.top_k);
  return exclude_beyond_top_p(filtered, sampling.top_p);
}

std::vector<std::vector<int64_t>> generate_tokens(model::Model& model, const at::Tensor& prompts,
                                                  const Generation& generation) {
  const at::NoGradGuard no_grad;
  const EvalModeGuard mode(model);
  const at::Generator generator = at::detail::createCPUGenerator(generation.seed);
  Sequences sequences(prompts.size(0), generation.end);
  const c10::Device device = model.parameters().front().device();
  at::Tensor tokens = prompts.to(device);
  model::KeyValueCache cache;
  for (int64_t i = 0; i < generation.max_new_tokens; ++i) {
    if (generation.should_continue && !generation.should_continue()) break;
    const int64_t time = std::min(tokens.size(1), model.context());
    if (!generation.use_cache || tokens.size(1) > time) cache = model::KeyValueCache();
    const at::Tensor logits =
        model.next_logits(tokens.narrow(1, tokens.size(1) - time, time), cache);
    const at::Tensor next =
        draw_tokens(logits.to(at::kCPU, at::kFloat), generation.sampling, generator);
    if (!sequences.append(next)) break;
    tokens = at::cat({tokens, next.to(device)}, 1);
  }
  return std::move(sequences).tokens();
}

}  // namespace stoker::task
