// export_tensors: the tensors of a checkpoint as one file for other programs: .safetensors, or what
// torch.load(weights_only=True) reads. Piece by piece: no tensor has to be in memory.
//
// Threads:  functions of their arguments.
// Blocking: as long as reading and writing all of it take.
// Errors:   those of SafetensorsFile and NewFile.
// Format:   docs/checkpoint-format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/checkpoint/hashed_files.h"
#include "shared/checkpoint/safetensors.h"

namespace stoker::checkpoint {

// A file that is written front to back and is there as a whole, or not at all.
//
// Threads: one object per thread.
// Owner:   what was not committed is removed with the object.
// Errors:  kAlreadyExists: something has the name, which is left alone; kNoSpace, kIoError,
//          kPermission.
// Crash:   leaves ".NAME.tmp-PID" beside it.
class NewFile {
 public:
  // `files` must outlive the object.
  static Result<NewFile> create(FileSystem& files, const std::string& path);
  NewFile(NewFile&&) noexcept = default;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  Status append(std::span<const std::byte> bytes);
  uint64_t bytes() const { return bytes_; }  // appended so far
  // Writes the rest, syncs, and gives the file its name.
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
  UniqueFd fd_;  // closed: committed, or moved from
  std::vector<std::byte> gathered_;
  uint64_t bytes_ = 0;
};

struct ExportPart {
  std::string name;  // "model"
  const SafetensorsFile* file = nullptr;
};

// A single part keeps its names; of several, each name is preceded by the part's and a dot. To commit
// the file is left to the caller.
Status export_safetensors(std::span<const ExportPart> parts,
                          const std::map<std::string, std::string>& metadata, NewFile& out,
                          const OnBytes& on_bytes);
// A dict of name -> tensor; of several parts, a dict of such dicts by the parts' names, with `step`.
Status export_torch(std::span<const ExportPart> parts, uint64_t step, NewFile& out,
                    const OnBytes& on_bytes);

}  // namespace stoker::checkpoint
