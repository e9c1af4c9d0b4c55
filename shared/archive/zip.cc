#include "shared/archive/zip.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <string_view>

namespace stoker::archive {
namespace {

// Magic numbers and fixed lengths of the records of a zip archive.
//
// A member is a local header, its name, extra fields and its bytes. After the last member comes the
// central directory, with one record per member that repeats the header and adds the offset of the
// local header. Large archives then have a ZIP64 end record and its locator. The end record is last
// and contains the offset of the directory.

constexpr uint32_t kLocalMagic = 0x04034b50, kMemberMagic = 0x02014b50;

constexpr uint32_t kDescriptorMagic = 0x08074b50, kEndMagic = 0x06054b50;

constexpr uint32_t kEnd64Magic = 0x06064b50, kLocator64Magic = 0x07064b50;

constexpr uint64_t kLocalBytes = 30, kMemberBytes = 46, kEndBytes = 22;

constexpr uint64_t kLocator64Bytes = 20, kEnd64Bytes = 56;

constexpr uint32_t kIn64 = 0xffffffff;  // the value is in the ZIP64 extra field or end record

constexpr uint16_t kExtra64 = 1;  // header id of the ZIP64 extra field

constexpr uint16_t kEncrypted = 1;  // general purpose flags

constexpr uint16_t kHasDescriptor = 8;  // checksum and lengths follow the bytes

constexpr uint16_t kNamesAreUtf8 = 2048;

constexpr uint16_t kStored = 0, kDeflated = 8;

constexpr uint64_t kMaxComment = 65535;
constexpr uint64_t kMaxDirectory = uint64_t{64} << 20;
constexpr uint64_t kMaxReadMembers = 250'000;  // torch.save writes one per tensor

// A range of bytes of the file, with little-endian integers read at given offsets.
class Bytes {
 public:
  static Result<Bytes> read(const ArchiveFile& file, uint64_t offset, uint64_t count) {
    Bytes bytes;
    bytes.bytes_.resize(count);
    STOKER_RETURN_IF_ERROR(file.read(offset, bytes.bytes_));
    return bytes;
  }

  uint64_t size() const { return bytes_.size(); }
  uint64_t number(uint64_t at, size_t count) const {
    uint64_t value = 0;
    for (size_t i = count; i > 0; --i)
      value = value << 8 | std::to_integer<uint64_t>(bytes_[at + i - 1]);
    return value;
  }
  uint32_t u32(uint64_t at) const { return static_cast<uint32_t>(number(at, 4)); }
  uint16_t u16(uint64_t at) const { return static_cast<uint16_t>(number(at, 2)); }
  uint64_t u64(uint64_t at) const { return number(at, 8); }
  std::string text(uint64_t at, size_t count) const {
    return {reinterpret_cast<const char*>(bytes_.data()) + at, count};
  }

 private:
  std::vector<std::byte> bytes_;
};

struct Directory {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t members = 0;
};

class ZipReader {
 public:
  explicit ZipReader(const ArchiveFile& file) : file_(file), size_(file.size) {}

  Result<std::vector<ZipMember>> members() {
    STOKER_ASSIGN_OR_RETURN(const Directory directory, find_directory());
    const bool fits = directory.bytes <= size_ && directory.offset <= size_ - directory.bytes &&
                      directory.bytes <= kMaxDirectory &&
                      directory.members <= directory.bytes / kMemberBytes;
    if (!fits) return corrupt("the directory exceeds the file");
    if (directory.members > kMaxReadMembers)
      return corrupt("has " + std::to_string(directory.members) + " members; the limit is " +
                     std::to_string(kMaxReadMembers));
    STOKER_ASSIGN_OR_RETURN(const Bytes bytes,
                            Bytes::read(file_, directory.offset, directory.bytes));
    std::vector<ZipMember> members;
    members.reserve(directory.members);
    uint64_t at = 0;
    for (uint64_t i = 0; i < directory.members; ++i) {
      STOKER_ASSIGN_OR_RETURN(ZipMember member, read_member(bytes, at));
      members.push_back(std::move(member));
    }
    if (at != bytes.size()) return corrupt("the directory has trailing bytes");
    return members;
  }

  Result<uint64_t> data_offset(const ZipMember& member) {
    if (size_ < kLocalBytes || member.local_header > size_ - kLocalBytes)
      return corrupt("member '" + member.name + "' is outside the file");
    STOKER_ASSIGN_OR_RETURN(const Bytes local,
                            Bytes::read(file_, member.local_header, kLocalBytes));
    if (local.u32(0) != kLocalMagic || local.u16(26) != member.name.size())
      return corrupt("member '" + member.name + "' is not at the offset in the directory");
    const uint64_t begin = member.local_header + kLocalBytes + local.u16(26) + local.u16(28);
    if (begin > size_ || member.packed_bytes > size_ - begin)
      return corrupt("member '" + member.name + "' is truncated");
    return begin;
  }

 private:
  Status corrupt(const std::string& what) const {
    return Status(StatusCode::kCorrupt, file_.path + ": zip archive: " + what);
  }

  // Only the archive comment can follow the end record.
  Result<Directory> find_directory() {
    const uint64_t tail = std::min(size_, kEndBytes + kMaxComment);
    if (tail < kEndBytes) return corrupt("too short");
    STOKER_ASSIGN_OR_RETURN(const Bytes bytes, Bytes::read(file_, size_ - tail, tail));
    for (uint64_t at = tail - kEndBytes + 1; at-- > 0;) {
      if (bytes.u32(at) != kEndMagic || bytes.u16(at + 20) != tail - at - kEndBytes) continue;
      if (bytes.u16(at + 4) != bytes.u16(at + 6) || bytes.u16(at + 8) != bytes.u16(at + 10))
        return corrupt("is split into several parts");
      const Directory found{
          .offset = bytes.u32(at + 16), .bytes = bytes.u32(at + 12), .members = bytes.u16(at + 10)};
      const bool is_64 = found.offset == kIn64 || found.bytes == kIn64 || found.members == 0xffff;
      return is_64 ? find_directory64(size_ - tail + at) : Result<Directory>(found);
    }
    return corrupt("truncated (no end record)");
  }
  Result<Directory> find_directory64(uint64_t end) {
    if (end < kLocator64Bytes) return corrupt("the end record is corrupt");
    STOKER_ASSIGN_OR_RETURN(const Bytes locator,
                            Bytes::read(file_, end - kLocator64Bytes, kLocator64Bytes));
    const uint64_t at = locator.u64(8);
    if (locator.u32(0) != kLocator64Magic || size_ < kEnd64Bytes || at > size_ - kEnd64Bytes)
      return corrupt("the end record is corrupt");
    STOKER_ASSIGN_OR_RETURN(const Bytes record, Bytes::read(file_, at, kEnd64Bytes));
    if (record.u32(0) != kEnd64Magic) return corrupt("the end record is corrupt");
    return Directory{.offset = record.u64(48), .bytes = record.u64(40), .members = record.u64(32)};
  }

  // Reads the member at `at` and advances `at` past it.
  Result<ZipMember> read_member(const Bytes& bytes, uint64_t& at) {
    const uint64_t remaining = bytes.size() - at;
    if (remaining < kMemberBytes || bytes.u32(at) != kMemberMagic)
      return corrupt("the directory is corrupt");
    const uint64_t name = bytes.u16(at + 28), extra = bytes.u16(at + 30);
    const uint64_t total = kMemberBytes + name + extra + bytes.u16(at + 32);
    if (remaining < total) return corrupt("the directory is corrupt");
    ZipMember member{.name = bytes.text(at + kMemberBytes, name),
                     .is_deflated = bytes.u16(at + 10) == kDeflated,
                     .crc32 = bytes.u32(at + 16),
                     .packed_bytes = bytes.u32(at + 20),
                     .bytes = bytes.u32(at + 24),
                     .local_header = bytes.u32(at + 42)};
    const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
    if (std::ranges::any_of(member.name, is_control))
      return corrupt("a member has a control character in its name");
    if ((bytes.u16(at + 8) & kEncrypted) != 0) return corrupt("is encrypted");
    if (!member.is_deflated && bytes.u16(at + 10) != kStored)
      return corrupt("member '" + member.name + "' is neither stored nor deflated");
    STOKER_RETURN_IF_ERROR(read_zip64_fields(bytes, at + kMemberBytes + name, extra, member));
    if (!member.is_deflated && member.bytes != member.packed_bytes)
      return corrupt("member '" + member.name + "' has inconsistent lengths");
    at += total;
    return member;
  }

  // Values that do not fit into 32 bits are in an extra field, in this order.
  Status read_zip64_fields(const Bytes& bytes, uint64_t at, uint64_t count, ZipMember& member) {
    for (const uint64_t end = at + count; end - at >= 4;) {
      const uint64_t size = bytes.u16(at + 2);
      if (size > end - at - 4) return corrupt("the directory is corrupt");
      if (bytes.u16(at) == kExtra64) {
        uint64_t from = at + 4;
        const uint64_t last = from + size;
        for (uint64_t* number : {&member.bytes, &member.packed_bytes, &member.local_header}) {
          if (*number != kIn64) continue;
          if (last - from < 8) return corrupt("the directory is corrupt");
          *number = bytes.u64(from);
          from += 8;
        }
      }
      at += 4 + size;
    }
    return {};
  }

  const ArchiveFile& file_;
  const uint64_t size_;
};

}  // namespace

Result<bool> is_zip(const ArchiveFile& file) {
  std::array<std::byte, 4> start{};
  if (file.size < start.size()) return false;
  STOKER_RETURN_IF_ERROR(file.read(0, start));
  // An archive without members starts with its end record.
  return start[0] == std::byte{'P'} && start[1] == std::byte{'K'} &&
         (start[2] == std::byte{3} || start[2] == std::byte{5});
}

Result<std::vector<ZipMember>> read_zip_directory(const ArchiveFile& file) {
  return ZipReader(file).members();
}

Result<uint64_t> zip_data_offset(const ArchiveFile& file, const ZipMember& member) {
  return ZipReader(file).data_offset(member);
}

namespace {

// From this number on, the count is in the ZIP64 end record.
constexpr uint64_t kMaxMembers = 0xffff;
constexpr uint16_t kVersion = 20, kVersion64 = 45;
constexpr uint16_t kUnixVersion = 3 << 8;
constexpr uint32_t kRegularFile = 0100644U << 16;
// Fixed date and time: equal content yields equal bytes.
constexpr uint32_t kNewYear1980 = 0x00210000;
constexpr uint16_t kPaddingExtra = 0x4246;  // "FB"
constexpr uint64_t kMaxAlignment = 1024;

// Builds a record from consecutive little-endian integers.
class Record {
 public:
  Record& u16(uint64_t value) { return number(value, 2); }
  Record& u32(uint64_t value) { return number(value, 4); }
  Record& u64(uint64_t value) { return number(value, 8); }
  Record& text(const std::string& text) {
    bytes_ += text;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  Record& number(uint64_t value, size_t count) {
    for (size_t i = 0; i < count; ++i) bytes_ += static_cast<char>(value >> (8 * i));
    return *this;
  }
  std::string bytes_;
};

uint32_t clamp_to_32_bits(uint64_t value) {
  return value >= kIn64 ? kIn64 : static_cast<uint32_t>(value);
}

}  // namespace

bool ZipWriter::Member::is_large() const { return bytes >= kIn64 || local_header >= kIn64; }

Status ZipWriter::put(const std::string& record) {
  offset_ += record.size();
  return sink_(std::as_bytes(std::span(record)));
}

Status ZipWriter::begin(const std::string& name, uint64_t bytes, uint64_t alignment) {
  assert(alignment > 0 && alignment <= kMaxAlignment);
  STOKER_RETURN_IF_ERROR(end_member());
  Member& member =
      members_.emplace_back(Member{.name = name, .bytes = bytes, .local_header = offset_});
  is_open_ = true;
  Record extra;
  // With flag bit 3 the lengths follow the data; they have 8 bytes each if this extra field is
  // present.
  if (member.is_large()) extra.u16(kExtra64).u16(16).u64(0).u64(0);
  const uint64_t data_offset = offset_ + kLocalBytes + name.size() + extra.bytes().size();
  if (data_offset % alignment != 0) {
    const uint64_t padding = (alignment - (data_offset + 4) % alignment) % alignment;
    extra.u16(kPaddingExtra).u16(padding).text(std::string(padding, 'Z'));
  }
  Record local;
  local.u32(kLocalMagic).u16(member.is_large() ? kVersion64 : kVersion);
  local.u16(kHasDescriptor | kNamesAreUtf8).u16(kStored).u32(kNewYear1980).u32(0);
  local.u32(member.is_large() ? kIn64 : 0).u32(member.is_large() ? kIn64 : 0);
  local.u16(name.size()).u16(extra.bytes().size()).text(name).text(extra.bytes());
  return put(local.bytes());
}

Status ZipWriter::append(std::span<const std::byte> bytes) {
  assert(is_open_);
  Member& member = members_.back();
  member.written += bytes.size();
  assert(member.written <= member.bytes);
  member.crc32 = static_cast<uint32_t>(
      ::crc32_z(member.crc32, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  offset_ += bytes.size();
  return sink_(bytes);
}

Status ZipWriter::add(const std::string& name, const std::string& content) {
  STOKER_RETURN_IF_ERROR(begin(name, content.size()));
  return append(std::as_bytes(std::span(content)));
}

Status ZipWriter::end_member() {
  if (!is_open_) return {};
  is_open_ = false;
  const Member& member = members_.back();
  assert(member.written == member.bytes);
  Record descriptor;
  descriptor.u32(kDescriptorMagic).u32(member.crc32);
  if (member.is_large()) {
    descriptor.u64(member.bytes).u64(member.bytes);
  } else {
    descriptor.u32(member.bytes).u32(member.bytes);
  }
  return put(descriptor.bytes());
}

Status ZipWriter::put_directory_entry(const Member& member) {
  Record numbers;  // only the values that need 64 bits, in this order
  if (member.bytes >= kIn64) numbers.u64(member.bytes).u64(member.bytes);
  if (member.local_header >= kIn64) numbers.u64(member.local_header);
  Record extra;
  if (member.is_large()) extra.u16(kExtra64).u16(numbers.bytes().size()).text(numbers.bytes());
  const uint16_t version = member.is_large() ? kVersion64 : kVersion;
  Record entry;
  entry.u32(kMemberMagic).u16(kUnixVersion | version).u16(version);
  entry.u16(kHasDescriptor | kNamesAreUtf8).u16(kStored).u32(kNewYear1980).u32(member.crc32);
  entry.u32(clamp_to_32_bits(member.bytes)).u32(clamp_to_32_bits(member.bytes));
  entry.u16(member.name.size()).u16(extra.bytes().size()).u16(0).u16(0).u16(0);
  entry.u32(kRegularFile).u32(clamp_to_32_bits(member.local_header));
  return put(entry.text(member.name).text(extra.bytes()).bytes());
}

Status ZipWriter::finish() {
  STOKER_RETURN_IF_ERROR(end_member());
  const uint64_t directory = offset_;
  for (const Member& member : members_) STOKER_RETURN_IF_ERROR(put_directory_entry(member));
  return put_end(directory);
}

Status ZipWriter::put_end(uint64_t directory) {
  const uint64_t bytes = offset_ - directory;
  const uint64_t count = members_.size();
  Record end;
  if (directory >= kIn64 || bytes >= kIn64 || count >= kMaxMembers) {
    const uint64_t end64 = offset_;
    end.u32(kEnd64Magic).u64(kEnd64Bytes - 12).u16(kUnixVersion | kVersion64).u16(kVersion64);
    end.u32(0).u32(0).u64(count).u64(count).u64(bytes).u64(directory);
    end.u32(kLocator64Magic).u32(0).u64(end64).u32(1);
  }
  const uint64_t count16 = std::min(count, kMaxMembers);
  end.u32(kEndMagic).u16(0).u16(0).u16(count16).u16(count16);
  end.u32(clamp_to_32_bits(bytes)).u32(clamp_to_32_bits(directory)).u16(0);
  return put(end.bytes());
}

}  // namespace stoker::archive
