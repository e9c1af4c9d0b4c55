#include "daemon/app/restore_sample_errors.h"

#include <filesystem>
#include <system_error>

#include "shared/base/log.h"

namespace stoker::app {
namespace {

supervisor::SampleErrorFile::Position position_of(const checkpoint::Manifest* maybe_saved) {
  if (maybe_saved == nullptr) return {};
  return {maybe_saved->step, maybe_saved->next_ticket};
}

}  // namespace

Result<supervisor::SampleErrorHistory> restore_sample_errors(
    FileSystem& files, const std::string& path, const checkpoint::Manifest* maybe_saved,
    bool lists_all) {
  const auto position = position_of(maybe_saved);
  supervisor::SampleErrorHistory before{.step = position.step, .ticket = position.ticket};
  STOKER_ASSIGN_OR_RETURN(before.lines,
                          supervisor::SampleErrorFile::truncate_after(files, path, position));
  before.count = before.lines;
  if (maybe_saved != nullptr && maybe_saved->sample_errors)
    before.count = *maybe_saved->sample_errors;
  if (lists_all && before.lines < before.count &&
      before.lines < supervisor::SampleErrorFile::kMaxLines)
    log_warn("sample error records missing", {{"path", path},
                                              {"records", before.lines},
                                              {"expected", before.count},
                                              {"step", position.step}});
  return before;
}

uint64_t truncate_lists_of_former_ranks(FileSystem& files, const run::RunLayout& layout,
                                        int first_rank, const checkpoint::Manifest* maybe_saved) {
  uint64_t lines = 0;
  std::error_code error;
  for (int rank = first_rank; std::filesystem::is_directory(layout.rank_dir(rank), error); ++rank) {
    const std::string path = run::RunLayout(layout.rank_dir(rank)).sample_errors_file();
    const auto kept =
        supervisor::SampleErrorFile::truncate_after(files, path, position_of(maybe_saved));
    if (kept.ok())
      lines += *kept;
    else
      log_warn("file write failed", {{"path", path}, {"error", kept.status().to_string()}});
  }
  return lines;
}

}  // namespace stoker::app
