// export_checkpoint: implements `stokerctl export`, which writes the tensors of a checkpoint to one
// file, or a folder, for use by other programs.
//
// Threads:  stateless functions; they access only their arguments and the file system.
// Blocking: reads the checkpoint twice (to verify and to copy it) and writes the file.
// Errors:   kNotFound: no such checkpoint; kCorrupt: the checkpoint is corrupt; kAlreadyExists: the
//           output exists; kNoSpace, kIoError, kPermission; kInvalidArgument: the model has no
//           Hugging Face or timm format, or an option does not fit a checkpoint with or without an adapter;
//           kMismatch: config.yaml describes another model than that of the checkpoint, or the
//           pretrained weights changed. No output is left behind on error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ctl/terminal.h"
#include "shared/base/clock.h"
#include "shared/base/status.h"
#include "shared/run/run_layout.h"

namespace stoker::ctl {

enum class ExportFormat { kSafetensors, kTorch, kDcp, kHuggingFace, kPeft, kTimm };
enum class ExportContent { kModel, kEma, kOptimizer, kAll };

struct ExportOptions {
  std::string selector = "latest";     // in the form that select_checkpoint() accepts
  std::optional<ExportFormat> format;  // null: kPeft for an adapter, otherwise kSafetensors
  ExportContent content = ExportContent::kModel;
  bool merge = false;  // the adapter into the pretrained weights
  std::string output;  // empty: current directory, named after the step and content
  bool dry_run =
      false;  // verifies and checks everything, but writes no tensors and leaves no output
};

struct Exported {
  uint64_t step = 0;
  std::string path;
  uint64_t bytes = 0;
  size_t tensors = 0;
  bool is_dry_run = false;  // nothing was written; `bytes`: of the tensors
};

Result<Exported> export_checkpoint(const run::RunLayout& layout, const ExportOptions& request,
                                   const Console& console, Clock& clock);
std::string render_export(const Exported& exported, ExportContent content);  // one line
std::string to_json(const Exported& exported);  // one object on one line, without a newline

}  // namespace stoker::ctl
