#include "shared/dataset/tfrecord_frame.h"

#include <bit>
#include <cassert>
#include <cstring>

#include "shared/base/hash.h"

namespace stoker::dataset {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are read as they lie");

constexpr size_t kLengthBytes = 8;

template <typename T>
T number_at(std::span<const std::byte> bytes, size_t at) {
  T number;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

Status wrong(const char* what) { return Status(StatusCode::kCorrupt, what); }

}  // namespace

Result<uint64_t> frame_length(std::span<const std::byte> head) {
  assert(head.size() >= kFrameHead);
  if (number_at<uint32_t>(head, kLengthBytes) != masked_crc32c(head.first(kLengthBytes)))
    return wrong("the checksum of its length is wrong");
  return number_at<uint64_t>(head, 0);
}

Result<std::span<const std::byte>> framed_data(std::span<const std::byte> bytes) {
  if (bytes.size() < kFrameHead + kFrameTail) return wrong("cut off");
  STOKER_ASSIGN_OR_RETURN(const uint64_t length, frame_length(bytes));
  if (length > bytes.size() - kFrameHead - kFrameTail) return wrong("longer than it was");
  const auto data = bytes.subspan(kFrameHead, length);
  if (number_at<uint32_t>(bytes, kFrameHead + length) != masked_crc32c(data))
    return wrong("the checksum of its data is wrong; the file is damaged");
  return data;
}

}  // namespace stoker::dataset
