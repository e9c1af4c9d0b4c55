#include "shared/data/pipeline/dataset_refresh.h"

#include <array>
#include <map>
#include <string_view>

#include "shared/base/file.h"
#include "shared/data/files/file_reader.h"
#include "shared/data/files/index.h"

namespace stoker::data::pipeline {
namespace {

using config::DatasetFormat;

Status refresh_error(const std::string& path, const std::string& what) {
  return Status(StatusCode::kMismatch,
                path + ": " + what + "; a refreshed dataset may only gain files" +
                    " (and text, tokens, csv and jsonl files may be appended to)");
}

bool has_lines(const config::DatasetConfig& dataset) {
  return dataset.format() == DatasetFormat::kCsv || dataset.format() == DatasetFormat::kJsonl;
}

// Checks that the existing and the appended data both end with a complete line.
Status check_lines(const files::FileTable& after, size_t file, uint64_t size_before) {
  const files::FileReader reader(after);
  const auto byte_at = [&](uint64_t offset) -> Result<char> {
    std::array<std::byte, 1> byte{};
    STOKER_RETURN_IF_ERROR(reader.read(file, offset, byte));
    return static_cast<char>(byte[0]);
  };
  if (size_before > 0) {
    STOKER_ASSIGN_OR_RETURN(const char last, byte_at(size_before - 1));
    STOKER_ASSIGN_OR_RETURN(const char next, byte_at(size_before));
    if (last != '\n' && next != '\n' && next != '\r')
      return refresh_error(after.path(file), "its last row was appended to");
  }
  STOKER_ASSIGN_OR_RETURN(const char end, byte_at(after.stamp(file).size - 1));
  if (end == '\n') return {};
  return refresh_error(after.path(file), "its last row has no line end");
}

Status check_file(const config::DatasetConfig& dataset, const files::FileTable& after, size_t file,
                  const files::FileStamp& before) {
  const files::FileStamp& now = after.stamp(file);
  const std::string sizes =
      std::to_string(before.size) + " to " + std::to_string(now.size) + " bytes";
  if (now.size < before.size) return refresh_error(after.path(file), "shrank from " + sizes);
  if (now.size > before.size && !supports_append(dataset))
    return refresh_error(after.path(file), "changed from " + sizes);
  if (now.size > before.size)
    return has_lines(dataset) ? check_lines(after, file, before.size) : Status();
  if (now.mtime_ns != before.mtime_ns) return refresh_error(after.path(file), "was modified");
  return {};
}

Status check_files(const config::DatasetConfig& dataset, const files::FileTable& before,
                   files::FileTable after) {
  after.allow_append();  // files can be appended to during the check
  std::map<std::string_view, size_t> by_name;
  for (size_t file = 0; file < after.size(); ++file) by_name.emplace(after.name(file), file);
  for (size_t file = 0; file < before.size(); ++file) {
    const auto found = by_name.find(before.name(file));
    if (found == by_name.end()) return refresh_error(before.path(file), "was removed");
    STOKER_RETURN_IF_ERROR(check_file(dataset, after, found->second, before.stamp(file)));
  }
  return {};
}

}  // namespace

bool supports_append(const config::DatasetConfig& dataset) {
  const DatasetFormat format = dataset.format();
  return dataset.is_refreshable() &&
         (format == DatasetFormat::kText || format == DatasetFormat::kTokens || has_lines(dataset));
}

std::string index_file(const std::string& name, const std::string& index_dir) {
  return join_path(index_dir, name + ".index");
}

Status validate_refresh(const config::DatasetConfigs& datasets,
                        const std::vector<std::string>& names, const std::string& index_dir_before,
                        const std::string& index_dir_after) {
  for (const std::string& name : names) {
    STOKER_ASSIGN_OR_RETURN(const files::Index before,
                            files::load_index(index_file(name, index_dir_before)));
    STOKER_ASSIGN_OR_RETURN(const files::Index after,
                            files::load_index(index_file(name, index_dir_after)));
    if (before.fingerprint() == after.fingerprint()) continue;
    const config::DatasetConfig& dataset = datasets.at(name);
    if (!dataset.is_refreshable())
      return Status(StatusCode::kMismatch,
                    "data." + name + ": its files have changed, and its refresh is never");
    STOKER_RETURN_IF_ERROR(
        check_files(dataset, before.files, after.files).with_context("data." + name));
  }
  return {};
}

Status validate_same_schema(const Dataset& before, const Dataset& after) {
  if (before.spec() != after.spec())
    return Status(StatusCode::kMismatch, "the refreshed dataset has other sample tensors");
  if (before.classes() != after.classes() || before.class_names() != after.class_names())
    return Status(StatusCode::kMismatch,
                  "the refreshed dataset has other classes (" + std::to_string(before.classes()) +
                      " before, " + std::to_string(after.classes()) + " now) than the model");
  return {};
}

}  // namespace stoker::data::pipeline
