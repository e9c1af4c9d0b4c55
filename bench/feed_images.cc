// How many JPEG files a second the reader pool reads, decodes, resizes and brings into the ring,
// against libjpeg alone, which decodes the same pictures from memory in full size by as many
// threads and resizes nothing.
#include <memory>
#include <string>
#include <vector>

#include "bench/benches.h"
#include "bench/feed_run.h"
#include "bench/jpeg_picture.h"
#include "bench/scratch_folder.h"
#include "shared/base/file.h"

namespace stoker::bench {
namespace {

constexpr uint32_t kWidth = 500;
constexpr uint32_t kHeight = 375;
constexpr int64_t kSide = 224;

struct Pictures {
  std::shared_ptr<ScratchFolder> folder;
  std::vector<std::string> jpegs;
  std::unique_ptr<dataset::Dataset> dataset;
};

Result<std::shared_ptr<Pictures>> make_pictures(const Options& options) {
  auto pictures = std::make_shared<Pictures>();
  STOKER_ASSIGN_OR_RETURN(pictures->folder, ScratchFolder::create(options.dir));
  const std::string root = pictures->folder->file("pictures");
  const uint64_t count = options.quick ? 8 : 256;
  for (uint64_t i = 0; i < count; ++i) {
    const std::string folder = root + (i % 2 == 0 ? "/even" : "/odd");
    if (i < 2) STOKER_RETURN_IF_ERROR(make_directories(real_files(), folder));
    STOKER_ASSIGN_OR_RETURN(std::string jpeg, make_jpeg(kWidth, kHeight, i));
    STOKER_RETURN_IF_ERROR(
        write_file_atomically(real_files(), folder + "/" + std::to_string(i) + ".jpg", jpeg));
    pictures->jpegs.push_back(std::move(jpeg));
  }
  const config::DatasetConfig config{.kind = config::DatasetKind::kImages,
                                     .path = root,
                                     .glob = "**/*.jpg",
                                     .size = {kSide, kSide}};
  STOKER_ASSIGN_OR_RETURN(pictures->dataset, open_train_set(config, pictures->folder->path()));
  return pictures;
}

Status decode(const Pictures& pictures, uint64_t call) {
  thread_local std::vector<std::byte> pixels;
  const std::string& jpeg = pictures.jpegs[call % pictures.jpegs.size()];
  return decode_jpeg(std::as_bytes(std::span(jpeg)), pixels);
}

}  // namespace

Benchmark feed_images() {
  const auto prepare = [](const Options& options) -> Result<std::vector<Trial>> {
    STOKER_ASSIGN_OR_RETURN(const auto pictures, make_pictures(options));
    const FeedRun run{.batch = options.quick ? 4u : 32u, .threads = reader_threads()};
    const auto time = options.run_time();
    return std::vector<Trial>{
        {"JPEG files of 500x375 to 224x224, " + std::to_string(run.threads) + " threads",
         "1/s",
         [=] { return samples_per_second(*pictures->dataset, run, time); },
         {{"libjpeg alone, full size", [=] {
             return calls_per_second(run.threads, time,
                                     [&](uint64_t call) { return decode(*pictures, call); });
           }}}}};
  };
  return {"feed-images", "JPEG files a second from a folder into the ring", prepare};
}

}  // namespace stoker::bench
