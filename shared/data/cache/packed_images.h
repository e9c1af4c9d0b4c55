// PackedFiles: reads the files of a table, each with one read, either from the files themselves or
// from a pack, which is a single file next to the index that contains them in sequence.
//
// For an image of a few kilobytes, looking up, opening and closing its file costs more than
// decoding it. In a pack each file is a read at an offset, and a slow disk is read only once.
//
// Threads:   read() from any thread, concurrently.
// Blocking:  read() for the disk. build_pack() reads all files and waits for the disk.
// Ownership: the table must outlive the object.
// Errors:    those of FileReader. build_pack() also kNoSpace; no pack is then created or changed.
// Crash:     during build_pack(): leaves a file with a temporary name, which the next
//            remove_temporary_files() deletes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset_request.h"
#include "shared/data/files/file_reader.h"
#include "shared/data/files/file_table.h"
#include "shared/data/files/index.h"
#include "shared/data/files/scan.h"

namespace stoker::data::cache {

struct PackOptions {
  std::string path;     // of the pack
  std::string setting;  // configuration key that requests the pack, for messages
  uint64_t limit = 0;   // maximum bytes of a file; a larger one is kCorrupt
  // Replaces the bytes of a file before it is packed; they must not become much larger. Optional.
  // Called from several threads at a time.
  std::function<void(std::vector<std::byte>& bytes)> rewrite = {};
};

// If a complete pack of these files exists, records it in `metadata`; false otherwise.
bool open_pack(const files::FileTable& files, const PackOptions& packing,
               files::IndexMetadata& metadata);

// Writes the files in sequence into the pack and records it in `metadata`. With `rewrite`, the
// sizes of the rewritten files follow: u64 each, then their number as u64; little-endian.
Status build_pack(const files::FileTable& files, const PackOptions& packing,
                  const files::ScanProgress& progress, files::IndexMetadata& metadata);

class PackedFiles {
 public:
  // Whether the metadata can be that of build_pack(), or of files that are not packed.
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

    uint64_t begin(size_t file) const { return file == 0 ? 0 : ends[file - 1]; }
    uint64_t size(size_t file) const { return ends[file] - begin(file); }
  };

  const files::FileTable& files_;
  const files::FileReader reader_;
  const std::unique_ptr<Pack> pack_;
};

// pack_images: `cache: {type: packed}` of image_folder and image_list. Packs all files when the
// index is created, either unchanged or with restart markers in JPEG files, so that regions are
// decoded faster.
//
// Blocking, errors: as build_pack(). Adding restart markers uses all processors.
inline constexpr uint64_t kMaxImageFileBytes = uint64_t{256} << 20;  // bytes

bool is_packed(const DatasetRequest& request);

// Returns the metadata, including the pack if the dataset uses one. A pack that is no longer used
// is removed.
Result<files::IndexMetadata> pack_images(const DatasetRequest& request,
                                         const files::FileTable& files,
                                         files::IndexMetadata metadata,
                                         const files::ScanProgress& progress);

}  // namespace stoker::data::cache
