// Safetensors: writes and reads one .safetensors file. Stricter than the format's own readers: see
// docs/checkpoint-format.md.
//
// Threads: one object per thread.
// Errors:  writing: kNoSpace, kIoError. Reading: kCorrupt with file and offset for anything the
//          format does not allow, found before any memory is allocated for it; kIoError, kNotFound.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/checkpoint/hashed_files.h"
#include "shared/checkpoint/tensor_source.h"
#include "shared/checkpoint/tensor_view.h"

namespace stoker::checkpoint {

// A file ready to be written: its header, and where the tensors' bytes lie.
struct SafetensorsContent {
  std::vector<std::byte> head;  // the first of the pieces
  FileContent content;          // of memory that somebody else owns, the head apart

  SafetensorsContent() = default;
  SafetensorsContent(SafetensorsContent&&) = default;
  SafetensorsContent& operator=(SafetensorsContent&&) = default;
};

// Tensors are laid out with the largest element size first and otherwise in the order given: then
// each begins at a multiple of its element size, without which PyTorch cannot load it.
// kInvalidArgument: a view that does not fit its spec, a bad name, a name twice.
Result<SafetensorsContent> make_safetensors_layout(
    const std::string& name, const TensorViews& tensors,
    const std::map<std::string, std::string>& metadata);

// Lays out, creates `directory`/`name` (it must not exist), writes it and syncs it. Nothing is
// written of what cannot be laid out.
Result<WrittenFile> write_safetensors(FileSystem& files, const std::string& directory,
                                      const std::string& name, const TensorViews& tensors,
                                      const std::map<std::string, std::string>& metadata);

// A file opened for reading: the header is checked, tensors are read on demand with pread.
class SafetensorsFile final : public TensorSource {
 public:
  static Result<std::unique_ptr<SafetensorsFile>> open(const std::string& path);
  static Result<std::unique_ptr<SafetensorsFile>> open_fd(UniqueFd fd,
                                                          const std::string& path_in_messages);
  ~SafetensorsFile() override;

  const std::vector<TensorSpec>& tensors() const override;
  const std::map<std::string, std::string>& metadata() const;
  const TensorSpec* find(const std::string& name) const override;
  Status read(const std::string& name, std::span<std::byte> out) const override;
  // Part of a tensor's bytes, from `offset` on; the part must lie inside the tensor.
  Status read_part(const std::string& name, uint64_t offset, std::span<std::byte> out) const;

 private:
  struct State;
  explicit SafetensorsFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace stoker::checkpoint
