// The names of image models in the files of other libraries. Those of stoker are torchvision's, so
// only the names of transformers, of timm's vit, and of older files of torchvision have tables.
//
// Threads: immutable.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "shared/base/status.h"
#include "shared/checkpoint/huggingface.h"
#include "shared/checkpoint/tensor_source.h"

namespace stoker::checkpoint {

enum class ImageLibrary { kTorchvision, kTorchvisionBefore013, kTimm, kTransformers };

// Null: those of stoker, or another model than resnet… and vit….
const HuggingFaceNames* find_image_names(std::string_view model_name, ImageLibrary library);

// The library that these names of tensors are of, also below a prefix ("model.").
ImageLibrary detect_image_library(const std::vector<std::string>& names);

// transformers has three matrices, and biases, for the queries, keys and values of a vit; the others
// have one, self_attention.in_proj_weight. These classes convert them without reading more than
// requested.
//
// FusedQkv: the tensors of a file of transformers, with "….attention.attention.{query,key,value}.weight"
// in place of three that have the same shape and dtype.
class FusedQkv final : public TensorSource {
 public:
  explicit FusedQkv(std::unique_ptr<TensorSource> file);

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  const TensorSpec* find(const std::string& name) const override;
  const std::vector<std::string>& non_tensor_keys() const override {
    return file_->non_tensor_keys();
  }
  Status read(const std::string& name, std::span<std::byte> out) const override;

 private:
  std::unique_ptr<TensorSource> file_;
  std::vector<TensorSpec> tensors_;
  std::unordered_map<std::string, size_t> index_;  // of tensors_, by name
};

// SplitQkv: the tensors of a vit of stoker, with "….self_attention.query.weight", "….key.weight" and
// "….value.weight" in place of "….self_attention.in_proj_weight".
class SplitQkv final : public TensorRangeSource {
 public:
  explicit SplitQkv(std::unique_ptr<TensorRangeSource> file);

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  const TensorSpec* find(const std::string& name) const override;
  Status read(const std::string& name, std::span<std::byte> out) const override;
  Status read_part(const std::string& name, uint64_t offset,
                   std::span<std::byte> out) const override;

 private:
  std::unique_ptr<TensorRangeSource> file_;
  std::vector<TensorSpec> tensors_;
};

}  // namespace stoker::checkpoint
