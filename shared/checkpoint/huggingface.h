// open_huggingface_folder: the tensors of a Hugging Face folder, in model.safetensors, in several files
// listed by model.safetensors.index.json, or the same of pytorch_model.bin. HuggingFaceNames: their names in
// the models of stoker.
//
// Threads:  one object per thread.
// Errors:   kNotFound: no such file in the folder, or the index names a missing one; kCorrupt: the
//           index is not valid, names a file outside of the folder, or differs from the files;
//           others as SafetensorsFile and open_tensor_file().
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/checkpoint/tensor_source.h"

namespace stoker::checkpoint {

// All files are opened, and only their headers are read; tensors are read on demand.
Result<std::unique_ptr<TensorSource>> open_huggingface_folder(const std::string& path);

// The names of one architecture of a library, such as transformers.
class HuggingFaceNames {
 public:
  // A module with its parameters and buffers; * is the number of a block.
  struct Module {
    std::string_view name;       // in stoker: "blocks.*.qkv"
    std::string_view theirs;     // "h.*.attn.c_attn"
    bool is_transposed = false;  // its weight is [in_features, out_features]
    bool has_prefix = true;      // false: an output layer
    bool is_tensor = false;      // the names are those of a tensor, not of a module
  };
  struct Name {
    std::string name;
    bool is_transposed = false;
  };

  // For model.name gpt2, llama and bert; null for others. Image models: image_model_names.h.
  static const HuggingFaceNames* find(std::string_view model_name);

  // The name in stoker of a tensor of a file, which can be that of the model without its head and
  // lacks the prefix then. nullopt: unknown.
  std::optional<Name> to_stoker(std::string_view theirs) const;
  // In the other direction, with the prefix.
  std::optional<Name> from_stoker(std::string_view name) const;
  // Buffers of earlier versions of transformers, which hold no weights, and output layers of a
  // pretraining.
  bool is_ignored(std::string_view theirs) const;
  std::span<const Module> modules() const { return modules_; }

  HuggingFaceNames(std::string_view prefix, std::span<const Module> modules,
                   std::span<const std::string_view> ignored)
      : prefix_(prefix), modules_(modules), ignored_(ignored) {}

 private:
  std::optional<Name> translate(std::string_view name, std::string_view Module::*from,
                                std::string_view Module::*to) const;
  std::string_view without_prefix(std::string_view theirs) const {
    return theirs.starts_with(prefix_) ? theirs.substr(prefix_.size()) : theirs;
  }

  std::string_view prefix_;
  std::span<const Module> modules_;
  std::span<const std::string_view> ignored_;
};

// Of tied embeddings: the head, which a file contains in addition to the embedding or instead of it.
inline constexpr std::string_view kHeadWeight = "head.weight", kEmbeddingWeight = "tok.weight";

}  // namespace stoker::checkpoint
