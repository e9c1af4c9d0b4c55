// Index: the result of one dataset scan, stored in a file so that all processes see the same
// samples.
//
// Format:  little-endian, version 8. A magic of 8 bytes, u32 version, then text and numbers in the
//          order of encode_index(): settings, source, fingerprint, metadata, file table, u8
//          is_validated, the numbers of the samples if the split is no range of positions. Ends with
//          the SHA-256 of everything before it, as 64 hexadecimal digits. Version 6, which is also read, has
//          neither the numbers of the samples nor FileStamp::ctime_ns.
// Threads: a value.
// Errors:  load_index(): kNotFound (no such file), kInvalidArgument (not a regular file, or of another
//          user and larger than the index of its dataset can be), kOutOfMemory (there is too little to read it), kCorrupt (invalid
//          content), kMismatch (another version), kIoError, kPermission; the message names the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/files/file_table.h"

namespace stoker::data::files {

// What a format reads from the files before the first sample: numbers, such as offsets of records,
// and texts, such as class names. Kept small, because a dataset can have millions of records.
struct IndexMetadata {
  std::vector<uint64_t> numbers;
  std::vector<std::string> names;
  // Files created next to the index, such as decompressed files. The index is used only while they
  // are unchanged.
  FileTable made;
  // Size of each file inside the pack, if it differs from the size of the file.
  std::vector<uint64_t> pack_sizes = {};
  // CRC-32C of each file inside the pack; empty without one.
  std::vector<uint64_t> pack_checksums = {};
  // The hash of the group of each sample, for data.NAME.split_by. Not stored: it chooses `selected`.
  std::vector<uint64_t> groups = {};
  // The samples of the split; empty if it is a range of positions.
  std::vector<uint64_t> selected = {};
};

inline constexpr uint64_t kMaxIndexBytes = uint64_t{16} << 30;

struct Index {
  // The settings that determine the samples: "format=text split=0:0.9 block_size=128".
  std::string fingerprint_text;
  std::string source;  // what was scanned: path and glob
  IndexMetadata metadata;
  FileTable files;
  // Some samples have been read, so that the settings are known to fit the files.
  bool is_validated = false;

  // Hex SHA-256 of settings, names, sizes and times.
  std::string fingerprint() const;
};

std::string encode_index(const Index& index);
// `name` appears in the messages.
Result<Index> decode_index(std::string_view bytes, const std::string& name);

// Written atomically: after a power cut, or in another process, either the old or the new file is
// visible.
Status save_index(const Index& index, const std::string& path);
// Of the file of another user at most `max_bytes`, and less if there is little memory.
Result<Index> load_index(const std::string& path, uint64_t max_bytes = kMaxIndexBytes);

// A bound of the size of an index whose settings and files are known, several times what a format stores of files that are
// not compressed.
uint64_t max_index_bytes(const Index& index);

}  // namespace stoker::data::files
