// PackedFiles: the bytes of a table's files, each in one read: from the files themselves, or from a
// pack, one file beside the index that holds them one after the other.
//
// For a picture of a few kilobytes, finding, opening and closing its file costs more than decoding
// it; in a pack a file is a read at an offset, and a slow disk is read once.
//
// Threads:  read() from any thread, concurrently.
// Blocking: read() as the disk does. build_pack() reads everything, and waits for the disk.
// Owner:    the table must outlive the object.
// Errors:   those of FileReader. build_pack() also kNoSpace; no pack has then been made or changed.
// Crash:    of build_pack(): a file of another name is left, which the next run of
//           remove_temporary_files() takes away.
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
  std::string setting;  // by which it is wanted, for messages
  uint64_t limit = 0;   // bytes of a file; one that is larger is kCorrupt
  // What is to stand for a file's bytes: nothing, or not much more than these. Called by several
  // threads at a time.
  std::function<void(std::vector<std::byte>& bytes)> rewrite = {};
};

// Tells in `metadata` of the pack where one of these files is there, as a whole; false otherwise.
bool open_pack(const files::FileTable& files, const PackOptions& packing,
               files::IndexMetadata& metadata);

// Writes the files one after the other into the pack, and tells of it in `metadata`. Behind those that
// were rewritten come their sizes: u64 each, then u64 how many; little-endian.
Status build_pack(const files::FileTable& files, const PackOptions& packing,
                  const files::ScanProgress& progress, files::IndexMetadata& metadata);

class PackedFiles {
 public:
  // Whether the facts may be what build_pack() told, or those of files that were not packed.
  static bool fits(const files::FileTable& files, const files::IndexMetadata& metadata);

  PackedFiles(const files::FileTable& files, const files::IndexMetadata& metadata);

  // Into `bytes`, resized to fit. kCorrupt when the file is larger than `limit`.
  Status read(size_t file, uint64_t limit, std::vector<std::byte>& bytes) const;
  void prefetch(size_t file, uint64_t limit, files::PrefetchedBytes& bytes) const;

 private:
  // There where the files are packed. It does not move: the reader refers to the table.
  struct Pack {
    Pack(const files::FileTable& files, const files::IndexMetadata& metadata);
    const files::FileTable table;
    const files::FileReader reader;
    std::vector<uint64_t> ends;  // of each file

    uint64_t begin(size_t file) const { return file == 0 ? 0 : ends[file - 1]; }
    uint64_t size(size_t file) const { return ends[file] - begin(file); }
  };

  const files::FileTable& files_;
  const files::FileReader reader_;
  const std::unique_ptr<Pack> pack_;
};

// picture_pack: `cache: {type: packed}` of image_folder and image_list: all of its files in one, made
// with the index; as they are, or with restart markers in its JPEGs, so that a part of them is decoded
// sooner.
//
// Blocking, errors: as build_pack(). Inserting markers computes on all processors.
inline constexpr uint64_t kMaxImageFileBytes = uint64_t{256} << 20;  // bytes

bool is_packed(const DatasetRequest& request);

// The facts, with the pack where the set wants one. A pack of before, which nothing reads any more,
// is removed.
Result<files::IndexMetadata> pack_images(const DatasetRequest& request,
                                         const files::FileTable& files,
                                         files::IndexMetadata metadata,
                                         const files::ScanProgress& progress);

}  // namespace stoker::data::cache
