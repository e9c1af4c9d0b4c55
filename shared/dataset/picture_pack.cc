#include "shared/dataset/picture_pack.h"

#include <filesystem>

#include "shared/dataset/whole_files.h"

namespace stoker::dataset {

Result<Facts> pack_pictures(const SetRequest& set, const FileTable& files, Facts facts,
                            const ScanProgress& progress) {
  const std::string path = set.made_file("files", "packed");
  if (set.config.cache == "packed") {
    STOKER_RETURN_IF_ERROR(pack_files(files, kMaxPictureFile, path, progress, facts.made)
                               .with_context(set.key("cache")));
  } else {
    std::error_code none;
    std::filesystem::remove(path, none);
  }
  return facts;
}

}  // namespace stoker::dataset
