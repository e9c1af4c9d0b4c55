#include "shared/checkpoint/hashed_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace stoker::checkpoint {
namespace {

// Large enough that a system call costs nothing, small enough that what was hashed is still in the
// second-level cache when it is written.
constexpr size_t kChunkBytes = 1 << 20;

}  // namespace

HashedFile::HashedFile(FileSystem& files, UniqueFd fd, std::string path, std::string name)
    : files_(files), fd_(std::move(fd)), path_(std::move(path)) {
  written_.name = std::move(name);
}

Result<HashedFile> HashedFile::create(FileSystem& files, const std::string& directory,
                                      const std::string& name) {
  std::string path = join_path(directory, name);
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, files.open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW));
  return HashedFile(files, std::move(fd), std::move(path), name);
}

Status HashedFile::append(std::span<const std::byte> bytes) {
  if (gathered_.size() + bytes.size() <= kChunkBytes) {
    gathered_.insert(gathered_.end(), bytes.begin(), bytes.end());
    return {};
  }
  STOKER_RETURN_IF_ERROR(flush());
  while (bytes.size() > kChunkBytes) {
    STOKER_RETURN_IF_ERROR(put(bytes.first(kChunkBytes)));
    bytes = bytes.subspan(kChunkBytes);
  }
  gathered_.assign(bytes.begin(), bytes.end());
  return {};
}

Status HashedFile::flush() {
  if (gathered_.empty()) return {};
  const Status status = put(gathered_);
  gathered_.clear();
  return status;
}

Status HashedFile::put(std::span<const std::byte> bytes) {
  hash_.update(bytes);
  written_.bytes += bytes.size();
  return files_.write(fd_.get(), bytes, path_);
}

Result<WrittenFile> HashedFile::finish() {
  STOKER_RETURN_IF_ERROR(flush());
  STOKER_RETURN_IF_ERROR(files_.sync(fd_.get(), path_));
  if (::close(fd_.release()) != 0) return Status::from_errno(errno, "close " + path_);
  written_.sha256 = hash_.finish_hex();
  return std::move(written_);
}

Result<WrittenFile> write_hashed_file(FileSystem& files, const std::string& directory,
                                      const std::string& name, std::string_view content) {
  STOKER_ASSIGN_OR_RETURN(HashedFile file, HashedFile::create(files, directory, name));
  STOKER_RETURN_IF_ERROR(file.append(content));
  return file.finish();
}

Result<std::string> sha256_of_file(int fd, uint64_t bytes, const std::string& path) {
  std::vector<std::byte> buffer(std::min<uint64_t>(kChunkBytes, bytes + 1));
  Sha256 hash;
  uint64_t offset = 0;
  for (;;) {
    STOKER_ASSIGN_OR_RETURN(const size_t got, real_files().read_at(fd, offset, buffer, path));
    hash.update(std::span(buffer).first(got));
    offset += got;
    if (got < buffer.size() || offset > bytes) break;
  }
  if (offset == bytes) return hash.finish_hex();
  return Status(Code::kCorrupt, path + ": changed its size while it was read; " +
                                    std::to_string(bytes) + " bytes are due");
}

}  // namespace stoker::checkpoint
