// export_tensors: exports the tensors of a checkpoint as one file for other programs: .safetensors,
// one of a folder that torch.distributed.checkpoint reads, or a file for torch.load(weights_only=True).
// Copies in chunks, so no tensor has to fit in memory, except transposed ones.
//
// Threads:  pure functions.
// Blocking: until all data has been read and written.
// Errors:   those of SafetensorsFile and NewFile.
// Format:   docs/checkpoint-format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/checkpoint/hashed_files.h"
#include "shared/checkpoint/huggingface.h"
#include "shared/checkpoint/manifest.h"
#include "shared/checkpoint/safetensors.h"

namespace stoker::checkpoint {

// NewFile: writes a new file sequentially and creates it atomically: it appears complete or not at
// all.
//
// Threads:   one object per thread.
// Ownership: removes the temporary file on destruction unless it was committed.
// Errors:    kAlreadyExists: the path exists, and is left unchanged; kNoSpace, kIoError,
//            kPermission.
// Crash:     leaves ".NAME.tmp-DIGITS" in the same directory.
class NewFile {
 public:
  // `files` must outlive the object.
  static Result<NewFile> create(FileSystem& files, const std::string& path);
  NewFile(NewFile&&) noexcept = default;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  Status append(std::span<const std::byte> bytes);
  uint64_t bytes() const { return bytes_; }  // bytes appended
  // Writes the buffered data, syncs the file and renames it to its final name.
  Status commit();

 private:
  NewFile(FileSystem& files, std::string path, std::string temporary, UniqueFd fd)
      : files_(&files),
        path_(std::move(path)),
        temporary_(std::move(temporary)),
        fd_(std::move(fd)) {}
  Status flush();

  FileSystem* files_;
  std::string path_;
  std::string temporary_;
  UniqueFd fd_;  // invalid after a commit or move
  std::vector<std::byte> buffer_;
  uint64_t bytes_ = 0;
};

struct ExportPart {
  std::string name;  // "model"
  const TensorRangeSource* file = nullptr;
  TiedNames tied = {};  // not written by export_safetensors(), whose files hold a tensor once
  // If set, export_safetensors() writes the names that it returns, and transposed weights, of which
  // one at a time is in memory. kInvalidArgument: a tensor has none.
  std::function<std::optional<HuggingFaceNames::Name>(std::string_view name)> rename = {};
};

// Tensors of a single part keep their names; with several parts, the name of the part and a dot are
// prepended. The caller commits the file.
Status export_safetensors(std::span<const ExportPart> parts,
                          const std::map<std::string, std::string>& metadata, NewFile& out,
                          const OnBytes& on_bytes);
// The names of a flattened {"model": model.state_dict(), "optim": {"state": …}}, as
// torch.distributed.checkpoint has them: model.NAME, optim.state.NAME.exp_avg.
Status export_state_dict(std::span<const ExportPart> parts, NewFile& out, const OnBytes& on_bytes);
// A dict of name -> tensor; with several parts, a dict of such dicts keyed by part name, plus
// `step`.
Status export_torch(std::span<const ExportPart> parts, uint64_t step, NewFile& out,
                    const OnBytes& on_bytes);

}  // namespace stoker::checkpoint
