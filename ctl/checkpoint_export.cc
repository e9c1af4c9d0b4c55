#include "ctl/checkpoint_export.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <utility>
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

Result<std::unique_ptr<checkpoint::TensorRangeSource>> open_part(
    const VerifiedCheckpoint& checkpoint, const Part& part) {
  using Source = std::unique_ptr<checkpoint::TensorRangeSource>;
  if (part.file == kOptimizer.file) {  // can have several files
    STOKER_ASSIGN_OR_RETURN(auto optimizer, checkpoint.open_optimizer());
    return Source(std::move(optimizer));
  }
  STOKER_ASSIGN_OR_RETURN(auto file, checkpoint.open_tensors(part.file));
  return Source(std::move(file));
}

const char* suffix_of(ExportFormat format) {
  switch (format) {
    case ExportFormat::kSafetensors:
      return ".safetensors";
    case ExportFormat::kTorch:
      return ".pt";
    case ExportFormat::kDcp:
      return ".dcp";
  }
  return "";
}

// "step-000001200.optimizer.pt"
std::string default_name(uint64_t step, const ExportOptions& request) {
  constexpr std::array kSuffixes{"", ".ema", ".optimizer", ".all"};
  return checkpoint::CheckpointStore::checkpoint_name(step) +
         kSuffixes[static_cast<size_t>(request.content)] + suffix_of(request.format);
}

// The output, which appears complete or not at all. For torch.distributed.checkpoint it is a folder.
class Output {
 public:
  static Result<Output> create(const std::string& path, ExportFormat format) {
    FileSystem& files = default_file_system();
    if (format != ExportFormat::kDcp) {
      STOKER_ASSIGN_OR_RETURN(checkpoint::NewFile file, checkpoint::NewFile::create(files, path));
      return Output(path, "", std::move(file));
    }
    std::error_code error;
    if (std::filesystem::exists(std::filesystem::symlink_status(path, error)))
      return Status(StatusCode::kAlreadyExists,
                    path + ": already exists; remove it, or choose another name");
    const std::string folder = temporary_path(path);
    STOKER_RETURN_IF_ERROR(files.make_directory(folder));
    auto file = checkpoint::NewFile::create(files, join_path(folder, kDcpFile));
    if (file.ok()) return Output(path, folder, std::move(*file));
    static_cast<void>(files.remove_tree(folder));
    return file.status();
  }
  Output(Output&& other) noexcept
      : path_(std::move(other.path_)),
        folder_(std::exchange(other.folder_, "")),
        file_(std::move(other.file_)) {}
  Output& operator=(Output&&) = delete;
  ~Output() {
    if (!folder_.empty()) static_cast<void>(default_file_system().remove_tree(folder_));
  }

  checkpoint::NewFile& file() { return file_; }
  Status commit() {
    FileSystem& files = default_file_system();
    STOKER_RETURN_IF_ERROR(file_.commit());
    if (folder_.empty()) return {};
    STOKER_RETURN_IF_ERROR(files.rename_noreplace(folder_, path_));
    folder_.clear();
    const std::string parent = std::filesystem::path(path_).parent_path().string();
    return files.sync_directory(parent.empty() ? "." : parent);
  }

 private:
  // As PyTorch names it; any *.safetensors is read.
  static constexpr const char* kDcpFile = "model-00001-of-00001.safetensors";
  Output(std::string path, std::string folder, checkpoint::NewFile file)
      : path_(std::move(path)), folder_(std::move(folder)), file_(std::move(file)) {}

  std::string path_;
  std::string folder_;  // before it is renamed; empty: the output is a file
  checkpoint::NewFile file_;
};

Status write(ExportFormat format, const std::vector<checkpoint::ExportPart>& parts, uint64_t step,
             checkpoint::NewFile& out, const checkpoint::OnBytes& on_bytes) {
  switch (format) {
    case ExportFormat::kSafetensors:
      return checkpoint::export_safetensors(parts, {{"format", "pt"}}, out, on_bytes);
    case ExportFormat::kTorch:
      return checkpoint::export_torch(parts, step, out, on_bytes);
    case ExportFormat::kDcp:
      return checkpoint::export_state_dict(parts, out, on_bytes);
  }
  return {};
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
  STOKER_ASSIGN_OR_RETURN(Output out, Output::create(path, request.format));
  STOKER_ASSIGN_OR_RETURN(const VerifiedCheckpoint verified, verify(entry, console, clock));
  std::vector<std::unique_ptr<checkpoint::TensorRangeSource>> files;
  std::vector<checkpoint::ExportPart> parts;
  Exported exported{.step = entry.step, .path = path};
  uint64_t bytes = 0;
  STOKER_ASSIGN_OR_RETURN(const std::vector<Part> selected_parts,
                          export_parts(verified, request.content));
  for (const Part& part : selected_parts) {
    STOKER_ASSIGN_OR_RETURN(auto file, open_part(verified, part));
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
    STOKER_RETURN_IF_ERROR(write(request.format, parts, entry.step, out.file(), on_bytes));
    STOKER_RETURN_IF_ERROR(out.commit());
  }
  exported.bytes = out.file().bytes();
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
