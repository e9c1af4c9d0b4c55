// FeedConfig: the settings under feed: who reads samples, in which order, and how they are looked after.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace stoker::config {

enum class Isolation { kProcess, kThread };
enum class Shuffle { kFull, kOff, kWindow, kShards };
enum class LastBatch { kSpan, kDrop, kPad };
enum class OnBadSample { kSkip, kStop };
enum class FeedSource { kReaders, kBoth, kOutside };

struct FeedConfig {
  FeedSource source = FeedSource::kReaders;
  std::optional<int> readers = 2;  // reading threads in all; nothing: auto, as many as it takes
  int processes = 1;  // reader processes (isolation: process); the threads are shared out
  Isolation isolation = Isolation::kProcess;
  int slots = 8;  // batches that the ring holds
  Shuffle shuffle = Shuffle::kFull;
  uint64_t window = 10000;   // window: samples that are mixed with each other
  uint64_t shards_open = 8;  // shards: shards whose samples are mixed with each other
  LastBatch last_batch = LastBatch::kSpan;
  // Of sequences of various lengths: batches are padded to these lengths, each of samples that are not
  // longer; above them data.train.longest. Empty: all to data.train.longest.
  std::vector<int64_t> buckets;
  OnBadSample on_bad_sample = OnBadSample::kSkip;
  double bad_sample_limit = 0.001;  // stop when more than this part of the samples was bad
  double rescan_seconds = 60;       // between looks for what came to sets that grow
  double hang_seconds = 60;         // without a sign of work, and a reader is killed; 0 = never
  int deaths_per_minute = 30;       // of reader processes; past it the run ends
  int64_t memory_mib = 2048;  // address space of a reader process, for each of its threads; 0 = any
  bool confined = true;       // reader processes may make only the system calls of reading
  // Reads in flight before their samples are decoded, of all readers; nothing: auto. 0: none.
  std::optional<int> read_ahead = std::nullopt;
  int64_t read_ahead_mib = 64;  // of what was asked for and is not decoded yet, of all readers

  bool operator==(const FeedConfig&) const = default;
};

}  // namespace stoker::config
