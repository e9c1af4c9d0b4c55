#include "shared/data/files/index.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>

#include "shared/base/available_memory.h"
#include "shared/base/file.h"
#include "shared/base/hash.h"
#include "shared/base/number_format.h"
#include "shared/base/regular_file.h"

namespace stoker::data::files {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the index is written as it is in memory");

constexpr std::string_view kIndexMagic = "STKINDEX";
constexpr uint32_t kVersion = 8;
constexpr uint32_t kPreviousVersion = 6;  // also read
constexpr size_t kDigestBytes = 64;
// Of an index, and of its data: a row of csv has at least 2 bytes, and at most 32 here.
constexpr uint64_t kMaxBytesPerByte = 64;
constexpr uint64_t kMaxBytesPerFile = 256;  // of an index, without the name
constexpr uint64_t kMaxOtherBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxShortNames = 1'000'000;  // as classes
constexpr uint64_t kSparseBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxSparseRatio = 64;
constexpr uint64_t kBlockBytes = 512;  // of st_blocks

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_text(std::string& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out += text;
}

// Parses values from the front. After the first error it stays failed and returns zeros.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T take() {
    T value{};
    if (!fits(sizeof(T))) return value;
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_.remove_prefix(sizeof(T));
    return value;
  }
  std::string_view take_bytes(uint64_t count) {
    if (!fits(count)) return {};
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return bytes;
  }
  std::string_view take_text() { return take_bytes(take<uint64_t>()); }
  // A count of elements of at least `bytes_each` each; checked before memory is allocated for them.
  uint64_t take_count(uint64_t bytes_each) { return take_count(bytes_each, 0, bytes_each); }
  // The same, with a larger minimum where there are more than `many`.
  uint64_t take_count(uint64_t bytes_each, uint64_t many, uint64_t bytes_of_many) {
    const auto count = take<uint64_t>();
    if (count > rest_.size() / (count > many ? bytes_of_many : bytes_each)) failed_ = true;
    return failed_ ? 0 : count;
  }
  bool at_end() const { return !failed_ && rest_.empty(); }

 private:
  bool fits(uint64_t count) {
    if (count > rest_.size()) failed_ = true;
    return !failed_;
  }
  std::string_view rest_;
  bool failed_ = false;
};

void put_files(std::string& out, const FileTable& files) {
  put_text(out, files.root());
  put<uint64_t>(out, files.size());
  for (size_t file = 0; file < files.size(); ++file) {
    put_text(out, files.name(file));
    put(out, files.stamp(file).size);
    put(out, files.stamp(file).mtime_ns);
    put(out, files.stamp(file).inode);
    put(out, files.stamp(file).ctime_ns);
  }
}

void put_numbers(std::string& out, const std::vector<uint64_t>& numbers) {
  put<uint64_t>(out, numbers.size());
  for (const uint64_t number : numbers) put(out, number);
}

std::vector<uint64_t> take_numbers(Cursor& cursor) {
  std::vector<uint64_t> numbers(cursor.take_count(sizeof(uint64_t)));
  for (uint64_t& number : numbers) number = cursor.take<uint64_t>();
  return numbers;
}

FileTable take_files(Cursor& cursor, uint32_t version) {
  FileTable files{std::string(cursor.take_text())};
  const uint64_t count = cursor.take_count((version == kVersion ? 5 : 4) * sizeof(uint64_t));
  for (uint64_t i = 0; i < count; ++i) {
    const std::string_view name = cursor.take_text();
    FileStamp stamp;
    stamp.size = cursor.take<uint64_t>();
    stamp.mtime_ns = cursor.take<int64_t>();
    stamp.inode = cursor.take<uint64_t>();
    if (version == kVersion) stamp.ctime_ns = cursor.take<int64_t>();
    files.add(name, stamp);
  }
  return files;
}

// A name takes much more memory than its length of 8 bytes. More than classes can be are captions, which have words.
uint64_t take_name_count(Cursor& cursor) {
  return cursor.take_count(sizeof(uint64_t), kMaxShortNames, 2 * sizeof(uint64_t));
}

Status rejected(StatusCode code, const std::string& path, const std::string& what) {
  return Status(code, path + ": " + what + "; remove it, and the next start builds it again");
}

// The size of a file that is not read yet. Another user can have written it, as in a run that is evaluated: what needs no
// space on the disk of that user must not take memory and time of this one.
Result<uint64_t> check_file(int fd, const std::string& path, uint64_t max_bytes) {
  STOKER_ASSIGN_OR_RETURN(const struct stat info, regular_file(fd, path));
  const auto size = static_cast<uint64_t>(info.st_size);
  std::array<char, kIndexMagic.size()> magic{};
  STOKER_ASSIGN_OR_RETURN(
      const size_t got,
      default_file_system().read_at(fd, 0, std::as_writable_bytes(std::span(magic)), path));
  if (std::string_view(magic.data(), got) != kIndexMagic)
    return rejected(StatusCode::kCorrupt, path, "not a dataset index (its first bytes differ)");
  const bool is_of_another_user = info.st_uid != ::geteuid() && info.st_uid != 0;
  if (size > (is_of_another_user ? max_bytes : kMaxIndexBytes))
    return rejected(StatusCode::kInvalidArgument, path,
                    format_mib(size) + ", more than the index of its dataset can have (" +
                        format_mib(std::min(max_bytes, kMaxIndexBytes)) + ")");
  // ZFS counts one block for a new file, and leaves holes for zeros, as for the labels of class 0.
  const uint64_t allocated = static_cast<uint64_t>(info.st_blocks) * kBlockBytes;
  if (is_of_another_user && size > kSparseBytes && allocated > kBlockBytes &&
      allocated < size / kMaxSparseRatio)
    return rejected(StatusCode::kCorrupt, path, "not a dataset index (a sparse file)");
  const AvailableMemory available = available_memory();
  if (size > available.bytes / 2)  // its bytes, and what they contain
    return Status(StatusCode::kOutOfMemory,
                  path + ": needs " + format_mib(2 * size) + " of memory, but " + available.limit +
                      " has " + format_mib(available.bytes) +
                      " left; remove it if it is not yours, or provide more memory");
  return size;
}

}  // namespace

std::string Index::fingerprint() const {
  Sha256 hash;
  hash.update(fingerprint_text);
  hash.update("\n");
  files.add_to(hash);
  return hash.finish_hex();
}

std::string encode_index(const Index& index) {
  std::string out;
  out.reserve(1024 + index.files.size() * 40 + index.files.name_bytes());
  out += kIndexMagic;
  put(out, kVersion);
  put_text(out, index.fingerprint_text);
  put_text(out, index.source);
  put_text(out, index.fingerprint());
  put_numbers(out, index.metadata.numbers);
  put<uint64_t>(out, index.metadata.names.size());
  for (const std::string& text : index.metadata.names) put_text(out, text);
  put_numbers(out, index.metadata.pack_sizes);
  put_numbers(out, index.metadata.pack_checksums);
  put_files(out, index.metadata.made);
  put_files(out, index.files);
  put<uint8_t>(out, index.is_validated ? 1 : 0);
  put_numbers(out, index.metadata.selected);
  return out += sha256_hex(out);
}

Result<Index> decode_index(std::string_view bytes, const std::string& name) {
  const auto corrupt = [&name](const std::string& what) {
    return Status(StatusCode::kCorrupt, name + ": " + what);
  };
  if (bytes.size() < kIndexMagic.size() + sizeof(kVersion) + kDigestBytes)
    return corrupt("too short for a dataset index");
  const std::string_view digest = bytes.substr(bytes.size() - kDigestBytes);
  bytes.remove_suffix(kDigestBytes);
  Cursor cursor(bytes);
  if (cursor.take_bytes(kIndexMagic.size()) != kIndexMagic)
    return corrupt("not a dataset index (its first bytes differ)");
  const auto version = cursor.take<uint32_t>();
  if (sha256_hex(bytes) != digest) return corrupt("SHA-256 mismatch");
  if (version != kPreviousVersion && version != kVersion) {
    return Status(StatusCode::kMismatch, name + ": index version " + std::to_string(version) +
                                             ", this program reads version " +
                                             std::to_string(kVersion));
  }
  Index index;
  index.fingerprint_text = cursor.take_text();
  index.source = cursor.take_text();
  const std::string_view fingerprint = cursor.take_text();
  index.metadata.numbers = take_numbers(cursor);
  index.metadata.names.resize(take_name_count(cursor));
  for (std::string& text : index.metadata.names) text = cursor.take_text();
  index.metadata.pack_sizes = take_numbers(cursor);
  index.metadata.pack_checksums = take_numbers(cursor);
  index.metadata.made = take_files(cursor, version);
  index.files = take_files(cursor, version);
  index.is_validated = cursor.take<uint8_t>() != 0;
  if (version == kVersion) index.metadata.selected = take_numbers(cursor);
  if (!cursor.at_end()) return corrupt("its lengths do not add up");
  if (index.fingerprint() != fingerprint)
    return corrupt("its fingerprint does not fit its file table");
  return index;
}

Status save_index(const Index& index, const std::string& path) {
  return write_file_atomically(default_file_system(), path, encode_index(index));
}

Result<Index> load_index(const std::string& path, uint64_t max_bytes) {
  // What is checked is what is read: another file can take its place meanwhile.
  STOKER_ASSIGN_OR_RETURN(const UniqueFd fd,
                          default_file_system().open(path, O_RDONLY | O_NONBLOCK));
  STOKER_ASSIGN_OR_RETURN(const uint64_t size, check_file(fd.get(), path, max_bytes));
  std::string bytes(size, '\0');
  STOKER_ASSIGN_OR_RETURN(
      const size_t got,
      default_file_system().read_at(fd.get(), 0, std::as_writable_bytes(std::span(bytes)), path));
  bytes.resize(got);
  return decode_index(bytes, path);
}

uint64_t max_index_bytes(const Index& index) {
  const FileTable& files = index.files;
  uint64_t data = 0;
  for (size_t file = 0; file < files.size(); ++file)
    if (__builtin_add_overflow(data, files.stamp(file).size, &data)) return kMaxIndexBytes;
  if (data > kMaxIndexBytes / kMaxBytesPerByte) return kMaxIndexBytes;
  return std::min(kMaxIndexBytes, kMaxOtherBytes +
                                      2 * (index.fingerprint_text.size() + index.source.size()) +
                                      2 * files.name_bytes() + kMaxBytesPerFile * files.size() +
                                      kMaxBytesPerByte * data);
}

}  // namespace stoker::data::files
