// PeftNames: the names of an adapter's tensors in a PEFT folder, "base_model.model.MODULE.lora_A.weight",
// in which MODULE has its name in Hugging Face's model, if the architecture has one.
//
// Threads: immutable.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "shared/checkpoint/huggingface.h"

namespace stoker::checkpoint {

inline constexpr char kPeftFile[] = "adapter_model.safetensors";
inline constexpr char kPeftTorchFile[] = "adapter_model.bin";
inline constexpr std::string_view kLoraA = ".lora_A.weight", kLoraB = ".lora_B.weight";

// Whether it is one of the matrices that LoRA adds.
inline bool is_lora_matrix(std::string_view name) {
  return name.ends_with(kLoraA) || name.ends_with(kLoraB);
}
// "blocks.0.q" for "blocks.0.q.lora_A.weight" and "blocks.0.q.weight".
std::string_view module_of(std::string_view tensor);
// Whether it is the output projection of a torch.nn.MultiheadAttention, as of vit, which PEFT adapts
// with the attention.
bool is_output_projection(std::string_view module);

class PeftNames {
 public:
  using Name = HuggingFaceNames::Name;

  explicit PeftNames(std::string_view model_name) : names_(HuggingFaceNames::find(model_name)) {}

  // Of a tensor in a file; nullopt: unknown.
  std::optional<Name> to_stoker(std::string_view theirs) const;
  // nullopt: the tensor has no name in Hugging Face's model.
  std::optional<Name> from_stoker(std::string_view name) const;
  // The name of a module in Hugging Face's model, "transformer.h.0.attn.c_attn"; without one its own.
  std::string module_from_stoker(std::string_view name) const;
  bool has_table() const { return names_ != nullptr; }

 private:
  const HuggingFaceNames* names_;
};

}  // namespace stoker::checkpoint
