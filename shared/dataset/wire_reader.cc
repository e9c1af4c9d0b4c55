#include "shared/dataset/wire_reader.h"

#include <algorithm>
#include <string>

namespace stoker::dataset {
namespace {

constexpr size_t kMaxVarint = 10;  // bytes
constexpr size_t kMaxHead = 2 * kMaxVarint;

Status broken(uint64_t at, const std::string& what) {
  return Status(StatusCode::kCorrupt, what + " at byte " + std::to_string(at));
}

}  // namespace

bool take_varint(std::span<const std::byte>& bytes, uint64_t& value) {
  uint64_t number = 0;
  for (size_t i = 0; i < std::min(bytes.size(), kMaxVarint); ++i) {
    const auto byte = std::to_integer<uint64_t>(bytes[i]);
    if (i == kMaxVarint - 1 && byte > 1) return false;  // past 64 bits
    number |= (byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      value = number;
      bytes = bytes.subspan(i + 1);
      return true;
    }
  }
  return false;
}

Result<bool> WireReader::next(WireField& field) {
  if (at_ == end_) return false;
  const uint64_t at = at_;
  STOKER_ASSIGN_OR_RETURN(std::span<const std::byte> rest,
                          source_.peek(at, std::min<uint64_t>(kMaxHead, end_ - at)));
  const size_t looked = rest.size();
  uint64_t key = 0;
  if (!take_varint(rest, key) || key >> 3 == 0 || key >> 3 > 0x1fffffff)
    return broken(at, "no field begins");
  field.number = key >> 3;
  uint64_t size = 0;
  switch (key & 7) {
    case 0:
      field.type = WireField::Type::kVarint;
      if (!take_varint(rest, field.varint)) return broken(at, "a number is broken");
      break;
    case 1:
      field.type = WireField::Type::kFixed64;
      size = 8;
      break;
    case 2:
      field.type = WireField::Type::kBytes;
      if (!take_varint(rest, size)) return broken(at, "a length is broken");
      break;
    case 5:
      field.type = WireField::Type::kFixed32;
      size = 4;
      break;
    default:
      return broken(at, "a field of an unknown type");
  }
  field.begin = at + looked - rest.size();
  field.size = size;
  if (size > end_ - field.begin) return broken(at, "a field goes past its message");
  at_ = field.begin + size;
  return true;
}

}  // namespace stoker::dataset
