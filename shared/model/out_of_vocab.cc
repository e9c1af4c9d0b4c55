#include "shared/model/out_of_vocab.h"

#include <array>
#include <string>

#include <ATen/ops/aminmax.h>

#include "shared/model/torch_status.h"

namespace stoker::model {
namespace {

// Texts of LibTorch errors for an index out of range, from embeddings and other lookups.
constexpr std::array<std::string_view, 2> kMissing{"out of range", "out of bounds"};

bool is_of_lookup(std::string_view reported) {
  for (const std::string_view words : kMissing)
    if (reported.find(words) != std::string_view::npos) return true;
  return false;
}

}  // namespace

void throw_if_out_of_vocab(const at::Tensor& input, std::string_view reported) {
  const bool has_tokens = input.scalar_type() == at::kLong && input.is_cpu() && input.numel() > 0;
  if (!has_tokens || !is_of_lookup(reported)) return;
  const auto [least, largest] = at::aminmax(input);
  throw OutOfVocabError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
      "the model in model.path does not know a token of this batch, whose tokens are from " +
          std::to_string(least.item<int64_t>()) + " to " + std::to_string(largest.item<int64_t>()) +
          " (" + first_line(reported) +
          "); give it tables for all tokens of the data, or data of its own tokens (stokerctl "
          "explain names the samples of a step)");
}

}  // namespace stoker::model
