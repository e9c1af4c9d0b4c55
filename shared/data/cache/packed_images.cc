#include "shared/data/cache/packed_images.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/hash.h"
#include "shared/base/log.h"
#include "shared/base/thread_registry.h"
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

// Describes one file of the pack.
struct PackEntry {
  uint64_t size = 0;
  uint32_t crc = 0;  // CRC-32C of its bytes in the pack
  uint32_t zero = 0;
};
static_assert(sizeof(PackEntry) == 16 && std::is_trivially_copyable_v<PackEntry>);

constexpr std::array<char, 8> kPackMagic{'s', 't', 'k', 'P', 'A', 'C', 'K', '\n'};
constexpr uint32_t kPackVersion = 1;
constexpr size_t kIdentityDigits = 64;

// The last bytes of a pack.
struct PackFooter {
  std::array<char, 8> magic = kPackMagic;
  uint32_t version = kPackVersion;
  uint32_t crc = 0;  // CRC-32C of all entries
  uint64_t files = 0;
  std::array<char, kIdentityDigits> identity{};  // hex SHA-256 of everything that determines it
  bool operator==(const PackFooter&) const = default;
};
static_assert(sizeof(PackFooter) == 88 && std::is_trivially_copyable_v<PackFooter>);

using Rewrite = std::function<void(std::vector<std::byte>& bytes)>;

struct PackOptions {
  const CacheLocation& location;
  std::string identity;
  std::string setting;  // configuration key that requests the pack, for messages
  uint64_t limit = 0;   // maximum bytes of a file; a larger one is kCorrupt
  // Replaces the bytes of a file before it is packed; they must not become much larger. Optional.
  // Called from several threads at a time.
  Rewrite rewrite = {};
};

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
      ThreadRecord record("pack-images-" + std::to_string(&result - results.data()), "read images");
      record.begin();
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

PackFooter footer_of(const std::vector<PackEntry>& entries, const std::string& identity) {
  assert(identity.size() == kIdentityDigits);
  PackFooter footer{.crc = crc32c(std::as_bytes(std::span(entries))), .files = entries.size()};
  std::ranges::copy(identity, footer.identity.begin());
  return footer;
}

// kCorrupt if it is not a complete pack of these files.
Result<std::vector<PackEntry>> read_entries(int fd, uint64_t bytes, const files::FileTable& files,
                                            const PackOptions& packing) {
  const std::string& path = packing.location.path();
  const Status wrong(StatusCode::kCorrupt, path + ": not a complete pack of these files");
  std::vector<PackEntry> entries(files.size());
  PackFooter footer;
  const uint64_t trailer = entries.size() * sizeof(PackEntry) + sizeof footer;
  if (bytes < trailer) return wrong;
  const uint64_t end = bytes - trailer;
  STOKER_RETURN_IF_ERROR(read_exactly(fd, end, std::as_writable_bytes(std::span(entries)), path));
  STOKER_RETURN_IF_ERROR(
      read_exactly(fd, bytes - sizeof footer, std::as_writable_bytes(std::span(&footer, 1)), path));
  if (footer != footer_of(entries, packing.identity)) return wrong;
  uint64_t left = end;
  for (size_t file = 0; file < entries.size(); ++file) {
    const uint64_t size = entries[file].size;
    if (size > left || (!packing.rewrite && size != files.stamp(file).size)) return wrong;
    left -= size;
  }
  if (left != 0) return wrong;
  return entries;
}

Status write_pack(const files::FileTable& files, const PackOptions& packing, int fd,
                  const std::string& path, const files::ScanProgress& progress) {
  const files::FileReader reader(files);
  std::vector<PackEntry> entries;
  entries.reserve(files.size());
  for (size_t begin = 0; begin < files.size();) {
    Contents contents(group_end(files, begin) - begin);
    STOKER_RETURN_IF_ERROR(read_group(reader, begin, packing, contents));
    STOKER_RETURN_IF_ERROR(write_group(fd, path, contents));
    for (const auto& bytes : contents)
      entries.push_back({.size = bytes.size(), .crc = crc32c(bytes)});
    begin += contents.size();
    progress(begin, "files packed");
  }
  const PackFooter footer = footer_of(entries, packing.identity);
  STOKER_RETURN_IF_ERROR(default_file_system().write(fd, std::as_bytes(std::span(entries)), path));
  return default_file_system().write(fd, std::as_bytes(std::span(&footer, 1)), path);
}

// Records a complete pack of these files in `metadata`. kNotFound, kCorrupt. The entries are
// checked here, the bytes of each file when they are read.
Status open_pack(const files::FileTable& files, const PackOptions& packing,
                 files::IndexMetadata& metadata) {
  STOKER_ASSIGN_OR_RETURN(const UniqueFd fd, packing.location.open(SharedFolder::Access::kRead));
  const std::string& path = packing.location.path();
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(errno, "stat " + path);
  const files::FileStamp stamp = files::stamp_of(info);
  STOKER_ASSIGN_OR_RETURN(const auto entries, read_entries(fd.get(), stamp.size, files, packing));
  for (const PackEntry& entry : entries) {
    if (packing.rewrite) metadata.pack_sizes.push_back(entry.size);
    metadata.pack_checksums.push_back(entry.crc);
  }
  metadata.made.add(path, stamp);
  return {};
}

// Creates and opens it. kAlreadyExists as CacheLocation::create().
Status build_pack(const files::FileTable& files, const PackOptions& packing,
                  const files::ScanProgress& progress, files::IndexMetadata& metadata) {
  const uint64_t bytes = size_in_bytes(files);
  const uint64_t more = packing.rewrite ? bytes / kRewritingPart : 0;
  STOKER_RETURN_IF_ERROR(files::check_free_space(packing.location.path(), bytes + more,
                                                 "a pack of the files", packing.setting)
                             .with_context(packing.location.key()));
  STOKER_RETURN_IF_ERROR(
      packing.location.create(SharedFolder::Access::kRead, [&](int fd, const std::string& name) {
        return write_pack(files, packing, fd, name, progress);
      }));
  STOKER_RETURN_IF_ERROR(open_pack(files, packing, metadata));
  log_info("packed cache built", {{"files", files.size()},
                                  {"bytes", bytes},
                                  {"packed_bytes", metadata.made.stamp(0).size},
                                  {"path", packing.location.path()}});
  return {};
}

// Uses the pack in a shared folder, if it is complete.
Status reuse_pack(const files::FileTable& files, const PackOptions& packing,
                  files::IndexMetadata& metadata) {
  STOKER_RETURN_IF_ERROR(open_pack(files, packing, metadata));
  log_info("packed cache reused", {{"files", files.size()},
                                   {"bytes", metadata.made.stamp(0).size},
                                   {"path", packing.location.path()}});
  return {};
}

bool is_missing(const Status& status) { return status.code() == StatusCode::kNotFound; }
bool is_corrupt(const Status& status) { return status.code() == StatusCode::kCorrupt; }

Status reuse_or_build_pack(const files::FileTable& files, const PackOptions& packing,
                           const files::ScanProgress& progress, files::IndexMetadata& metadata) {
  // A complete pack needs neither the lock nor permission to write.
  Status status = reuse_pack(files, packing, metadata);
  if (!is_missing(status) && !is_corrupt(status)) return status;
  STOKER_ASSIGN_OR_RETURN(const FileLock lock, packing.location.lock(progress));
  status = reuse_pack(files, packing, metadata);
  if (is_corrupt(status)) {
    log_warn("packed cache rebuilt", {{"reason", status.message()}});
    STOKER_RETURN_IF_ERROR(packing.location.remove());
  } else if (!is_missing(status)) {
    return status;
  }
  status = build_pack(files, packing, progress, metadata);
  if (status.code() == StatusCode::kAlreadyExists) return reuse_pack(files, packing, metadata);
  return status;
}

}  // namespace

PackedFiles::Pack::Pack(const files::FileTable& files, const files::IndexMetadata& metadata)
    : table(metadata.made), reader(table) {
  ends.reserve(files.size());
  checksums.assign(metadata.pack_checksums.begin(), metadata.pack_checksums.end());
  uint64_t end = 0;
  for (size_t file = 0; file < files.size(); ++file) {
    end += metadata.pack_sizes.empty() ? files.stamp(file).size : metadata.pack_sizes[file];
    ends.push_back(end);
  }
}

bool PackedFiles::fits(const files::FileTable& files, const files::IndexMetadata& metadata) {
  const size_t packed = metadata.made.size() == 1 ? files.size() : 0;
  return metadata.made.size() <= 1 && metadata.pack_checksums.size() == packed &&
         (metadata.pack_sizes.empty() || metadata.pack_sizes.size() == packed);
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
  Status read = pack_->reader.read(0, pack_->begin(file), bytes);
  if (read.ok() && crc32c(bytes) == pack_->checksums[file]) return read;
  if (read.ok())
    read = Status(StatusCode::kCorrupt,
                  "checksum mismatch at offset " + std::to_string(pack_->begin(file)));
  read = read.with_context(files_.path(file) + " in its pack");
  if (!reader_.read_whole(file, limit, bytes).ok()) return read;
  if (!has_warned_.exchange(true)) log_warn("packed cache corrupt", {{"reason", read.message()}});
  return {};
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
  hash.update(cache_suffix(cache) + " " + std::to_string(kPackVersion) + '\n');
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
  const std::string identity = content_of(files, cache);
  const CacheLocation location(request, "files", identity);
  PackOptions packing{.location = location,
                      .identity = identity,
                      .setting = request.key("cache"),
                      .limit = kMaxImageFileBytes};
  if (cache.jpeg_restart_markers) packing.rewrite = rewrite;
  if (location.is_shared()) {
    STOKER_RETURN_IF_ERROR(reuse_or_build_pack(files, packing, progress, metadata));
  } else {
    STOKER_RETURN_IF_ERROR(build_pack(files, packing, progress, metadata));
  }
  return metadata;
}

}  // namespace stoker::data::cache
