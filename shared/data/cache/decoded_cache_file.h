// DecodedCacheFile: the tensors of every sample of a set in one file, each put in by whoever reads it
// first, for all processes that have the file open: `cache: {type: decoded}`.
//
// A cache and no more: a sample that is not there, was written in part, or is damaged is not given;
// whoever asks takes it from where it comes from, and puts it in again.
//
// Format:   little-endian, version 1. A Header (decoded_cache_file.cc), then a place for each sample: its
//           tensors one after another, and a Check. What is not there is zeros.
// Threads:  every method may be called from any thread, concurrently.
// Blocking: as the disk does.
// Errors:   make(): kNoSpace, kIoError, kPermission, and no file has then been made. open(): the
//           same, kNotFound, and kMismatch where the file is of other samples or of another version,
//           or is no such file.
// Crash:    leaves what was put in; a sample that was half written does not fit its checksum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/data/files/prefetched_bytes.h"

namespace stoker::data::cache {

class DecodedCacheFile {
 public:
  struct Form {
    uint64_t samples = 0;
    std::vector<size_t> tensor_bytes;  // of each tensor of a sample
    std::string identity;              // hex SHA-256 of all that decides what the samples are

    uint64_t sample_bytes() const;
    uint64_t file_bytes() const;
  };

  // Leaves a file of this form as it is; otherwise makes one, with room on the disk for every sample,
  // where no other process writes to its folder.
  static Status make(const std::string& path, const Form& form);
  static Result<std::unique_ptr<DecodedCacheFile>> open(const std::string& path, Form form);

  // False where the sample is not there, or is not what was put in; the outputs are then unspecified.
  bool take(uint64_t sample, std::span<const std::span<std::byte>> outputs) const;
  // Tried once: what cannot be written is not there.
  void put(uint64_t sample, std::span<const std::span<std::byte>> outputs) const;
  // What take() of this sample will take from `bytes`; false where it is not there.
  bool prefetch(uint64_t sample, files::PrefetchedBytes& bytes) const;
  int descriptor() const { return fd_.get(); }  // that put() writes to

 private:
  DecodedCacheFile(UniqueFd fd, Form form);
  files::ByteRange byte_range(uint64_t sample) const;

  // Constant after construction.
  const UniqueFd fd_;
  const Form form_;
  const uint64_t slot_bytes_;  // of a sample and its check
};

}  // namespace stoker::data::cache
