#include "shared/model/out_of_vocab.h"

#include <array>
#include <string>

#include <ATen/ops/aminmax.h>

#include "shared/model/torch_status.h"

namespace stoker::model {
namespace {

// Texts of LibTorch errors for an index out of range, from embeddings and other lookups.
constexpr std::array<std::string_view, 2> kIndexErrorTexts{"out of range", "out of bounds"};

bool is_index_error(std::string_view reported) {
  for (const std::string_view words : kIndexErrorTexts)
    if (reported.find(words) != std::string_view::npos) return true;
  return false;
}

}  // namespace

void throw_if_out_of_vocab(const at::Tensor& input, std::string_view reported) {
  const bool has_tokens = input.scalar_type() == at::kLong && input.is_cpu() && input.numel() > 0;
  if (!has_tokens || !is_index_error(reported)) return;
  const auto [smallest, largest] = at::aminmax(input);
  throw OutOfVocabError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                        "a token of this batch is outside the vocabulary of the model in "
                        "model.path; its tokens are from " +
                            std::to_string(smallest.item<int64_t>()) + " to " +
                            std::to_string(largest.item<int64_t>()) + " (" + first_line(reported) +
                            "); use a vocabulary that covers all tokens of the data, or data with "
                            "the model's tokens (stokerctl "
                            "show-batch lists the samples of a step)");
}

}  // namespace stoker::model
