// JPEG files per second that are read from a high-latency disk, cropped, resized and written to the
// ring, by number of reads in flight.
//
// The disk is simulated: each file arrives after 2 or 10 ms, regardless of the number of parallel
// requests, from data in memory. Two threads decode. The first baseline is the
// same pool without read-ahead and with as many threads as reads in flight, each of which reads and
// decodes. The second, if STOKER_PYTHON is a Python with torch and Pillow, is PyTorch's DataLoader
// with as many worker processes and the same delay per file.
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/benches.h"
#include "bench/feed_run.h"
#include "bench/jpeg_folder.h"
#include "bench/python_baseline.h"
#include "shared/data/dataset_decorator.h"
#include "shared/data/files/prefetched_bytes.h"

namespace stoker::bench {
namespace {

constexpr int64_t kSide = 224;
constexpr uint32_t kSmallSide = 32;
// Small, so that the warm-up is short with few reads in flight.
constexpr uint64_t kBatch = 16;
constexpr uint64_t kMemory = uint64_t{64} << 20;
constexpr int kMaxWorkers = 16;  // DataLoader worker processes

// A high-latency disk under a dataset: the bytes of each sample arrive after a delay, in the calling thread, and
// requests run in parallel without limit, as with a network file system or an object store.
class ThrottledDisk final : public data::DatasetDecorator, public data::SampleFiles {
 public:
  ThrottledDisk(const data::Dataset& inner, std::chrono::microseconds delay)
      : DatasetDecorator(inner), delay_(delay), info_(inner.info()) {
    info_.maybe_files = this;
  }

  const data::DatasetInfo& info() const override { return info_; }
  Status read(uint64_t sample, const data::RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    const bool is_prefetched = data::files::PrefetchedBytes::current() != nullptr;
    if (!is_prefetched) std::this_thread::sleep_for(delay_);
    return inner().read(sample, random_key, outputs);
  }
  void prefetch(uint64_t sample, data::files::PrefetchedBytes& bytes) const override {
    std::this_thread::sleep_for(delay_);
    inner().info().maybe_files->prefetch(sample, bytes);
  }

 private:
  const std::chrono::microseconds delay_;
  data::DatasetInfo info_;
};

struct ColdCache {
  std::shared_ptr<JpegFolder> folder;
  std::shared_ptr<data::Dataset> jpeg_images;
  std::unique_ptr<ThrottledDisk> disk;
  int delay_ms = 0;
};

Measure rate(std::shared_ptr<ColdCache> cold, const FeedRun& run, std::chrono::nanoseconds time) {
  return [=] { return samples_per_second(*cold->disk, run, time); };
}

void add_dataloader(const Options& options, const ColdCache& cold, int reads, Trial& trial) {
  const auto python = find_named_python();
  if (!python || options.quick || reads > kMaxWorkers) return;
  const auto baseline =
      find_python_baseline("feed-cold, DataLoader", *python, "cold_cache_baseline.py",
                           {cold.folder->root, std::to_string(reads), std::to_string(cold.delay_ms),
                            std::to_string(kBatch)});
  if (!baseline) return;
  trial.baselines.push_back(
      {"DataLoader, same number of workers", [baseline, seconds = std::to_string(options.seconds)] {
         return baseline->request(seconds);
       }});
}

Trial trial(const Options& options, const std::shared_ptr<ColdCache>& cold, const std::string& how,
            int reads, bool adapts) {
  const FeedRun stoker_run{
      .batch = kBatch,
      .threads = 2,
      .ahead = {.max_reads = reads, .adapts = adapts, .memory_bytes = kMemory}};
  const FeedRun threads{.batch = kBatch, .threads = reads};
  Trial trial{.metric = std::to_string(cold->delay_ms) + " ms a file, " + how,
              .unit = "1/s",
              .run = rate(cold, stoker_run, options.run_time()),
              .baselines = {{.name = "as many reading threads",
                             .run = rate(cold, threads, options.run_time())}}};
  add_dataloader(options, *cold, reads, trial);
  return trial;
}

// Overhead of the default read-ahead if there is no disk latency, for large and small images.
// Measured in CPU time, which does not depend on other load.
Trial memory_trial(const Options& options, const std::string& what,
                   const std::shared_ptr<JpegFolder>& folder,
                   const std::shared_ptr<data::Dataset>& jpeg_images, uint64_t batch) {
  const auto measure = [=, time = options.run_time()](const feed::ReadAheadOptions& ahead) {
    return [=, files = folder]() -> Result<double> {
      const FeedRun run{.batch = batch, .threads = 2, .ahead = ahead};
      STOKER_ASSIGN_OR_RETURN(const Rate rate, sample_rate(*jpeg_images, run, time));
      return rate.per_cpu_second;
    };
  };
  return {.metric = what + " in memory, read_ahead: auto",
          .unit = "1/s of CPU time",
          .run = measure(feed::make_read_ahead_options({}, 0, 1)),
          .baselines = {{.name = "read_ahead: 0", .run = measure({})}}};
}

config::ImageFolderDataset images(config::Transform resizing) {
  return {.path = "", .transforms = {std::move(resizing)}, .cache = {}};
}

Result<std::vector<Trial>> prepare(const Options& options) {
  STOKER_ASSIGN_OR_RETURN(auto folder, find_user_jpeg_folder(options));
  if (!folder) {
    STOKER_ASSIGN_OR_RETURN(folder, make_jpeg_folder(options, options.quick ? 8 : 256, 500, 375));
  }
  STOKER_ASSIGN_OR_RETURN(
      const std::shared_ptr<data::Dataset> jpeg_images,
      folder->open(images(config::RandomResizedCrop{{kSide, kSide}}), "random_crop"));
  STOKER_ASSIGN_OR_RETURN(
      const std::shared_ptr<JpegFolder> small,
      make_jpeg_folder(options, options.quick ? 32 : 4096, kSmallSide, kSmallSide));
  STOKER_ASSIGN_OR_RETURN(const std::shared_ptr<data::Dataset> small_images,
                          small->open(images(config::Resize{{kSmallSide, kSmallSide}}), "small"));
  std::vector<Trial> trials{
      memory_trial(options, "files", folder, jpeg_images, options.quick ? 4 : 64),
      memory_trial(options, "files of 32x32", small, small_images, options.quick ? 4 : 256)};
  for (const int delay_ms : {2, 10}) {
    const auto cold = std::make_shared<ColdCache>(ColdCache{
        .folder = folder,
        .jpeg_images = jpeg_images,
        .disk = std::make_unique<ThrottledDisk>(*jpeg_images, std::chrono::milliseconds(delay_ms)),
        .delay_ms = delay_ms});
    for (const int reads : {1, 4, 16, 64})
      trials.push_back(trial(
          options, cold, std::to_string(reads) + (reads == 1 ? " read" : " reads") + " in flight",
          reads, false));
    trials.push_back(trial(options, cold, "read_ahead: auto", 32, true));
    if (options.quick) break;
  }
  return trials;
}

}  // namespace

Benchmark feed_cold_cache() {
  return {"feed-cold", "JPEG files per second from a disk with a latency of 2 or 10 ms", prepare};
}

}  // namespace stoker::bench
