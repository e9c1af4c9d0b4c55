#include "shared/dataset/idx_file.h"

#include <array>
#include <span>
#include <string>

#include "shared/dataset/decompressed_file.h"
#include "shared/dataset/inflater.h"

namespace stoker::dataset {
namespace {

constexpr std::array kGzipMagic{std::byte{0x1f}, std::byte{0x8b}};
constexpr size_t kMaxHeaderBytes = 16;

uint32_t big_endian(const std::byte* bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | std::to_integer<uint32_t>(bytes[i]);
  return value;
}

Result<std::vector<uint32_t>> parse_header(std::span<const std::byte> bytes,
                                           const std::string& path, const IdxLayout& layout) {
  if (bytes.size() < layout.header_bytes()) {
    return Status(StatusCode::kCorrupt, path + ": " + std::to_string(bytes.size()) +
                                            " bytes are too few for an idx file");
  }
  if (const uint32_t found = big_endian(bytes.data()); found != layout.magic) {
    return Status(StatusCode::kCorrupt, path + ": begins with " + std::to_string(found) +
                                            ", an idx file of " + std::string(layout.holds) +
                                            " with " + std::to_string(layout.magic));
  }
  std::vector<uint32_t> numbers;
  for (size_t i = 0; i < layout.numbers; ++i)
    numbers.push_back(big_endian(bytes.data() + 4 * (i + 1)));
  return numbers;
}

// How long a file is that begins like this.
Result<uint64_t> promised_bytes(const std::vector<uint32_t>& header, const std::string& path,
                                const IdxLayout& layout) {
  uint64_t bytes = 1;
  bool fits = true;
  for (const uint32_t number : header)
    fits = fits && !__builtin_mul_overflow(bytes, uint64_t{number}, &bytes);
  fits = fits && !__builtin_add_overflow(bytes, layout.header_bytes(), &bytes);
  if (!fits)
    return Status(StatusCode::kCorrupt, path + ": its header promises more than any file can hold");
  return bytes;
}

Result<bool> is_gzip(const FileReader& reader, const FileTable& files, size_t file) {
  std::array<std::byte, 2> first{};
  if (files.stamp(file).size < first.size()) return false;
  STOKER_RETURN_IF_ERROR(reader.read(file, 0, first));
  return first == kGzipMagic;
}

}  // namespace

Result<std::vector<uint32_t>> read_idx_header(const FileReader& reader, const FileTable& files,
                                              size_t file, const IdxLayout& layout) {
  std::array<std::byte, kMaxHeaderBytes> bytes;
  const size_t wanted = std::min(layout.header_bytes(), files.stamp(file).size);
  const auto head = std::span(bytes).first(wanted);
  STOKER_RETURN_IF_ERROR(reader.read(file, 0, head));
  return parse_header(head, files.path(file), layout);
}

Result<bool> decompress_idx(const DatasetRequest& request, std::string_view field,
                            const FileTable& files, size_t file, const IdxLayout& layout,
                            const ScanProgress& progress, FileTable& made) {
  const FileReader reader(files);
  STOKER_ASSIGN_OR_RETURN(const bool packed, is_gzip(reader, files, file));
  if (!packed) return false;
  const Packed from{
      .format = Packed::Format::kGzip, .file = file, .offset = 0, .bytes = files.stamp(file).size};
  STOKER_ASSIGN_OR_RETURN(Inflater inflater, Inflater::open(reader, files, from));
  std::array<std::byte, kMaxHeaderBytes> bytes;
  const auto head = std::span(bytes).first(layout.header_bytes());
  STOKER_ASSIGN_OR_RETURN(const size_t got, inflater.read(head));
  const std::string path = files.path(file);
  STOKER_ASSIGN_OR_RETURN(const auto header, parse_header(head.first(got), path, layout));
  STOKER_ASSIGN_OR_RETURN(const uint64_t promised, promised_bytes(header, path, layout));
  STOKER_RETURN_IF_ERROR(decompress_file(reader, files, {.from = from, .bytes = promised},
                                         request.derived_file(field, "decompressed"), progress,
                                         made));
  return true;
}

}  // namespace stoker::dataset
