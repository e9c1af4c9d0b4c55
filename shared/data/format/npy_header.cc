#include "shared/data/format/npy_header.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>

#include "shared/base/utf8.h"

namespace stoker::data::format {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";

struct NamedType {
  NpyType type;
  std::string_view name;
};
constexpr auto kTypes = std::to_array<NamedType>({{{'b', 1}, "bool"},
                                                  {{'u', 1}, "uint8"},
                                                  {{'i', 1}, "int8"},
                                                  {{'u', 2}, "uint16"},
                                                  {{'i', 2}, "int16"},
                                                  {{'u', 4}, "uint32"},
                                                  {{'i', 4}, "int32"},
                                                  {{'u', 8}, "uint64"},
                                                  {{'i', 8}, "int64"},
                                                  {{'f', 2}, "float16"},
                                                  {{'f', 4}, "float32"},
                                                  {{'f', 8}, "float64"}});

Status corrupt(const std::string& what) { return Status(StatusCode::kCorrupt, what); }

uint64_t little_endian(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i > 0; --i)
    value = value << 8 | std::to_integer<uint64_t>(bytes[i - 1]);
  return value;
}

// Size of the length field after the version: 2 or 4 bytes.
size_t length_bytes(std::span<const std::byte> start) { return start[6] == std::byte{1} ? 2 : 4; }

// Parser for the dict literal that NumPy writes.
class Literal {
 public:
  explicit Literal(std::string_view text) : rest_(text) {}

  bool take(char wanted) {
    skip_space();
    if (!rest_.starts_with(wanted)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool take_word(std::string_view word) {
    skip_space();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  std::optional<std::string_view> take_text() {
    skip_space();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return {};
    const size_t end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos) return {};
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }
  std::optional<uint64_t> take_number() {
    skip_space();
    uint64_t number = 0;
    const auto parsed = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (parsed.ec != std::errc()) return {};
    rest_.remove_prefix(static_cast<size_t>(parsed.ptr - rest_.data()));
    if (rest_.starts_with('L')) rest_.remove_prefix(1);  // Python 2 suffix
    return number;
  }
  bool at_end() {
    skip_space();
    return rest_.empty();
  }

 private:
  void skip_space() {
    const size_t end = rest_.find_first_not_of(" \n");
    rest_.remove_prefix(std::min(end, rest_.size()));
  }
  std::string_view rest_;
};

struct Fields {
  std::optional<std::string_view> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<uint64_t>> shape;
};

// False if it is not a tuple of non-negative integers.
bool read_shape(Literal& literal, std::vector<uint64_t>& shape) {
  if (!literal.take('(')) return false;
  while (!literal.take(')')) {
    const auto number = literal.take_number();
    if (!number || shape.size() == kMaxNpyDimensions) return false;
    shape.push_back(*number);
    if (!literal.take(',')) return literal.take(')');
  }
  return true;
}

Status read_field(Literal& literal, Fields& fields) {
  const auto key = literal.take_text();
  if (!key || !literal.take(':')) return corrupt("its header is no dict as numpy writes it");
  if (*key == "descr" && !fields.descr) {
    fields.descr = literal.take_text();
    if (!fields.descr)
      return corrupt("its numbers have fields (a structured array); save each as an array");
  } else if (*key == "fortran_order" && !fields.fortran_order) {
    if (literal.take_word("True")) fields.fortran_order = true;
    if (literal.take_word("False")) fields.fortran_order = false;
    if (!fields.fortran_order) return corrupt("its fortran_order is neither True nor False");
  } else if (*key == "shape" && !fields.shape) {
    fields.shape.emplace();
    if (!read_shape(literal, *fields.shape)) return corrupt("its shape is no tuple of numbers");
  } else {
    return corrupt("its header has a key that is unknown or a duplicate");
  }
  return {};
}

Result<Fields> read_fields(std::string_view text) {
  Literal literal(text);
  Fields fields;
  if (!literal.take('{')) return corrupt("its header is no dict as numpy writes it");
  while (!literal.take('}')) {
    STOKER_RETURN_IF_ERROR(read_field(literal, fields));
    if (literal.take(',')) continue;
    if (literal.take('}')) break;
    return corrupt("its header is no dict as numpy writes it");
  }
  if (!literal.at_end()) return corrupt("its header has text behind its dict");
  if (!fields.descr || !fields.fortran_order || !fields.shape)
    return corrupt("its header lacks descr, fortran_order or shape");
  return fields;
}

Result<NpyType> type_of(std::string_view descr) {
  for (const NamedType& known : kTypes) {
    const char code[] = {known.type.kind, static_cast<char>('0' + known.type.bytes)};
    if (descr.size() != 3 || descr.substr(1) != std::string_view(code, 2)) continue;
    if (descr[0] == '<' || (descr[0] == '|' && known.type.bytes == 1)) return known.type;
    if (descr[0] == '>')
      return corrupt("its numbers are big-endian ('" + std::string(descr) +
                     "'); save it after .astype('<" + std::string(descr.substr(1)) + "')");
  }
  return corrupt("its numbers are of type '" + printable(descr.substr(0, 16)) +
                 "'; bools, integers and floats of 16 to 64 bits are read");
}

// Checks that the elements fill the rest of the array's bytes exactly.
Status check_length(const NpyHeader& header, uint64_t array_bytes) {
  uint64_t bytes = header.type.bytes;
  bool fits = true, is_empty = false;
  for (const uint64_t side : header.shape) {
    fits = fits && !__builtin_mul_overflow(bytes, side, &bytes);
    is_empty = is_empty || side == 0;
  }
  if (is_empty) return corrupt("it has no numbers in it");
  if (fits && bytes == array_bytes - header.data_offset) return {};
  return corrupt("its header declares " + (fits ? std::to_string(bytes) : "more than 2^64") +
                 " bytes of numbers, but there are " +
                 std::to_string(array_bytes - header.data_offset));
}

}  // namespace

std::string_view to_string(const NpyType& type) {
  const auto found = std::ranges::find(kTypes, type, &NamedType::type);
  return found == kTypes.end() ? std::string_view() : found->name;
}

uint64_t NpyHeader::row_elements() const {
  uint64_t elements = 1;
  for (size_t i = 1; i < shape.size(); ++i) elements *= shape[i];
  return elements;
}

Result<uint64_t> npy_header_bytes(std::span<const std::byte> start) {
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  if (!text.starts_with(kNpyMagic)) return corrupt("not an npy file (its first bytes differ)");
  if (start.size() < kNpyPrefix) return corrupt("truncated within its header");
  const bool is_known = start[6] >= std::byte{1} && start[6] <= std::byte{3};
  if (!is_known || start[7] != std::byte{0}) {
    return corrupt("npy version " + std::to_string(std::to_integer<int>(start[6])) + "." +
                   std::to_string(std::to_integer<int>(start[7])) + "; 1.0 to 3.0 are read");
  }
  const size_t digits = length_bytes(start);
  const uint64_t length = little_endian(start.subspan(kNpyMagic.size() + 2, digits));
  if (length > kMaxNpyHeader)
    return corrupt("a header of " + std::to_string(length) + " bytes, more than " +
                   std::to_string(kMaxNpyHeader));
  return kNpyMagic.size() + 2 + digits + length;
}

namespace {

Result<NpyHeader> parse(std::span<const std::byte> head, uint64_t array_bytes, bool has_rows) {
  STOKER_ASSIGN_OR_RETURN(const uint64_t bytes,
                          npy_header_bytes(head.first(std::min(head.size(), kNpyPrefix))));
  if (bytes > head.size() || bytes > array_bytes) return corrupt("truncated within its header");
  const auto literal = head.subspan(kNpyMagic.size() + 2 + length_bytes(head));
  const std::string_view text(reinterpret_cast<const char*>(literal.data()), literal.size());
  STOKER_ASSIGN_OR_RETURN(const Fields fields,
                          read_fields(text.substr(0, bytes - (head.size() - text.size()))));
  NpyHeader header{.type = {}, .shape = *fields.shape, .data_offset = bytes};
  STOKER_ASSIGN_OR_RETURN(header.type, type_of(*fields.descr));
  if (has_rows && header.shape.empty()) return corrupt("a single number, not an array with rows");
  if (*fields.fortran_order && header.shape.size() > 1)
    return corrupt("its numbers are in Fortran order; save it after numpy.ascontiguousarray()");
  STOKER_RETURN_IF_ERROR(check_length(header, array_bytes));
  return header;
}

}  // namespace

Result<NpyHeader> parse_npy_header(std::span<const std::byte> head, uint64_t array_bytes) {
  return parse(head, array_bytes, true);
}

Result<NpyHeader> parse_npy_value_header(std::span<const std::byte> head, uint64_t array_bytes) {
  return parse(head, array_bytes, false);
}

}  // namespace stoker::data::format
