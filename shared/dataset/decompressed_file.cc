#include "shared/dataset/decompressed_file.h"

#include <zlib.h>

#include <algorithm>
#include <vector>

#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/dataset/derived_file.h"

namespace stoker::dataset {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;
// Deflate makes no more than about 1032 bytes of one: a promise of more is a lie.
constexpr uint64_t kMaxRatio = 1040;

Status differs(const std::string& source, uint64_t promised, const std::string& found) {
  return Status(StatusCode::kCorrupt,
                source + ": promises " + std::to_string(promised) + " unpacked bytes, " + found);
}

// Writes what comes out to `fd`.
Status pour(Inflater& inflater, const DecompressOptions& options, const std::string& source, int fd,
            const std::string& path, const ScanProgress& progress) {
  std::vector<std::byte> chunk(kChunkBytes);
  uLong sum = ::crc32(0, nullptr, 0);
  for (uint64_t total = 0;;) {
    STOKER_ASSIGN_OR_RETURN(const size_t got, inflater.read(chunk));
    total += got;
    if (total > options.bytes) return differs(source, options.bytes, "but there are more");
    sum = ::crc32(sum, reinterpret_cast<const Bytef*>(chunk.data()), static_cast<uInt>(got));
    STOKER_RETURN_IF_ERROR(default_file_system().write(fd, std::span(chunk).first(got), path));
    progress(total >> 20, "MiB unpacked");
    if (got == chunk.size()) continue;
    if (total != options.bytes)
      return differs(source, options.bytes, "but there are " + std::to_string(total));
    if (options.crc32 && *options.crc32 != sum)
      return Status(StatusCode::kCorrupt,
                    source + ": its unpacked bytes have another CRC-32 than it says");
    return {};
  }
}

}  // namespace

Status decompress_file(const FileReader& reader, const FileTable& files,
                       const DecompressOptions& options, const std::string& path,
                       const ScanProgress& progress, FileTable& made) {
  const std::string source = files.path(options.from.file);
  if (options.bytes / kMaxRatio > options.from.bytes) {
    return differs(source, options.bytes,
                   "which " + std::to_string(options.from.bytes) + " packed bytes cannot hold");
  }
  STOKER_ASSIGN_OR_RETURN(Inflater inflater, Inflater::open(reader, files, options.from));
  STOKER_RETURN_IF_ERROR(write_derived_file(
      path,
      [&](int fd, const std::string& name) {
        return pour(inflater, options, source, fd, name, progress);
      },
      made));
  log_info("file decompressed", {{"path", source}, {"bytes", options.bytes}, {"output", path}});
  return {};
}

}  // namespace stoker::dataset
