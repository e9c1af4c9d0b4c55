// restore_sample_errors: what a run that goes on from a checkpoint knows of its bad samples.
//
// Threads: the trainer's thread, before the feed is started.
// Errors:  as SampleErrorFile::truncate_back(); the list is then as it was.
#pragma once

#include <string>

#include "daemon/supervisor/sample_error_log.h"
#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/checkpoint/manifest.h"

namespace stoker::app {

// Cuts the list at `path` back to what belongs to the checkpoint; null: to nothing, for the run begins.
// Of an earlier release's checkpoint, which has no number, the list's lines are counted.
Result<supervisor::SampleErrorHistory> restore_sample_errors(
    FileSystem& files, const std::string& path, const checkpoint::Manifest* maybe_saved);

}  // namespace stoker::app
