#include "shared/model/load_weights.h"

#include <sys/stat.h>

#include <algorithm>
#include <new>
#include <set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include "shared/checkpoint/huggingface.h"
#include "shared/checkpoint/store.h"
#include "shared/checkpoint/torch_file.h"
#include "shared/config/huggingface_config.h"
#include "shared/model/torch_dtype.h"
#include "shared/model/torch_status.h"

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

bool is_huggingface_folder(const std::string& path) {
  return !config::find_huggingface_config(path).empty();
}

Result<std::unique_ptr<checkpoint::TensorSource>> open_pretrained(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return Status::from_errno(errno, path);
  if (!S_ISDIR(info.st_mode)) return checkpoint::open_tensor_file(path);
  if (is_huggingface_folder(path)) return checkpoint::open_huggingface_folder(path);
  STOKER_ASSIGN_OR_RETURN(const auto saved, checkpoint::CheckpointStore::open_verified(path));
  STOKER_ASSIGN_OR_RETURN(auto file, saved.open_tensors("model.safetensors"));
  return std::unique_ptr<checkpoint::TensorSource>(std::move(file));
}

Status load_mapped(const NamedTensors& tensors, const checkpoint::TensorSource& file,
                   const StateDictMapping& mapping) {
  try {
    const at::NoGradGuard no_grad;
    for (const StateDictMapping::Load& load : mapping.loads)
      STOKER_RETURN_IF_ERROR(
          read_tensor(load.from, tensors[load.tensor].second, file, load.is_transposed));
    for (const StateDictMapping::Load& copy : mapping.copies)
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

Status load_pretrained(Model& model, const config::ModelConfig& config, StateDictMapping& mapping) {
  const std::string& path = config.pretrained->path;
  const bool is_huggingface = is_huggingface_folder(path);
  if (is_huggingface)
    STOKER_RETURN_IF_ERROR(
        config::check_huggingface_config(config, path).with_context("model.pretrained.path"));
  const auto file = open_pretrained(path);
  if (!file.ok()) return file.status().with_context("model.pretrained.path");
  const NamedTensors tensors = named_tensors(model);
  mapping =
      map_state_dict(to_tensor_specs(tensors), **file, *config.pretrained,
                     is_huggingface ? checkpoint::HuggingFaceNames::find(config.name()) : nullptr);
  const std::string context = "model.pretrained.path: " + path;
  STOKER_RETURN_IF_ERROR(mapping.status().with_context(context));
  return load_mapped(tensors, **file, mapping).with_context(context);
}

}  // namespace stoker::model
