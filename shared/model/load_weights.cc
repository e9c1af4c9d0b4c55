#include "shared/model/load_weights.h"

#include <sys/stat.h>

#include <new>
#include <set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include "shared/checkpoint/store.h"
#include "shared/model/torch_dtype.h"
#include "shared/model/torch_status.h"

namespace stoker::model {
namespace {

constexpr size_t kNamed = 5;

// Collects differences, keeps the text of the first few.
class Differences {
 public:
  void add(const std::string& what) {
    if (count_++ < kNamed) text_ += (text_.empty() ? "" : "; ") + what;
  }
  Status status(const std::string& owner) const {
    if (count_ == 0) return {};
    std::string message = "the file does not fit " + owner + ": " + text_;
    if (count_ > kNamed) message += "; and " + std::to_string(count_ - kNamed) + " more";
    return Status(Code::kMismatch, message);
  }

 private:
  size_t count_ = 0;
  std::string text_;
};

Status compare(const NamedTensors& tensors, const checkpoint::SafetensorsFile& file,
               const std::string& owner) {
  Differences differences;
  std::set<std::string> known;
  for (const auto& [name, tensor] : tensors) {
    known.insert(name);
    const TensorSpec needed = spec_of(name, tensor);
    const TensorSpec* const found = file.find(name);
    if (found == nullptr)
      differences.add("missing " + to_string(needed));
    else if (*found != needed)
      differences.add("has " + to_string(*found) + ", needed is " + to_string(needed));
  }
  for (const TensorSpec& found : file.tensors())
    if (!known.contains(found.name)) differences.add("unexpected " + to_string(found));
  return differences.status(owner);
}

Status read_tensor(const std::string& name, const at::Tensor& tensor,
                   const checkpoint::SafetensorsFile& file) {
  const bool in_place = tensor.device().is_cpu() && tensor.is_contiguous();
  const at::Tensor host =
      in_place ? tensor.detach()
               : at::empty(tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type()));
  STOKER_RETURN_IF_ERROR(
      file.read(name, {static_cast<std::byte*>(host.data_ptr()), host.nbytes()}));
  if (!in_place) tensor.detach().copy_(host);
  return {};
}

Result<std::unique_ptr<checkpoint::SafetensorsFile>> open_pretrained(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return Status::from_errno(errno, path);
  if (!S_ISDIR(info.st_mode)) return checkpoint::SafetensorsFile::open(path);
  STOKER_ASSIGN_OR_RETURN(const auto saved, checkpoint::CheckpointStore::open_verified(path));
  return saved.open_tensors("model.safetensors");
}

}  // namespace

Status load_tensors(const NamedTensors& tensors, const checkpoint::SafetensorsFile& file,
                    const std::string& owner) {
  try {
    const at::NoGradGuard no_grad;
    STOKER_RETURN_IF_ERROR(compare(tensors, file, owner));
    for (const auto& [name, tensor] : tensors)
      STOKER_RETURN_IF_ERROR(read_tensor(name, tensor, file));
    return {};
  } catch (const c10::Error& error) {
    return status_of(error, "load " + owner);
  } catch (const std::bad_alloc&) {
    return Status(Code::kOutOfMemory, "load " + owner + ": not enough host memory");
  }
}

Status load_weights(Model& model, const checkpoint::SafetensorsFile& file) {
  return load_tensors(named_tensors(model), file, "the model");
}

Status load_pretrained(Model& model, const std::string& path) {
  const auto file = open_pretrained(path);
  if (!file.ok()) return file.status().with_context("model.init_from");
  return load_weights(model, **file).with_context("model.init_from: " + path);
}

}  // namespace stoker::model
