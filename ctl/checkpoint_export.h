// export_checkpoint: `stokerctl export`: a checkpoint's tensors as one file for other programs.
//
// Threads:  functions of their arguments and the file system.
// Blocking: reads the checkpoint twice (to verify it, to copy it), and writes the file.
// Errors:   kNotFound, kCorrupt: there is no such checkpoint, or it is damaged; kAlreadyExists: the
//           file is there; kNoSpace, kIoError, kPermission. Nothing is then left behind.
#pragma once

#include <cstdint>
#include <string>

#include "ctl/terminal.h"
#include "shared/base/clock.h"
#include "shared/base/status.h"
#include "shared/run/run_layout.h"

namespace stoker::ctl {

enum class ExportFormat { kSafetensors, kTorch };
enum class ExportWhat { kModel, kEma, kOptimizer, kAll };

struct ExportOptions {
  std::string which = "latest";  // as select_checkpoint() takes it
  ExportFormat format = ExportFormat::kSafetensors;
  ExportWhat what = ExportWhat::kModel;
  std::string output;  // empty: in the current directory, named after step and content
};

struct Exported {
  uint64_t step = 0;
  std::string path;
  uint64_t bytes = 0;
  size_t tensors = 0;
};

Result<Exported> export_checkpoint(const run::RunLayout& layout, const ExportOptions& request,
                                   const Console& console, Clock& clock);
std::string render_export(const Exported& exported);  // a line
std::string to_json(const Exported& exported);        // an object on one line, without newline

}  // namespace stoker::ctl
