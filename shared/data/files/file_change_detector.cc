#include "shared/data/files/file_change_detector.h"

#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <utility>

#include "shared/base/log.h"

namespace stoker::data::files {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kCheckInterval = std::chrono::milliseconds(100);
constexpr size_t kFilesPerCheck = 64;

}  // namespace

FileChangeDetector::FileChangeDetector(std::vector<FileTable> files) : files_(std::move(files)) {
  size_t count = 0;
  for (const FileTable& table : files_) count += table.size();
  every_ = kCheckInterval * (1 + count / kFilesPerCheck);
}

bool FileChangeDetector::is_unchanged() {
  if (changed_.load(std::memory_order_relaxed)) return false;
  const int64_t now = Clock::now().time_since_epoch().count();
  int64_t due = due_.load(std::memory_order_relaxed);
  if (now < due || !due_.compare_exchange_strong(due, now + every_.count())) return true;
  const Status status = check();
  if (status.ok()) return true;
  changed_.store(true, std::memory_order_relaxed);
  log_warn("sample cache invalidated", {{"reason", status.message()}});
  return false;
}

Status FileChangeDetector::check() const {
  for (const FileTable& table : files_) {
    for (size_t file = 0; file < table.size(); ++file) {
      const std::string path = table.path(file);
      struct stat info {};
      if (::stat(path.c_str(), &info) != 0) return Status::from_errno(errno, "stat " + path);
      STOKER_RETURN_IF_ERROR(table.check(file, info));
    }
  }
  return {};
}

}  // namespace stoker::data::files
