#include "shared/data/cache/packed_images.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/hash.h"
#include "shared/base/log.h"
#include "shared/data/cache/cache_location.h"
#include "shared/data/files/derived_file.h"
#include "shared/data/files/scan.h"
#include "shared/image/add_restart_markers.h"

namespace stoker::data::cache {
namespace {

// Amount read before it is written, in bytes and in files; the first limit reached applies.
constexpr uint64_t kGroupBytes = uint64_t{64} << 20;
constexpr size_t kGroupFiles = 4096;
// Number of concurrent reads: needed for disks with high latency, harmless for fast ones.
constexpr size_t kWorkers = 16;
// Additional disk space for rewritten files, as a divisor of their size.
constexpr uint64_t kRewritingPart = 16;

using Contents = std::vector<std::vector<std::byte>>;

// The first file after the group that starts at `begin`, which contains at least one file.
size_t group_end(const files::FileTable& files, size_t begin) {
  size_t end = begin;
  uint64_t bytes = 0;
  while (end < files.size() && end - begin < kGroupFiles &&
         (end == begin || bytes + files.stamp(end).size <= kGroupBytes))
    bytes += files.stamp(end++).size;
  return end;
}

// Reads contents.size() files, starting with `begin`.
Status read_group(const files::FileReader& reader, size_t begin, const PackOptions& packing,
                  Contents& contents) {
  std::atomic<size_t> next{0};
  const size_t readers = std::max<size_t>(kWorkers, std::thread::hardware_concurrency());
  std::vector<Status> results(std::min(readers, contents.size()));
  std::vector<std::jthread> threads;
  for (Status& result : results)
    threads.emplace_back([&] {
      for (size_t i = next++; i < contents.size() && result.ok(); i = next++) {
        result = reader.read_whole(begin + i, packing.limit, contents[i]);
        if (result.ok() && packing.rewrite) packing.rewrite(contents[i]);
      }
    });
  threads.clear();  // joins
  for (const Status& result : results) STOKER_RETURN_IF_ERROR(result);
  return {};
}

Status write_group(int fd, const std::string& path, const Contents& contents) {
  std::vector<std::byte> joined;
  for (const auto& bytes : contents) joined.insert(joined.end(), bytes.begin(), bytes.end());
  return default_file_system().write(fd, joined, path);
}

uint64_t size_in_bytes(const files::FileTable& files) {
  uint64_t bytes = 0;
  for (size_t file = 0; file < files.size(); ++file) bytes += files.stamp(file).size;
  return bytes;
}

std::vector<std::byte> trailer_of(std::vector<uint64_t> sizes) {
  sizes.push_back(sizes.size());
  const auto bytes = std::as_bytes(std::span(sizes));
  return {bytes.begin(), bytes.end()};
}

// Reads the sizes at the end of a pack of rewritten files.
Result<std::vector<uint64_t>> read_sizes(const files::FileTable& pack, size_t count) {
  std::vector<uint64_t> sizes(count + 1);
  const uint64_t bytes = pack.stamp(0).size, trailer = sizes.size() * sizeof(uint64_t);
  const Status wrong(StatusCode::kCorrupt, "not a pack of these files");
  if (bytes < trailer) return wrong;
  STOKER_RETURN_IF_ERROR(
      files::FileReader(pack).read(0, bytes - trailer, std::as_writable_bytes(std::span(sizes))));
  if (sizes.back() != count) return wrong;
  sizes.pop_back();
  uint64_t left = bytes - trailer;
  for (const uint64_t size : sizes) {
    if (size > left) return wrong;
    left -= size;
  }
  if (left != 0) return wrong;
  return sizes;
}

// `sizes`: number of bytes written for each file.
Status write_pack(const files::FileTable& files, const PackOptions& packing, int fd,
                  const std::string& path, const files::ScanProgress& progress,
                  std::vector<uint64_t>& sizes) {
  const files::FileReader reader(files);
  for (size_t begin = 0; begin < files.size();) {
    Contents contents(group_end(files, begin) - begin);
    STOKER_RETURN_IF_ERROR(read_group(reader, begin, packing, contents));
    STOKER_RETURN_IF_ERROR(write_group(fd, path, contents));
    for (const auto& bytes : contents) sizes.push_back(bytes.size());
    begin += contents.size();
    progress(begin, "files packed");
  }
  return packing.rewrite ? default_file_system().write(fd, trailer_of(sizes), path) : Status();
}

}  // namespace

bool open_pack(const files::FileTable& files, const PackOptions& packing,
               files::IndexMetadata& metadata) {
  files::FileTable found;
  if (!files::scan_file(packing.path, found).ok()) return false;
  if (packing.rewrite) {
    auto sizes = read_sizes(found, files.size());
    if (!sizes) return false;
    metadata.pack_sizes = *std::move(sizes);
  } else if (found.stamp(0).size != size_in_bytes(files)) {
    return false;
  }
  metadata.made.add(found.name(0), found.stamp(0));
  log_info("packed cache reused", {{"files", files.size()},
                                   {"bytes", metadata.made.stamp(metadata.made.size() - 1).size},
                                   {"path", packing.path}});
  return true;
}

Status build_pack(const files::FileTable& files, const PackOptions& packing,
                  const files::ScanProgress& progress, files::IndexMetadata& metadata) {
  const uint64_t bytes = size_in_bytes(files);
  const uint64_t more = packing.rewrite ? bytes / kRewritingPart : 0;
  STOKER_RETURN_IF_ERROR(
      files::check_free_space(packing.path, bytes + more, "a pack of the files", packing.setting));
  std::vector<uint64_t> sizes;
  sizes.reserve(files.size());
  const auto write = [&](int fd, const std::string& name) {
    return write_pack(files, packing, fd, name, progress, sizes);
  };
  STOKER_RETURN_IF_ERROR(files::write_derived_file(packing.path, write, metadata.made));
  if (packing.rewrite) metadata.pack_sizes = std::move(sizes);
  log_info("packed cache built",
           {{"files", files.size()},
            {"bytes", bytes},
            {"packed_bytes", metadata.made.stamp(metadata.made.size() - 1).size},
            {"path", packing.path}});
  return {};
}

PackedFiles::Pack::Pack(const files::FileTable& files, const files::IndexMetadata& metadata)
    : table(metadata.made), reader(table) {
  ends.reserve(files.size());
  uint64_t end = 0;
  for (size_t file = 0; file < files.size(); ++file) {
    end += metadata.pack_sizes.empty() ? files.stamp(file).size : metadata.pack_sizes[file];
    ends.push_back(end);
  }
}

bool PackedFiles::fits(const files::FileTable& files, const files::IndexMetadata& metadata) {
  return metadata.made.size() <= 1 &&
         (metadata.pack_sizes.empty() ||
          (metadata.pack_sizes.size() == files.size() && metadata.made.size() == 1));
}

PackedFiles::PackedFiles(const files::FileTable& files, const files::IndexMetadata& metadata)
    : files_(files),
      reader_(files_),
      pack_(metadata.made.size() == 0 ? nullptr : std::make_unique<Pack>(files, metadata)) {
  assert(fits(files, metadata));
}

Status PackedFiles::read(size_t file, uint64_t limit, std::vector<std::byte>& bytes) const {
  if (!pack_ || pack_->size(file) > limit) return reader_.read_whole(file, limit, bytes);
  bytes.resize(pack_->size(file));
  const Status read = pack_->reader.read(0, pack_->begin(file), bytes);
  return read.ok() ? read : read.with_context(files_.path(file) + " in its pack");
}

void PackedFiles::prefetch(size_t file, uint64_t limit, files::PrefetchedBytes& bytes) const {
  if (!pack_ || pack_->size(file) > limit) return reader_.prefetch_whole(file, limit, bytes);
  pack_->reader.prefetch(0, pack_->begin(file), pack_->size(file), bytes);
}

namespace {

// Memory limit per thread, for the coefficients of one image. A JPEG of more than 20 million pixels
// remains unchanged.
constexpr uint64_t kRewritingMemory = uint64_t{128} << 20;

void rewrite(std::vector<std::byte>& image_file) {
  auto rewritten = image::add_restart_markers(image_file, {.memory_bytes = kRewritingMemory});
  if (rewritten) image_file = std::move(*rewritten);
}

std::string content_of(const files::FileTable& files, const config::CacheConfig& cache) {
  Sha256 hash;
  hash.update(cache_suffix(cache) + '\n');
  files.add_to(hash);
  return hash.finish_hex();
}

}  // namespace

bool is_packed(const DatasetRequest& request) {
  return request.config.cache() && request.config.cache()->type == config::CacheType::kPacked;
}

Result<files::IndexMetadata> pack_images(const DatasetRequest& request,
                                         const files::FileTable& files,
                                         files::IndexMetadata metadata,
                                         const files::ScanProgress& progress) {
  for (const bool has_markers : {false, true})
    remove_unused_cache(request, "files", {.jpeg_restart_markers = has_markers, .dir = {}});
  if (!is_packed(request)) return metadata;
  const config::CacheConfig& cache = *request.config.cache();
  const CacheLocation position(request, "files", content_of(files, cache));
  PackOptions packing{
      .path = position.path(), .setting = request.key("cache"), .limit = kMaxImageFileBytes};
  if (cache.jpeg_restart_markers) packing.rewrite = rewrite;
  STOKER_ASSIGN_OR_RETURN(const FileLock lock, position.lock(progress));
  if (position.is_shared() && open_pack(files, packing, metadata)) return metadata;
  STOKER_RETURN_IF_ERROR(
      build_pack(files, packing, progress, metadata).with_context(request.key("cache")));
  return metadata;
}

}  // namespace stoker::data::cache
