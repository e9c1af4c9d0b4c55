#include "shared/dataset/source.h"

#include <utility>

namespace stoker::dataset {
namespace {

constexpr int64_t kMaxContext = int64_t{1} << 30;

Status check_path(const SetRequest& set) {
  return set.config.path().empty() ? set.wrong("path", "must name a file or a folder") : Status();
}

}  // namespace

Result<FileTable> scan_source(const SetRequest& set, const std::string& glob,
                              const ScanProgress& progress) {
  STOKER_RETURN_IF_ERROR(check_path(set));
  const auto folder = is_folder(set.config.path());
  if (!folder) return folder.status().with_context(set.key("path"));
  if (*folder) {
    STOKER_ASSIGN_OR_RETURN(FolderScan found, scan_source_folder(set, glob, progress));
    return std::move(found.files);
  }
  FileTable files;
  STOKER_RETURN_IF_ERROR(scan_source_file(set, "path", set.config.path(), files));
  return files;
}

Result<FolderScan> scan_source_folder(const SetRequest& set, const std::string& glob,
                                      const ScanProgress& progress) {
  STOKER_RETURN_IF_ERROR(check_path(set));
  const std::string& path = set.config.path();
  const auto folder = is_folder(path);
  if (!folder) return folder.status().with_context(set.key("path"));
  if (!*folder) return set.wrong("path", path + " is not a folder");
  const auto parsed = Glob::parse(glob);
  if (!parsed) return parsed.status().with_context(set.key("glob"));
  auto found = scan_folder(path, *parsed, progress);
  if (!found) return found.status().with_context(set.key("path"));
  if (found->files.size() == 0) {
    return Status(Code::kNotFound,
                  set.key("path") + ": " + path + " holds no file that matches '" + glob + "'");
  }
  return found;
}

Status scan_source_file(const SetRequest& set, std::string_view field, const std::string& path,
                        FileTable& files) {
  if (path.empty()) return set.wrong(field, "must name a file");
  return scan_file(path, files).with_context(set.key(field));
}

Result<uint64_t> context_of(const SetRequest& set) {
  const config::SequenceConfig* const sequence = set.config.sequence();
  const int64_t context = sequence == nullptr ? 0 : sequence->block_size.value_or(0);
  if (context >= 1 && context <= kMaxContext) return static_cast<uint64_t>(context);
  return set.wrong("sequence.block_size", std::to_string(context) + " is not between 1 and " +
                                              std::to_string(kMaxContext));
}

Status too_short(const SetRequest& set, uint64_t length, std::string_view units) {
  const int64_t context = set.config.sequence()->block_size.value_or(0);
  return set.wrong("path",
                   set.config.path() + ": the part that data." + set.name + ".split takes has " +
                       std::to_string(length) + ' ' + std::string(units) +
                       "; one sample needs block_size + 1 = " + std::to_string(context + 1));
}

}  // namespace stoker::dataset
