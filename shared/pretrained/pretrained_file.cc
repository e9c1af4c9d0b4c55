#include "shared/pretrained/pretrained_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "shared/checkpoint/image_model_names.h"
#include "shared/checkpoint/store.h"
#include "shared/checkpoint/torch_file.h"
#include "shared/config/huggingface_config.h"
#include "shared/pretrained/state_dict_mapping.h"

namespace stoker::pretrained {

namespace {

Result<std::unique_ptr<checkpoint::TensorSource>> open_tensors(const std::string& path) {
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

}  // namespace

bool is_huggingface_folder(const std::string& path) {
  return !config::find_huggingface_config(path).empty();
}

Result<PretrainedTensors> open_pretrained(const config::PretrainedConfig& pretrained,
                                          std::string_view model_name) {
  using checkpoint::ImageLibrary;
  const std::string& path = pretrained.path;
  PretrainedTensors opened;
  STOKER_ASSIGN_OR_RETURN(opened.file, open_tensors(path));
  const bool is_folder = is_huggingface_folder(path);
  if (is_folder) opened.maybe_names = checkpoint::HuggingFaceNames::find(model_name);
  if (opened.maybe_names != nullptr) return opened;
  // Each image model that has names of another library has those of transformers.
  if (checkpoint::find_image_names(model_name, ImageLibrary::kTransformers) == nullptr)
    return opened;
  KeyMappingRules rules(pretrained.key_mapping);
  std::vector<std::string> names;
  for (const TensorSpec& spec : opened.file->tensors()) {
    names.push_back(spec.name);
    if (auto renamed = rules.rename(spec.name)) names.push_back(*std::move(renamed));
  }
  const ImageLibrary library = checkpoint::detect_image_library(names);
  opened.maybe_names = checkpoint::find_image_names(model_name, library);
  if (opened.maybe_names == nullptr || library != ImageLibrary::kTransformers) return opened;
  if (!is_folder)  // which has the eps of the norms, and where a bottleneck has its stride
    return Status(StatusCode::kMismatch,
                  path +
                      ": has the names of transformers, whose settings are in config.json; set "
                      "model.pretrained.path to the folder with both");
  opened.file = std::make_unique<checkpoint::FusedQkv>(std::move(opened.file));
  return opened;
}

}  // namespace stoker::pretrained
