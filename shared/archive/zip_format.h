// The records of a zip archive: their first four bytes, and how long their fixed parts are.
//
// A member is a local header, its name, extra fields and its bytes; after the last member come the
// directory (a record a member, with the same and where the local header lies), in large archives a
// ZIP64 end record and its locator, and the end record, which says where the directory lies.
#pragma once

#include <cstdint>

namespace stoker::archive {

inline constexpr uint32_t kLocalMagic = 0x04034b50, kMemberMagic = 0x02014b50;
inline constexpr uint32_t kDescriptorMagic = 0x08074b50, kEndMagic = 0x06054b50;
inline constexpr uint32_t kEnd64Magic = 0x06064b50, kLocator64Magic = 0x07064b50;
inline constexpr uint64_t kLocalBytes = 30, kMemberBytes = 46, kEndBytes = 22;
inline constexpr uint64_t kLocator64Bytes = 20, kEnd64Bytes = 56;
inline constexpr uint32_t kIn64 = 0xffffffff;  // the number is in the ZIP64 part
inline constexpr uint16_t kExtra64 = 1;        // the extra field with such numbers
inline constexpr uint16_t kEncrypted = 1;      // flags
inline constexpr uint16_t kHasDescriptor = 8;  // checksum and lengths follow the bytes
inline constexpr uint16_t kNamesAreUtf8 = 2048;
inline constexpr uint16_t kStored = 0, kDeflated = 8;

}  // namespace stoker::archive
