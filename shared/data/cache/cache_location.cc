#include "shared/data/cache/cache_location.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "shared/base/log.h"

namespace stoker::data::cache {
namespace {

constexpr size_t kDigits = 24;  // digits of the content hash in a file name
constexpr std::chrono::milliseconds kBetweenTries{200};
constexpr uint64_t kTriesPerSecond = 5;

}  // namespace

CacheLocation::CacheLocation(const DatasetRequest& request, std::string_view field,
                             std::string_view content)
    : key_(request.key("cache.dir")), folder_(request.config.cache()->dir.value_or("")) {
  const std::string cache = cache_suffix(*request.config.cache());
  path_ = is_shared()
              ? join_path(folder_, std::string(field) + '-' +
                                       std::string(content.substr(0, kDigits)) + '.' + cache)
              : request.derived_file(field, cache);
}

Result<FileLock> CacheLocation::lock(const files::ScanProgress& progress) const {
  if (!is_shared()) return FileLock();
  STOKER_RETURN_IF_ERROR(make_directories(default_file_system(), folder_).with_context(key_));
  const std::string path = join_path(folder_, "LOCK");
  for (uint64_t tries = 0;; ++tries) {
    auto lock = lock_file(path, "pid " + std::to_string(::getpid()));
    if (lock.ok()) {
      STOKER_RETURN_IF_ERROR(remove_temporary_files(default_file_system(), folder_));
      return lock;
    }
    if (lock.status().code() != StatusCode::kBusy) return lock.status().with_context(key_);
    if (tries == 0)
      log_info("waiting for cache lock",
               {{"cache_dir", folder_}, {"holder", lock.status().message()}});
    if (tries % kTriesPerSecond == 0)
      progress(tries / kTriesPerSecond, "seconds waited for another run that fills the cache");
    std::this_thread::sleep_for(kBetweenTries);
  }
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
  std::error_code none;
  std::filesystem::remove(request.derived_file(field, suffix), none);
}

}  // namespace stoker::data::cache
