#include "shared/checkpoint/torch_archive.h"

#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "shared/base/file.h"
#include "shared/checkpoint/pickle_globals.h"

namespace stoker::checkpoint {
namespace {

constexpr uint64_t kMaxPickleBytes = uint64_t{64} << 20;
constexpr uint64_t kReadBytes = 1 << 20;
constexpr char kPickleName[] = "data.pkl";
constexpr char kByteOrderName[] = "byteorder";

uint32_t crc32_of(uint32_t so_far, std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(
      ::crc32_z(so_far, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

Status read_member_bytes(int fd, uint64_t offset, std::span<std::byte> out,
                         const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(const size_t got, default_file_system().read_at(fd, offset, out, path));
  if (got == out.size()) return {};
  return Status(StatusCode::kCorrupt, path + ": ends at byte " + std::to_string(offset + got) +
                                          "; " + std::to_string(offset + out.size()) + " are due");
}

}  // namespace

Result<TorchArchive> TorchArchive::open(UniqueFd fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(errno, "stat " + path);
  if (!S_ISREG(info.st_mode)) return Status(StatusCode::kCorrupt, path + ": is not a regular file");
  TorchArchive archive;
  archive.fd_ = std::move(fd);
  archive.file_ = {
      .path = path,
      .size = static_cast<uint64_t>(info.st_size),
      .read = [raw = archive.fd_.get(), path](uint64_t offset, std::span<std::byte> bytes) {
        return read_member_bytes(raw, offset, bytes, path);
      }};
  STOKER_RETURN_IF_ERROR(archive.find_members());
  STOKER_RETURN_IF_ERROR(archive.check_byte_order());
  return archive;
}

Status TorchArchive::corrupt(const std::string& what) const {
  return Status(StatusCode::kCorrupt, file_.path + ": " + what);
}

// Everything lies in one folder, named as the file once was.
Status TorchArchive::find_members() {
  STOKER_ASSIGN_OR_RETURN(const auto members, archive::read_zip_directory(file_));
  std::string folder;
  for (const archive::ZipMember& member : members) {
    const size_t slash = member.name.find('/');
    if (slash == std::string::npos || member.name.substr(slash + 1) != kPickleName) continue;
    if (!folder.empty()) return corrupt("holds two files " + std::string(kPickleName));
    folder = member.name.substr(0, slash + 1);
  }
  if (folder.empty())
    return corrupt("is a zip archive, but not of torch.save: it has no " +
                   std::string(kPickleName));
  for (const archive::ZipMember& member : members) {
    if (!member.name.starts_with(folder)) continue;
    const std::string name = member.name.substr(folder.size());
    if (!members_.emplace(name, member).second)
      return corrupt("holds two members " + printable(member.name));
  }
  // torch.save may be told to compute no checksums: then all are 0.
  has_checksums_ = find(kPickleName)->crc32 != 0;
  return {};
}

const archive::ZipMember* TorchArchive::find(const std::string& name) const {
  const auto found = members_.find(name);
  return found == members_.end() ? nullptr : &found->second;
}

Status TorchArchive::check_byte_order() const {
  const archive::ZipMember* const member = find(kByteOrderName);
  if (member == nullptr) return {};  // of a PyTorch before 2.1: that of the machine
  std::string order(std::min<uint64_t>(member->bytes, 16), '\0');
  STOKER_ASSIGN_OR_RETURN(const uint64_t begin, archive::zip_data_offset(file_, *member));
  if (!member->is_deflated)
    STOKER_RETURN_IF_ERROR(file_.read(begin, std::as_writable_bytes(std::span(order))));
  if (order == "little") return {};
  return corrupt("its bytes are in the order '" + printable(order) + "'; only little is read");
}

Result<std::vector<std::byte>> TorchArchive::read_pickle() const {
  const archive::ZipMember& member = *find(kPickleName);
  if (member.is_deflated)
    return corrupt("its members are packed; torch.save stores them as they are");
  if (member.bytes > kMaxPickleBytes)
    return corrupt("its " + std::string(kPickleName) + " has " + std::to_string(member.bytes) +
                   " bytes; at most " + std::to_string(kMaxPickleBytes) + " are read");
  STOKER_ASSIGN_OR_RETURN(const uint64_t begin, archive::zip_data_offset(file_, member));
  std::vector<std::byte> bytes(member.bytes);
  STOKER_RETURN_IF_ERROR(file_.read(begin, bytes));
  if (has_checksums_ && crc32_of(0, bytes) != member.crc32)
    return corrupt("the checksum of " + printable(member.name) + " is wrong");
  return bytes;
}

Status TorchArchive::check_storage(const std::string& key, uint64_t bytes) const {
  const archive::ZipMember* const member = find("data/" + key);
  if (member == nullptr) return corrupt("has no storage '" + printable(key) + "'");
  if (member->is_deflated)
    return corrupt("its members are packed; torch.save stores them as they are");
  if (member->bytes >= bytes) return {};
  return corrupt("storage '" + printable(key) + "' has " + std::to_string(member->bytes) +
                 " bytes; " + std::to_string(bytes) + " are due");
}

Status TorchArchive::verify_checksum(const archive::ZipMember& member, uint64_t begin) const {
  if (!has_checksums_) return {};
  std::vector<std::byte> chunk(std::min(kReadBytes, member.bytes));
  uint32_t sum = 0;
  for (uint64_t at = 0; at < member.bytes; at += chunk.size()) {
    const auto part = std::span(chunk).first(std::min<uint64_t>(chunk.size(), member.bytes - at));
    STOKER_RETURN_IF_ERROR(file_.read(begin + at, part));
    sum = crc32_of(sum, part);
  }
  if (sum == member.crc32) return {};
  return corrupt("the checksum of " + printable(member.name) + " is wrong");
}

Status TorchArchive::read(const std::string& key, uint64_t offset, std::span<std::byte> out) const {
  auto checked = checked_.find(key);
  if (checked == checked_.end()) {
    const archive::ZipMember& member = *find("data/" + key);
    STOKER_ASSIGN_OR_RETURN(const uint64_t begin, archive::zip_data_offset(file_, member));
    STOKER_RETURN_IF_ERROR(verify_checksum(member, begin));
    checked = checked_.emplace(key, begin).first;
  }
  return file_.read(checked->second + offset, out);
}

}  // namespace stoker::checkpoint
