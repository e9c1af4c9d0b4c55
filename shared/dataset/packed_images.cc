#include "shared/dataset/packed_images.h"

#include <string>
#include <utility>
#include <vector>

#include "shared/base/hash.h"
#include "shared/dataset/cache_location.h"
#include "shared/dataset/packed_files.h"
#include "shared/image/add_restart_markers.h"

namespace stoker::dataset {
namespace {

// Of a picture that is rewritten, for its coefficients: as many threads take it at a time as there are
// processors. A JPEG of more than 20 million pixels stays as it is.
constexpr uint64_t kRewritingMemory = uint64_t{128} << 20;

void rewrite(std::vector<std::byte>& image_file) {
  auto rewritten = image::add_restart_markers(image_file, {.memory_bytes = kRewritingMemory});
  if (rewritten) image_file = std::move(*rewritten);
}

std::string content_of(const FileTable& files, const config::CacheConfig& cache) {
  Sha256 hash;
  hash.update(cache_suffix(cache) + '\n');
  files.add_to(hash);
  return hash.finish_hex();
}

}  // namespace

bool is_packed(const DatasetRequest& request) {
  return request.config.cache() && request.config.cache()->type == config::CacheType::kPacked;
}

Result<IndexMetadata> pack_images(const DatasetRequest& request, const FileTable& files,
                                  IndexMetadata metadata, const ScanProgress& progress) {
  for (const bool has_markers : {false, true})
    remove_unused_cache(request, "files", {.jpeg_restart_markers = has_markers, .dir = {}});
  if (!is_packed(request)) return metadata;
  const config::CacheConfig& cache = *request.config.cache();
  const CacheLocation position(request, "files", content_of(files, cache));
  PackOptions packing{
      .path = position.path(), .setting = request.key("cache"), .limit = kMaxImageFileBytes};
  if (cache.jpeg_restart_markers) packing.rewrite = rewrite;
  STOKER_ASSIGN_OR_RETURN(const FileLock lock, position.lock(progress));
  if (position.is_shared() && open_pack(files, packing, metadata)) return metadata;
  STOKER_RETURN_IF_ERROR(
      build_pack(files, packing, progress, metadata).with_context(request.key("cache")));
  return metadata;
}

}  // namespace stoker::dataset
