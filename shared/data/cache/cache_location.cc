#include "shared/data/cache/cache_location.h"

#include <fcntl.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>

#include "shared/base/log.h"
#include "shared/data/files/derived_file.h"

namespace stoker::data::cache {
namespace {

constexpr size_t kDigits = 24;  // digits of the content hash in a file name
constexpr std::chrono::milliseconds kBetweenTries{200};
constexpr uint64_t kTriesPerSecond = 5;

}  // namespace

CacheLocation::CacheLocation(const DatasetRequest& request, std::string_view field,
                             std::string_view content)
    : CacheLocation(request, field, content, cache_suffix(*request.config.cache()),
                    request.config.cache()->dir) {}

CacheLocation::CacheLocation(const DatasetRequest& request, std::string_view field,
                             std::string_view content, const std::string& extension,
                             const std::optional<std::string>& maybe_folder)
    : folder_(maybe_folder.value_or("")) {
  key_ = request.key(is_shared() ? "cache.dir" : "cache");
  name_ = std::string(field) + '-' + std::string(content.substr(0, kDigits)) + '.' + extension;
  path_ = is_shared() ? join_path(folder_, name_) : request.derived_file(field, extension);
}

Result<FileLock> CacheLocation::lock(const files::ScanProgress& progress) const {
  if (!is_shared()) return FileLock();
  const auto folder = SharedFolder::open_or_create(folder_);
  if (!folder) return folder.status().with_context(key_);
  for (uint64_t tries = 0;; ++tries) {
    auto lock = folder->lock();
    if (lock.ok()) {
      folder->remove_leftovers();
      return lock;
    }
    if (lock.status().code() != StatusCode::kBusy) {
      log_warn("cache lock unavailable",
               {{"cache_dir", folder_}, {"reason", lock.status().message()}});
      return FileLock();
    }
    if (tries == 0)
      log_info("waiting for cache lock",
               {{"cache_dir", folder_}, {"holder", lock.status().message()}});
    if (tries % kTriesPerSecond == 0)
      progress(tries / kTriesPerSecond, "seconds waited for another run that fills the cache");
    std::this_thread::sleep_for(kBetweenTries);
  }
}

Result<UniqueFd> CacheLocation::open(SharedFolder::Access access) const {
  auto opened = [&]() -> Result<UniqueFd> {
    if (!is_shared()) {
      const int flags = access == SharedFolder::Access::kUpdate ? O_RDWR : O_RDONLY;
      return default_file_system().open(path_, flags | O_NONBLOCK);
    }
    STOKER_ASSIGN_OR_RETURN(const SharedFolder folder, SharedFolder::open(folder_));
    return folder.open_file(name_, access);
  }();
  return opened.ok() ? std::move(opened) : opened.status().with_context(key_);
}

Status CacheLocation::create(SharedFolder::Access access, const SharedFolder::Write& write) const {
  const auto create_file = [&]() -> Status {
    if (!is_shared()) return files::write_derived_file(path_, write);
    STOKER_ASSIGN_OR_RETURN(const SharedFolder folder, SharedFolder::open(folder_));
    return folder.create_file(name_, access, write);
  };
  return create_file().with_context(key_);
}

Status CacheLocation::remove() const {
  const auto remove_file = [&]() -> Status {
    if (!is_shared()) return default_file_system().remove_file(path_);
    STOKER_ASSIGN_OR_RETURN(const SharedFolder folder, SharedFolder::open(folder_));
    return folder.remove_file(name_);
  };
  return remove_file().with_context(key_);
}

bool is_trusted_file(const DatasetRequest& request, const std::string& path) {
  const std::filesystem::path file(path), folder = file.parent_path();
  if (folder == std::filesystem::path(request.index_dir)) return true;
  const auto shared = SharedFolder::open(folder.string());
  return shared.ok() &&
         shared->open_file(file.filename().string(), SharedFolder::Access::kRead).ok();
}

std::string cache_suffix(const config::CacheConfig& cache) {
  switch (cache.type) {
    case config::CacheType::kPacked:
      return cache.jpeg_restart_markers ? "packed_restart" : "packed";
    case config::CacheType::kDecoded:
      return "decoded";
  }
  return "";
}

void remove_unused_cache(const DatasetRequest& request, std::string_view field,
                         const config::CacheConfig& cache) {
  const std::string suffix = cache_suffix(cache);
  const auto& own = request.config.cache();
  if (own && !own->dir && cache_suffix(*own) == suffix) return;
  (void)default_file_system().remove_file(request.derived_file(field, suffix));
}

}  // namespace stoker::data::cache
