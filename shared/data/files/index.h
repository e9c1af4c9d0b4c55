// Index: what one scan of a data set found, kept in a file, so that every process sees the same
// samples.
//
// Format:  little-endian; version 4. A magic of 8 bytes, u32 version, then text and numbers as
//          index.cc writes them in one place: settings, source, fingerprint, facts, file table; at
//          the end the SHA-256 of all before it, as 64 hexadecimal digits.
// Threads: a value.
// Errors:  load_index(): kNotFound (no such file), kInvalidArgument (no regular file), kCorrupt
//          (anything is not as it was written), kMismatch (another version), kIoError, kPermission;
//          the message names the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/files/file_table.h"

namespace stoker::data::files {

// What a kind read in the files and has to know before the first sample: numbers, such as where
// records begin, and texts, such as the names of classes. Kept small: a set may have millions of
// records.
struct IndexMetadata {
  std::vector<uint64_t> numbers;
  std::vector<std::string> names;
  // Files that were made beside the index, such as what was packed, unpacked. An index is only taken
  // while they are as they were made.
  FileTable made;
  // What each file takes in the one that was made of them all, where that is not its size.
  std::vector<uint64_t> pack_sizes = {};
};

struct Index {
  std::string
      fingerprint_text;  // what the configuration says about the samples: "format=text split=0:0.9
                         // block_size=128"
  std::string source;    // where they were looked for: path and glob
  IndexMetadata metadata;
  FileTable files;

  // Hex SHA-256 over settings, names, sizes and times.
  std::string fingerprint() const;
};

std::string encode_index(const Index& index);
// `name` stands in the messages.
Result<Index> decode_index(std::string_view bytes, const std::string& name);

// Written so that a reader, or a power cut, sees the old file or the new one.
Status save_index(const Index& index, const std::string& path);
Result<Index> load_index(const std::string& path);

}  // namespace stoker::data::files
