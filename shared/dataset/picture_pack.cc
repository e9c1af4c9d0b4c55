#include "shared/dataset/picture_pack.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/sha256.h"
#include "shared/dataset/cache_place.h"
#include "shared/dataset/whole_files.h"
#include "shared/image/with_restart_markers.h"

namespace stoker::dataset {
namespace {

constexpr std::string_view kPacked = "packed", kRewritten = "rewritten";

// Of a picture that is rewritten, for its coefficients: as many threads take it at a time as there are
// processors. A JPEG of more than 20 million pixels stays as it is.
constexpr uint64_t kRewritingMemory = uint64_t{128} << 20;

void rewrite(std::vector<std::byte>& picture) {
  auto rewritten = image::with_restart_markers(picture, {.memory_bytes = kRewritingMemory});
  if (rewritten) picture = std::move(*rewritten);
}

std::string content_of(const FileTable& files, const std::string& cache) {
  Sha256 hash;
  hash.update(cache + '\n');
  files.add_to(hash);
  return hash.finish_hex();
}

}  // namespace

bool is_packed(const SetRequest& set) {
  return set.config.cache == kPacked || set.config.cache == kRewritten;
}

Result<Facts> pack_pictures(const SetRequest& set, const FileTable& files, Facts facts,
                            const ScanProgress& progress) {
  for (const std::string_view cache : {kPacked, kRewritten})
    remove_unless_kept(set, "files", cache);
  if (!is_packed(set)) return facts;
  const std::string& cache = set.config.cache;
  const CachePlace place(set, "files", content_of(files, cache));
  Packing packing{.path = place.path(), .setting = "cache: " + cache, .limit = kMaxPictureFile};
  if (cache == kRewritten) packing.rewrite = rewrite;
  STOKER_ASSIGN_OR_RETURN(const FileLock lock, place.lock(progress));
  if (place.is_shared() && find_pack(files, packing, facts)) return facts;
  STOKER_RETURN_IF_ERROR(
      pack_files(files, packing, progress, facts).with_context(set.key("cache")));
  return facts;
}

}  // namespace stoker::dataset
