#include "shared/archive/zip_writer.h"

#include <zlib.h>

#include <algorithm>
#include <cassert>

#include "shared/archive/zip_format.h"

namespace stoker::archive {
namespace {

constexpr uint64_t kMaxMembers = 0xffff;  // this many and more are counted in the ZIP64 part
constexpr uint16_t kVersion = 20, kVersion64 = 45;
constexpr uint16_t kMadeOnUnix = 3 << 8;
constexpr uint32_t kRegularFile = 0100644U << 16;
constexpr uint32_t kNewYear1980 = 0x00210000;  // date and time: the same content, the same bytes
constexpr uint16_t kPaddingExtra = 0x4246;     // "FB"
constexpr uint64_t kMaxAlignment = 1024;

// Little-endian numbers one after another.
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

uint32_t in_32_bits(uint64_t value) {
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
  // With bit 3 the lengths stand behind the bytes, in eight bytes each where this field is here.
  if (member.is_large()) extra.u16(kExtra64).u16(16).u64(0).u64(0);
  const uint64_t begins = offset_ + kLocalBytes + name.size() + extra.bytes().size();
  if (begins % alignment != 0) {
    const uint64_t padding = (alignment - (begins + 4) % alignment) % alignment;
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
  Record numbers;  // those that need 64 bits, in this order
  if (member.bytes >= kIn64) numbers.u64(member.bytes).u64(member.bytes);
  if (member.local_header >= kIn64) numbers.u64(member.local_header);
  Record extra;
  if (member.is_large()) extra.u16(kExtra64).u16(numbers.bytes().size()).text(numbers.bytes());
  const uint16_t version = member.is_large() ? kVersion64 : kVersion;
  Record entry;
  entry.u32(kMemberMagic).u16(kMadeOnUnix | version).u16(version);
  entry.u16(kHasDescriptor | kNamesAreUtf8).u16(kStored).u32(kNewYear1980).u32(member.crc32);
  entry.u32(in_32_bits(member.bytes)).u32(in_32_bits(member.bytes));
  entry.u16(member.name.size()).u16(extra.bytes().size()).u16(0).u16(0).u16(0);
  entry.u32(kRegularFile).u32(in_32_bits(member.local_header));
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
    end.u32(kEnd64Magic).u64(kEnd64Bytes - 12).u16(kMadeOnUnix | kVersion64).u16(kVersion64);
    end.u32(0).u32(0).u64(count).u64(count).u64(bytes).u64(directory);
    end.u32(kLocator64Magic).u32(0).u64(end64).u32(1);
  }
  const uint64_t count_in_16 = std::min(count, kMaxMembers);
  end.u32(kEndMagic).u16(0).u16(0).u16(count_in_16).u16(count_in_16);
  end.u32(in_32_bits(bytes)).u32(in_32_bits(directory)).u16(0);
  return put(end.bytes());
}

}  // namespace stoker::archive
