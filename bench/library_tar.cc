// Listing the members of a WebDataset shard with their offsets, compared with libarchive.
#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "bench/cpu_time.h"
#include "bench/library_benches.h"
#include "bench/scratch_folder.h"
#include "shared/data/files/byte_source.h"
#include "shared/data/format/tar_reader.h"

namespace stoker::bench {
namespace {

using data::format::kTarBlock;

// A member with its header in the ustar format and its padding.
std::string tar_member(const std::string& name, size_t bytes) {
  std::string block(kTarBlock, '\0');
  block.replace(0, name.size(), name);
  const auto put_octal = [&block](size_t at, int digits, size_t value) {
    char text[16];
    std::snprintf(text, sizeof text, "%0*zo", digits, value);
    std::memcpy(block.data() + at, text, static_cast<size_t>(digits));
  };
  put_octal(100, 7, 0644);
  put_octal(124, 11, bytes);
  block[156] = '0';
  std::memcpy(block.data() + 257, "ustar\00000", 8);
  block.replace(148, 8, 8, ' ');
  size_t sum = 0;
  for (const char byte : block) sum += static_cast<unsigned char>(byte);
  put_octal(148, 6, sum);
  block[154] = '\0';
  return block + std::string((bytes + kTarBlock - 1) / kTarBlock * kTarBlock, 'x');
}

struct Shard {
  std::shared_ptr<ScratchFolder> folder;
  std::string path;
  size_t members = 0;
};

Result<Shard> make_shard(const Options& options) {
  STOKER_ASSIGN_OR_RETURN(auto folder, ScratchFolder::create(options.dir));
  Shard shard{.folder = folder, .path = folder->file("shard.tar")};
  std::ofstream out(shard.path, std::ios::binary);
  for (size_t sample = 0; sample < (options.quick ? 4u : 2'000u); ++sample) {
    const std::string key = std::to_string(10'000'000 + sample);
    out << tar_member(key + ".cls", 3) << tar_member(key + ".jpg", 110'000);
    shard.members += 2;
  }
  out << std::string(2 * kTarBlock, '\0');
  if (!out.flush()) return Status(StatusCode::kIoError, shard.path + ": cannot write");
  return shard;
}

Status count_members(const Shard& shard) {
  data::files::FileTable files;
  struct stat info {};
  if (::stat(shard.path.c_str(), &info) != 0) return Status(StatusCode::kIoError, shard.path);
  const auto size = static_cast<uint64_t>(info.st_size);
  files.add(shard.path, {.size = size,
                         .mtime_ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec,
                         .inode = info.st_ino});
  const data::files::FileReader reader(files);
  data::files::FileSource source(reader, 0, size);
  data::format::TarReader tar(source);
  data::format::TarMember member;
  size_t count = 0;
  for (;; ++count) {
    STOKER_ASSIGN_OR_RETURN(const bool more, tar.next(member));
    if (!more) break;
  }
  return count == shard.members ? Status() : Status(StatusCode::kInternal, "members are missing");
}

Status count_with_libarchive(const Shard& shard) {
  const std::unique_ptr<archive, int (*)(archive*)> tar(::archive_read_new(), ::archive_read_free);
  ::archive_read_support_format_tar(tar.get());
  constexpr size_t kBlock = 4096;
  if (::archive_read_open_filename(tar.get(), shard.path.c_str(), kBlock) != ARCHIVE_OK)
    return Status(StatusCode::kIoError, ::archive_error_string(tar.get()));
  size_t count = 0;
  int64_t last_header = -1;
  for (archive_entry* entry = nullptr; ::archive_read_next_header(tar.get(), &entry) == ARCHIVE_OK;
       ++count) {
    const int64_t header = ::archive_read_header_position(tar.get());
    if (header <= last_header) return Status(StatusCode::kInternal, "a member without an offset");
    last_header = header;
  }
  return count == shard.members ? Status() : Status(StatusCode::kInternal, "members are missing");
}

}  // namespace

Benchmark library_tar() {
  const auto prepare = [](const Options& options) -> Result<std::vector<Trial>> {
    STOKER_ASSIGN_OR_RETURN(const Shard shard, make_shard(options));
    const auto measure = [=, time = options.run_time()](Status (*list)(const Shard&)) {
      return [=]() -> Result<double> {
        STOKER_ASSIGN_OR_RETURN(const double seconds,
                                cpu_time_per_call([&] { return list(shard); }, time));
        return seconds * 1e9 / static_cast<double>(shard.members);
      };
    };
    return std::vector<Trial>{{"shard of images of 110 kB and labels",
                               "ns a member",
                               measure(&count_members),
                               {{"libarchive", measure(&count_with_libarchive)}}}};
  };
  return {"tar", "members of a shard listed, compared with libarchive", prepare};
}

}  // namespace stoker::bench
