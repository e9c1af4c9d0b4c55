#include "shared/dataset/whole_files.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <thread>

#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/dataset/make_file.h"

namespace stoker::dataset {
namespace {

// What is read before it is written: bytes, and files, whichever comes first.
constexpr uint64_t kGroupBytes = uint64_t{64} << 20;
constexpr size_t kGroupFiles = 4096;
// Reads at once: what a slow disk wants, and a quick one does not mind.
constexpr size_t kReaders = 16;

using Contents = std::vector<std::vector<std::byte>>;

// The first file after `begin` that does not belong to its group: at least one does.
size_t group_end(const FileTable& files, size_t begin) {
  size_t end = begin;
  uint64_t bytes = 0;
  while (end < files.size() && end - begin < kGroupFiles &&
         (end == begin || bytes + files.stamp(end).size <= kGroupBytes))
    bytes += files.stamp(end++).size;
  return end;
}

// The files from `begin` on into `contents`, as many as there are.
Status read_group(const FileReader& reader, size_t begin, uint64_t limit, Contents& contents) {
  std::atomic<size_t> next{0};
  std::vector<Status> results(std::min(kReaders, contents.size()));
  std::vector<std::jthread> threads;
  for (Status& result : results)
    threads.emplace_back([&] {
      for (size_t i = next++; i < contents.size() && result.ok(); i = next++)
        result = reader.read_whole(begin + i, limit, contents[i]);
    });
  threads.clear();  // joins
  for (const Status& result : results) STOKER_RETURN_IF_ERROR(result);
  return {};
}

Status write_group(int fd, const std::string& path, const Contents& contents) {
  std::vector<std::byte> joined;
  for (const auto& bytes : contents) joined.insert(joined.end(), bytes.begin(), bytes.end());
  return real_files().write(fd, joined, path);
}

uint64_t bytes_of(const FileTable& files) {
  uint64_t bytes = 0;
  for (size_t file = 0; file < files.size(); ++file) bytes += files.stamp(file).size;
  return bytes;
}

Status write_pack(const FileTable& files, uint64_t limit, int fd, const std::string& path,
                  const ScanProgress& progress) {
  const FileReader reader(files);
  for (size_t begin = 0; begin < files.size();) {
    Contents contents(group_end(files, begin) - begin);
    STOKER_RETURN_IF_ERROR(read_group(reader, begin, limit, contents));
    STOKER_RETURN_IF_ERROR(write_group(fd, path, contents));
    begin += contents.size();
    progress(begin, "files packed");
  }
  return {};
}

}  // namespace

Status pack_files(const FileTable& files, uint64_t limit, const std::string& path,
                  const ScanProgress& progress, FileTable& made) {
  STOKER_RETURN_IF_ERROR(check_room(path, bytes_of(files), "a pack of the files", "cache: packed"));
  STOKER_RETURN_IF_ERROR(make_file(
      path,
      [&](int fd, const std::string& name) { return write_pack(files, limit, fd, name, progress); },
      made));
  log_info("dataset files packed",
           {{"files", files.size()}, {"bytes", bytes_of(files)}, {"pack", path}});
  return {};
}

WholeFiles::Pack::Pack(const FileTable& files, const FileTable& made) : table(made), reader(table) {
  ends.reserve(files.size());
  uint64_t end = 0;
  for (size_t file = 0; file < files.size(); ++file) ends.push_back(end += files.stamp(file).size);
}

WholeFiles::WholeFiles(const FileTable& files, const FileTable& made)
    : files_(files),
      reader_(files_),
      pack_(made.size() == 0 ? nullptr : std::make_unique<Pack>(files, made)) {}

Status WholeFiles::read(size_t file, uint64_t limit, std::vector<std::byte>& bytes) const {
  const uint64_t size = files_.stamp(file).size;
  if (!pack_ || size > limit) return reader_.read_whole(file, limit, bytes);
  bytes.resize(size);
  return pack_->reader.read(0, pack_->ends[file] - size, bytes)
      .with_context(files_.path(file) + " in its pack");
}

void WholeFiles::prefetch(size_t file, uint64_t limit, PrefetchedBytes& bytes) const {
  const uint64_t size = files_.stamp(file).size;
  if (!pack_ || size > limit) return reader_.prefetch_whole(file, limit, bytes);
  pack_->reader.prefetch(0, pack_->ends[file] - size, size, bytes);
}

}  // namespace stoker::dataset
