#include "shared/dataset/growth.h"

#include <array>
#include <map>
#include <string_view>

#include "shared/base/file.h"
#include "shared/dataset/file_reader.h"
#include "shared/dataset/index.h"

namespace stoker::dataset {
namespace {

using config::DatasetFormat;

Status no_growth(const std::string& path, const std::string& what) {
  return Status(Code::kMismatch, path + ": " + what +
                                     "; of a set that grows, files may only be added" +
                                     " (and those of text, tokens, csv and jsonl become longer)");
}

bool has_lines(const config::DatasetConfig& set) {
  return set.format() == DatasetFormat::kCsv || set.format() == DatasetFormat::kJsonl;
}

// What was there ends with a line, and so does what came.
Status check_lines(const FileTable& after, size_t file, uint64_t size_before) {
  const FileReader reader(after);
  const auto byte_at = [&](uint64_t offset) -> Result<char> {
    std::array<std::byte, 1> byte{};
    STOKER_RETURN_IF_ERROR(reader.read(file, offset, byte));
    return static_cast<char>(byte[0]);
  };
  if (size_before > 0) {
    STOKER_ASSIGN_OR_RETURN(const char last, byte_at(size_before - 1));
    STOKER_ASSIGN_OR_RETURN(const char next, byte_at(size_before));
    if (last != '\n' && next != '\n' && next != '\r')
      return no_growth(after.path(file), "its last row was made longer");
  }
  STOKER_ASSIGN_OR_RETURN(const char end, byte_at(after.stamp(file).size - 1));
  if (end == '\n') return {};
  return no_growth(after.path(file), "its last row has no line end yet");
}

Status check_file(const config::DatasetConfig& set, const FileTable& after, size_t file,
                  const FileStamp& before) {
  const FileStamp& now = after.stamp(file);
  const std::string sizes =
      std::to_string(before.size) + " to " + std::to_string(now.size) + " bytes";
  if (now.size < before.size) return no_growth(after.path(file), "shrank from " + sizes);
  if (now.size > before.size && !may_append(set))
    return no_growth(after.path(file), "went from " + sizes);
  if (now.size > before.size)
    return has_lines(set) ? check_lines(after, file, before.size) : Status();
  if (now.mtime_ns != before.mtime_ns) return no_growth(after.path(file), "was modified");
  return {};
}

Status check_files(const config::DatasetConfig& set, const FileTable& before, FileTable after) {
  after.let_grow();  // it may do so while it is looked at
  std::map<std::string_view, size_t> places;
  for (size_t file = 0; file < after.size(); ++file) places.emplace(after.name(file), file);
  for (size_t file = 0; file < before.size(); ++file) {
    const auto place = places.find(before.name(file));
    if (place == places.end()) return no_growth(before.path(file), "is gone");
    STOKER_RETURN_IF_ERROR(check_file(set, after, place->second, before.stamp(file)));
  }
  return {};
}

}  // namespace

bool may_append(const config::DatasetConfig& set) {
  const DatasetFormat format = set.format();
  return set.is_refreshable() &&
         (format == DatasetFormat::kText || format == DatasetFormat::kTokens || has_lines(set));
}

std::string index_file(const std::string& name, const std::string& index_dir) {
  return join_path(index_dir, name + ".index");
}

Status check_growth(const config::DatasetConfigs& sets, const std::vector<std::string>& names,
                    const std::string& index_dir_before, const std::string& index_dir_after) {
  for (const std::string& name : names) {
    STOKER_ASSIGN_OR_RETURN(const Index before, load_index(index_file(name, index_dir_before)));
    STOKER_ASSIGN_OR_RETURN(const Index after, load_index(index_file(name, index_dir_after)));
    if (before.fingerprint() == after.fingerprint()) continue;
    const config::DatasetConfig& set = sets.at(name);
    if (!set.is_refreshable())
      return Status(Code::kMismatch,
                    "data." + name + ": its files have changed, and its refresh is never");
    STOKER_RETURN_IF_ERROR(
        check_files(set, before.files, after.files).with_context("data." + name));
  }
  return {};
}

Status check_alike(const Dataset& before, const Dataset& after) {
  if (before.spec() != after.spec())
    return Status(Code::kMismatch, "what came makes its samples of another shape");
  if (before.classes() != after.classes() || before.class_names() != after.class_names())
    return Status(Code::kMismatch,
                  "what came has other classes (" + std::to_string(before.classes()) + " before, " +
                      std::to_string(after.classes()) + " now), for which the model was not made");
  return {};
}

}  // namespace stoker::dataset
