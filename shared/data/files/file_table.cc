#include "shared/data/files/file_table.h"

#include <cassert>

namespace stoker::data::files {
namespace {

int64_t to_ns(const timespec& time) {
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

FileStamp stamp_of(const struct stat& info) {
  return {.size = static_cast<uint64_t>(info.st_size),
          .mtime_ns = to_ns(info.st_mtim),
          .inode = static_cast<uint64_t>(info.st_ino),
          .ctime_ns = to_ns(info.st_ctim)};
}

void FileTable::add(std::string_view name, const FileStamp& stamp) {
  names_ += name;
  rows_.push_back({.name_end = names_.size(), .stamp = stamp});
}

std::string_view FileTable::name(size_t file) const {
  const uint64_t begin = file == 0 ? 0 : rows_[file - 1].name_end;
  return std::string_view(names_).substr(begin, rows_[file].name_end - begin);
}

uint64_t FileTable::total_bytes() const {
  uint64_t bytes = 0;
  for (const Row& row : rows_) bytes += row.stamp.size;
  return bytes;
}

std::string FileTable::path(size_t file) const {
  // Built by appending, because this runs for each small file that is read.
  const std::string_view last = name(file);
  std::string path;
  path.reserve(root_.size() + 1 + last.size());
  path += root_;
  if (!root_.empty() && !root_.ends_with('/')) path += '/';
  path += last;
  return path;
}

Status FileTable::changed(size_t file, const std::string& how) const {
  return Status(
      StatusCode::kCorrupt,
      path(file) + ": " + how + " since it was indexed; restart to index the dataset again");
}

Status FileTable::check(size_t file, const struct stat& info) const {
  if (!S_ISREG(info.st_mode)) return changed(file, "replaced by something that is no regular file");
  const FileStamp& indexed = stamp(file);
  const auto size = static_cast<uint64_t>(info.st_size);
  if (allows_append_ && size > indexed.size) return {};
  if (size != indexed.size) {
    return changed(file, "changed from " + std::to_string(indexed.size) + " to " +
                             std::to_string(size) + " bytes");
  }
  if (to_ns(info.st_mtim) != indexed.mtime_ns) return changed(file, "modified");
  return {};
}

size_t FileTable::first_touched(const FileTable& other) const {
  assert(*this == other);
  size_t file = 0;
  const auto is_same = [](int64_t one, int64_t another) {
    return one == another || one == 0 || another == 0;
  };
  while (file < size() && is_same(stamp(file).ctime_ns, other.stamp(file).ctime_ns)) ++file;
  return file;
}

void FileTable::add_to(Sha256& hash) const {
  for (size_t file = 0; file < size(); ++file) {
    std::string_view shown = name(file);
    if (root_.empty()) shown.remove_prefix(shown.rfind('/') + 1);  // npos + 1 is 0
    std::string line(shown);
    line.push_back('\0');  // the only byte that a name cannot contain
    line += std::to_string(stamp(file).size) + ' ' + std::to_string(stamp(file).mtime_ns) + '\n';
    hash.update(line);
  }
}

}  // namespace stoker::data::files
