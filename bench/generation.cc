#include "bench/generation.h"

#include <chrono>

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "shared/model/model.h"
#include "shared/task/generate_tokens.h"

namespace stoker::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Setup {
  std::string name;
  config::ModelVariant arch;
};

constexpr int64_t kContext = 256, kVocab = 4096, kPrompt = 16;

std::vector<Setup> setups(bool tiny) {
  const int64_t layers = tiny ? 1 : 6, width = tiny ? 32 : 384;
  return {{"gpt2", config::Gpt2Config{.num_layers = layers,
                                      .num_heads = 8,
                                      .embed_dim = width,
                                      .context_length = kContext,
                                      .vocab_size = kVocab}},
          {"llama", config::LlamaConfig{.num_layers = layers,
                                        .num_heads = 8,
                                        .num_key_value_heads = 2,
                                        .embed_dim = width,
                                        .context_length = kContext,
                                        .vocab_size = kVocab}}};
}

Result<double> tokens_per_second(model::Model& model, int64_t max_new_tokens, bool use_cache) {
  at::set_num_threads(1);
  const at::Tensor prompt = at::zeros({1, kPrompt}, at::kLong);
  try {
    const auto start = Clock::now();
    (void)task::generate_tokens(model, prompt,
                                {.max_new_tokens = max_new_tokens, .use_cache = use_cache});
    const std::chrono::duration<double> taken = Clock::now() - start;
    return static_cast<double>(max_new_tokens) / taken.count();
  } catch (const c10::Error& error) {
    return Status(StatusCode::kInternal, error.what_without_backtrace());
  }
}

Result<std::vector<Trial>> prepare(const Options& options) {
  const int64_t max_new_tokens = options.quick ? 4 : kContext - kPrompt;
  std::vector<Trial> trials;
  for (const Setup& setup : setups(options.quick)) {
    STOKER_ASSIGN_OR_RETURN(
        const model::ModelPtr model,
        model::make_model({.arch = setup.arch}, {{"tokens", DType::kI64, {kContext + 1}}}, 0));
    const auto run = [=](bool use_cache) -> Measure {
      return [=] { return tokens_per_second(*model, max_new_tokens, use_cache); };
    };
    trials.push_back({setup.name + ", " + std::to_string(max_new_tokens) + " tokens after " +
                          std::to_string(kPrompt) + ", threads 1",
                      "tokens/s",
                      run(true),
                      {{"without cache", run(false)}}});
  }
  return trials;
}

}  // namespace

Benchmark generation_benchmark() {
  return {"generate",
          "generated tokens per second on the CPU, with and without a cache of keys and values",
          prepare};
}

}  // namespace stoker::bench
