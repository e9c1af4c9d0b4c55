#include "shared/data/cache/packed_images.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "shared/base/cgroup.h"
#include "shared/base/coordinator.h"
#include "shared/base/exception_status.h"
#include "shared/base/file.h"
#include "shared/base/hash.h"
#include "shared/base/log.h"
#include "shared/base/thread_registry.h"
#include "shared/data/cache/cache_location.h"
#include "shared/data/files/derived_file.h"
#include "shared/data/files/scan.h"
#include "shared/data/sandbox.h"
#include "shared/image/add_restart_markers.h"
#include "shared/image/image_types.h"

namespace stoker::data::cache {
namespace {

// Amount read before it is written, in bytes and in files; the first limit reached applies.
constexpr uint64_t kGroupBytes = uint64_t{64} << 20;
constexpr size_t kGroupFiles = 4096;
// Number of concurrent reads: needed for disks with high latency, harmless for fast ones.
constexpr size_t kMinPackingThreads = 16;
constexpr std::chrono::milliseconds kProgressInterval{50};
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

// FileRewriter: adds restart markers to JPEG files before they are packed, in this process or, with a
// sandbox, in others. A file that is not rewritten because of its process is logged and remains
// unchanged.
//
// Threads: several at a time.
class FileRewriter {
 public:
  explicit FileRewriter(std::unique_ptr<JpegRewriter> maybe_sandboxed)
      : maybe_sandboxed_(std::move(maybe_sandboxed)) {}

  Status rewrite(const std::string& path, std::vector<std::byte>& bytes);
  // Ends present and later calls, if they can take long.
  void stop() {
    if (maybe_sandboxed_) maybe_sandboxed_->stop();
  }
  uint64_t num_failed() const { return num_failed_; }

 private:
  const std::unique_ptr<JpegRewriter> maybe_sandboxed_;
  std::atomic<uint64_t> num_failed_{0};  // read after the threads that write it have ended
};

Status FileRewriter::rewrite(const std::string& path, std::vector<std::byte>& bytes) {
  if (!maybe_sandboxed_) {
    if (auto rewritten = image::add_restart_markers(bytes, image::kRewritingLimits))
      bytes = *std::move(rewritten);
    return {};
  }
  if (!image::may_be_rewritten(bytes, image::kRewritingLimits)) return {};
  auto rewritten = maybe_sandboxed_->rewrite(bytes, image::max_rewritten_bytes(bytes.size()));
  if (rewritten.ok() && rewritten->empty()) return {};
  if (rewritten.ok() && image::is_possible_result(*rewritten, bytes)) {
    bytes = *std::move(rewritten);
    return {};
  }
  if (!rewritten.ok() && rewritten.status().code() != StatusCode::kCorrupt)
    return rewritten.status();
  ++num_failed_;
  log_warn("image not rewritten",
           {{"path", path},
            {"reason", rewritten.ok() ? "its worker process sent another image"
                                      : rewritten.status().message()}});
  return {};
}

struct PackOptions {
  const CacheLocation& location;
  std::string identity;
  std::string setting;  // configuration key that requests the pack, for messages
  uint64_t limit = 0;   // maximum bytes of a file; a larger one is kCorrupt
  FileRewriter* maybe_rewriter = nullptr;
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

// GroupReader: reads and rewrites groups of files on several threads. They exist as long as this
// object, because a worker process that rewrites files ends with the thread that started it.
//
// Threads: one at a time.
// Errors:  read(): those of FileReader and of the rewriter; kOutOfMemory. The object can then only
//          be destroyed.
class GroupReader {
 public:
  GroupReader(const files::FileTable& files, const PackOptions& packing)
      : files_(files), reader_(files), packing_(packing) {}
  GroupReader(const GroupReader&) = delete;
  GroupReader& operator=(const GroupReader&) = delete;
  ~GroupReader();

  // `count` files, starting with `begin`. Calls `progress` several times a second.
  Result<Contents> read(size_t begin, size_t count, const files::ScanProgress& progress);

 private:
  Status start_threads(size_t count);
  void run();
  void fail(Status status);
  Status read_file(size_t file, std::vector<std::byte>& bytes) const;

  // Constant after construction.
  const files::FileTable& files_;
  const files::FileReader reader_;
  const PackOptions& packing_;

  // Guarded by mutex_. A thread writes to the bytes of a file without it.
  std::mutex mutex_;
  std::condition_variable has_files_;  // or is_stopping_
  std::condition_variable is_done_;    // the group, or an error
  bool is_stopping_ = false;
  Contents contents_;
  size_t begin_ = 0;  // file of contents_[0]
  size_t next_ = 0;   // in contents_
  size_t num_done_ = 0;
  Status result_;

  std::vector<std::jthread> threads_;  // joined first
};

GroupReader::~GroupReader() {
  if (packing_.maybe_rewriter != nullptr) packing_.maybe_rewriter->stop();
  const std::lock_guard lock(mutex_);
  is_stopping_ = true;
  has_files_.notify_all();
}

Status GroupReader::start_threads(size_t count) {
  threads_.reserve(count);
  try {
    while (threads_.size() < count) {
      threads_.emplace_back([this, name = "pack-images-" + std::to_string(threads_.size())] {
        Status ended = catch_exceptions([&] {
          ThreadRecord record(name, "read images");
          record.begin();
          run();
          return Status();
        });
        if (!ended.ok()) fail(std::move(ended));
      });
    }
  } catch (const std::system_error& error) {
    if (threads_.empty()) return to_status(error).with_context("read files of a cache");
  }
  return {};
}

Result<Contents> GroupReader::read(size_t begin, size_t count,
                                   const files::ScanProgress& progress) {
  const size_t num_threads =
      std::max<size_t>(kMinPackingThreads, static_cast<size_t>(num_usable_cores()));
  STOKER_RETURN_IF_ERROR(start_threads(std::min(num_threads, count)));
  std::unique_lock lock(mutex_);
  contents_.resize(count);
  begin_ = begin;
  next_ = num_done_ = 0;
  has_files_.notify_all();
  while (result_.ok() && num_done_ < count) {
    is_done_.wait_for(lock, kProgressInterval);
    const size_t num_packed = begin_ + num_done_;
    lock.unlock();
    progress(num_packed, "files packed");
    lock.lock();
  }
  if (!result_.ok()) return result_;
  return std::exchange(contents_, {});
}

void GroupReader::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    has_files_.wait(lock, [this] { return is_stopping_ || next_ < contents_.size(); });
    if (is_stopping_) return;
    const size_t index = next_++, file = begin_ + index;
    std::vector<std::byte>& bytes = contents_[index];
    lock.unlock();
    Status status = read_file(file, bytes);
    lock.lock();
    ++num_done_;
    if (!status.ok() && result_.ok()) result_ = std::move(status);
    if (!result_.ok() || num_done_ == contents_.size()) is_done_.notify_one();
  }
}

void GroupReader::fail(Status status) {
  const std::lock_guard lock(mutex_);
  if (result_.ok()) result_ = std::move(status);
  is_done_.notify_one();
}

Status GroupReader::read_file(size_t file, std::vector<std::byte>& bytes) const {
  try {
    STOKER_RETURN_IF_ERROR(reader_.read_whole(file, packing_.limit, bytes));
    if (packing_.maybe_rewriter == nullptr) return {};
    return packing_.maybe_rewriter->rewrite(files_.path(file), bytes);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kOutOfMemory,
                  files_.path(file) + ": not enough memory to pack it; free memory on this host");
  } catch (const std::exception& error) {
    return Status(StatusCode::kInternal, files_.path(file) + ": " + error.what());
  }
}

Status write_group(int fd, const std::string& path, const Contents& contents) {
  std::vector<std::byte> joined;
  for (const auto& bytes : contents) joined.insert(joined.end(), bytes.begin(), bytes.end());
  return default_file_system().write(fd, joined, path);
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
    if (size > left || (packing.maybe_rewriter == nullptr && size != files.stamp(file).size))
      return wrong;
    left -= size;
  }
  if (left != 0) return wrong;
  return entries;
}

Status write_pack(const files::FileTable& files, const PackOptions& packing, int fd,
                  const std::string& path, const files::ScanProgress& progress) {
  GroupReader reader(files, packing);
  std::vector<PackEntry> entries;
  entries.reserve(files.size());
  for (size_t begin = 0; begin < files.size();) {
    STOKER_ASSIGN_OR_RETURN(const Contents contents,
                            reader.read(begin, group_end(files, begin) - begin, progress));
    STOKER_RETURN_IF_ERROR(write_group(fd, path, contents));
    for (const auto& bytes : contents)
      entries.push_back({.size = bytes.size(), .crc = crc32c(bytes)});
    begin += contents.size();
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
    if (packing.maybe_rewriter != nullptr) metadata.pack_sizes.push_back(entry.size);
    metadata.pack_checksums.push_back(entry.crc);
  }
  metadata.made.add(path, stamp);
  return {};
}

// Creates and opens it. kAlreadyExists as CacheLocation::create().
Status build_pack(const files::FileTable& files, const PackOptions& packing,
                  const files::ScanProgress& progress, files::IndexMetadata& metadata) {
  const uint64_t bytes = files.total_bytes();
  const uint64_t more = packing.maybe_rewriter != nullptr ? bytes / kRewritingPart : 0;
  STOKER_RETURN_IF_ERROR(files::check_free_space(packing.location.path(), bytes + more,
                                                 "a pack of the files",
                                                 "leave " + packing.setting + " away")
                             .with_context(packing.location.key()));
  STOKER_RETURN_IF_ERROR(
      packing.location.create(SharedFolder::Access::kRead, [&](int fd, const std::string& name) {
        return write_pack(files, packing, fd, name, progress);
      }));
  STOKER_RETURN_IF_ERROR(open_pack(files, packing, metadata));
  const uint64_t num_failed =
      packing.maybe_rewriter == nullptr ? 0 : packing.maybe_rewriter->num_failed();
  log_info("packed cache built", {{"files", files.size()},
                                  {"bytes", bytes},
                                  {"packed_bytes", metadata.made.stamp(0).size},
                                  {"num_failed", num_failed},
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

std::unique_ptr<FileRewriter> make_rewriter(const DatasetRequest& request) {
  if (!request.config.cache()->jpeg_restart_markers) return nullptr;
  return std::make_unique<FileRewriter>(request.maybe_sandbox == nullptr
                                            ? nullptr
                                            : request.maybe_sandbox->make_rewriter(request.name));
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
  const std::unique_ptr<FileRewriter> rewriter = make_rewriter(request);
  const PackOptions packing{.location = location,
                            .identity = identity,
                            .setting = request.key("cache"),
                            .limit = kMaxImageFileBytes,
                            .maybe_rewriter = rewriter.get()};
  if (location.is_shared()) {
    STOKER_RETURN_IF_ERROR(reuse_or_build_pack(files, packing, progress, metadata));
  } else {
    STOKER_RETURN_IF_ERROR(build_pack(files, packing, progress, metadata));
  }
  return metadata;
}

}  // namespace stoker::data::cache
