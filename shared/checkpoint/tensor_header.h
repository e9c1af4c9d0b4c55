// TensorHeader: the JSON header of a .safetensors file: which tensors, where.
//
// Threads: values.
// Errors:  kCorrupt says what is wrong and, for JSON that does not parse, at which byte of the
//          header.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"

namespace stoker::checkpoint {

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the safetensors crate
inline constexpr size_t kMaxNameBytes = 512;
inline constexpr std::string_view kMetadataKey = "__metadata__";

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

}  // namespace stoker::checkpoint
