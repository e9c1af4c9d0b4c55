// Listing and reading the members of an archive as torch.save writes it, compared with libzip.
#include <fcntl.h>
#include <zip.h>
#include <zlib.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/cpu_time.h"
#include "bench/library_benches.h"
#include "bench/scratch_folder.h"
#include "shared/archive/zip.h"
#include "shared/base/file.h"

namespace stoker::bench {
namespace {

struct Archive {
  std::shared_ptr<ScratchFolder> folder;
  std::string path;
  size_t members = 0;
  uint64_t bytes = 0;         // of all members
  uint64_t member_bytes = 0;  // of each
};

Result<Archive> make_archive(const Options& options) {
  STOKER_ASSIGN_OR_RETURN(auto folder, ScratchFolder::create(options.dir));
  Archive made{.folder = folder,
               .path = folder->file("model.pt"),
               .members = options.quick ? 4u : 300u,
               .member_bytes = options.quick ? 1'000u : 300'000u};
  std::string content;
  archive::ZipWriter writer([&content](std::span<const std::byte> bytes) -> Status {
    content.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  });
  std::string member(made.member_bytes, '\0');
  for (size_t i = 0; i < member.size(); ++i) member[i] = static_cast<char>(i * 2654435761u >> 13);
  for (size_t i = 0; i < made.members; ++i) {
    STOKER_RETURN_IF_ERROR(writer.begin("archive/data/" + std::to_string(i), member.size(), 64));
    STOKER_RETURN_IF_ERROR(writer.append(std::as_bytes(std::span(member))));
    made.bytes += member.size();
  }
  STOKER_RETURN_IF_ERROR(writer.finish());
  STOKER_RETURN_IF_ERROR(write_file_atomically(default_file_system(), made.path, content));
  return made;
}

Status different() { return Status(StatusCode::kInternal, "members differ"); }

// `buffer`: memory for one member; empty if they are only listed, with their offsets.
Status read_archive(const Archive& of, std::span<std::byte> buffer) {
  const UniqueFd fd(::open(of.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return Status(StatusCode::kIoError, of.path);
  const archive::ArchiveFile file{.path = of.path,
                                  .size = static_cast<uint64_t>(::lseek(fd.get(), 0, SEEK_END)),
                                  .read = [&](uint64_t offset, std::span<std::byte> bytes) {
                                    return read_exactly(fd.get(), offset, bytes, of.path);
                                  }};
  STOKER_ASSIGN_OR_RETURN(const auto members, archive::read_zip_directory(file));
  if (members.size() != of.members) return different();
  for (const archive::ZipMember& member : members) {
    STOKER_ASSIGN_OR_RETURN(const uint64_t offset, archive::zip_data_offset(file, member));
    if (offset % 64 != 0 || member.bytes != of.member_bytes) return different();
    if (buffer.empty()) continue;
    STOKER_RETURN_IF_ERROR(file.read(offset, buffer));
    if (::crc32_z(0, reinterpret_cast<const Bytef*>(buffer.data()), buffer.size()) != member.crc32)
      return different();
  }
  return {};
}

// libzip checks the checksum while reading. It reports no offset of the data.
Status read_with_libzip(const Archive& of, std::span<std::byte> buffer) {
  const std::unique_ptr<::zip_t, void (*)(::zip_t*)> zip(
      ::zip_open(of.path.c_str(), ZIP_RDONLY, nullptr), ::zip_discard);
  if (!zip) return Status(StatusCode::kIoError, of.path);
  const auto count = static_cast<zip_uint64_t>(::zip_get_num_entries(zip.get(), 0));
  if (count != of.members) return different();
  for (zip_uint64_t i = 0; i < count; ++i) {
    ::zip_stat_t info;
    if (::zip_stat_index(zip.get(), i, 0, &info) != 0 || info.size != of.member_bytes)
      return different();
    if (buffer.empty()) continue;
    ::zip_file_t* const member = ::zip_fopen_index(zip.get(), i, 0);
    if (member == nullptr) return different();
    const auto got = ::zip_fread(member, buffer.data(), buffer.size());
    char end = 0;  // the checksum is compared at the end of the member
    const bool is_whole =
        got == static_cast<zip_int64_t>(buffer.size()) && ::zip_fread(member, &end, 1) == 0;
    ::zip_fclose(member);
    if (!is_whole) return different();
  }
  return {};
}

}  // namespace

Benchmark library_zip() {
  const auto prepare = [](const Options& options) -> Result<std::vector<Trial>> {
    STOKER_ASSIGN_OR_RETURN(const Archive made, make_archive(options));
    using Read = Status (*)(const Archive&, std::span<std::byte>);
    const auto measure = [=, time = options.run_time()](Read read, bool only_list, double units) {
      return [=]() -> Result<double> {
        std::vector<std::byte> buffer(only_list ? 0 : made.member_bytes);
        STOKER_ASSIGN_OR_RETURN(const double seconds,
                                cpu_time_per_call([&] { return read(made, buffer); }, time));
        return seconds * units;
      };
    };
    return std::vector<Trial>{
        {std::to_string(made.members) + " members listed",
         "us",
         measure(&read_archive, true, 1e6),
         {{"libzip", measure(&read_with_libzip, true, 1e6)}}},
        {std::to_string(made.bytes / 1'000) + " kB of members read and verified",
         "ms",
         measure(&read_archive, false, 1e3),
         {{"libzip", measure(&read_with_libzip, false, 1e3)}}}};
  };
  return {"zip", "members of an archive of torch.save, compared with libzip", prepare};
}

}  // namespace stoker::bench
