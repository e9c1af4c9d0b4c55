// Sample weights files: one number per sample, used for weighted sampling.
//
// The user provides text (numbers separated by white space) or a NumPy .npy file (one dimension,
// float32 or float64, little-endian); the format is detected from the first bytes. A run saves what
// it has read in its own snapshot files, so that all processes use the same weights even if the
// user's file changes.
//
// Format:  of a snapshot: "STKWGHTS", u32 version 1, u32 0, u64 count, count f64, all
//          little-endian. Ends with the SHA-256 of everything before it, as 64 hexadecimal digits.
// Threads: any.
// Errors:  kNotFound, kPermission, kIoError; kCorrupt: invalid file, or a weight that is not a
//          number, negative or not finite, or all weights are 0; kMismatch: the count differs from
//          the number of samples, or a snapshot of another version. The message names the file and
//          the line or index of the weight.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"

namespace stoker::data::order {

Result<std::vector<double>> read_weights_file(const std::string& path, uint64_t samples);
// `name` appears in the messages.
Result<std::vector<double>> parse_weights(std::string_view bytes, const std::string& name);

Status save_weights_snapshot(const std::vector<double>& weights, const std::string& path);
Result<std::vector<double>> load_weights_snapshot(const std::string& path);
std::string encode_weights_snapshot(const std::vector<double>& weights);
Result<std::vector<double>> decode_weights_snapshot(std::string_view bytes,
                                                    const std::string& name);

}  // namespace stoker::data::order
