// FeedConfig: the settings of the section feed: workers, sample order and limits.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "shared/config/enum_words.h"

namespace stoker::config {

enum class ProducerMode { kInternal, kBoth, kExternal };
template <>
inline constexpr auto kWords<ProducerMode> = words("internal", "both", "external");
enum class ShuffleMode { kFull, kNone, kBlock, kShards };
template <>
inline constexpr auto kWords<ShuffleMode> = words("full", "none", "block", "shards");
enum class LastBatchPolicy { kCarryOver, kDrop, kPad };
template <>
inline constexpr auto kWords<LastBatchPolicy> = words("carry_over", "drop", "pad");
enum class OnSampleError { kSkip, kFail };
template <>
inline constexpr auto kWords<OnSampleError> = words("skip", "fail");

struct FeedConfig {
  ProducerMode producers = ProducerMode::kInternal;
  std::optional<int> num_workers = 2;  // threads in total; null: auto
  int num_processes = 1;  // processes that share the workers; 0: the workers are threads of stokerd
  int prefetch_batches = 8;  // capacity of the ring
  ShuffleMode shuffle = ShuffleMode::kFull;
  uint64_t shuffle_block_size = 10000;  // kBlock: samples that are mixed with each other
  uint64_t shuffle_open_shards = 8;     // kShards: shards that are mixed with each other
  LastBatchPolicy last_batch = LastBatchPolicy::kCarryOver;
  std::vector<int64_t> bucket_boundaries;  // inclusive upper bounds of sample lengths
  OnSampleError on_sample_error = OnSampleError::kSkip;
  double max_sample_error_rate = 0.001;                   // 0 to 1; the run fails above it
  double refresh_interval_seconds = 60;                   // between scans for new data
  std::optional<double> worker_timeout_seconds = 60;      // without progress; null: never
  int max_restarts_per_minute = 30;                       // of worker processes
  std::optional<int64_t> worker_memory_limit_mib = 2048;  // address space per worker thread
  bool sandbox = true;  // restrict worker processes to the system calls that reading needs
  std::optional<int> read_ahead;  // maximum reads in flight, over all workers; null: auto
  int64_t read_ahead_mib = 64;    // maximum data that is read but not decoded, over all workers

  bool operator==(const FeedConfig&) const = default;
};

}  // namespace stoker::config
