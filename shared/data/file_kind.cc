#include "shared/data/file_kind.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "shared/base/hash.h"

namespace stoker::data {
namespace {

using namespace std::string_view_literals;

struct Magic {
  std::string_view bytes;
  FileKind kind;
  size_t offset = 0;
  // Text could begin like this; the byte behind it then is not text.
  bool before_binary = false;
};

constexpr auto kToJsonl =
    "convert it to jsonl, for example with pandas: to_json(path, orient='records', lines=True)"sv;
constexpr auto kToUtf8 = "convert it to UTF-8"sv;
constexpr auto kNarrow = "narrow the glob, or name another file"sv;
constexpr auto kUnpack = "unpack it, and name the folder with its files"sv;
constexpr auto kUseImages = "use format image_folder or image_list, or narrow the glob"sv;

// The first that fits is taken.
constexpr auto kMagics = std::to_array<Magic>({
    {"ustar"sv, {"a tar archive", "use format webdataset, or unpack it"}, 257},
    {"\x1f\x8b\x08"sv, {"gzip", "unpack it with gunzip", true}},
    {"\x28\xb5\x2f\xfd"sv, {"zstd", "unpack it with unzstd", true}},
    {"\xfd"
     "7zXZ"sv,
     {"xz", "unpack it with unxz", true}},
    {"1AY&"sv, {"bzip2", "unpack it with bunzip2", true}, 4},
    {"\x04\x22\x4d\x18"sv, {"lz4", "unpack it with unlz4", true}},
    {"PAR1"sv, {"a Parquet file", kToJsonl}, 0, true},
    {"PARE"sv, {"an encrypted Parquet file", kToJsonl}, 0, true},
    {"ARROW1\0"sv, {"an Arrow file", kToJsonl}},
    {"FEA1"sv, {"a Feather file", kToJsonl}, 0, true},
    {"ORC"sv, {"an ORC file", kToJsonl}, 0, true},
    {"Obj\1"sv, {"an Avro file", kToJsonl}},
    {"SQLite format 3\0"sv, {"an SQLite database", kToJsonl}},
    {"\x89HDF\r\n\x1a\n"sv, {"an HDF5 file", "store its arrays with numpy.save, for format numpy"}},
    {"MATLAB 5.0 MAT-file"sv,
     {"a MATLAB file", "store its arrays with numpy.save, for format numpy"}},
    {"\x93NUMPY"sv,
     {"an .npy file",
      "it begins with a header: use format numpy, or, for format tokens, write the ids without it "
      "with tofile()"}},
    {"PK\x03\x04"sv, {"a zip archive", "use format numpy if it is an .npz, otherwise unpack it"}},
    {"PK\x05\x06"sv, {"an empty zip archive", kNarrow}},
    {"7z\xbc\xaf\x27\x1c"sv, {"a 7z archive", kUnpack}},
    {"Rar!\x1a\x07"sv, {"a RAR archive", kUnpack}},
    {"\x89PNG\r\n\x1a\n"sv, {"a PNG image", kUseImages}},
    {"\xff\xd8\xff"sv, {"a JPEG image", kUseImages}},
    {"GIF87a"sv, {"a GIF image", kNarrow}},
    {"GIF89a"sv, {"a GIF image", kNarrow}},
    {"WEBPVP8"sv, {"a WebP image", kUseImages}, 8},
    {"WAVEfmt "sv, {"a WAV file", kNarrow}, 8},
    {"ID3"sv, {"an MP3 file", kNarrow}, 0, true},
    {"fLaC\0"sv, {"a FLAC file", kNarrow}},
    {"OggS\0"sv, {"an Ogg file", kNarrow}},
    {"ftyp"sv, {"an MP4 or HEIC file", kNarrow}, 4},
    {"%PDF-"sv, {"a PDF file", "extract its text, for example with pdftotext"}},
    {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv, {"a file of Microsoft Office or Thumbs.db", kNarrow}},
    {"{\\rtf"sv, {"an RTF file", "save it as text"}},
    {"\x7f"
     "ELF"sv,
     {"a program", kNarrow}},
    {"\0\5\x16\7"sv, {"an AppleDouble file of macOS", "remove it, or narrow the glob"}},
    {"Bud1"sv, {"a .DS_Store file of macOS", "remove it, or narrow the glob"}, 4},
    {"version https://git-lfs"sv, {"a pointer of Git LFS", "fetch the file with git lfs pull"}},
});

// Not among kMagics: token ids can begin with two bytes like these.
constexpr auto kMarks = std::to_array<Magic>({{"\xff\xfe\0\0"sv, {"UTF-32", kToUtf8}},
                                              {"\0\0\xfe\xff"sv, {"UTF-32", kToUtf8}},
                                              {"\xff\xfe"sv, {"UTF-16", kToUtf8}},
                                              {"\xfe\xff"sv, {"UTF-16", kToUtf8}}});

std::string_view text_of(std::span<const std::byte> head) {
  return {reinterpret_cast<const char*>(head.data()), head.size()};
}

bool is_text_byte(unsigned char byte) { return byte >= ' ' || (byte >= '\a' && byte <= '\r'); }

bool is_kind(std::string_view head, const Magic& magic) {
  if (head.size() < magic.offset + magic.bytes.size()) return false;
  if (head.substr(magic.offset, magic.bytes.size()) != magic.bytes) return false;
  const size_t behind = magic.offset + magic.bytes.size();
  if (!magic.before_binary) return true;
  return behind < head.size() && !is_text_byte(static_cast<unsigned char>(head[behind]));
}

// The length of the first record, and its checksum.
bool is_tfrecord(std::span<const std::byte> head) {
  constexpr size_t kLength = 8;
  uint32_t stored = 0;
  if (head.size() < kLength + sizeof stored) return false;
  std::memcpy(&stored, head.data() + kLength, sizeof stored);
  return stored == masked_crc32c(head.first(kLength));
}

// A header of JSON behind its length.
bool is_safetensors(std::span<const std::byte> head) {
  constexpr uint64_t kMaxHeader = uint64_t{100} << 20;
  uint64_t length = 0;
  if (head.size() < sizeof length + 2) return false;
  std::memcpy(&length, head.data(), sizeof length);
  return length > 1 && length <= kMaxHeader && text_of(head).substr(sizeof length, 2) == "{\"";
}

// Protocols 2 and 3 with an opcode that begins an object, later ones with a frame.
bool is_pickle(std::string_view head) {
  constexpr std::string_view kBegins = "]}(c\x8a\x58"sv;
  if (head.size() <= 2 || head[0] != '\x80') return false;
  if (head[1] == 2 || head[1] == 3) return kBegins.find(head[2]) != std::string_view::npos;
  return (head[1] == 4 || head[1] == 5) && head[2] == '\x95';
}

}  // namespace

std::optional<FileKind> find_file_kind(std::span<const std::byte> head) {
  // Its first bytes are a length, which can look like another kind.
  if (is_tfrecord(head)) return FileKind{"a TFRecord file", "use format tfrecord"};
  const auto found = std::ranges::find_if(
      kMagics, [&](const Magic& magic) { return is_kind(text_of(head), magic); });
  if (found != kMagics.end()) return found->kind;
  if (is_safetensors(head))
    return FileKind{"a safetensors file", "it has weights of a model; narrow the glob"};
  if (is_pickle(text_of(head)))
    return FileKind{"a pickle of Python, which is never read", "store its data in another format"};
  return std::nullopt;
}

namespace {

Status packed_by(const FileKind& kind) {
  return Status(StatusCode::kCorrupt,
                "packed by " + std::string(kind.name) +
                    ", so that no record can be read without those before it; " +
                    std::string(kind.advice));
}

}  // namespace

// The other kinds do not matter: a stream may know fewer bytes than they have.
Status reject_packed(std::span<const std::byte> head) {
  const auto found = std::ranges::find_if(kMagics, [&](const Magic& magic) {
    return magic.kind.is_packed && is_kind(text_of(head), magic);
  });
  return found == kMagics.end() ? Status() : packed_by(found->kind);
}

Status reject_other_kind(std::span<const std::byte> head, std::string_view wanted) {
  const auto kind = find_file_kind(head);
  if (!kind || kind->name == wanted) return {};
  if (kind->is_packed) return packed_by(*kind);
  return Status(StatusCode::kCorrupt, "is " + std::string(kind->name) + " and not " +
                                          std::string(wanted) + "; " + std::string(kind->advice));
}

Status reject_other_text(std::span<const std::byte> head) {
  STOKER_RETURN_IF_ERROR(reject_other_kind(head, "text"));
  const auto found =
      std::ranges::find_if(kMarks, [&](const Magic& mark) { return is_kind(text_of(head), mark); });
  if (found == kMarks.end()) return {};
  return Status(StatusCode::kCorrupt,
                "is " + std::string(found->kind.name) + "; " + std::string(found->kind.advice));
}

namespace {

// Whether the characters have two bytes: in most texts one of both is NUL in most of them.
bool is_unmarked_utf16(std::span<const std::byte> head) {
  size_t zeros[2] = {0, 0};
  for (size_t i = 0; i < head.size(); ++i)
    if (head[i] == std::byte{0}) ++zeros[i % 2];
  const size_t pairs = head.size() / 2;
  return pairs >= 2 && std::min(zeros[0], zeros[1]) == 0 &&
         std::max(zeros[0], zeros[1]) * 2 >= pairs;
}

// Some texts are separated by NUL, or have escape sequences; random bytes have 25 of 256.
bool has_many_controls(std::span<const std::byte> bytes) {
  constexpr size_t kMostOfText = 32;
  const auto controls = static_cast<size_t>(std::ranges::count_if(
      text_of(bytes), [](char each) { return !is_text_byte(static_cast<unsigned char>(each)); }));
  return controls * kMostOfText > bytes.size();
}

}  // namespace

Status reject_binary(std::span<const std::byte> head) {
  STOKER_RETURN_IF_ERROR(reject_other_text(head));
  if (!has_many_controls(head)) return {};
  if (is_unmarked_utf16(head))
    return Status(StatusCode::kCorrupt, "is UTF-16; " + std::string(kToUtf8));
  return Status(StatusCode::kCorrupt,
                "is binary and not text: it has control characters; " + std::string(kNarrow));
}

Status reject_binary_end(std::span<const std::byte> end) {
  if (!has_many_controls(end)) return {};
  return Status(StatusCode::kCorrupt,
                "begins as text and ends with control characters, as a file that was not written "
                "completely; fetch it again, or narrow the glob");
}

}  // namespace stoker::data
