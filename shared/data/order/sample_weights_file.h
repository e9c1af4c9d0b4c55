// Weights files: one number a sample, by which samples are drawn.
//
// A user writes text (numbers with white space between them) or NumPy's .npy (one dimension,
// float32 or float64, little-endian), told by its first bytes. A run keeps what it read in files of
// its own, so that all processes draw by the same numbers whatever becomes of the user's.
//
// Format:  of the kept file: "STKWGHTS", u32 version 1, u32 0, u64 count, count f64, all
//          little-endian; at the end the SHA-256 of all before it, as 64 hexadecimal digits.
// Threads: any.
// Errors:  kNotFound, kPermission, kIoError; kCorrupt: not such a file, a number that is none or is
//          negative or not finite, all are 0; kMismatch: another count than that of the samples, or
//          a kept file of another version. The message names the file, and the number's place.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"

namespace stoker::data::order {

Result<std::vector<double>> read_weights_file(const std::string& path, uint64_t samples);
// `name` stands in the messages.
Result<std::vector<double>> parse_weights(std::string_view bytes, const std::string& name);

Status save_weights_snapshot(const std::vector<double>& weights, const std::string& path);
Result<std::vector<double>> load_weights_snapshot(const std::string& path);
std::string encode_weights_snapshot(const std::vector<double>& weights);
Result<std::vector<double>> decode_weights_snapshot(std::string_view bytes,
                                                    const std::string& name);

}  // namespace stoker::data::order
