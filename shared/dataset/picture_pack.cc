#include "shared/dataset/picture_pack.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/sha256.h"
#include "shared/dataset/cache_place.h"
#include "shared/dataset/whole_files.h"
#include "shared/image/with_restart_markers.h"

namespace stoker::dataset {
namespace {

constexpr const char* kPacks[] = {"packed", "rewritten"};

// Of a picture that is rewritten, for its coefficients: as many threads take it at a time as there are
// processors. A JPEG of more than 20 million pixels stays as it is.
constexpr uint64_t kRewritingMemory = uint64_t{128} << 20;

void rewrite(std::vector<std::byte>& picture) {
  auto rewritten = image::with_restart_markers(picture, {.memory_bytes = kRewritingMemory});
  if (rewritten) picture = std::move(*rewritten);
}

std::string content_of(const FileTable& files, const std::string& pack) {
  Sha256 hash;
  hash.update(pack + '\n');
  files.add_to(hash);
  return hash.finish_hex();
}

Status find_or_pack(const SetRequest& set, const CachePlace& place, const FileTable& files,
                    const Packing& packing, const ScanProgress& progress, Facts& facts) {
  FileLock lock;
  if (place.is_shared()) {
    STOKER_ASSIGN_OR_RETURN(lock, place.lock(progress));
    if (find_pack(files, packing, facts)) return {};
  }
  return pack_files(files, packing, progress, facts).with_context(set.key("cache"));
}

}  // namespace

bool is_packed(const SetRequest& set) {
  return set.config.cache == kPacks[0] || set.config.cache == kPacks[1];
}

Result<Facts> pack_pictures(const SetRequest& set, const FileTable& files, Facts facts,
                            const ScanProgress& progress) {
  for (const std::string pack : kPacks) {
    const CachePlace place(set, "files", pack, content_of(files, pack));
    const bool is_wanted = set.config.cache == pack;
    if (!is_wanted || place.is_shared()) {
      std::error_code none;
      std::filesystem::remove(set.made_file("files", pack), none);
    }
    if (!is_wanted) continue;
    Packing packing{.path = place.path(), .setting = "cache: " + pack, .limit = kMaxPictureFile};
    if (pack == "rewritten") packing.rewrite = rewrite;
    STOKER_RETURN_IF_ERROR(find_or_pack(set, place, files, packing, progress, facts));
  }
  return facts;
}

}  // namespace stoker::dataset
