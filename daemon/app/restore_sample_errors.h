// restore_sample_errors: the sample errors of a run up to the checkpoint that it resumes from.
//
// Threads: the trainer thread, before the feed is started.
// Errors:  as SampleErrorFile::truncate_after(); the list is then unchanged.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/supervisor/sample_error_log.h"
#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/checkpoint/manifest.h"
#include "shared/run/run_layout.h"

namespace stoker::app {

// Truncates the list at `path` to the errors before the checkpoint; null: to nothing, in a new run. If
// the checkpoint has no count (from an earlier release), the lines of the list are counted.
// `lists_all`: whether the list should have all errors that the checkpoint counts; false: other ranks
// of a group have lists too.
Result<supervisor::SampleErrorHistory> restore_sample_errors(
    FileSystem& files, const std::string& path, const checkpoint::Manifest* maybe_saved,
    bool lists_all = true);

// The lists of ranks that the group no longer has, from `first_rank` on; as above, but an error is only
// logged. Returns the lines that they keep.
uint64_t truncate_lists_of_former_ranks(FileSystem& files, const run::RunLayout& layout,
                                        int first_rank, const checkpoint::Manifest* maybe_saved);

}  // namespace stoker::app
