// MergedTensors: the tensors of a model with its adapter merged into the pretrained weights, W +
// lora_alpha / r * B A, under the names of the model. Computed one tensor at a time, in F32, on this
// thread.
//
// Threads:   one object per thread.
// Ownership: owns the files.
// Errors:    open(): kMismatch: there are no pretrained weights, or they do not fit, or differ from
//            those that the adapter was trained with; others as open_pretrained(). read():
//            kMismatch: an adapter of another shape than its weight; others as SafetensorsFile.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/checkpoint/manifest.h"
#include "shared/checkpoint/tensor_source.h"
#include "shared/config/model_config.h"
#include "shared/pretrained/state_dict_mapping.h"

namespace stoker::pretrained {

class MergedTensors final : public checkpoint::TensorRangeSource {
 public:
  // `adapter`: model.safetensors, or ema.safetensors, of a checkpoint with the base weights `base`,
  // which also say how the adapter is scaled. Reads the pretrained weights once to compare them.
  static Result<std::unique_ptr<MergedTensors>> open(
      const config::ModelConfig& config, const checkpoint::BaseWeights& base,
      std::unique_ptr<checkpoint::TensorRangeSource> adapter);

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  const TensorSpec* find(const std::string& name) const override;
  Status read(const std::string& name, std::span<std::byte> out) const override;
  // Keeps the last tensor in memory.
  Status read_part(const std::string& name, uint64_t offset,
                   std::span<std::byte> out) const override;

 private:
  MergedTensors(double scaling, std::unique_ptr<checkpoint::TensorRangeSource> adapter)
      : scaling_(scaling), adapter_(std::move(adapter)) {}
  Status map_base(const config::ModelConfig& config, const checkpoint::BaseWeights& base);
  Status add_trained();
  Status check_modules() const;
  Status check_base(const checkpoint::BaseWeights& base, const std::string& path) const;
  Status read_base(const std::string& name, std::vector<float>& values) const;
  Status add_product(const std::string& module, std::vector<float>& values) const;
  Status compute(const TensorSpec& spec, std::vector<float>& values) const;

  const double scaling_;
  const std::unique_ptr<checkpoint::TensorRangeSource> adapter_;
  std::unique_ptr<checkpoint::TensorSource> base_;
  std::vector<TensorSpec> tensors_;
  std::map<std::string, StateDictMapping::Load> loads_;  // by name in the model
  mutable std::string cached_;
  mutable std::vector<float> values_;
};

}  // namespace stoker::pretrained
