#include "shared/dataset/picture_pack.h"

#include <string>
#include <utility>
#include <vector>

#include "shared/base/sha256.h"
#include "shared/dataset/cache_place.h"
#include "shared/dataset/whole_files.h"
#include "shared/image/with_restart_markers.h"

namespace stoker::dataset {
namespace {

// Of a picture that is rewritten, for its coefficients: as many threads take it at a time as there are
// processors. A JPEG of more than 20 million pixels stays as it is.
constexpr uint64_t kRewritingMemory = uint64_t{128} << 20;

void rewrite(std::vector<std::byte>& picture) {
  auto rewritten = image::with_restart_markers(picture, {.memory_bytes = kRewritingMemory});
  if (rewritten) picture = std::move(*rewritten);
}

std::string content_of(const FileTable& files, const config::CacheConfig& cache) {
  Sha256 hash;
  hash.update(cache_suffix(cache) + '\n');
  files.add_to(hash);
  return hash.finish_hex();
}

}  // namespace

bool is_packed(const SetRequest& set) {
  return set.config.cache() && set.config.cache()->type == config::CacheType::kPacked;
}

Result<Facts> pack_pictures(const SetRequest& set, const FileTable& files, Facts facts,
                            const ScanProgress& progress) {
  for (const bool has_markers : {false, true})
    remove_unless_kept(set, "files", {.jpeg_restart_markers = has_markers, .dir = {}});
  if (!is_packed(set)) return facts;
  const config::CacheConfig& cache = *set.config.cache();
  const CachePlace place(set, "files", content_of(files, cache));
  Packing packing{.path = place.path(), .setting = set.key("cache"), .limit = kMaxPictureFile};
  if (cache.jpeg_restart_markers) packing.rewrite = rewrite;
  STOKER_ASSIGN_OR_RETURN(const FileLock lock, place.lock(progress));
  if (place.is_shared() && find_pack(files, packing, facts)) return facts;
  STOKER_RETURN_IF_ERROR(
      pack_files(files, packing, progress, facts).with_context(set.key("cache")));
  return facts;
}

}  // namespace stoker::dataset
