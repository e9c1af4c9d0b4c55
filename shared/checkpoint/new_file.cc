#include "shared/checkpoint/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace stoker::checkpoint {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

Result<NewFile> NewFile::create(FileSystem& files, const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0)
    return Status(StatusCode::kAlreadyExists,
                  path + ": is there already; remove it, or give another name");
  const std::string name = path.substr(path.rfind('/') + 1);
  if (name.empty()) return Status(StatusCode::kInvalidArgument, path + ": is no name of a file");
  std::string temporary =
      join_path(folder_of(path), "." + name + ".tmp-" + std::to_string(::getpid()));
  // Left there by a process of our number, long ago.
  static_cast<void>(files.remove_file(temporary));
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd,
                          files.open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644));
  return NewFile(files, path, std::move(temporary), std::move(fd));
}

NewFile::~NewFile() {
  if (fd_.get() < 0) return;
  static_cast<void>(files_->remove_file(temporary_));
}

Status NewFile::append(std::span<const std::byte> bytes) {
  bytes_ += bytes.size();
  if (gathered_.size() + bytes.size() > kBufferBytes) STOKER_RETURN_IF_ERROR(flush());
  if (bytes.size() >= kBufferBytes) return files_->write(fd_.get(), bytes, temporary_);
  gathered_.insert(gathered_.end(), bytes.begin(), bytes.end());
  return {};
}

Status NewFile::flush() {
  const Status status =
      gathered_.empty() ? Status() : files_->write(fd_.get(), gathered_, temporary_);
  gathered_.clear();
  return status;
}

Status NewFile::commit() {
  STOKER_RETURN_IF_ERROR(flush());
  STOKER_RETURN_IF_ERROR(files_->sync(fd_.get(), temporary_));
  STOKER_RETURN_IF_ERROR(files_->rename_noreplace(temporary_, path_));
  if (::close(fd_.release()) != 0) return Status::from_errno(errno, "close " + path_);
  return files_->sync_directory(folder_of(path_));
}

}  // namespace stoker::checkpoint
