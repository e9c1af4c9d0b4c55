#include "daemon/app/restore_sample_errors.h"

#include "shared/base/log.h"

namespace stoker::app {

Result<supervisor::SampleErrorHistory> restore_sample_errors(
    FileSystem& files, const std::string& path, const checkpoint::Manifest* maybe_saved,
    bool lists_all) {
  supervisor::SampleErrorFile::Position position;
  if (maybe_saved != nullptr) position = {maybe_saved->step, maybe_saved->next_ticket};
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

}  // namespace stoker::app
