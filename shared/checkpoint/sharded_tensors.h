// ShardedTensors: the tensors of one or several files as one source, in which the files can have
// ranges of a tensor, such as the optimizer state of a sharded run.
//
// A range is a tensor of one dimension in the file. The metadata of the file has the shape of the
// complete tensor and the position of the range.
//
// Threads:  one object per thread.
// Errors:   create(): kCorrupt, with path and tensor: the ranges of a tensor leave a gap, overlap or
//           do not fit each other.
// Format:   docs/checkpoint-format.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "shared/base/status.h"
#include "shared/checkpoint/safetensors.h"
#include "shared/checkpoint/tensor_source.h"

namespace stoker::checkpoint {

struct TensorRange {
  std::vector<int64_t> shape;  // of the complete tensor
  uint64_t first_element = 0;  // in C order
  bool operator==(const TensorRange&) const = default;
};

// By tensor; those of a file that are not complete.
using TensorRanges = std::map<std::string, TensorRange>;

// The entry of the metadata of a file.
inline constexpr char kRangesKey[] = "ranges";
std::string format_ranges(const TensorRanges& ranges);

class ShardedTensors final : public TensorRangeSource {
 public:
  // `files`: in the order of the ranges. A tensor that is complete in several files is read from the
  // first.
  static Result<std::unique_ptr<ShardedTensors>> create(
      std::vector<std::unique_ptr<SafetensorsFile>> files);

  size_t num_files() const { return files_.size(); }
  // In the order in which they are first found, with the shapes of the complete tensors.
  const std::vector<TensorSpec>& tensors() const override { return specs_; }
  const TensorSpec* find(const std::string& name) const override;
  Status read(const std::string& name, std::span<std::byte> out) const override;
  Status read_part(const std::string& name, uint64_t offset,
                   std::span<std::byte> out) const override;

 private:
  struct Piece {
    const SafetensorsFile* file = nullptr;
    uint64_t begin = 0;  // byte of the complete tensor
    uint64_t bytes = 0;
  };
  ShardedTensors() = default;
  Status add(const SafetensorsFile& file);
  Status add(const SafetensorsFile& file, const TensorSpec& complete, const Piece& piece);
  Status check_complete() const;

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<TensorSpec> specs_;
  std::vector<std::vector<Piece>> pieces_;  // of specs_[i], in order
  std::unordered_map<std::string, size_t> index_;
};

}  // namespace stoker::checkpoint
