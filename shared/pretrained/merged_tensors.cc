#include "shared/pretrained/merged_tensors.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "shared/base/hash.h"
#include "shared/checkpoint/huggingface.h"
#include "shared/checkpoint/peft.h"
#include "shared/pretrained/pretrained_file.h"

namespace stoker::pretrained {
namespace {

using checkpoint::kLoraA;
using checkpoint::kLoraB;

std::span<std::byte> writable_bytes(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}

// Values of a file as F32. kMismatch: of a dtype that cannot be converted without loss.
Status read_as_float(const checkpoint::TensorSource& file, const TensorSpec& spec,
                     std::vector<float>& values) {
  values.resize(static_cast<size_t>(spec.elements()));
  if (spec.dtype == DType::kF32) return file.read(spec.name, writable_bytes(values));
  if (!is_widening(spec.dtype, DType::kF32))
    return Status(StatusCode::kMismatch, to_string(spec) + ": must be F32, F16 or BF16");
  std::vector<uint16_t> halves(values.size());
  STOKER_RETURN_IF_ERROR(file.read(spec.name, std::as_writable_bytes(std::span(halves))));
  std::ranges::transform(halves, values.begin(),
                         spec.dtype == DType::kF16 ? half_to_float : bfloat16_to_float);
  return {};
}

void transpose(int64_t rows, int64_t columns, std::vector<float>& values) {
  std::vector<float> transposed(values.size());
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      transposed[static_cast<size_t>(column * rows + row)] =
          values[static_cast<size_t>(row * columns + column)];
  values = std::move(transposed);
}

// Only those of `names`. A model with a tied head has the embedding only, whatever the file has.
std::vector<TensorSpec> select_tensors(std::vector<TensorSpec> tensors,
                                       const std::vector<std::string>& names) {
  const auto has = [&](std::string_view name) {
    return std::ranges::count(tensors, name, &TensorSpec::name) > 0;
  };
  const auto is_needed = [&](std::string_view name) { return std::ranges::count(names, name) > 0; };
  if (!has(checkpoint::kEmbeddingWeight) && !is_needed(checkpoint::kHeadWeight))
    for (TensorSpec& spec : tensors)
      if (spec.name == checkpoint::kHeadWeight) spec.name = checkpoint::kEmbeddingWeight;
  std::erase_if(tensors, [&](const TensorSpec& spec) { return !is_needed(spec.name); });
  return tensors;
}

}  // namespace

Result<std::unique_ptr<MergedTensors>> MergedTensors::open(
    const config::ModelConfig& config, const checkpoint::BaseWeights& base,
    std::unique_ptr<checkpoint::TensorRangeSource> adapter) {
  if (!config.pretrained)
    return Status(
        StatusCode::kMismatch,
        "the checkpoint has an adapter only, but model.pretrained is not set; restore the "
        "settings that it was trained with (the weights were at " +
            base.path + ")");
  std::unique_ptr<MergedTensors> merged(new MergedTensors(base.scaling(), std::move(adapter)));
  const std::string& path = config.pretrained->path;
  STOKER_RETURN_IF_ERROR(
      merged->map_base(config, base).with_context("model.pretrained.path: " + path));
  STOKER_RETURN_IF_ERROR(merged->check_base(base, path));
  return merged;
}

// The tensors of the model: those of the pretrained file under the names that they have in the model,
// and those that were trained completely.
Status MergedTensors::map_base(const config::ModelConfig& config,
                               const checkpoint::BaseWeights& base) {
  STOKER_ASSIGN_OR_RETURN(PretrainedTensors opened,
                          open_pretrained(*config.pretrained, config.name()));
  base_ = std::move(opened.file);
  const checkpoint::HuggingFaceNames* const names = opened.maybe_names;
  std::vector<std::string> needed = base.tensors;
  for (const TensorSpec& spec : adapter_->tensors()) needed.push_back(spec.name);
  tensors_ = select_tensors(mapped_tensors(*base_, *config.pretrained, names), needed);
  STOKER_RETURN_IF_ERROR(add_trained());
  const StateDictMapping mapping = map_state_dict(tensors_, *base_, *config.pretrained, names);
  STOKER_RETURN_IF_ERROR(mapping.status());
  for (const StateDictMapping::Load& load : mapping.loads) {
    const TensorSpec& spec = tensors_[load.tensor];
    if (load.is_transposed && spec.shape.size() != 2)
      return Status(StatusCode::kMismatch, "has " + to_string(spec) + ", expected 2 dimensions");
    loads_[spec.name] = load;
  }
  for (const std::string& name : base.tensors)
    if (!loads_.contains(name))
      return Status(StatusCode::kMismatch, "has no " + name + ", to which the adapter belongs");
  return check_modules();
}

// The trained tensors replace those of the file, which can have other shapes.
Status MergedTensors::add_trained() {
  for (TensorSpec spec : adapter_->tensors()) {
    if (checkpoint::is_lora_matrix(spec.name)) continue;
    if (is_widening(spec.dtype, DType::kF32)) spec.dtype = DType::kF32;
    if (spec.dtype != DType::kF32)
      return Status(StatusCode::kMismatch,
                    "the adapter has " + to_string(spec) + ", expected F32, F16 or BF16");
    const auto found = std::ranges::find(tensors_, spec.name, &TensorSpec::name);
    if (found == tensors_.end())
      tensors_.push_back(std::move(spec));
    else
      *found = std::move(spec);
  }
  return {};
}

Status MergedTensors::check_modules() const {
  for (const TensorSpec& spec : adapter_->tensors()) {
    if (!checkpoint::is_lora_matrix(spec.name)) continue;
    const std::string module(checkpoint::module_of(spec.name));
    if (find(module + ".weight") == nullptr && find(module + ".in_proj_weight") == nullptr)
      return Status(StatusCode::kMismatch,
                    "has no " + module + ".weight, to which the adapter belongs");
  }
  return {};
}

// As model::base_digest().
Status MergedTensors::check_base(const checkpoint::BaseWeights& base,
                                 const std::string& path) const {
  Sha256 sum;
  std::vector<float> values;
  for (const auto& [name, load] : loads_) {
    if (adapter_->find(name) != nullptr) continue;
    STOKER_RETURN_IF_ERROR(read_base(name, values));
    sum.update(to_string(*find(name)) + "\n");
    sum.update(std::as_bytes(std::span(values)));
  }
  if (sum.finish_hex() == base.sha256) return {};
  return Status(StatusCode::kMismatch,
                "model.pretrained.path: " + path +
                    ": has other weights than those that the adapter was trained with; "
                    "restore the file (it was at " +
                    base.path + ")");
}

const TensorSpec* MergedTensors::find(const std::string& name) const {
  const auto found = std::ranges::find(tensors_, name, &TensorSpec::name);
  return found == tensors_.end() ? nullptr : &*found;
}

Status MergedTensors::read_base(const std::string& name, std::vector<float>& values) const {
  const StateDictMapping::Load& load = loads_.at(name);
  const TensorSpec& spec = *base_->find(load.from);
  STOKER_RETURN_IF_ERROR(read_as_float(*base_, spec, values));
  if (load.is_transposed) transpose(spec.shape[0], spec.shape[1], values);
  return {};
}

// values += scaling * B A
Status MergedTensors::add_product(const std::string& module, std::vector<float>& values) const {
  const TensorSpec* const a = adapter_->find(module + std::string(kLoraA));
  const TensorSpec* const b = adapter_->find(module + std::string(kLoraB));
  if (a == nullptr || b == nullptr) return {};
  std::vector<float> a_values, b_values;
  STOKER_RETURN_IF_ERROR(read_as_float(*adapter_, *a, a_values));
  STOKER_RETURN_IF_ERROR(read_as_float(*adapter_, *b, b_values));
  if (a->shape.size() != 2 || b->shape.size() != 2 || a->shape[0] != b->shape[1])
    return Status(StatusCode::kMismatch, "the adapter has " + to_string(*a) + " and " +
                                             to_string(*b) +
                                             ", expected [r, inputs] and [outputs, r]");
  const auto rank = static_cast<size_t>(a->shape[0]), inputs = static_cast<size_t>(a->shape[1]),
             outputs = static_cast<size_t>(b->shape[0]);
  if (values.size() != inputs * outputs)
    return Status(StatusCode::kMismatch, module + ": the weight is not " + std::to_string(outputs) +
                                             " x " + std::to_string(inputs) + " as its adapter");
  std::vector<double> row(inputs);
  for (size_t output = 0; output < outputs; ++output) {
    std::ranges::fill(row, 0);
    for (size_t k = 0; k < rank; ++k) {
      const double factor = b_values[output * rank + k];
      const float* const from = &a_values[k * inputs];
      for (size_t i = 0; i < inputs; ++i) row[i] += factor * from[i];
    }
    float* const to = &values[output * inputs];
    for (size_t i = 0; i < inputs; ++i) to[i] = static_cast<float>(to[i] + scaling_ * row[i]);
  }
  return {};
}

Status MergedTensors::compute(const TensorSpec& spec, std::vector<float>& values) const {
  if (const TensorSpec* const own = adapter_->find(spec.name))
    return read_as_float(*adapter_, *own, values);
  STOKER_RETURN_IF_ERROR(read_base(spec.name, values));
  // in_proj_weight is that of an attention, which is adapted as a whole.
  for (const std::string_view weight : {".weight", ".in_proj_weight"})
    if (spec.name.ends_with(weight))
      STOKER_RETURN_IF_ERROR(
          add_product(spec.name.substr(0, spec.name.size() - weight.size()), values));
  return {};
}

Status MergedTensors::read(const std::string& name, std::span<std::byte> out) const {
  return read_part(name, 0, out);
}

Status MergedTensors::read_part(const std::string& name, uint64_t offset,
                                std::span<std::byte> out) const {
  const TensorSpec* const spec = find(name);
  if (spec == nullptr) return Status(StatusCode::kNotFound, name + ": is not in the model");
  if (offset + out.size() > spec->bytes())
    return Status(StatusCode::kInvalidArgument, name + ": the range is outside of the tensor");
  if (cached_ != name) {
    cached_.clear();
    STOKER_RETURN_IF_ERROR(compute(*spec, values_));
    if (values_.size() * sizeof(float) != spec->bytes())
      return Status(StatusCode::kMismatch, to_string(*spec) + ": the file has another size");
    cached_ = name;
  }
  if (!out.empty())
    std::memcpy(out.data(), std::as_bytes(std::span(values_)).data() + offset, out.size());
  return {};
}

}  // namespace stoker::pretrained
