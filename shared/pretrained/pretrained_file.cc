#include "shared/pretrained/pretrained_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "shared/checkpoint/huggingface.h"
#include "shared/checkpoint/store.h"
#include "shared/checkpoint/torch_file.h"
#include "shared/config/huggingface_config.h"

namespace stoker::pretrained {

bool is_huggingface_folder(const std::string& path) {
  return !config::find_huggingface_config(path).empty();
}

Result<std::unique_ptr<checkpoint::TensorSource>> open_pretrained_file(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return Status::from_errno(errno, path);
  if (!S_ISDIR(info.st_mode)) return checkpoint::open_tensor_file(path);
  if (is_huggingface_folder(path)) return checkpoint::open_huggingface_folder(path);
  STOKER_ASSIGN_OR_RETURN(const auto saved, checkpoint::CheckpointStore::open_verified(path));
  if (saved.manifest().base_weights)
    return Status(
        StatusCode::kMismatch,
        path + ": has an adapter only; write the whole model with stokerctl export --merge");
  STOKER_ASSIGN_OR_RETURN(auto file, saved.open_tensors("model.safetensors"));
  return std::unique_ptr<checkpoint::TensorSource>(std::move(file));
}

}  // namespace stoker::pretrained
