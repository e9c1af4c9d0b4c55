#include "shared/data/format/byte_stream.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace stoker::data::format {

ByteStream::ByteStream(files::FileTable files) : files_(std::move(files)), reader_(files_) {
  ends_.reserve(files_.size());
  uint64_t end = 0;
  for (size_t file = 0; file < files_.size(); ++file)
    ends_.push_back(end += files_.stamp(file).size);
}

ByteStream::ByteStream(files::FileTable files, std::span<const uint64_t> lengths)
    : files_(std::move(files)), reader_(files_) {
  assert(lengths.size() == files_.size());
  uint64_t end = 0;
  for (const uint64_t length : lengths) ends_.push_back(end += length);
}

Result<uint64_t> ByteStream::total_length(const files::FileTable& files) {
  uint64_t length = 0;
  for (size_t file = 0; file < files.size(); ++file) {
    const uint64_t size = files.stamp(file).size;
    if (size > static_cast<uint64_t>(INT64_MAX) - length) {
      return Status(StatusCode::kCorrupt, files.path(file) + ": a size of " + std::to_string(size) +
                                              " bytes is not possible");
    }
    length += size;
  }
  return length;
}

size_t ByteStream::file_at(uint64_t position) const {
  // The first file that ends after the position; this skips empty files.
  return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), position) -
                             ends_.begin());
}

Status ByteStream::read(uint64_t position, std::span<std::byte> bytes) const {
  assert(position <= length() && bytes.size() <= length() - position);
  for (size_t file = file_at(position); !bytes.empty(); ++file) {
    const uint64_t offset = position - begin_of(file);
    const size_t here = std::min<uint64_t>(bytes.size(), ends_[file] - position);
    STOKER_RETURN_IF_ERROR(reader_.read(file, offset, bytes.first(here)));
    bytes = bytes.subspan(here);
    position += here;
  }
  return {};
}

void ByteStream::prefetch(uint64_t position, uint64_t count, files::PrefetchedBytes& bytes) const {
  assert(position <= length() && count <= length() - position);
  for (size_t file = file_at(position); count > 0; ++file) {
    const uint64_t offset = position - begin_of(file);
    const uint64_t here = std::min(count, ends_[file] - position);
    reader_.prefetch(file, offset, here, bytes);
    count -= here;
    position += here;
  }
}

std::vector<uint64_t> ByteStream::shard_ends(uint64_t begin, uint64_t stride,
                                             uint64_t samples) const {
  std::vector<uint64_t> shards;
  uint64_t last = 0;
  for (const uint64_t end : ends_) {
    const uint64_t length = end > begin ? end - begin : 0;
    const uint64_t begun = std::min(samples, length / stride + (length % stride != 0));
    if (begun > last) shards.push_back(begun);
    last = std::max(last, begun);
  }
  return shards;
}

SampleSource ByteStream::source(uint64_t position) const {
  const size_t file = file_at(position);
  assert(file < files_.size());
  return {.file = files_.path(file), .offset = position - begin_of(file)};
}

}  // namespace stoker::data::format
