// Safetensors: writes and reads one .safetensors file. Stricter than the format's own readers: see
// docs/checkpoint-format.md.
//
// Threads: one object per thread.
// Errors:  writing: kNoSpace, kIoError. Reading: kCorrupt with file and offset for anything the
//          format does not allow, found before any memory is allocated for it; kIoError, kNotFound.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/checkpoint/hashed_files.h"
#include "shared/checkpoint/tensor_source.h"

namespace stoker::checkpoint {

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the safetensors crate
inline constexpr size_t kMaxNameBytes = 512;
inline constexpr std::string_view kMetadataKey = "__metadata__";

// ---- The JSON header: which tensors, where. kCorrupt says what is wrong and, for JSON that does not
// parse, at which byte of the header.

struct TensorExtent {
  TensorSpec spec;
  uint64_t begin = 0;  // of its bytes, counted from the end of the header
  uint64_t end = 0;
};

struct TensorHeader {
  std::vector<TensorExtent> tensors;  // by offset: contiguous, the first at 0
  std::map<std::string, std::string> metadata;
};

// Accepts only what fills `data_bytes` without hole or overlap. Allocates in proportion to `json`.
Result<TensorHeader> parse_tensor_header(std::string_view json, uint64_t data_bytes);

// The header with its length in front, padded with spaces so that the data begin at a multiple
// of 8.
std::string format_tensor_header(const TensorHeader& header);

// The tensor's bytes by dtype and shape. nullopt: a negative extent, or more elements or bytes than 63
// bits count.
std::optional<uint64_t> checked_bytes(const TensorSpec& spec);

// kInvalidArgument: longer than kMaxNameBytes, holds a control character, or is kMetadataKey.
Status check_tensor_name(std::string_view name);

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
