#include "shared/dataset/source.h"

#include <utility>

namespace stoker::dataset {
namespace {

constexpr int64_t kMaxContext = int64_t{1} << 30;

Status check_path(const DatasetRequest& request) {
  return request.config.path().empty()
             ? request.config_error("path", "must name a file or a folder")
             : Status();
}

}  // namespace

Result<FileTable> scan_source(const DatasetRequest& request, const std::string& glob,
                              const ScanProgress& progress) {
  STOKER_RETURN_IF_ERROR(check_path(request));
  const auto folder = is_folder(request.config.path());
  if (!folder) return folder.status().with_context(request.key("path"));
  if (*folder) {
    STOKER_ASSIGN_OR_RETURN(FolderScan found, scan_source_folder(request, glob, progress));
    return std::move(found.files);
  }
  FileTable files;
  STOKER_RETURN_IF_ERROR(scan_source_file(request, "path", request.config.path(), files));
  return files;
}

Result<FolderScan> scan_source_folder(const DatasetRequest& request, const std::string& glob,
                                      const ScanProgress& progress) {
  STOKER_RETURN_IF_ERROR(check_path(request));
  const std::string& path = request.config.path();
  const auto folder = is_folder(path);
  if (!folder) return folder.status().with_context(request.key("path"));
  if (!*folder) return request.config_error("path", path + " is not a folder");
  const auto parsed = Glob::parse(glob);
  if (!parsed) return parsed.status().with_context(request.key("glob"));
  auto found = scan_folder(path, *parsed, progress);
  if (!found) return found.status().with_context(request.key("path"));
  if (found->files.size() == 0) {
    return Status(StatusCode::kNotFound,
                  request.key("path") + ": " + path + " holds no file that matches '" + glob + "'");
  }
  return found;
}

Status scan_source_file(const DatasetRequest& request, std::string_view field,
                        const std::string& path, FileTable& files) {
  if (path.empty()) return request.config_error(field, "must name a file");
  return scan_file(path, files).with_context(request.key(field));
}

Result<uint64_t> context_of(const DatasetRequest& request) {
  const config::SequenceConfig* const sequence = request.config.sequence();
  const int64_t context = sequence == nullptr ? 0 : sequence->block_size.value_or(0);
  if (context >= 1 && context <= kMaxContext) return static_cast<uint64_t>(context);
  return request.config_error(
      "sequence.block_size",
      std::to_string(context) + " is not between 1 and " + std::to_string(kMaxContext));
}

Status too_short(const DatasetRequest& request, uint64_t length, std::string_view units) {
  const int64_t context = request.config.sequence()->block_size.value_or(0);
  return request.config_error(
      "path", request.config.path() + ": the part that data." + request.name + ".split takes has " +
                  std::to_string(length) + ' ' + std::string(units) +
                  "; one sample needs block_size + 1 = " + std::to_string(context + 1));
}

}  // namespace stoker::dataset
