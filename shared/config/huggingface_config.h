// HuggingFaceConfig: the settings of a model in config.json of a Hugging Face folder, which is one of
// transformers (with model_type) or, for image models, of timm (with architecture).
//
// Threads:  pure functions, except for their output arguments.
// Blocking: read the file.
// Errors:   kInvalidArgument: as foreign_json.h; also a model_type, a size, or a field that changes the
//           result, that stoker does not support; kNotFound, kIoError.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/config/config_errors.h"

namespace stoker::config {

inline constexpr uint64_t kMaxHuggingFaceConfigBytes = 1 << 20;

struct HuggingFaceConfig {
  std::string model_type;  // "mistral"; of timm: "vit_base_patch16_224"
  ModelVariant arch;
  // Keys of settings that only the configuration can decide, and why: the folder has a value that is not
  // supported. An error unless it sets them.
  std::map<std::string, std::string> undecided = {};
  // Of sliding-window attention that is shorter than max_position_embeddings; arch has it as
  // context_length.
  std::optional<int64_t> window = {};
};

// The path of config.json if `path` is a folder with one, otherwise empty.
std::string find_huggingface_config(const std::string& path);

// `path` is used in messages.
Result<HuggingFaceConfig> parse_huggingface_config(std::string_view json, const std::string& path);

// The output layer of a bert, resnet… or vit….
struct HuggingFaceHead {
  int64_t num_labels = 0;
  std::string problem_type;  // "single_label_classification", …; empty: none
  int64_t num_channels = 3;  // of images
};

// The text of config.json of transformers for a model gpt2, llama, bert, vit… or resnet… (18, 34, 50,
// 101, 152) with F32 weights. kInvalidArgument: another model, or no model_type has this combination
// of settings.
Result<std::string> format_huggingface_config(const ModelVariant& arch,
                                              const HuggingFaceHead& head = {});

// If model.pretrained.path is a Hugging Face folder for model gpt2, llama, bert or vit…: sets the settings that
// are not in `keys` to those of config.json; also model.vocab_size if it is null. Reads nothing if
// the configuration has all of them, as that of a run. An error of model.pretrained.path: it does
// not exist, is not named like a file of tensors, and settings are missing.
void apply_huggingface_config(const ExplicitKeys& keys, Config& config, ConfigErrors& errors);

// Whether the model has the settings of the folder. Dropout and activation checkpointing may
// differ. kMismatch: lists all differences.
Status check_huggingface_config(const ModelConfig& model, const std::string& path);

}  // namespace stoker::config
