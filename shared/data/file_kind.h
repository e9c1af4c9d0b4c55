// file_kind: recognizes files that are not what a dataset is configured to read, by their first bytes.
//
// Threads: pure functions.
// Errors:  kCorrupt with what the file is and what to do; the caller adds its name.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "shared/base/status.h"

namespace stoker::data {

// With fewer, some kinds are not recognized.
inline constexpr size_t kFileKindBytes = 512;
// Enough for most of those that are mistaken for rows of text.
inline constexpr size_t kFileMagicBytes = 8;

struct FileKind {
  std::string_view name;    // "a gzip file"
  std::string_view advice;  // "unpack it with gunzip"
  bool is_packed = false;   // compressed as a whole
};
// nullopt: none of the known ones.
std::optional<FileKind> find_file_kind(std::span<const std::byte> head);

// An error if these are the first bytes of a compressed file, which does not support random access.
Status reject_packed(std::span<const std::byte> head);
// An error if they are those of a known kind other than `wanted`, what is expected: "text".
Status reject_other_kind(std::span<const std::byte> head, std::string_view wanted);
// The same for text; also an error if they are a mark of UTF-16 or UTF-32.
Status reject_other_text(std::span<const std::byte> head);
// The same; also an error if they are UTF-16 without a mark, or have NUL bytes.
Status reject_binary(std::span<const std::byte> head);
// An error if the last bytes of a text are none, as of a file whose end was not written.
Status reject_binary_end(std::span<const std::byte> end);

}  // namespace stoker::data
