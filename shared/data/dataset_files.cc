#include "shared/data/dataset_files.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/data/file_kind.h"
#include "shared/data/files/file_reader.h"

namespace stoker::data {
namespace {

constexpr size_t kTextHeadBytes = 4096;

Status check_path(const DatasetRequest& request) {
  return request.config.path().empty()
             ? request.config_error("path", "must name a file or a folder")
             : Status();
}

}  // namespace

Result<files::FileTable> scan_source(const DatasetRequest& request, const std::string& glob,
                                     const files::ScanProgress& progress) {
  STOKER_RETURN_IF_ERROR(check_path(request));
  const auto folder = files::is_folder(request.config.path());
  if (!folder) return folder.status().with_context(request.key("path"));
  if (*folder) {
    STOKER_ASSIGN_OR_RETURN(files::FolderScan found, scan_source_folder(request, glob, progress));
    return std::move(found.files);
  }
  files::FileTable files;
  STOKER_RETURN_IF_ERROR(scan_source_file(request, "path", request.config.path(), files));
  return files;
}

Result<files::FolderScan> scan_source_folder(const DatasetRequest& request, const std::string& glob,
                                             const files::ScanProgress& progress) {
  STOKER_RETURN_IF_ERROR(check_path(request));
  const std::string& path = request.config.path();
  const auto folder = files::is_folder(path);
  if (!folder) return folder.status().with_context(request.key("path"));
  if (!*folder) return request.config_error("path", path + " is not a folder");
  const auto parsed = PathGlob::parse(glob);
  if (!parsed) return parsed.status().with_context(request.key("glob"));
  auto found = files::scan_folder(path, *parsed, progress);
  if (!found) return found.status().with_context(request.key("path"));
  if (found->files.size() == 0) {
    return Status(StatusCode::kNotFound,
                  request.key("path") + ": " + path + " holds no file that matches '" + glob + "'");
  }
  return found;
}

Status scan_source_file(const DatasetRequest& request, std::string_view field,
                        const std::string& path, files::FileTable& files) {
  if (path.empty()) return request.config_error(field, "must name a file");
  return files::scan_file(path, files).with_context(request.key(field));
}

Status check_ranges(const files::FileTable& files, const std::string& glob) {
  STOKER_ASSIGN_OR_RETURN(const std::vector<std::string> named, PathGlob::names_in_ranges(glob));
  std::vector<std::string_view> found(files.size());
  for (size_t file = 0; file < files.size(); ++file) found[file] = files.name(file);
  std::ranges::sort(found);
  size_t missing = 0;
  const std::string* first = nullptr;
  for (const std::string& name : named) {
    if (std::ranges::binary_search(found, std::string_view(name))) continue;
    if (missing++ == 0) first = &name;
  }
  if (missing == 0) return {};
  return Status(StatusCode::kNotFound,
                files.root() + " has no '" + *first + "'; " + std::to_string(missing) + " of the " +
                    std::to_string(named.size()) + " files that the range names are missing");
}

Result<files::FileTable> scan_shards(const DatasetRequest& request,
                                     const files::ScanProgress& progress) {
  STOKER_ASSIGN_OR_RETURN(files::FileTable files,
                          scan_source(request, request.config.glob(), progress));
  if (files.root().empty()) return files;  // a single file with its own name
  STOKER_RETURN_IF_ERROR(
      check_ranges(files, request.config.glob()).with_context(request.key("glob")));
  return files;
}

Status check_texts(const DatasetRequest& request, const files::FileTable& files,
                   const files::ScanProgress& progress) {
  const files::FileReader reader(files);
  std::vector<std::byte> head;
  for (size_t file = 0; file < files.size(); ++file) {
    progress(file, "files checked", static_cast<double>(file) / static_cast<double>(files.size()));
    head.resize(std::min<uint64_t>(files.stamp(file).size, kTextHeadBytes));
    STOKER_RETURN_IF_ERROR(reader.read(file, 0, head).with_context(request.key("path")));
    const Status text = reject_binary(head);
    if (!text.ok()) return text.with_context(request.key("path") + ": " + files.path(file));
    const uint64_t size = files.stamp(file).size;
    if (size < 2 * kTextHeadBytes) continue;
    STOKER_RETURN_IF_ERROR(
        reader.read(file, size - head.size(), head).with_context(request.key("path")));
    const Status end = reject_binary_end(head);
    if (!end.ok()) return end.with_context(request.key("path") + ": " + files.path(file));
  }
  return {};
}

}  // namespace stoker::data
