#include "shared/data/files/file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <thread>

#include "shared/base/file.h"

namespace stoker::data::files {
namespace {

// Descriptors become free when other reads finish, so wait up to a second for one.
constexpr int kOpenTries = 20;
constexpr auto kBetweenOpens = std::chrono::milliseconds(50);
constexpr int kReadTries = 3;
constexpr auto kBetweenReads = std::chrono::milliseconds(20);

// Whether a file can have another inode each time it is opened, because the file system stores none.
bool changes_inodes(int fd) {
  constexpr std::array<uint32_t, 5> kWithoutInodes{0x65735546,   // FUSE
                                                   0x4d44,       // FAT
                                                   0x2011bab0,   // exFAT
                                                   0xff534d42,   // CIFS
                                                   0xfe534d42};  // SMB 2
  struct statfs info {};
  return ::fstatfs(fd, &info) == 0 &&
         std::ranges::count(kWithoutInodes, static_cast<uint32_t>(info.f_type)) > 0;
}

}  // namespace

Status FileReader::read(size_t file, uint64_t offset, std::span<std::byte> bytes) const {
  if (auto* const held = PrefetchedBytes::current())
    if (auto status = held->try_take({this, file, offset, bytes.size()}, bytes)) return *status;
  return read_open(file, offset, bytes);
}

void FileReader::prefetch(size_t file, uint64_t offset, uint64_t count,
                          PrefetchedBytes& bytes) const {
  bytes.fetch({this, file, offset, count},
              [&](std::span<std::byte> into) { return read_open(file, offset, into); });
}

Status FileReader::read_open(size_t file, uint64_t offset, std::span<std::byte> bytes) const {
  UniqueFd own;
  STOKER_ASSIGN_OR_RETURN(const Lease lease, lease_for(file, own));
  Status status = read_from(lease.fd, file, offset, bytes);
  if (status.ok() && !is_checked_later(lease, file)) status = check_open(lease.fd, file);
  if (lease.slot) end_lease(lease, file, !status.ok());
  return status;
}

// ---- Descriptors

Result<FileReader::Lease> FileReader::lease_for(size_t file, UniqueFd& own) const {
  if (auto* const together = ReadsTogether::of_thread_)
    if (const auto* const open_file = together->find_open_file(this, file)) return open_file->lease;
  if (const Lease found = find(file); found.fd >= 0) return found;
  STOKER_ASSIGN_OR_RETURN(own, open(file));
  return keep(file, own);
}

bool FileReader::is_checked_later(const Lease& lease, size_t file) const {
  auto* const together = ReadsTogether::of_thread_;
  return together != nullptr && lease.slot != nullptr &&
         (together->find_open_file(this, file) != nullptr ||
          together->find_open_file(nullptr, 0) != nullptr);
}

Status FileReader::check_reads() {
  return ReadsTogether::of_thread_ != nullptr ? ReadsTogether::of_thread_->check() : Status();
}

Status FileReader::ReadsTogether::check() const {
  for (const OpenFile& open_file : open_files_)
    if (open_file.reader != nullptr)
      STOKER_RETURN_IF_ERROR(open_file.reader->check_open(open_file.lease.fd, open_file.file));
  return {};
}

void FileReader::end_lease(const Lease& lease, size_t file, bool failed) const {
  auto* const together = ReadsTogether::of_thread_;
  auto* const open_file = together != nullptr ? together->find_open_file(this, file) : nullptr;
  if (open_file != nullptr && !failed) return;  // the thread reuses it
  if (open_file != nullptr) *open_file = {};
  auto* const free =
      together != nullptr && !failed ? together->find_open_file(nullptr, 0) : nullptr;
  if (free != nullptr) {
    *free = {.reader = this, .file = file, .lease = lease};
    return;
  }
  release_slot(lease, failed);
}

FileReader::ReadsTogether::~ReadsTogether() {
  of_thread_ = nullptr;
  for (const OpenFile& open_file : open_files_)
    if (open_file.reader != nullptr) open_file.reader->release_slot(open_file.lease, false);
}

FileReader::ReadsTogether::OpenFile* FileReader::ReadsTogether::find_open_file(
    const FileReader* reader, size_t file) {
  const auto found = std::ranges::find_if(open_files_, [&](const OpenFile& open_file) {
    return open_file.reader == reader && open_file.file == file;
  });
  return found == open_files_.end() ? nullptr : &*found;
}

// ---- Whole files

Status FileReader::read_whole(size_t file, uint64_t limit, std::vector<std::byte>& bytes) const {
  const uint64_t size = files_.stamp(file).size;
  if (size > limit) {
    return Status(StatusCode::kCorrupt, files_.path(file) + ": " + std::to_string(size) +
                                            " bytes, more than the limit of " +
                                            std::to_string(limit));
  }
  if (auto* const held = PrefetchedBytes::current())
    if (auto status = held->try_take({this, file, 0, size}, bytes)) return *status;
  STOKER_ASSIGN_OR_RETURN(const UniqueFd fd, open(file));
  bytes.resize(size);
  STOKER_RETURN_IF_ERROR(read_from(fd.get(), file, 0, bytes));
  return check_open(fd.get(), file);
}

void FileReader::prefetch_whole(size_t file, uint64_t limit, PrefetchedBytes& bytes) const {
  const uint64_t size = files_.stamp(file).size;
  if (size > limit) return;  // read_whole() reports the error
  bytes.fetch({this, file, 0, size}, [&](std::span<std::byte> into) -> Status {
    STOKER_ASSIGN_OR_RETURN(const UniqueFd fd, open(file));
    STOKER_RETURN_IF_ERROR(read_from(fd.get(), file, 0, into));
    return check_open(fd.get(), file);
  });
}

// ---- One file

Result<UniqueFd> FileReader::open(size_t file) const {
  const std::string path = files_.path(file);
  // O_NONBLOCK: opening must not hang if the file was replaced by a FIFO. It has no effect on
  // regular files.
  constexpr int kFlags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  UniqueFd fd(::open(path.c_str(), kFlags));
  for (int tries = 0; !fd.valid() && (errno == EMFILE || errno == ENFILE) && tries < kOpenTries;
       ++tries) {
    if (tries > 0) std::this_thread::sleep_for(kBetweenOpens);
    close_idle();
    fd = UniqueFd(::open(path.c_str(), kFlags));
  }
  if (!fd.valid()) return Status::from_errno(errno, "open " + path);
  STOKER_RETURN_IF_ERROR(check_open(fd.get(), file));
  return fd;
}

Status FileReader::check_open(int fd, size_t file) const {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Status::from_errno(errno, "stat " + files_.path(file));
  STOKER_RETURN_IF_ERROR(files_.check(file, info));
  if (info.st_ino != files_.stamp(file).inode && !changes_inodes(fd))
    return files_.changed(file, "replaced by another file");
  return {};
}

Status FileReader::read_from(int fd, size_t file, uint64_t offset,
                             std::span<std::byte> bytes) const {
  size_t done = 0;
  int failures = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    // EIO can be transient, such as during a multipath failover.
    if (got < 0 && errno == EIO && ++failures < kReadTries) {
      std::this_thread::sleep_for(kBetweenReads);
      continue;
    }
    if (got < 0) {
      return Status::from_errno(
          errno, "read " + files_.path(file) + " at offset " + std::to_string(offset + done));
    }
    if (got == 0)
      return files_.changed(file, "truncated at offset " + std::to_string(offset + done));
    done += static_cast<size_t>(got);
  }
  return {};
}

// ---- Slots

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
  UniqueFd evicted;  // closed after the lock is released
  const std::lock_guard lock(mutex_);
  Slot* oldest = nullptr;
  for (Slot& slot : slots_) {
    if (slot.users == 0 && (!oldest || slot.last_used < oldest->last_used)) oldest = &slot;
  }
  if (!oldest) return {.fd = fd.get(), .slot = nullptr};  // more concurrent reads than slots
  evicted = std::move(oldest->fd);
  oldest->file = file;
  oldest->fd = std::move(fd);
  oldest->users = 1;
  oldest->last_used = ++turn_;
  return {.fd = oldest->fd.get(), .slot = oldest};
}

void FileReader::release_slot(const Lease& lease, bool close) const {
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

}  // namespace stoker::data::files
