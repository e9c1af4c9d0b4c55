#include "shared/dataset/file_table.h"

namespace stoker::dataset {

void FileTable::add(std::string_view name, const FileStamp& stamp) {
  names_ += name;
  rows_.push_back({.name_end = names_.size(), .stamp = stamp});
}

std::string_view FileTable::name(size_t file) const {
  const uint64_t begin = file == 0 ? 0 : rows_[file - 1].name_end;
  return std::string_view(names_).substr(begin, rows_[file].name_end - begin);
}

std::string FileTable::path(size_t file) const {
  // By hand: it is asked for with every small file that is read.
  const std::string_view last = name(file);
  std::string path;
  path.reserve(root_.size() + 1 + last.size());
  path += root_;
  if (!root_.empty() && !root_.ends_with('/')) path += '/';
  path += last;
  return path;
}

void FileTable::add_to(Sha256& hash) const {
  for (size_t file = 0; file < size(); ++file) {
    std::string_view shown = name(file);
    if (root_.empty()) shown.remove_prefix(shown.rfind('/') + 1);  // npos + 1 is 0
    std::string line(shown);
    line.push_back('\0');  // the one byte that a name cannot hold
    line += std::to_string(stamp(file).size) + ' ' + std::to_string(stamp(file).mtime_ns) + '\n';
    hash.update(line);
  }
}

}  // namespace stoker::dataset
