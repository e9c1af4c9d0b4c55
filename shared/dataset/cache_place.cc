#include "shared/dataset/cache_place.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "shared/base/log.h"

namespace stoker::dataset {
namespace {

constexpr size_t kDigits = 24;  // of a content's sum that stand in a name
constexpr std::chrono::milliseconds kBetweenTries{200};
constexpr uint64_t kTriesPerSecond = 5;

std::string file_suffix(std::string_view cache) {
  return std::string(cache == "rewritten" ? "packed_restart" : cache);
}

}  // namespace

CachePlace::CachePlace(const SetRequest& set, std::string_view field, std::string_view content)
    : key_(set.key("cache_dir")), folder_(set.config.cache_dir) {
  const std::string& cache = set.config.cache;
  path_ = is_shared() ? join_path(folder_, std::string(field) + '-' +
                                               std::string(content.substr(0, kDigits)) + '.' +
                                               file_suffix(cache))
                      : set.made_file(field, file_suffix(cache));
}

Result<FileLock> CachePlace::lock(const ScanProgress& progress) const {
  if (!is_shared()) return FileLock();
  STOKER_RETURN_IF_ERROR(make_directories(real_files(), folder_).with_context(key_));
  const std::string path = join_path(folder_, "LOCK");
  for (uint64_t tries = 0;; ++tries) {
    auto lock = lock_file(path, "pid " + std::to_string(::getpid()));
    if (lock.ok()) {
      STOKER_RETURN_IF_ERROR(remove_unfinished_writes(real_files(), folder_));
      return lock;
    }
    if (lock.status().code() != Code::kBusy) return lock.status().with_context(key_);
    if (tries == 0)
      log_info("waiting for cache lock",
               {{"cache_dir", folder_}, {"holder", lock.status().message()}});
    if (tries % kTriesPerSecond == 0)
      progress(tries / kTriesPerSecond, "seconds waited for another run that fills the cache");
    std::this_thread::sleep_for(kBetweenTries);
  }
}

void remove_unless_kept(const SetRequest& set, std::string_view field, std::string_view cache) {
  if (set.config.cache == cache && set.config.cache_dir.empty()) return;
  std::error_code none;
  std::filesystem::remove(set.made_file(field, file_suffix(cache)), none);
}

}  // namespace stoker::dataset
