#include "shared/dataset/file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "shared/base/file.h"

namespace stoker::dataset {
namespace {

// Descriptors come free when others are done: a second is waited for one.
constexpr int kOpenTries = 20;
constexpr auto kBetweenOpens = std::chrono::milliseconds(50);
constexpr int kReadTries = 3;
constexpr auto kBetweenReads = std::chrono::milliseconds(20);

Status changed(const std::string& path, const std::string& how) {
  return Status(Code::kCorrupt,
                path + ": " + how + " since it was indexed; restart to index the data set anew");
}

}  // namespace

Status FileReader::read(size_t file, uint64_t offset, std::span<std::byte> bytes) const {
  if (auto* const held = PrefetchedBytes::maybe_of_thread())
    if (auto status = held->maybe_take({this, file, offset, bytes.size()}, bytes)) return *status;
  return read_kept(file, offset, bytes);
}

void FileReader::prefetch(size_t file, uint64_t offset, uint64_t count,
                          PrefetchedBytes& bytes) const {
  bytes.fetch({this, file, offset, count},
              [&](std::span<std::byte> into) { return read_kept(file, offset, into); });
}

Status FileReader::read_kept(size_t file, uint64_t offset, std::span<std::byte> bytes) const {
  Lease lease = find(file);
  UniqueFd own;
  if (lease.fd < 0) {
    STOKER_ASSIGN_OR_RETURN(own, open(file));
    lease = keep(file, own);
  }
  Status status = read_from(lease.fd, file, offset, bytes);
  if (lease.slot) give_back(lease, !status.ok());
  return status;
}

Status FileReader::read_whole(size_t file, uint64_t limit, std::vector<std::byte>& bytes) const {
  const uint64_t size = files_.stamp(file).size;
  if (size > limit) {
    return Status(Code::kCorrupt, files_.path(file) + ": " + std::to_string(size) +
                                      " bytes, more than the limit of " + std::to_string(limit));
  }
  if (auto* const held = PrefetchedBytes::maybe_of_thread())
    if (auto status = held->maybe_take({this, file, 0, size}, bytes)) return *status;
  STOKER_ASSIGN_OR_RETURN(const UniqueFd fd, open(file));
  bytes.resize(size);
  return read_from(fd.get(), file, 0, bytes);
}

void FileReader::prefetch_whole(size_t file, uint64_t limit, PrefetchedBytes& bytes) const {
  const uint64_t size = files_.stamp(file).size;
  if (size > limit) return;  // read_whole() says so
  bytes.fetch({this, file, 0, size}, [&](std::span<std::byte> into) -> Status {
    STOKER_ASSIGN_OR_RETURN(const UniqueFd fd, open(file));
    return read_from(fd.get(), file, 0, into);
  });
}

Result<UniqueFd> FileReader::open(size_t file) const {
  const std::string path = files_.path(file);
  // O_NONBLOCK: a FIFO that has taken the file's place must not hang us; regular files do not know
  // the flag.
  constexpr int kFlags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  UniqueFd fd(::open(path.c_str(), kFlags));
  for (int tries = 0; !fd.valid() && (errno == EMFILE || errno == ENFILE) && tries < kOpenTries;
       ++tries) {
    if (tries > 0) std::this_thread::sleep_for(kBetweenOpens);
    close_idle();
    fd = UniqueFd(::open(path.c_str(), kFlags));
  }
  if (!fd.valid()) return Status::from_errno(errno, "open " + path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(errno, "stat " + path);
  if (!S_ISREG(info.st_mode)) return changed(path, "replaced by something that is no regular file");
  const FileStamp& stamp = files_.stamp(file);
  const auto size = static_cast<uint64_t>(info.st_size);
  if (files_.may_grow() && size > stamp.size) return fd;
  if (size != stamp.size) {
    return changed(path, "went from " + std::to_string(stamp.size) + " to " +
                             std::to_string(info.st_size) + " bytes");
  }
  const int64_t mtime_ns =
      static_cast<int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
  if (mtime_ns != stamp.mtime_ns) return changed(path, "modified");
  return fd;
}

Status FileReader::read_from(int fd, size_t file, uint64_t offset,
                             std::span<std::byte> bytes) const {
  size_t done = 0;
  int failures = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EIO && ++failures < kReadTries) {  // some pass: a path that is switched
      std::this_thread::sleep_for(kBetweenReads);
      continue;
    }
    if (got < 0) {
      return Status::from_errno(
          errno, "read " + files_.path(file) + " at offset " + std::to_string(offset + done));
    }
    if (got == 0)
      return changed(files_.path(file), "cut off at offset " + std::to_string(offset + done));
    done += static_cast<size_t>(got);
  }
  return {};
}

FileReader::Lease FileReader::find(size_t file) const {
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.fd.valid() && slot.file == file) {
      ++slot.users;
      slot.last_used = ++turn_;
      return {.fd = slot.fd.get(), .slot = &slot};
    }
  }
  return {};
}

FileReader::Lease FileReader::keep(size_t file, UniqueFd& fd) const {
  UniqueFd evicted;  // closed after the lock is gone
  const std::lock_guard lock(mutex_);
  Slot* oldest = nullptr;
  for (Slot& slot : slots_) {
    if (slot.users == 0 && (!oldest || slot.last_used < oldest->last_used)) oldest = &slot;
  }
  if (!oldest) return {.fd = fd.get(), .slot = nullptr};  // more readers than slots
  evicted = std::move(oldest->fd);
  oldest->file = file;
  oldest->fd = std::move(fd);
  oldest->users = 1;
  oldest->last_used = ++turn_;
  return {.fd = oldest->fd.get(), .slot = oldest};
}

void FileReader::give_back(const Lease& lease, bool close) const {
  UniqueFd closed;
  const std::lock_guard lock(mutex_);
  if (--lease.slot->users > 0 || !close) return;
  closed = std::move(lease.slot->fd);
  lease.slot->last_used = 0;
}

void FileReader::close_idle() const {
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.users > 0) continue;
    slot.fd.reset();
    slot.last_used = 0;
  }
}

}  // namespace stoker::dataset
