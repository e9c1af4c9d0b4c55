// DecodedCacheFile: the tensors of all samples of a dataset in one file, shared by all processes
// that have it open: `cache: {type: decoded}`. Each sample is written by the first process that
// reads it.
//
// It is only a cache: a sample that is missing, partially written or corrupt is not returned, and
// the caller decodes it and writes it again.
//
// Format:   little-endian, version 1. A Header (decoded_cache_file.cc), then one slot per sample:
//           its tensors in sequence and a Check. Missing samples are zeros.
// Threads:  every method may be called from any thread, concurrently.
// Blocking: for the disk.
// Errors:   make(): kNoSpace, kIoError, kPermission; no file is created. open(): the same,
//           kNotFound, and kMismatch if the file is for other samples, has another version or is
//           not a cache file.
// Crash:    complete samples remain; a partially written one fails its checksum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/data/cache/cache_location.h"
#include "shared/data/files/prefetched_bytes.h"

namespace stoker::data::cache {

class DecodedCacheFile {
 public:
  struct Form {
    uint64_t samples = 0;
    std::vector<size_t> tensor_bytes;  // of each tensor of a sample
    std::string identity;              // hex SHA-256 of everything that determines the samples

    uint64_t sample_bytes() const;
    uint64_t file_bytes() const;
  };

  // Keeps an existing file of this form. Otherwise creates one and reserves disk space for all
  // samples. Waits for another run that does so.
  static Status make(const CacheLocation& location, const Form& form,
                     const files::ScanProgress& progress);
  // Only for reading, if the file or its folder permits no more.
  static Result<std::unique_ptr<DecodedCacheFile>> open(const CacheLocation& location, Form form);

  // False if the sample is missing or corrupt; the outputs are then unspecified.
  bool take(uint64_t sample, std::span<const std::span<std::byte>> outputs) const;
  // Tried once; after a failed write the sample is missing. Does nothing if !is_writable().
  void put(uint64_t sample, std::span<const std::span<std::byte>> outputs) const;
  // Stores in `bytes` what take() of this sample will use; false if the sample is missing.
  bool prefetch(uint64_t sample, files::PrefetchedBytes& bytes) const;
  bool is_writable() const { return is_writable_; }
  int descriptor() const { return fd_.get(); }  // the one that put() writes to

 private:
  DecodedCacheFile(UniqueFd fd, bool is_writable, Form form);
  files::ByteRange byte_range(uint64_t sample) const;

  // Constant after construction.
  const UniqueFd fd_;
  const bool is_writable_;
  const Form form_;
  const uint64_t slot_bytes_;  // size of a sample and its Check
};

}  // namespace stoker::data::cache
