#include "ctl/checkpoint_export.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include <boost/json.hpp>

#include "ctl/run_locator.h"
#include "ctl/terminal.h"
#include "ctl/text_format.h"
#include "shared/base/utf8.h"
#include "shared/checkpoint/export_tensors.h"
#include "shared/checkpoint/store.h"

namespace stoker::ctl {
namespace {

using checkpoint::VerifiedCheckpoint;

// A checkpoint file and the prefix of its tensors when several files are exported into one.
struct Part {
  const char* name;
  const char* file;
};
constexpr Part kModel{"model", "model.safetensors"};
constexpr Part kOptimizer{"optimizer", "optimizer.safetensors"};
constexpr Part kTrainerState{"state", "trainer_state.safetensors"};
constexpr Part kEma{"ema", "ema.safetensors"};

bool has_ema(const VerifiedCheckpoint& checkpoint) {
  return std::ranges::count(checkpoint.manifest().files, kEma.file,
                            &checkpoint::WrittenFile::name) > 0;
}

Result<std::vector<Part>> export_parts(const VerifiedCheckpoint& checkpoint,
                                       ExportContent content) {
  switch (content) {
    case ExportContent::kModel:
      return std::vector{kModel};
    case ExportContent::kOptimizer:
      return std::vector{kOptimizer};
    case ExportContent::kEma:
      if (has_ema(checkpoint)) return std::vector{kEma};
      return Status(
          StatusCode::kNotFound,
          checkpoint.path() + ": has no averaged weights; it was saved without train.ema_decay");
    case ExportContent::kAll:
      break;
  }
  std::vector parts{kModel, kOptimizer, kTrainerState};
  if (has_ema(checkpoint)) parts.push_back(kEma);
  return parts;
}

// "step-000001200.optimizer.pt"
std::string default_name(uint64_t step, const ExportOptions& request) {
  constexpr std::array kSuffixes{"", ".ema", ".optimizer", ".all"};
  return checkpoint::CheckpointStore::checkpoint_name(step) +
         kSuffixes[static_cast<size_t>(request.content)] +
         (request.format == ExportFormat::kTorch ? ".pt" : ".safetensors");
}

Result<VerifiedCheckpoint> verify(const checkpoint::CheckpointEntry& entry, const Console& console,
                                  Clock& clock) {
  Progress progress(console, clock, "verifying step " + format_count(entry.step),
                    bytes_on_disk(entry.path));
  return checkpoint::CheckpointStore::open_verified(entry.path,
                                                    [&](uint64_t bytes) { progress.add(bytes); });
}

}  // namespace

Result<Exported> export_checkpoint(const run::RunLayout& layout, const ExportOptions& request,
                                   const Console& console, Clock& clock) {
  STOKER_ASSIGN_OR_RETURN(const auto entry, select_checkpoint(layout, request.selector));
  const std::string path =
      request.output.empty() ? default_name(entry.step, request) : request.output;
  // Create the output first, so that an existing file is reported before the slow verification.
  STOKER_ASSIGN_OR_RETURN(checkpoint::NewFile out,
                          checkpoint::NewFile::create(default_file_system(), path));
  STOKER_ASSIGN_OR_RETURN(const VerifiedCheckpoint verified, verify(entry, console, clock));
  std::vector<std::unique_ptr<checkpoint::SafetensorsFile>> files;
  std::vector<checkpoint::ExportPart> parts;
  Exported exported{.step = entry.step, .path = path};
  uint64_t bytes = 0;
  STOKER_ASSIGN_OR_RETURN(const std::vector<Part> selected_parts,
                          export_parts(verified, request.content));
  for (const Part& part : selected_parts) {
    STOKER_ASSIGN_OR_RETURN(auto file, verified.open_tensors(part.file));
    exported.tensors += file->tensors().size();
    for (const TensorSpec& spec : file->tensors()) bytes += spec.bytes();
    files.push_back(std::move(file));
    const bool has_parameters = part.file == kModel.file || part.file == kEma.file;
    parts.push_back(
        {part.name, files.back().get(),
         has_parameters ? verified.manifest().tied_parameters : checkpoint::TiedNames()});
  }
  {
    Progress progress(console, clock, "writing " + printable(path), bytes);
    const auto on_bytes = [&](uint64_t count) { progress.add(count); };
    const Status written =
        request.format == ExportFormat::kTorch
            ? checkpoint::export_torch(parts, entry.step, out, on_bytes)
            : checkpoint::export_safetensors(parts, {{"format", "pt"}}, out, on_bytes);
    STOKER_RETURN_IF_ERROR(written);
    STOKER_RETURN_IF_ERROR(out.commit());
  }
  exported.bytes = out.bytes();
  return exported;
}

std::string render_export(const Exported& exported) {
  return "step " + format_count(exported.step) + ": " + format_count(exported.tensors) +
         " tensors, " + format_bytes(exported.bytes) + ", in " + printable(exported.path) + "\n";
}

std::string to_json(const Exported& exported) {
  return boost::json::serialize(boost::json::object{{"step", exported.step},
                                                    {"path", exported.path},
                                                    {"bytes", exported.bytes},
                                                    {"tensors", exported.tensors}});
}

}  // namespace stoker::ctl
