#include "daemon/daemon_app/bad_samples_so_far.h"

#include "shared/base/log.h"

namespace stoker::daemon_app {

Result<feeder::BadSamplesBefore> bad_samples_so_far(FileSystem& files, const std::string& path,
                                                    const checkpoint::Manifest* maybe_saved) {
  feeder::BadSampleFile::Position position;
  if (maybe_saved != nullptr) position = {maybe_saved->step, maybe_saved->ticket};
  feeder::BadSamplesBefore before{.step = position.step, .ticket = position.ticket};
  STOKER_ASSIGN_OR_RETURN(before.lines, feeder::BadSampleFile::cut_back(files, path, position));
  before.count = before.lines;
  if (maybe_saved != nullptr && maybe_saved->maybe_bad_samples)
    before.count = *maybe_saved->maybe_bad_samples;
  if (before.lines < before.count && before.lines < feeder::BadSampleFile::kMostLines)
    log_warn("sample error records missing", {{"path", path},
                                              {"records", before.lines},
                                              {"expected", before.count},
                                              {"step", position.step}});
  return before;
}

}  // namespace stoker::daemon_app
