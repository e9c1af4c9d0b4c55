#include "shared/image/jpeg_region.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace stoker::image {
namespace {

using Bytes = std::span<const std::byte>;

// Second bytes of markers; the first byte is 0xff.
constexpr std::byte kMarker{0xff};
constexpr std::byte kStuffed{0x00};  // not a marker: a literal 0xff in the data
constexpr std::byte kBaseline{0xc0}, kSequential{0xc1};
constexpr uint8_t kRestart = 0xd0;  // to 0xd7, cyclically
constexpr uint32_t kRestarts = 8;
constexpr std::byte kEnd{0xd9}, kScan{0xda};
constexpr std::byte kFirst{0xc0}, kFill{0xff};

constexpr size_t kMarkerBytes = 2, kLengthBytes = 2;
constexpr size_t kHeightInFrame = 5;  // offset from its marker; the width follows

struct Header {
  size_t frame = 0;  // offset of its marker
  size_t data = 0;   // offset of the scan data
};

size_t big_endian_16(Bytes bytes, size_t at) {
  return std::to_integer<size_t>(bytes[at]) << 8 | std::to_integer<size_t>(bytes[at + 1]);
}

void put_big_endian_16(std::byte* at, uint32_t value) {
  at[0] = static_cast<std::byte>(value >> 8);
  at[1] = static_cast<std::byte>(value);
}

// True for markers that can occur in a header, with a length field.
bool is_segment(std::byte marker) {
  const bool bare = std::byte{kRestart} <= marker && marker <= kEnd;
  return marker >= kFirst && marker != kFill && !bare;
}

std::optional<Header> parse_header(Bytes file) {
  Header header;
  size_t at = kMarkerBytes;  // after the first marker, which has no length
  while (at + kHeightInFrame + 4 <= file.size() && file[at] == kMarker) {
    const std::byte marker = file[at + 1];
    const size_t end = at + kMarkerBytes + big_endian_16(file, at + kMarkerBytes);
    if (!is_segment(marker) || end > file.size() || end < at + kMarkerBytes + kLengthBytes)
      return {};
    if (marker == kBaseline || marker == kSequential) header.frame = at;
    if (marker == kScan) {
      header.data = end;
      if (header.frame == 0) return {};
      return header;
    }
    at = end;
  }
  return {};
}

// Offset of the first marker, which ends the restart interval; the size if there is none.
size_t interval_bytes(Bytes data) {
  for (size_t at = 0; at + 1 < data.size();) {
    const void* const found = std::memchr(data.data() + at, 0xff, data.size() - 1 - at);
    if (found == nullptr) break;
    at = static_cast<size_t>(static_cast<const std::byte*>(found) - data.data());
    if (data[at + 1] != kStuffed) return at;
    at += kMarkerBytes;
  }
  return data.size();
}

struct IntervalRange {
  uint32_t per_row = 0, rows = 0;
  uint32_t left = 0, right = 0, top = 0, bottom = 0;  // range of retained intervals

  bool contains(uint32_t row, uint32_t column) const {
    return row >= top && column >= left && column < right;
  }
};

std::optional<IntervalRange> find_intervals(const JpegGrid& grid, const PixelBounds& region) {
  const auto round_up = [](uint32_t pixels, uint32_t by) { return (pixels + by - 1) / by; };
  const uint32_t units = round_up(grid.width, grid.unit_width);
  if (grid.interval == 0 || units % grid.interval != 0) return {};
  const uint32_t interval_width = grid.unit_width * grid.interval;
  IntervalRange intervals{.per_row = units / grid.interval,
                          .rows = round_up(grid.height, grid.unit_height)};
  intervals.left = region.left / interval_width;
  intervals.right = round_up(region.right, interval_width);
  intervals.top = region.top / grid.unit_height;
  intervals.bottom = round_up(region.bottom, grid.unit_height);
  // Data below the region is not decoded in any case.
  const bool all =
      intervals.top == 0 && intervals.left == 0 && intervals.right == intervals.per_row;
  if (all) return {};
  return intervals;
}

// Copies the retained intervals, each followed by a marker. False if the markers are not as
// expected.
bool copy_intervals(Bytes data, const IntervalRange& intervals, std::byte*& to) {
  uint32_t number = 0, num_copied = 0;
  for (uint32_t row = 0; row < intervals.bottom; ++row) {
    for (uint32_t column = 0; column < intervals.per_row; ++column) {
      const bool last = row + 1 == intervals.rows && column + 1 == intervals.per_row;
      const size_t bytes = interval_bytes(data);
      if (bytes == data.size()) return false;
      const auto expected = static_cast<std::byte>(kRestart + number++ % kRestarts);
      if (data[bytes + 1] != (last ? kEnd : expected)) return false;
      if (intervals.contains(row, column)) {
        std::memcpy(to, data.data(), bytes);
        to += bytes;
        *to++ = kMarker;
        *to++ = static_cast<std::byte>(kRestart + num_copied++ % kRestarts);
      }
      data = data.subspan(bytes + kMarkerBytes);
    }
  }
  to[-1] = kEnd;
  return true;
}

}  // namespace

std::optional<JpegRegion> extract_jpeg_region(Bytes file, const JpegGrid& grid,
                                              const PixelBounds& region,
                                              std::vector<std::byte>& buffer) {
  assert(region.top < region.bottom && region.bottom <= grid.height);
  assert(region.left < region.right && region.right <= grid.width);
  const auto intervals = find_intervals(grid, region);
  const auto header = parse_header(file);
  if (!intervals || !header) return {};
  const uint32_t interval_width = grid.unit_width * grid.interval;
  JpegRegion jpeg_region{.file = {},
                         .top = intervals->top * grid.unit_height,
                         .left = intervals->left * interval_width};
  if (buffer.size() < file.size()) buffer.resize(file.size());  // a region is never larger
  std::memcpy(buffer.data(), file.data(), header->data);
  std::byte* const size = buffer.data() + header->frame + kHeightInFrame;
  put_big_endian_16(size,
                    std::min(grid.height, intervals->bottom * grid.unit_height) - jpeg_region.top);
  put_big_endian_16(size + 2,
                    std::min(grid.width, intervals->right * interval_width) - jpeg_region.left);
  std::byte* end = buffer.data() + header->data;
  if (!copy_intervals(file.subspan(header->data), *intervals, end)) return {};
  jpeg_region.file = Bytes(buffer).first(static_cast<size_t>(end - buffer.data()));
  return jpeg_region;
}

}  // namespace stoker::image
