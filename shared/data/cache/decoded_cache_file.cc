#include "shared/data/cache/decoded_cache_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <type_traits>
#include <utility>

#include "shared/base/file.h"
#include "shared/base/hash.h"
#include "shared/data/files/derived_file.h"

namespace stoker::data::cache {
namespace {

constexpr std::array<char, 8> kCacheMagic{'s', 't', 'k', 'S', 'M', 'P', 'L', '\n'};
constexpr uint32_t kVersion = 1;
constexpr size_t kIdentityBytes = 64;  // hexadecimal digits

struct Header {
  std::array<char, 8> magic = kCacheMagic;
  uint32_t version = kVersion;
  uint32_t zero = 0;
  uint64_t samples = 0;
  uint64_t sample_bytes = 0;
  std::array<char, kIdentityBytes> identity{};
  bool operator==(const Header&) const = default;
};
static_assert(sizeof(Header) == 96 && std::is_trivially_copyable_v<Header>);

// Follows the tensors of a sample.
struct Check {
  uint32_t there = 0;
  uint32_t crc = 0;  // CRC-32C of the sample's number and its tensors
  bool operator==(const Check&) const = default;
};
static_assert(sizeof(Check) == 8 && std::is_trivially_copyable_v<Check>);
constexpr uint32_t kPresent = 0x706d6173;

Header header_of(const DecodedCacheFile::Form& form) {
  assert(form.identity.size() == kIdentityBytes);
  Header header{.samples = form.samples, .sample_bytes = form.sample_bytes()};
  std::ranges::copy(form.identity, header.identity.begin());
  return header;
}

template <typename T>
std::span<const std::byte> size_in_bytes(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

Check checksum(uint64_t sample, std::span<const std::span<std::byte>> tensors) {
  uint32_t crc = crc32c(size_in_bytes(sample));
  for (const auto& tensor : tensors) crc = crc32c(tensor, crc);
  return {.there = kPresent, .crc = crc};
}

// Reads from `offset` into the tensors and `check`, which follows them; false if the read is
// incomplete.
bool read_slot(int fd, uint64_t offset, std::span<const std::span<std::byte>> tensors,
               Check& check) {
  thread_local std::vector<iovec> parts;
  parts.clear();
  size_t wanted = sizeof check;
  for (const auto& tensor : tensors) {
    parts.push_back({.iov_base = tensor.data(), .iov_len = tensor.size()});
    wanted += tensor.size();
  }
  parts.push_back({.iov_base = &check, .iov_len = sizeof check});
  ssize_t got = -1;
  do got = ::preadv(fd, parts.data(), static_cast<int>(parts.size()), static_cast<off_t>(offset));
  while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(wanted);
}

Status write_empty(int fd, const std::string& name, const DecodedCacheFile::Form& form) {
  STOKER_RETURN_IF_ERROR(default_file_system().reserve(fd, form.file_bytes(), name));
  const Header header = header_of(form);
  STOKER_RETURN_IF_ERROR(default_file_system().write(fd, size_in_bytes(header), name));
  if (::ftruncate(fd, static_cast<off_t>(form.file_bytes())) != 0)
    return Status::from_errno(errno, "make room in " + name);
  return {};
}

}  // namespace

uint64_t DecodedCacheFile::Form::sample_bytes() const {
  return std::accumulate(tensor_bytes.begin(), tensor_bytes.end(), uint64_t{0});
}

uint64_t DecodedCacheFile::Form::file_bytes() const {
  return sizeof(Header) + samples * (sample_bytes() + sizeof(Check));
}

Status DecodedCacheFile::make(const CacheLocation& location, const Form& form,
                              const files::ScanProgress& progress) {
  const std::string& path = location.path();
  const auto is_missing = [](const auto& opened) {
    return opened.status().code() == StatusCode::kNotFound ||
           opened.status().code() == StatusCode::kMismatch;
  };
  // A complete file needs neither the lock nor permission to write.
  if (const auto there = open(location, form); !is_missing(there)) return there.status();
  STOKER_ASSIGN_OR_RETURN(const FileLock lock, location.lock(progress));
  const auto there = open(location, form);
  if (!is_missing(there)) return there.status();
  if (there.status().code() == StatusCode::kMismatch)  // its disk space is needed
    STOKER_RETURN_IF_ERROR(location.remove());
  if (!location.is_shared())
    STOKER_RETURN_IF_ERROR(remove_temporary_files(
        default_file_system(), std::filesystem::path(path).parent_path().string()));
  STOKER_RETURN_IF_ERROR(files::check_free_space(path, form.file_bytes(),
                                                 "a file of the decoded samples",
                                                 "leave cache: {type: decoded} away")
                             .with_context(location.key()));
  const Status created =
      location.create(SharedFolder::Access::kUpdate,
                      [&](int fd, const std::string& name) { return write_empty(fd, name, form); });
  return created.code() == StatusCode::kAlreadyExists ? open(location, form).status() : created;
}

Result<std::unique_ptr<DecodedCacheFile>> DecodedCacheFile::open(const CacheLocation& location,
                                                                 Form form) {
  const std::string& path = location.path();
  auto opened = location.open(SharedFolder::Access::kUpdate);
  const bool is_writable = opened.ok();
  if (opened.status().code() == StatusCode::kPermission)
    opened = location.open(SharedFolder::Access::kRead);
  if (!opened.ok()) return opened.status();
  UniqueFd fd = *std::move(opened);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(errno, "stat " + path);
  Header header;
  STOKER_ASSIGN_OR_RETURN(const size_t got,
                          default_file_system().read_at(
                              fd.get(), 0, std::as_writable_bytes(std::span(&header, 1)), path));
  if (got != sizeof header || header != header_of(form) ||
      static_cast<uint64_t>(info.st_size) != form.file_bytes())
    return Status(StatusCode::kMismatch, path + ": belongs to another dataset or version");
  return std::unique_ptr<DecodedCacheFile>(
      new DecodedCacheFile(std::move(fd), is_writable, std::move(form)));
}

DecodedCacheFile::DecodedCacheFile(UniqueFd fd, bool is_writable, Form form)
    : fd_(std::move(fd)),
      is_writable_(is_writable),
      form_(std::move(form)),
      slot_bytes_(form_.sample_bytes() + sizeof(Check)) {}

files::ByteRange DecodedCacheFile::byte_range(uint64_t sample) const {
  assert(sample < form_.samples);
  return {.reader = this,
          .file = 0,
          .offset = sizeof(Header) + sample * slot_bytes_,
          .count = slot_bytes_};
}

bool DecodedCacheFile::take(uint64_t sample, std::span<const std::span<std::byte>> outputs) const {
  const files::ByteRange range = byte_range(sample);
  Check check;
  if (auto* const held = files::PrefetchedBytes::current()) {
    std::vector<std::byte> bytes;
    if (const auto status = held->try_take(range, bytes); status && status->ok()) {
      const std::byte* from = bytes.data();
      for (const auto& tensor : outputs) {
        std::memcpy(tensor.data(), from, tensor.size());
        from += tensor.size();
      }
      std::memcpy(&check, from, sizeof check);
      return check == checksum(sample, outputs);
    }
  }
  return read_slot(fd_.get(), range.offset, outputs, check) && check.there == kPresent &&
         check == checksum(sample, outputs);
}

void DecodedCacheFile::put(uint64_t sample, std::span<const std::span<std::byte>> outputs) const {
  if (!is_writable_) return;
  thread_local std::vector<std::byte> slot;
  slot.clear();
  for (const auto& tensor : outputs) slot.insert(slot.end(), tensor.begin(), tensor.end());
  const Check check = checksum(sample, outputs);
  slot.insert(slot.end(), size_in_bytes(check).begin(), size_in_bytes(check).end());
  assert(slot.size() == slot_bytes_);
  ssize_t put = -1;
  do
    put = ::pwrite(fd_.get(), slot.data(), slot.size(),
                   static_cast<off_t>(byte_range(sample).offset));
  while (put < 0 && errno == EINTR);
}

bool DecodedCacheFile::prefetch(uint64_t sample, files::PrefetchedBytes& bytes) const {
  std::vector<std::vector<std::byte>> tensors;
  for (const size_t size : form_.tensor_bytes) tensors.emplace_back(size);
  const std::vector<std::span<std::byte>> outputs(tensors.begin(), tensors.end());
  Check check;
  const files::ByteRange range = byte_range(sample);
  if (!read_slot(fd_.get(), range.offset, outputs, check) || check != checksum(sample, outputs))
    return false;
  bytes.fetch(range, [&](std::span<std::byte> into) -> Status {
    for (const auto& tensor : outputs) {
      std::ranges::copy(tensor, into.begin());
      into = into.subspan(tensor.size());
    }
    std::ranges::copy(size_in_bytes(check), into.begin());
    return {};
  });
  return true;
}

}  // namespace stoker::data::cache
