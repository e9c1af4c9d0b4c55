#include "shared/model/load_weights.h"

#include <sys/stat.h>

#include <algorithm>
#include <new>
#include <set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include "shared/base/file.h"
#include "shared/checkpoint/peft.h"
#include "shared/checkpoint/torch_file.h"
#include "shared/config/huggingface_config.h"
#include "shared/model/lora.h"
#include "shared/model/torch_dtype.h"
#include "shared/model/torch_status.h"
#include "shared/pretrained/pretrained_file.h"

namespace stoker::model {
namespace {

constexpr size_t kMaxReported = 5;

// Counts differences and stores the text of the first few.
class Differences {
 public:
  void add(const std::string& what) {
    if (count_++ < kMaxReported) text_ += (text_.empty() ? "" : "; ") + what;
  }
  Status status(const std::string& owner) const {
    if (count_ == 0) return {};
    std::string message = "the file does not fit " + owner + ": " + text_;
    if (count_ > kMaxReported)
      message += "; and " + std::to_string(count_ - kMaxReported) + " more";
    return Status(StatusCode::kMismatch, message);
  }

 private:
  size_t count_ = 0;
  std::string text_;
};

Status compare(const std::vector<TensorSpec>& tensors, const checkpoint::TensorSource& file,
               const std::string& owner) {
  Differences differences;
  std::set<std::string> known;
  for (const TensorSpec& needed : tensors) {
    known.insert(needed.name);
    const TensorSpec* const found = file.find(needed.name);
    if (found == nullptr)
      differences.add("missing " + to_string(needed));
    else if (*found != needed)
      differences.add("has " + to_string(*found) + ", expected " + to_string(needed));
  }
  for (const TensorSpec& found : file.tensors())
    if (!known.contains(found.name)) differences.add("unexpected " + to_string(found));
  return differences.status(owner);
}

Status read_into(const at::Tensor& host, const std::string& name,
                 const checkpoint::TensorSource& file) {
  return file.read(name, {static_cast<std::byte*>(host.data_ptr()), host.nbytes()});
}

// Reads into a tensor of the same shape, or that of the transpose, and of the same or a wider dtype.
Status read_tensor(const std::string& name, const at::Tensor& tensor,
                   const checkpoint::TensorSource& file, bool is_transposed = false) {
  const TensorSpec& spec = *file.find(name);
  const at::ScalarType type = to_scalar_type(spec.dtype);
  const bool in_place = tensor.device().is_cpu() && tensor.is_contiguous() &&
                        tensor.scalar_type() == type && !is_transposed;
  if (in_place) return read_into(tensor.detach(), name, file);
  const at::Tensor host = at::empty(spec.shape, at::TensorOptions().dtype(type));
  STOKER_RETURN_IF_ERROR(read_into(host, name, file));
  tensor.detach().copy_(is_transposed ? host.t() : host);
  return {};
}

// Whether the file has the values of a tensor with rows, which was loaded, under another name, too.
// Compares a part at a time.
Status check_copy(const std::string& name, const at::Tensor& tensor,
                  const checkpoint::TensorSource& file) {
  constexpr int64_t kRows = 1024;
  const TensorSpec& spec = *file.find(name);
  const at::Tensor host =
      at::empty(spec.shape, at::TensorOptions().dtype(to_scalar_type(spec.dtype)));
  STOKER_RETURN_IF_ERROR(read_into(host, name, file));
  for (int64_t row = 0; row < host.size(0); row += kRows) {
    const int64_t count = std::min(kRows, host.size(0) - row);
    const at::Tensor loaded = tensor.detach().narrow(0, row, count).to(at::kCPU);
    if (!at::equal(host.narrow(0, row, count).to(loaded.scalar_type()), loaded))
      return Status(StatusCode::kCorrupt,
                    "'" + name +
                        "' differs from the embedding, with which it is tied; set "
                        "tie_word_embeddings in config.json to false, or remove it");
  }
  return {};
}

// An adapter belongs to weights that a file has: they are not in its checkpoints.
Status check_base(const Model& model, const NamedTensors& tensors,
                  const pretrained::StateDictMapping& mapping) {
  if (model.adapter() == nullptr) return {};
  std::set<std::string> missing = model.adapter()->base;
  for (const pretrained::StateDictMapping::Load& load : mapping.loads)
    missing.erase(tensors[load.tensor].first);
  if (missing.empty()) return {};
  return Status(StatusCode::kMismatch,
                "with model.lora, every weight must be in the file or trained, and '" +
                    *missing.begin() + "' is neither (of " + std::to_string(missing.size()) +
                    "); add its module to model.lora.modules_to_save");
}

Status load_mapped(const NamedTensors& tensors, const checkpoint::TensorSource& file,
                   const pretrained::StateDictMapping& mapping) {
  try {
    const at::NoGradGuard no_grad;
    for (const pretrained::StateDictMapping::Load& load : mapping.loads)
      STOKER_RETURN_IF_ERROR(
          read_tensor(load.from, tensors[load.tensor].second, file, load.is_transposed));
    for (const pretrained::StateDictMapping::Load& copy : mapping.copies)
      STOKER_RETURN_IF_ERROR(check_copy(copy.from, tensors[copy.tensor].second, file));
    return {};
  } catch (const c10::Error& error) {
    return to_status(error, "load the model");
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "load the model: not enough host memory");
  }
}

}  // namespace

Status read_tensor_range(const std::string& name, const at::Tensor& tensor,
                         const checkpoint::TensorRanges& ranges,
                         const checkpoint::TensorRangeSource& file) {
  const auto range = ranges.find(name);
  if (range == ranges.end()) return read_tensor(name, tensor, file);
  const uint64_t offset = range->second.first_element * tensor.element_size();
  return file.read_part(name, offset,
                        {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()});
}

std::vector<TensorSpec> to_tensor_specs(const NamedTensors& tensors) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors) specs.push_back(to_tensor_spec(name, tensor));
  return specs;
}

Status load_tensors(const NamedTensors& tensors, const checkpoint::TensorRangeSource& file,
                    const std::string& owner) {
  return load_tensor_ranges(tensors, {}, to_tensor_specs(tensors), file, owner);
}

Status load_tensor_ranges(const NamedTensors& tensors, const checkpoint::TensorRanges& ranges,
                          const std::vector<TensorSpec>& complete,
                          const checkpoint::TensorRangeSource& file, const std::string& owner) {
  try {
    const at::NoGradGuard no_grad;
    STOKER_RETURN_IF_ERROR(compare(complete, file, owner));
    for (const auto& [name, tensor] : tensors)
      STOKER_RETURN_IF_ERROR(read_tensor_range(name, tensor, ranges, file));
    return {};
  } catch (const c10::Error& error) {
    return to_status(error, "load " + owner);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory, "load " + owner + ": not enough host memory");
  }
}

Status load_weights(Model& model, const checkpoint::SafetensorsFile& file) {
  return load_tensors(named_tensors(model), file, "the model");
}

Status load_pretrained(Model& model, const config::ModelConfig& config,
                       pretrained::StateDictMapping& mapping) {
  const std::string& path = config.pretrained->path;
  if (pretrained::is_huggingface_folder(path))
    STOKER_RETURN_IF_ERROR(
        config::check_huggingface_config(config, path).with_context("model.pretrained.path"));
  const auto opened = pretrained::open_pretrained(*config.pretrained, config.name());
  if (!opened.ok()) return opened.status().with_context("model.pretrained.path");
  const checkpoint::TensorSource& file = *opened->file;
  const NamedTensors tensors = pretrained_tensors(model);
  mapping = pretrained::map_state_dict(to_tensor_specs(tensors), file, *config.pretrained,
                                       opened->maybe_names);
  const std::string context = "model.pretrained.path: " + path;
  STOKER_RETURN_IF_ERROR(mapping.status().with_context(context));
  STOKER_RETURN_IF_ERROR(check_base(model, tensors, mapping).with_context(context));
  return load_mapped(tensors, file, mapping).with_context(context);
}

namespace {

Result<std::unique_ptr<checkpoint::TensorSource>> open_peft_folder(const std::string& path) {
  const std::string file = join_path(path, checkpoint::kPeftFile);
  const std::string torch_file = join_path(path, checkpoint::kPeftTorchFile);
  struct stat info {};
  const bool is_torch = ::stat(file.c_str(), &info) != 0 && ::stat(torch_file.c_str(), &info) == 0;
  return checkpoint::open_tensor_file(is_torch ? torch_file : file);
}

// An adapter's tensors by their names in the model. All problems are reported.
Result<pretrained::StateDictMapping> map_adapter(const NamedTensors& tensors,
                                                 const checkpoint::TensorSource& file,
                                                 const checkpoint::PeftNames& names) {
  Differences differences;
  pretrained::StateDictMapping mapping;
  std::vector<bool> is_loaded(tensors.size());
  for (const TensorSpec& spec : file.tensors()) {
    const auto name = names.to_stoker(spec.name);
    const auto found = std::ranges::find_if(
        tensors, [&](const auto& each) { return name && each.first == name->name; });
    if (found == tensors.end()) {
      differences.add("unexpected " + to_string(spec));
      continue;
    }
    const TensorSpec needed = to_tensor_spec(found->first, found->second);
    std::vector<int64_t> shape = spec.shape;
    if (name->is_transposed) std::ranges::reverse(shape);
    const auto index = static_cast<size_t>(found - tensors.begin());
    if (shape != needed.shape ||
        (spec.dtype != needed.dtype && !pretrained::is_widening(spec.dtype, needed.dtype)))
      differences.add("has " + to_string(spec) + ", expected " + to_string(needed));
    if (is_loaded[index])
      differences.add("has " + found->first + " a second time, as " + spec.name);
    is_loaded[index] = true;
    mapping.loads.push_back({index, spec.name, name->is_transposed});
  }
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!is_loaded[i])
      differences.add("missing " + to_string(to_tensor_spec(tensors[i].first, tensors[i].second)));
  STOKER_RETURN_IF_ERROR(differences.status("the adapter"));
  return mapping;
}

}  // namespace

Status load_adapter(Model& model, const config::ModelConfig& config) {
  const std::string& path = *config.lora->path;
  const std::string context = "model.lora.path: " + path;
  const auto file = open_peft_folder(path);
  if (!file.ok()) return file.status().with_context("model.lora.path");
  const NamedTensors tensors = named_tensors(model);
  const auto mapping = map_adapter(tensors, **file, checkpoint::PeftNames(config.name()));
  if (!mapping.ok()) return mapping.status().with_context(context);
  return load_mapped(tensors, **file, *mapping).with_context(context);
}

}  // namespace stoker::model
