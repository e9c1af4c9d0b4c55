// safetensors: builds and reads .safetensors files. Stricter than the reference implementation; see
// docs/checkpoint-format.md.
//
// Threads:  one object per thread.
// Errors:   reading: kCorrupt with path and offset for anything that the format does not allow,
//           detected before memory is allocated for it; kIoError, kNotFound.
#pragma once

#include <cstdint>
#include <functional>
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

// Limits of one file. A header of the largest models has less than 10 MB; the safetensors crate
// accepts 100 MB and any number of the others.
inline constexpr uint64_t kMaxHeaderBytes = uint64_t{32} << 20;
inline constexpr size_t kMaxMetadataEntries = 10'000;
inline constexpr size_t kMaxNameBytes = 512;
inline constexpr std::string_view kMetadataKey = "__metadata__";

// ---- The JSON header: names and extents of the tensors. The message of kCorrupt contains the
// problem and, for invalid JSON, the byte offset in the header.

struct TensorExtent {
  TensorSpec spec;
  uint64_t begin = 0;  // start of its data, relative to the end of the header
  uint64_t end = 0;
};

struct TensorHeader {
  std::vector<TensorExtent> tensors;  // by offset: contiguous, the first at 0
  std::map<std::string, std::string> metadata;
};

// Accepts only tensors that fill `data_bytes` without gaps or overlaps, at most kMaxTensors with
// at most kMaxDimensions. Memory use is proportional to `json`.
Result<TensorHeader> parse_tensor_header(std::string_view json, uint64_t data_bytes);

// The header with its length prefix, padded with spaces so that the data starts at a multiple of 8.
std::string format_tensor_header(const TensorHeader& header);

// Size of the tensor in bytes. nullopt: a negative extent, or the number of elements or bytes
// exceeds 63 bits.
std::optional<uint64_t> checked_bytes(const TensorSpec& spec);

// kInvalidArgument: longer than kMaxNameBytes, contains a control character, or is kMetadataKey.
Status check_tensor_name(std::string_view name);

// A file ready to be written: its header, and references to the tensor data.
struct SafetensorsContent {
  std::vector<std::byte> head;  // the first of the pieces
  FileContent content;          // not owned, except for the head

  SafetensorsContent() = default;
  SafetensorsContent(SafetensorsContent&&) = default;
  SafetensorsContent& operator=(SafetensorsContent&&) = default;
};

// Tensors are ordered by decreasing element size and otherwise keep the given order. Each then
// starts at a multiple of its element size, which PyTorch requires for loading. kInvalidArgument: a
// view that does not match its spec, an invalid name, a duplicate name.
Result<SafetensorsContent> make_safetensors_layout(
    const std::string& name, const TensorViews& tensors,
    const std::map<std::string, std::string>& metadata);

// A file opened for reading. The header is validated; tensors are read on demand with pread.
class SafetensorsFile final : public TensorRangeSource {
 public:
  // Opens the file once more; it must return the same content each time.
  using Opener = std::function<Result<UniqueFd>()>;

  static Result<std::unique_ptr<SafetensorsFile>> open(const std::string& path);
  static Result<std::unique_ptr<SafetensorsFile>> open_fd(UniqueFd fd,
                                                          const std::string& path_in_messages);
  // Opens the file for each read and closes it after that: for more files than a process may have
  // open. Errors of `open` are those of reads.
  static Result<std::unique_ptr<SafetensorsFile>> open_for_each_read(
      Opener open, const std::string& path_in_messages);
  ~SafetensorsFile() override;

  const std::vector<TensorSpec>& tensors() const override;
  const std::map<std::string, std::string>& metadata() const;
  const TensorSpec* find(const std::string& name) const override;
  Status read(const std::string& name, std::span<std::byte> out) const override;
  Status read_part(const std::string& name, uint64_t offset,
                   std::span<std::byte> out) const override;
  const std::string& path() const;  // in messages

 private:
  struct State;
  explicit SafetensorsFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace stoker::checkpoint
