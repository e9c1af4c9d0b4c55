#include "shared/data/format/tar_reader.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "shared/base/utf8.h"

namespace stoker::data::format {
namespace {

using Block = std::span<const std::byte>;

constexpr size_t kMaxLongName = size_t{64} << 10;
constexpr size_t kMaxPax = size_t{1} << 20;
constexpr uint64_t kMaxExtended = uint64_t{4} << 20;  // bytes of headers before that of a member
constexpr uint64_t kMaxRest = uint64_t{1} << 20;      // bytes after the end-of-archive block

// Offset and size of a header field.
struct Location {
  size_t begin;
  size_t size;
};
constexpr Location kName{0, 100}, kSize{124, 12}, kChecksum{148, 8}, kType{156, 1},
    kMagicField{257, 6}, kPrefix{345, 155};

std::string_view text_at(Block block, Location location) {
  const auto field = block.subspan(location.begin, location.size);
  const std::string_view text(reinterpret_cast<const char*>(field.data()), field.size());
  return text.substr(0, std::min(text.find('\0'), text.size()));
}

bool is_zero(Block block) {
  return std::ranges::all_of(block, [](std::byte byte) { return byte == std::byte{0}; });
}

// Octal digits, optionally after spaces, up to a space or NUL; or a base-256 number if the first
// bit is set.
std::optional<uint64_t> number_at(Block block, Location location) {
  const auto field = block.subspan(location.begin, location.size);
  if ((field[0] & std::byte{0x80}) != std::byte{0}) {
    if (field[0] != std::byte{0x80}) return std::nullopt;  // negative, or more than 64 bits
    uint64_t number = 0;
    for (const std::byte byte : field.subspan(1)) {
      if (number >> 56 != 0) return std::nullopt;
      number = number << 8 | std::to_integer<uint64_t>(byte);
    }
    return number;
  }
  std::string_view text = text_at(block, location);
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  text = text.substr(0, std::min(text.find(' '), text.size()));
  if (text.empty()) return 0;
  uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number, 8);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

// The checksum is the sum of all bytes, with the checksum field counted as spaces. Some old writers
// summed signed bytes.
bool has_right_checksum(Block block) {
  const auto stored = number_at(block, kChecksum);
  int64_t sum = 0, signed_sum = 0;
  for (size_t i = 0; i < block.size(); ++i) {
    const bool is_sum = i >= kChecksum.begin && i < kChecksum.begin + kChecksum.size;
    const auto byte = is_sum ? uint8_t{' '} : std::to_integer<uint8_t>(block[i]);
    sum += byte;
    signed_sum += static_cast<int8_t>(byte);
  }
  return stored && (std::cmp_equal(*stored, sum) || std::cmp_equal(*stored, signed_sum));
}

std::string name_of(Block block) {
  std::string name(text_at(block, kName));
  const bool is_posix = text_at(block, kMagicField) == "ustar";  // GNU: followed by a space
  const std::string_view prefix = text_at(block, kPrefix);
  return is_posix && !prefix.empty() ? std::string(prefix) + '/' + name : name;
}

bool is_file_type(char type) { return type == '0' || type == '\0' || type == '7'; }
bool is_link_type(char type) { return type == '1' || type == '2'; }
// Links, devices and folders have no content, whatever size their header declares.
bool has_content(char type) { return type < '1' || type > '6'; }

}  // namespace

Status link_in_tar(std::string_view extension) {
  return Status(StatusCode::kCorrupt,
                "member " + quote_for_message(extension) +
                    " is a link, which has no content; create the archive with tar "
                    "--hard-dereference --dereference");
}

Result<bool> TarReader::next(TarMember& member) {
  if (has_end_block_) {
    if (after_end_ == AfterEnd::kNothing) return false;
    STOKER_RETURN_IF_ERROR(skip_zeros());
    has_end_block_ = false;
  }
  Overrides overrides;
  const uint64_t begin = at_;
  for (Header header;;) {
    if (at_ - begin > kMaxExtended)
      return wrong("extended headers of more than " + std::to_string(kMaxExtended) +
                   " bytes before a member");
    STOKER_ASSIGN_OR_RETURN(const bool more, read_header(header));
    if (!more) {
      if (overrides.any) return wrong("ends after a header that belongs to a member");
      return false;
    }
    switch (header.type) {
      case 'L':
        STOKER_RETURN_IF_ERROR(take_long_name(header, overrides));
        continue;
      case 'K':  // long target name of a link
        if (header.size > kMaxLongName) return long_name(header.size);
        STOKER_RETURN_IF_ERROR(skip(header.size));
        continue;
      case 'x':
      case 'X':
      case 'g':
        STOKER_RETURN_IF_ERROR(take_pax(header, overrides));
        continue;
      case 'S':
        return wrong("a sparse member; pack it without --sparse");
      case 'M':
        return wrong("a member that began in another volume; pack it without --multi-volume");
      default:
        break;
    }
    member.name = overrides.name.empty() ? std::move(header.name) : std::move(overrides.name);
    member.begin = begin;
    member.header = header_;
    member.content = at_;
    member.size = overrides.has_size ? overrides.size : header.size;
    if (!has_content(header.type)) member.size = 0;
    member.is_file = is_file_type(header.type) && !member.name.ends_with('/');
    member.is_link = is_link_type(header.type);
    STOKER_RETURN_IF_ERROR(skip(member.size));
    return true;
  }
}

void TarReader::seek(uint64_t offset) {
  at_ = header_ = content_end_ = offset;
  has_end_block_ = false;
}

// False at the end of the archive: a zero block, or the end of the file.
Result<bool> TarReader::read_header(Header& header) {
  STOKER_ASSIGN_OR_RETURN(const Block block, file_.peek(at_, kTarBlock));
  if (block.empty() && file_.size() < content_end_)
    return wrong("the file ends in the content of a member");
  header_ = at_;
  if (block.empty()) return false;
  if (block.size() < kTarBlock) return wrong("the file ends in a header");
  if (is_zero(block)) {
    has_end_block_ = true;
    if (after_end_ == AfterEnd::kNothing) STOKER_RETURN_IF_ERROR(check_rest());
    return false;
  }
  if (!has_right_checksum(block)) return wrong("not a tar header (its checksum is wrong)");
  const auto size = number_at(block, kSize);
  if (!size) return wrong("the size is not a number");
  header = {.type = static_cast<char>(block[kType.begin]), .size = *size, .name = name_of(block)};
  at_ += kTarBlock;
  return true;
}

// Members after the end would be ignored silently.
Status TarReader::check_rest() {
  STOKER_RETURN_IF_ERROR(skip_zeros());
  STOKER_ASSIGN_OR_RETURN(const Block block, file_.peek(at_, kTarBlock));
  if (block.empty()) return {};
  return wrong(
      "something follows the end of the archive; of archives joined by cat only the first would be "
      "read");
}

// Continues after zero blocks.
Status TarReader::skip_zeros() {
  for (const uint64_t begin = at_; at_ - begin <= kMaxRest; at_ += kTarBlock) {
    STOKER_ASSIGN_OR_RETURN(const Block block, file_.peek(at_, kTarBlock));
    if (block.empty() || !is_zero(block)) return {};
  }
  return wrong("more than " + std::to_string(kMaxRest) + " bytes follow the end of the archive");
}

Status TarReader::take_long_name(const Header& header, Overrides& overrides) {
  if (header.size > kMaxLongName) return long_name(header.size);
  STOKER_ASSIGN_OR_RETURN(const Block bytes, file_.peek(at_, header.size));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  overrides.name = text.substr(0, std::min(text.find('\0'), text.size()));
  overrides.any = true;
  return skip(header.size);
}

// Records are "LENGTH KEY=VALUE\n"; LENGTH is the size of the whole record.
Status TarReader::take_pax(const Header& header, Overrides& overrides) {
  if (header.size > kMaxPax)
    return wrong("a pax header of " + std::to_string(header.size) + " bytes");
  STOKER_ASSIGN_OR_RETURN(const Block bytes, file_.peek(at_, header.size));
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  while (!rest.empty()) {
    size_t length = 0;
    const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), length);
    const auto digits = static_cast<size_t>(parsed.ptr - rest.data());
    const bool fits = parsed.ec == std::errc() && length <= rest.size() && length > digits + 1 &&
                      rest[digits] == ' ' && rest[length - 1] == '\n';
    if (!fits) return wrong("a broken pax header");
    const std::string_view record = rest.substr(digits + 1, length - digits - 2);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos) return wrong("a broken pax header");
    STOKER_RETURN_IF_ERROR(take_pax_record(record.substr(0, equals), record.substr(equals + 1),
                                           header.type == 'g', overrides));
    rest.remove_prefix(length);
  }
  if (header.type != 'g') overrides.any = true;
  return skip(header.size);
}

Status TarReader::take_pax_record(std::string_view key, std::string_view value, bool is_global,
                                  Overrides& overrides) {
  if (key.starts_with("GNU.sparse.")) return wrong("a sparse member; pack it without --sparse");
  if (key != "path" && key != "size") return {};
  if (is_global) return wrong("a pax header with a " + std::string(key) + " for all members");
  if (key == "path") {
    overrides.name = value;
    return {};
  }
  const auto parsed = std::from_chars(value.data(), value.data() + value.size(), overrides.size);
  if (parsed.ec != std::errc() || parsed.ptr != value.data() + value.size())
    return wrong("the size in a pax header is not a number");
  overrides.has_size = true;
  return {};
}

// Skips content and its padding to a whole block. The padding of the last member can be missing.
Status TarReader::skip(uint64_t size) {
  const uint64_t left = file_.size() - at_;
  if (size > left) {
    return wrong("the file ends in the content of a member, which should have " +
                 std::to_string(size) + " bytes");
  }
  const uint64_t padding = (kTarBlock - size % kTarBlock) % kTarBlock;
  content_end_ = at_ + size;
  at_ += size + std::min(padding, left - size);
  return {};
}

Status TarReader::long_name(uint64_t size) const {
  return wrong("a name of " + std::to_string(size) + " bytes");
}

Status TarReader::wrong(const std::string& what) const {
  return Status(StatusCode::kCorrupt, "offset " + std::to_string(header_) + ": " + what);
}

}  // namespace stoker::data::format
