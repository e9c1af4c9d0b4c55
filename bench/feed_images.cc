// JPEG files per second that the worker pool reads, decodes, crops, resizes and writes to the ring.
//
// The baseline for large images is libjpeg alone, which decodes the same images from memory in full
// size with the same number of threads and without resizing. The baseline for small images also
// opens, reads and closes the files, which is half of the work there. It reads them in random order
// like a shuffled dataset, because neighboring names and pages are found faster.
//
// The baseline for small images from the decoded cache (`cache: {type: decoded}`) is pread of the
// same number of bytes, because nothing else remains to be done.
//
// With --baselines, the data loaders of PyTorch and TensorFlow are measured as well, on the same
// files.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/benches.h"
#include "bench/feed_run.h"
#include "bench/jpeg_folder.h"
#include "bench/jpeg_image.h"
#include "bench/python_baseline.h"
#include "shared/base/file.h"
#include "shared/feed/worker_pool.h"

namespace stoker::bench {
namespace {

using Folder = std::shared_ptr<JpegFolder>;

constexpr int64_t kSide = 224;
constexpr uint32_t kSmallSide = 32;
constexpr uint64_t kIndexMultiplier = 0x9e3779b97f4a7c15u;

Status decode(const JpegFolder& folder, uint64_t call) {
  thread_local std::vector<std::byte> pixels;
  const std::string& jpeg = folder.jpegs[call % folder.jpegs.size()];
  return decode_jpeg(std::as_bytes(std::span(jpeg)), pixels);
}

Status read_and_decode(const JpegFolder& folder, uint64_t call) {
  thread_local std::vector<std::byte> bytes(1 << 16), pixels;
  const std::string& path = folder.paths[call * kIndexMultiplier % folder.paths.size()];
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const ssize_t got = fd.valid() ? ::read(fd.get(), bytes.data(), bytes.size()) : -1;
  if (got < 0) return Status::from_errno(errno, "read " + path);
  return decode_jpeg(std::span(bytes).first(static_cast<size_t>(got)), pixels);
}

// A file whose rows are the bytes of the samples, for the baseline that reads them.
struct RowFile {
  UniqueFd fd;
  uint64_t rows = 0;
  size_t row_bytes = 0;
};

Status read_row(const RowFile& file, uint64_t call) {
  thread_local std::vector<std::byte> row;
  row.resize(file.row_bytes);
  const auto offset = static_cast<off_t>(call * kIndexMultiplier % file.rows * file.row_bytes);
  if (::pread(file.fd.get(), row.data(), row.size(), offset) == static_cast<ssize_t>(row.size()))
    return {};
  return Status::from_errno(errno, "pread");
}

// A single thread is measured in CPU time, which does not depend on other load, several threads in
// wall time.
Measure measure_rate(int threads, std::function<Result<Rate>()> run) {
  return [=]() -> Result<double> {
    STOKER_ASSIGN_OR_RETURN(const Rate rate, run());
    return threads == 1 ? rate.per_cpu_second : rate.per_second;
  };
}

Trial trial(const std::string& what, const FeedRun& run, const Options& options,
            const std::shared_ptr<data::Dataset>& dataset, const std::string& baseline,
            const std::function<Status(uint64_t)>& baseline_call) {
  const auto time = options.run_time();
  const auto stoker_rate = [=] { return sample_rate(*dataset, run, time); };
  const auto baseline_rate = [=] { return call_rate(run.threads, time, baseline_call); };
  return {.metric = what + (run.threads == 1 ? ", 1 thread" : ", 2 threads"),
          .unit = run.threads == 1 ? "1/s of CPU time" : "1/s",
          .run = measure_rate(run.threads, stoker_rate),
          .baselines = {{.name = baseline, .run = measure_rate(run.threads, baseline_rate)}}};
}

// An environment below `options.baselines`, and the library in it.
using Libraries = std::vector<std::pair<const char*, const char*>>;
const Libraries kDecoding = {{"torch", "pillow"}, {"torch", "torchvision"}, {"torch", "simplejpeg"},
                             {"torch", "spdl"},   {"torch", "dali"},        {"tf", "tf.data"},
                             {"ffcv", "ffcv"}};
const Libraries kConverting = {{"ffcv", "ffcv"}};  // the files, converted to its own format
const Libraries kCaching = {{"tf", "tf.data"}, {"ffcv", "ffcv"}};  // samples cached after decoding

// Adds the baselines that start, for the images in `folder`.
void add_library_baselines(const Options& options, const Libraries& libraries,
                           const std::string& folder, const std::string& job, Trial& trial) {
  if (options.baselines.empty()) return;
  for (const auto& [environment, library] : libraries) {
    const std::string python = options.baselines + "/" + environment + "/bin/python";
    const auto baseline = find_python_baseline("feed-images, " + std::string(library), python,
                                               "feed_baseline.py", {library, folder, job});
    if (!baseline) continue;
    trial.baselines.push_back({library, [baseline, seconds = std::to_string(options.seconds)] {
                                 return baseline->request(seconds);
                               }});
  }
}

// `name`: "none", "packed", "packed_restart" or "decoded".
std::optional<config::CacheConfig> make_cache_config(const std::string& name) {
  if (name == "none") return std::nullopt;
  return config::CacheConfig{
      .type = name == "decoded" ? config::CacheType::kDecoded : config::CacheType::kPacked,
      .jpeg_restart_markers = name == "packed_restart",
      .dir = {}};
}

config::ImageFolderDataset images(config::Transform resizing, const std::string& cache) {
  return {.path = "", .transforms = {std::move(resizing)}, .cache = make_cache_config(cache)};
}

// The images of the folder with `config`, against libjpeg alone. `index`: the name of the index.
Result<Trial> large_trial(const Options& options, const Folder& folder, const std::string& what,
                          const config::ImageFolderDataset& config, const std::string& index,
                          int threads) {
  STOKER_ASSIGN_OR_RETURN(const auto dataset, folder->open(config, index));
  const FeedRun run{.batch = options.quick ? 4u : 64u, .threads = threads};
  return trial(what, run, options, dataset, "libjpeg alone, full size",
               [folder](uint64_t call) { return decode(*folder, call); });
}

Result<Trial> small_trial(const Options& options, const Folder& folder, const std::string& cache,
                          int threads) {
  STOKER_ASSIGN_OR_RETURN(
      const auto dataset,
      folder->open(images(config::Resize{{kSmallSide, kSmallSide}}, cache), "small-" + cache));
  const FeedRun run{.batch = options.quick ? 4u : 256u, .threads = threads};
  return trial(cache == "none" ? "JPEG files of 32x32" : "packed JPEG files of 32x32", run, options,
               dataset, "open, read, close and libjpeg alone",
               [folder](uint64_t call) { return read_and_decode(*folder, call); });
}

// Samples of the decoded cache: from its file, or from the sample cache in worker memory, as for a
// dataset that fits.
Result<Trial> decoded_trial(const Options& options, const Folder& folder, bool from_memory,
                            int threads) {
  STOKER_ASSIGN_OR_RETURN(const auto dataset,
                          folder->open(images(config::Resize{{kSmallSide, kSmallSide}}, "decoded"),
                                       "small-decoded", from_memory ? feed::kMaxCachedBytes : 0));
  FeedRun run{.batch = options.quick ? 4u : 256u, .threads = threads};
  run.unmeasured = 1 + dataset->size() / run.batch;  // the first epoch
  const auto file = std::make_shared<RowFile>(
      RowFile{.fd = {}, .rows = dataset->size(), .row_bytes = dataset->spec().front().bytes()});
  STOKER_ASSIGN_OR_RETURN(
      file->fd, default_file_system().open(
                    folder->scratch->file("index-small-decoded/train.samples.decoded"), O_RDONLY));
  const std::string what = "decoded JPEG files of 32x32";
  return trial(from_memory ? what + " from memory" : what, run, options, dataset,
               "pread of the same number of bytes",
               [file](uint64_t call) { return read_row(*file, call); });
}

Result<std::vector<Trial>> prepare(const Options& options) {
  STOKER_ASSIGN_OR_RETURN(const Folder generated,
                          make_jpeg_folder(options, options.quick ? 8 : 256, 500, 375));
  STOKER_ASSIGN_OR_RETURN(const Folder user_folder, find_user_jpeg_folder(options));
  const Folder& jpeg_images = user_folder ? user_folder : generated;
  const std::string source = user_folder ? "JPEG files of STOKER_DATA" : "JPEG files of 500x375";
  std::vector<Trial> trials;
  for (const auto& [cache, libraries] :
       {std::pair("none", kDecoding), std::pair("packed_restart", kConverting)}) {
    const std::string name = cache;
    const auto crop = images(config::RandomResizedCrop{{kSide, kSide}}, name);
    const std::string what = name == "none" ? source : name + ' ' + source;
    for (const int threads : {1, 2}) {
      STOKER_ASSIGN_OR_RETURN(
          auto cropped, large_trial(options, jpeg_images, what + ", random crops to 224x224", crop,
                                    "random-" + name, threads));
      if (threads == 1)
        add_library_baselines(options, libraries, jpeg_images->root, "large", cropped);
      trials.push_back(std::move(cropped));
    }
  }
  STOKER_ASSIGN_OR_RETURN(auto resized,
                          large_trial(options, jpeg_images, source + ", resized to 224x224",
                                      images(config::Resize{{kSide, kSide}}, "none"), "whole", 1));
  trials.push_back(std::move(resized));
  STOKER_ASSIGN_OR_RETURN(
      const Folder small_folder,
      make_jpeg_folder(options, options.quick ? 32 : 4096, kSmallSide, kSmallSide));
  for (const char* const cache : {"none", "packed"})
    for (const int threads : {1, 2}) {
      STOKER_ASSIGN_OR_RETURN(auto small_images,
                              small_trial(options, small_folder, cache, threads));
      if (threads == 1)
        add_library_baselines(options, kDecoding, small_folder->root, "small", small_images);
      trials.push_back(std::move(small_images));
    }
  for (const bool from_memory : {false, true})
    for (const int threads : {1, 2}) {
      STOKER_ASSIGN_OR_RETURN(auto decoded_images,
                              decoded_trial(options, small_folder, from_memory, threads));
      if (threads == 1)
        add_library_baselines(options, kCaching, small_folder->root, "cached", decoded_images);
      trials.push_back(std::move(decoded_images));
    }
  return trials;
}

}  // namespace

Benchmark feed_images() {
  return {"feed-images",
          "JPEG files per second from a folder (STOKER_DATA, or generated) into the ring", prepare};
}

}  // namespace stoker::bench
