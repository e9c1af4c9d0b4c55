#include "shared/checkpoint/hashed_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <stop_token>
#include <thread>
#include <utility>

#include "shared/base/coordinator.h"
#include "shared/base/hash.h"
#include "shared/base/thread_registry.h"

namespace stoker::checkpoint {
namespace {

// Large enough to make the cost of system calls negligible, small enough to react quickly to a stop
// request.
constexpr size_t kChunkBytes = 1 << 20;
// Bytes written between requests for writeback.
constexpr uint64_t kWritebackBytes = 8 << 20;
// Starting a thread costs about as much as hashing this many bytes.
constexpr uint64_t kMinThreadedBytes = 256 << 10;

// Computes the hash of one file content, which must outlive this object; the destructor joins the
// thread.
class HashTask {
 public:
  explicit HashTask(const FileContent& content) {
    if (content.bytes() < kMinThreadedBytes) {
      hash(content, {});
    } else {
      thread_ = std::jthread([this, &content](const std::stop_token& stop) {
        status_ = catch_exceptions([&] {
          ThreadRecord record("hash", "hash file");
          record.begin();
          hash(content, stop);
          return Status();
        });
      });
    }
  }
  HashTask(const HashTask&) = delete;
  HashTask& operator=(const HashTask&) = delete;

  Result<std::string> wait() {
    if (thread_.joinable()) thread_.join();
    if (!status_.ok()) return status_;
    return std::move(digest_);
  }

 private:
  void hash(const FileContent& content, const std::stop_token& stop) {
    Sha256 hash;
    for (std::span<const std::byte> piece : content.pieces) {
      while (!piece.empty() && !stop.stop_requested()) {
        const size_t chunk = std::min(piece.size(), kChunkBytes);
        hash.update(piece.first(chunk));
        piece = piece.subspan(chunk);
      }
    }
    digest_ = hash.finish_hex();
  }

  // Written by the thread until it is joined.
  std::string digest_;
  Status status_;
  std::jthread thread_;  // last member, because it uses the others
};

// Buffers writes so that the file is written in chunks of kChunkBytes.
class ChunkedFile {
 public:
  ChunkedFile(FileSystem& files, UniqueFd fd, std::string path, const OnBytes& on_bytes)
      : files_(files), fd_(std::move(fd)), path_(std::move(path)), on_bytes_(&on_bytes) {}

  Status append(std::span<const std::byte> piece) {
    if (buffer_.size() + piece.size() <= kChunkBytes) {
      buffer_.insert(buffer_.end(), piece.begin(), piece.end());
      return {};
    }
    STOKER_RETURN_IF_ERROR(flush());
    while (piece.size() > kChunkBytes) {
      STOKER_RETURN_IF_ERROR(write(piece.first(kChunkBytes)));
      piece = piece.subspan(kChunkBytes);
    }
    buffer_.assign(piece.begin(), piece.end());
    return {};
  }

  Status flush() {
    const Status status = buffer_.empty() ? Status() : write(buffer_);
    buffer_.clear();
    return status;
  }

  Status sync_and_close() {
    STOKER_RETURN_IF_ERROR(files_.sync(fd_.get(), path_));
    if (::close(fd_.release()) != 0) return Status::from_errno(errno, "close " + path_);
    return {};
  }

 private:
  Status write(std::span<const std::byte> chunk) {
    STOKER_RETURN_IF_ERROR(files_.write(fd_.get(), chunk, path_));
    written_ += chunk.size();
    if (*on_bytes_) (*on_bytes_)(chunk.size());
    if (written_ - flushed_ >= kWritebackBytes) {
      // Only a hint, so that most of the data is already on disk at sync(). Errors are reported by
      // sync().
      static_cast<void>(::sync_file_range(fd_.get(), static_cast<off_t>(flushed_),
                                          static_cast<off_t>(written_ - flushed_),
                                          SYNC_FILE_RANGE_WRITE));
      flushed_ = written_;
    }
    return {};
  }

  FileSystem& files_;
  UniqueFd fd_;
  std::string path_;
  const OnBytes* on_bytes_;        // outlives this object
  std::vector<std::byte> buffer_;  // buffer for small pieces, at most one chunk
  uint64_t written_ = 0;
  uint64_t flushed_ = 0;  // number of bytes for which writeback was requested
};

// An empty file with disk space reserved for all of the content.
Result<ChunkedFile> create(FileSystem& files, const std::string& directory,
                           const FileContent& content, const OnBytes& on_bytes) {
  std::string path = join_path(directory, content.name);
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, files.open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW));
  if (const uint64_t bytes = content.bytes(); bytes > 0)
    STOKER_RETURN_IF_ERROR(files.reserve(fd.get(), bytes, path));
  return ChunkedFile(files, std::move(fd), std::move(path), on_bytes);
}

Status write_content(ChunkedFile& file, const FileContent& content) {
  for (const auto piece : content.pieces) STOKER_RETURN_IF_ERROR(file.append(piece));
  return file.flush();
}

}  // namespace

uint64_t FileContent::bytes() const {
  uint64_t bytes = 0;
  for (const auto piece : pieces) bytes += piece.size();
  return bytes;
}

Result<std::vector<WrittenFile>> write_hashed_files(FileSystem& files, const std::string& directory,
                                                    std::span<const FileContent> contents,
                                                    const OnBytes& on_bytes) {
  std::vector<std::unique_ptr<HashTask>> hashes;
  for (const FileContent& content : contents) hashes.push_back(std::make_unique<HashTask>(content));
  std::vector<ChunkedFile> open;
  for (const FileContent& content : contents) {
    STOKER_ASSIGN_OR_RETURN(ChunkedFile file, create(files, directory, content, on_bytes));
    open.push_back(std::move(file));
  }
  for (size_t i = 0; i < contents.size(); ++i)
    STOKER_RETURN_IF_ERROR(write_content(open[i], contents[i]));
  for (ChunkedFile& file : open) STOKER_RETURN_IF_ERROR(file.sync_and_close());
  std::vector<WrittenFile> written;
  for (size_t i = 0; i < contents.size(); ++i) {
    STOKER_ASSIGN_OR_RETURN(std::string sha256, hashes[i]->wait());
    written.push_back({contents[i].name, contents[i].bytes(), std::move(sha256)});
  }
  return written;
}

Result<WrittenFile> write_hashed_file(FileSystem& files, const std::string& directory,
                                      const std::string& name, std::string_view text) {
  const FileContent content{.name = name, .pieces = {std::as_bytes(std::span(text))}};
  STOKER_ASSIGN_OR_RETURN(auto written, write_hashed_files(files, directory, {&content, 1}));
  return std::move(written.front());
}

Result<std::string> sha256_of_file(int fd, uint64_t bytes, const std::string& path,
                                   const OnBytes& on_bytes) {
  std::vector<std::byte> buffer(std::min<uint64_t>(kChunkBytes, bytes + 1));
  Sha256 hash;
  uint64_t offset = 0;
  for (;;) {
    STOKER_ASSIGN_OR_RETURN(const size_t got,
                            default_file_system().read_at(fd, offset, buffer, path));
    hash.update(std::span(buffer).first(got));
    offset += got;
    if (on_bytes) on_bytes(got);
    if (got < buffer.size() || offset > bytes) break;
  }
  if (offset == bytes) return hash.finish_hex();
  return Status(StatusCode::kCorrupt, path + ": its size changed during the read; expected " +
                                          std::to_string(bytes) + " bytes");
}

Status verify_file(int fd, uint64_t bytes, const WrittenFile& file, const std::string& path,
                   const std::string& verb, const OnBytes& on_bytes) {
  if (bytes != file.bytes)
    return Status(StatusCode::kCorrupt, path + ": has " + std::to_string(bytes) + " bytes, " +
                                            std::to_string(file.bytes) + " were " + verb);
  STOKER_ASSIGN_OR_RETURN(const std::string found, sha256_of_file(fd, file.bytes, path, on_bytes));
  if (found == file.sha256) return {};
  return Status(StatusCode::kCorrupt,
                path + ": SHA-256 is " + found + ", " + verb + " was " + file.sha256);
}

}  // namespace stoker::checkpoint
