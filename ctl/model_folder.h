// model_folder: the files next to the tensors in an exported folder, with which transformers, timm and PEFT
// open it: settings of the model, tokenizer, model card.
//
// Threads: stateless functions; they access only their arguments and the file system.
// Errors:  kInvalidArgument: the library has no such model; kNoSpace, kIoError, kPermission.
#pragma once

#include <string>
#include <utility>

#include "ctl/checkpoint_export.h"
#include "ctl/terminal.h"
#include "shared/base/directory_root.h"
#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/checkpoint/store.h"
#include "shared/checkpoint/tensor_source.h"
#include "shared/config/config.h"
#include "shared/run/run_layout.h"

namespace stoker::ctl {

// NewFolder: a folder that appears with all of its files or not at all. Until then its files are reached through a
// DirectoryRoot, so that another user who may write to the folder above cannot choose where they are written.
class NewFolder {
 public:
  // kAlreadyExists, kInvalidArgument: no name; those of mkdir.
  static Result<NewFolder> create(std::string path);
  NewFolder(NewFolder&& other) noexcept
      : path_(std::move(other.path_)),
        temporary_(std::exchange(other.temporary_, {})),
        root_(std::move(other.root_)) {}
  NewFolder& operator=(NewFolder&&) = delete;
  ~NewFolder();

  std::string operator/(const std::string& name) const { return join_path(temporary_, name); }
  Status write(const std::string& name, const std::string& text) const;
  Status commit();

 private:
  NewFolder(std::string path, std::string temporary, DirectoryRoot root)
      : path_(std::move(path)), temporary_(std::move(temporary)), root_(std::move(root)) {}

  std::string path_, temporary_;  // temporary_ is empty once committed
  DirectoryRoot root_;            // of temporary_
};

// Writes the settings and the tokenizer of a model of transformers or timm, with `format` kHuggingFace or kTimm.
// `file`: its tensors. A tokenizer that cannot be exported is a warning, because the weights are of use without
// it.
Status write_model_files(const config::Config& config, ExportFormat format,
                         const checkpoint::Manifest& manifest,
                         const checkpoint::TensorRangeSource& file, const NewFolder& folder,
                         const Console& console);

// Text of README.md in a folder with weights: `content` is kModel or kEma.
std::string model_card(const config::Config& config, const run::RunLayout& layout,
                       const checkpoint::VerifiedCheckpoint& checkpoint, ExportContent content,
                       ExportFormat format);

}  // namespace stoker::ctl
