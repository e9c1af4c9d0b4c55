#include "ctl/checkpoint_export.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <ranges>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "ctl/model_folder.h"
#include "ctl/parameter_shapes.h"
#include "ctl/run_locator.h"
#include "ctl/terminal.h"
#include "shared/base/file.h"
#include "shared/base/readable_format.h"
#include "shared/base/utf8.h"
#include "shared/checkpoint/export_tensors.h"
#include "shared/checkpoint/image_model_names.h"
#include "shared/checkpoint/peft.h"
#include "shared/checkpoint/store.h"
#include "shared/config/huggingface_config.h"
#include "shared/config/image_model_config.h"
#include "shared/config/live_settings.h"
#include "shared/config/load_config.h"
#include "shared/config/peft_config.h"
#include "shared/pretrained/merged_tensors.h"
#include "shared/pretrained/peft_settings.h"
#include "shared/pretrained/pretrained_file.h"
#include "shared/run/setting_changes.h"

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

// As PyTorch names the file of a torch.distributed.checkpoint; any *.safetensors is read.
constexpr const char* kDcpFile = "model-00001-of-00001.safetensors";

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
      return Status(StatusCode::kNotFound,
                    checkpoint.path() +
                        ": has no averaged weights; it was saved without train.ema_decay "
                        "and without optimizer schedule_free_adamw");
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

// "step-000001200.optimizer.pt"
std::string default_name(uint64_t step, const ExportOptions& request, ExportFormat format) {
  constexpr std::array kSuffixes{"", ".ema", ".optimizer", ".all"};
  constexpr std::array kEndings{".safetensors", ".pt", ".dcp", ".huggingface", ".peft", ".timm"};
  return checkpoint::CheckpointStore::checkpoint_name(step) + (request.merge ? ".merged" : "") +
         kSuffixes[static_cast<size_t>(request.content)] + kEndings[static_cast<size_t>(format)];
}

Result<VerifiedCheckpoint> verify(const checkpoint::CheckpointEntry& entry, const Console& console,
                                  Clock& clock) {
  Progress progress(console, clock, "verifying step " + format_count(entry.step),
                    bytes_on_disk(entry.path));
  return checkpoint::CheckpointStore::open_verified(entry.path,
                                                    [&](uint64_t bytes) { progress.add(bytes); });
}

// The parts of a checkpoint that are exported, opened.
struct OpenParts {
  std::vector<std::unique_ptr<checkpoint::TensorRangeSource>> files;
  std::vector<checkpoint::ExportPart> parts;
  size_t tensors = 0;
  uint64_t bytes = 0;
};

// That there is an adapter was read before the manifest was verified.
Result<checkpoint::BaseWeights> base_weights(const VerifiedCheckpoint& verified) {
  if (verified.manifest().base_weights) return *verified.manifest().base_weights;
  return Status(StatusCode::kMismatch, verified.path() + ": has no adapter");
}

// `maybe_merged`: the model into whose pretrained weights the adapter is merged.
Result<OpenParts> open_parts(const VerifiedCheckpoint& verified, ExportContent content,
                             const config::ModelConfig* maybe_merged) {
  STOKER_ASSIGN_OR_RETURN(const std::vector<Part> selected, export_parts(verified, content));
  OpenParts open;
  for (const Part& part : selected) {
    STOKER_ASSIGN_OR_RETURN(auto file, open_part(verified, part));
    if (maybe_merged != nullptr) {
      STOKER_ASSIGN_OR_RETURN(const checkpoint::BaseWeights base, base_weights(verified));
      STOKER_ASSIGN_OR_RETURN(
          file, pretrained::MergedTensors::open(*maybe_merged, base, std::move(file)));
    }
    open.tensors += file->tensors().size();
    for (const TensorSpec& spec : file->tensors()) open.bytes += spec.bytes();
    open.files.push_back(std::move(file));
    const bool has_parameters = part.file == kModel.file || part.file == kEma.file;
    open.parts.push_back(
        {part.name, open.files.back().get(),
         has_parameters ? verified.manifest().tied_parameters : checkpoint::TiedNames()});
  }
  return open;
}

// Of a dry run, after all checks. The temporary file or folder is removed by its destructor.
Exported planned(const checkpoint::CheckpointEntry& entry, const std::string& path,
                 const OpenParts& open) {
  return {.step = entry.step,
          .path = path,
          .bytes = open.bytes,
          .tensors = open.tensors,
          .is_dry_run = true};
}

Status write_tensors(const OpenParts& open, ExportFormat format, uint64_t step,
                     const std::string& path, checkpoint::NewFile& out, const Console& console,
                     Clock& clock) {
  Progress progress(console, clock, "writing " + printable(path), open.bytes);
  const auto on_bytes = [&](uint64_t count) { progress.add(count); };
  switch (format) {
    case ExportFormat::kSafetensors:
    case ExportFormat::kHuggingFace:
    case ExportFormat::kPeft:
    case ExportFormat::kTimm:
      STOKER_RETURN_IF_ERROR(
          checkpoint::export_safetensors(open.parts, {{"format", "pt"}}, out, on_bytes));
      break;
    case ExportFormat::kTorch:
      STOKER_RETURN_IF_ERROR(checkpoint::export_torch(open.parts, step, out, on_bytes));
      break;
    case ExportFormat::kDcp:
      STOKER_RETURN_IF_ERROR(checkpoint::export_state_dict(open.parts, out, on_bytes));
      break;
  }
  return out.commit();
}

// The names of the tensors in a folder, and the tensors if those of the library are others.
void rename_tensors(const config::ModelConfig& model, ExportFormat format, OpenParts& open) {
  using checkpoint::ImageLibrary;
  const bool is_timm = format == ExportFormat::kTimm;
  const auto* names = is_timm ? nullptr : checkpoint::HuggingFaceNames::find(model.name());
  if (names == nullptr)
    names = checkpoint::find_image_names(
        model.name(), is_timm ? ImageLibrary::kTimm : ImageLibrary::kTransformers);
  if (names == nullptr) return;  // those of torchvision
  open.parts.front().rename = [names](std::string_view name) { return names->from_stoker(name); };
  if (is_timm || !std::holds_alternative<config::VitConfig>(model.arch)) return;
  auto& file = open.files.front();
  file = std::make_unique<checkpoint::SplitQkv>(std::move(file));
  open.parts.front().file = file.get();
  open.tensors = file->tensors().size();
}

// Whether the configuration has this digest, or had it before settings were changed during the run,
// which stokerd writes to it.
bool has_digest(config::Config config, const run::RunLayout& layout, const std::string& digest) {
  if (config::digest(config) == digest) return true;
  const auto changes = run::read_setting_changes(layout.setting_changes_file());
  if (!changes.ok()) return false;
  for (const run::SettingChange& change : std::views::reverse(*changes)) {
    auto before = config::with_live_settings(
        config, {{.key = change.key, .value = change.previous, .configured = {}}});
    if (!before.ok()) return false;
    config = *std::move(before);
    if (config::digest(config) == digest) return true;
  }
  return false;
}

void warn_if_changed(const config::Config& config, const run::RunLayout& layout,
                     const VerifiedCheckpoint& verified, const Console& console) {
  if (!has_digest(config, layout, verified.manifest().config_digest))
    console.err << "stokerctl: warning: " << printable(layout.config_file())
                << " was changed since the checkpoint was saved; the export has its settings\n";
}

// Of transformers or timm.
Result<Exported> export_folder(const run::RunLayout& layout, const ExportOptions& request,
                               ExportFormat format, const checkpoint::CheckpointEntry& entry,
                               const std::string& path, const Console& console, Clock& clock) {
  const bool is_timm = format == ExportFormat::kTimm;
  if (request.content != ExportContent::kModel && request.content != ExportContent::kEma)
    return Status(StatusCode::kInvalidArgument,
                  std::string("--format ") + (is_timm ? "timm" : "huggingface") +
                      " has weights only; use it with --include model or ema");
  STOKER_ASSIGN_OR_RETURN(config::Config config, config::load_config(layout.config_file(), {}));
  // An unsupported model is reported before the slow verification.
  STOKER_RETURN_IF_ERROR((is_timm ? config::format_timm_config(config.model.arch, {})
                                  : config::format_huggingface_config(config.model.arch))
                             .status());
  STOKER_ASSIGN_OR_RETURN(NewFolder folder, NewFolder::create(path));
  STOKER_ASSIGN_OR_RETURN(const VerifiedCheckpoint verified, verify(entry, console, clock));
  STOKER_ASSIGN_OR_RETURN(OpenParts open, open_parts(verified, request.content,
                                                     request.merge ? &config.model : nullptr));
  warn_if_changed(config, layout, verified, console);
  const checkpoint::TensorRangeSource& file = *open.files.front();
  STOKER_RETURN_IF_ERROR(check_parameter_shapes(file, config.model.arch));
  STOKER_RETURN_IF_ERROR(
      write_model_files(config, format, verified.manifest(), file, folder, console));
  rename_tensors(config.model, format, open);
  if (request.dry_run) return planned(entry, path, open);
  STOKER_ASSIGN_OR_RETURN(
      checkpoint::NewFile out,
      checkpoint::NewFile::create(default_file_system(), folder / "model.safetensors"));
  STOKER_RETURN_IF_ERROR(write_tensors(open, format, entry.step, path, out, console, clock));
  STOKER_RETURN_IF_ERROR(
      folder.write("README.md", model_card(config, layout, verified, request.content, format)));
  STOKER_RETURN_IF_ERROR(folder.commit());
  return Exported{.step = entry.step, .path = path, .bytes = out.bytes(), .tensors = open.tensors};
}

// An adapter of vit has torchvision's names, to whose models PEFT can add it.
Status check_adapter_base(const config::ModelConfig& model, const std::string& base) {
  if (!std::holds_alternative<config::VitConfig>(model.arch) ||
      !pretrained::is_huggingface_folder(base))
    return {};
  return Status(StatusCode::kInvalidArgument,
                "the adapter has torchvision's names, and PEFT cannot add it to the model of " +
                    base +
                    ", which is of transformers or timm; export the complete model with --merge "
                    "--format huggingface or timm");
}

void warn_if_applied_twice(const checkpoint::TensorRangeSource& adapter, const Console& console) {
  const bool has_output_projection =
      std::ranges::any_of(adapter.tensors(), [](const TensorSpec& spec) {
        return checkpoint::is_lora_matrix(spec.name) &&
               checkpoint::is_output_projection(checkpoint::module_of(spec.name));
      });
  if (has_output_projection)
    console.err << "stokerctl: warning: PEFT 0.21 applies the adapter of self_attention.out_proj "
                   "twice, so the model has other outputs there; export the merged weights with "
                   "--merge, or leave self_attention out of model.lora.target_modules\n";
}

// A folder that PEFT reads.
Result<Exported> export_adapter(const run::RunLayout& layout, const ExportOptions& request,
                                const checkpoint::CheckpointEntry& entry, const std::string& path,
                                const Console& console, Clock& clock) {
  STOKER_ASSIGN_OR_RETURN(NewFolder folder, NewFolder::create(path));
  STOKER_ASSIGN_OR_RETURN(const VerifiedCheckpoint verified, verify(entry, console, clock));
  STOKER_ASSIGN_OR_RETURN(const config::Config config,
                          config::load_config(layout.config_file(), {}));
  warn_if_changed(config, layout, verified, console);
  STOKER_ASSIGN_OR_RETURN(const checkpoint::BaseWeights base, base_weights(verified));
  STOKER_RETURN_IF_ERROR(check_adapter_base(config.model, base.path));
  STOKER_ASSIGN_OR_RETURN(OpenParts open, open_parts(verified, request.content, nullptr));
  STOKER_ASSIGN_OR_RETURN(
      const std::string settings,
      pretrained::peft_settings(config.model, base, open.files.front()->tensors()));
  STOKER_RETURN_IF_ERROR(folder.write(config::kPeftConfigFile, settings));
  warn_if_applied_twice(*open.files.front(), console);
  const checkpoint::PeftNames names(config.model.name());
  open.parts.front().rename = [&names](std::string_view name) { return names.from_stoker(name); };
  if (request.dry_run) return planned(entry, path, open);
  STOKER_ASSIGN_OR_RETURN(
      checkpoint::NewFile out,
      checkpoint::NewFile::create(default_file_system(), folder / checkpoint::kPeftFile));
  STOKER_RETURN_IF_ERROR(
      write_tensors(open, ExportFormat::kPeft, entry.step, path, out, console, clock));
  STOKER_RETURN_IF_ERROR(folder.write(
      "README.md", model_card(config, layout, verified, request.content, ExportFormat::kPeft)));
  STOKER_RETURN_IF_ERROR(folder.commit());
  return Exported{.step = entry.step, .path = path, .bytes = out.bytes(), .tensors = open.tensors};
}

// Whether the checkpoint has an adapter, as its manifest says, which is verified later.
bool has_adapter(const checkpoint::CheckpointEntry& entry) {
  constexpr uint64_t kMaxManifestBytes = 16 << 20;
  const std::string path = join_path(entry.path, checkpoint::kManifestName);
  const auto text = read_file(path, kMaxManifestBytes);
  if (!text.ok()) return false;
  const auto manifest = checkpoint::parse_manifest(*text, path);
  return manifest.ok() && manifest->base_weights.has_value();
}

// Of a checkpoint with an adapter or without.
Result<ExportFormat> choose_format(const ExportOptions& request, bool is_adapter) {
  const auto invalid = [](const char* message) {
    return Status(StatusCode::kInvalidArgument, message);
  };
  const bool is_weights =
      request.content == ExportContent::kModel || request.content == ExportContent::kEma;
  const bool exports_adapter = is_adapter && !request.merge && is_weights;
  const ExportFormat format =
      request.format.value_or(exports_adapter ? ExportFormat::kPeft : ExportFormat::kSafetensors);
  if (request.merge && !is_adapter)
    return invalid("--merge is for checkpoints with an adapter (model.lora); remove it");
  if (request.merge && !is_weights)
    return invalid("--merge writes weights; use it with --include model or ema");
  if (format == ExportFormat::kPeft && !exports_adapter)
    return invalid(
        "--format peft writes the weights of an adapter (model.lora), without --merge and with "
        "--include model or ema");
  if ((format == ExportFormat::kHuggingFace || format == ExportFormat::kTimm) && exports_adapter)
    return invalid(
        "--format huggingface and timm write a complete model, but the checkpoint has an adapter; "
        "add "
        "--merge, or use --format peft");
  return format;
}

}  // namespace

Result<Exported> export_checkpoint(const run::RunLayout& layout, const ExportOptions& request,
                                   const Console& console, Clock& clock) {
  STOKER_ASSIGN_OR_RETURN(const auto entry, select_checkpoint(layout, request.selector));
  STOKER_ASSIGN_OR_RETURN(const ExportFormat format, choose_format(request, has_adapter(entry)));
  const std::string path =
      request.output.empty() ? default_name(entry.step, request, format) : request.output;
  if (format == ExportFormat::kHuggingFace || format == ExportFormat::kTimm)
    return export_folder(layout, request, format, entry, path, console, clock);
  if (format == ExportFormat::kPeft)
    return export_adapter(layout, request, entry, path, console, clock);
  std::optional<config::Config> merged;
  if (request.merge) {
    STOKER_ASSIGN_OR_RETURN(merged, config::load_config(layout.config_file(), {}));
  }
  // Create the output first, so that an existing file is reported before the slow verification.
  std::optional<NewFolder> folder;
  if (format == ExportFormat::kDcp) {
    STOKER_ASSIGN_OR_RETURN(NewFolder created, NewFolder::create(path));
    folder.emplace(std::move(created));
  }
  STOKER_ASSIGN_OR_RETURN(
      checkpoint::NewFile out,
      checkpoint::NewFile::create(default_file_system(), folder ? *folder / kDcpFile : path));
  STOKER_ASSIGN_OR_RETURN(const VerifiedCheckpoint verified, verify(entry, console, clock));
  if (merged) warn_if_changed(*merged, layout, verified, console);
  STOKER_ASSIGN_OR_RETURN(const OpenParts open,
                          open_parts(verified, request.content, merged ? &merged->model : nullptr));
  if (request.dry_run) return planned(entry, path, open);
  STOKER_RETURN_IF_ERROR(write_tensors(open, format, entry.step, path, out, console, clock));
  if (folder) STOKER_RETURN_IF_ERROR(folder->commit());
  return Exported{.step = entry.step, .path = path, .bytes = out.bytes(), .tensors = open.tensors};
}

std::string render_export(const Exported& exported, ExportContent content) {
  return "step " + format_count(exported.step) + ": " + format_count(exported.tensors) +
         (content == ExportContent::kEma ? " tensors of averaged weights, " : " tensors, ") +
         format_bytes(exported.bytes) + (exported.is_dry_run ? ", would be written to " : ", in ") +
         printable(exported.path) + "\n";
}

std::string to_json(const Exported& exported) {
  boost::json::object fields{{"step", exported.step},
                             {"path", exported.path},
                             {"bytes", exported.bytes},
                             {"tensors", exported.tensors}};
  if (exported.is_dry_run) fields["dry_run"] = true;
  return boost::json::serialize(fields);
}

}  // namespace stoker::ctl
