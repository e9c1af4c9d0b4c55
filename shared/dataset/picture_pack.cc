#include "shared/dataset/picture_pack.h"

#include <filesystem>
#include <string>
#include <vector>

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

}  // namespace

bool is_packed(const SetRequest& set) {
  return set.config.cache == kPacks[0] || set.config.cache == kPacks[1];
}

Result<Facts> pack_pictures(const SetRequest& set, const FileTable& files, Facts facts,
                            const ScanProgress& progress) {
  for (const std::string pack : kPacks) {
    const std::string path = set.made_file("files", pack);
    if (set.config.cache != pack) {
      std::error_code none;
      std::filesystem::remove(path, none);
      continue;
    }
    Packing packing{.path = path, .setting = "cache: " + pack, .limit = kMaxPictureFile};
    if (pack == "rewritten") packing.rewrite = rewrite;
    STOKER_RETURN_IF_ERROR(
        pack_files(files, packing, progress, facts).with_context(set.key("cache")));
  }
  return facts;
}

}  // namespace stoker::dataset
