// PackedFiles: reads the files of a table, each with one read, either from the files themselves or
// from a pack, which is a single file next to the index that contains them in sequence.
//
// For an image of a few kilobytes, looking up, opening and closing its file costs more than
// decoding it. In a pack each file is a read at an offset, and a slow disk is read only once.
//
// It is only a cache: a file that is missing or corrupt in the pack is read from its own file.
//
// Format:    little-endian, version 1: the files in sequence, then per file {u64 size, u32 CRC-32C,
//            u32 zero}, then a PackFooter (packed_images.cc).
// Threads:   read() from any thread, concurrently.
// Blocking:  read() for the disk.
// Ownership: the table must outlive the object.
// Errors:    those of FileReader.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset_request.h"
#include "shared/data/files/file_reader.h"
#include "shared/data/files/file_table.h"
#include "shared/data/files/index.h"
#include "shared/data/files/scan.h"

namespace stoker::data::cache {

class PackedFiles {
 public:
  // Whether the metadata can be that of pack_images(), or of files that are not packed.
  static bool fits(const files::FileTable& files, const files::IndexMetadata& metadata);

  PackedFiles(const files::FileTable& files, const files::IndexMetadata& metadata);

  // Reads into `bytes`, which is resized. kCorrupt if the file is larger than `limit`.
  Status read(size_t file, uint64_t limit, std::vector<std::byte>& bytes) const;
  void prefetch(size_t file, uint64_t limit, files::PrefetchedBytes& bytes) const;

 private:
  // Present if the files are packed. Must not be moved, because the reader refers to the table.
  struct Pack {
    Pack(const files::FileTable& files, const files::IndexMetadata& metadata);
    const files::FileTable table;
    const files::FileReader reader;
    std::vector<uint64_t> ends;  // end offset of each file
    std::vector<uint32_t> checksums;

    uint64_t begin(size_t file) const { return file == 0 ? 0 : ends[file - 1]; }
    uint64_t size(size_t file) const { return ends[file] - begin(file); }
  };

  const files::FileTable& files_;
  const files::FileReader reader_;
  const std::unique_ptr<Pack> pack_;
  mutable std::atomic<bool> has_warned_ =
      false;  // by the first thread whose file is not in the pack
};

// pack_images: `cache: {type: packed}` of image_folder and image_list. Packs all files when the
// index is created, either unchanged or with restart markers in JPEG files, so that regions are
// decoded faster. In a shared folder it uses a complete pack of these files if there is one.
//
// JPEG files are rewritten in the sandbox of the request, if it has one. What it returns is used
// only if its header states the size of the image; it remains that of an untrusted process.
//
// Blocking: reads all files, and waits for the disk and for another run that creates the pack.
//           Adding restart markers uses all processors, or those of the sandbox.
// Errors:   those of FileReader, CacheLocation and JpegRewriter; kNoSpace, kOutOfMemory. No pack is
//           then created or changed.
inline constexpr uint64_t kMaxImageFileBytes = uint64_t{256} << 20;  // bytes

bool is_packed(const DatasetRequest& request);

// Returns the metadata, including the pack if the dataset uses one. A pack that is no longer used
// is removed.
Result<files::IndexMetadata> pack_images(const DatasetRequest& request,
                                         const files::FileTable& files,
                                         files::IndexMetadata metadata,
                                         const files::ScanProgress& progress);

}  // namespace stoker::data::cache
