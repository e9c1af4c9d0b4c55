#include "ctl/model_folder.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include <boost/json.hpp>

#include "ctl/parameter_shapes.h"
#include "ctl/tokenizer_files.h"
#include "shared/base/json_parser.h"
#include "shared/base/number_format.h"
#include "shared/base/readable_format.h"
#include "shared/base/utf8.h"
#include "shared/checkpoint/export_tensors.h"
#include "shared/config/huggingface_config.h"
#include "shared/config/image_model_config.h"
#include "shared/run/eval_result.h"

namespace stoker::ctl {
namespace {

// The folder that the run started from, if it was one of Hugging Face and still exists.
std::string source_folder(const config::Config& config) {
  if (!config.model.pretrained) return {};
  const std::string& path = config.model.pretrained->path;
  return config::find_huggingface_config(path).empty() ? std::string() : path;
}

constexpr const char* kEndTokenId = "eos_token_id";
constexpr std::array kTokenIds{"bos_token_id", kEndTokenId, "pad_token_id"};

// A JSON file of that folder; empty if there is none.
boost::json::object read_object(const std::string& path) {
  boost::system::error_code error;
  const auto text = read_file(path, config::kMaxHuggingFaceConfigBytes);
  const boost::json::value value = text.ok() ? parse_json(*text, error) : boost::json::value();
  return value.is_object() ? value.as_object() : boost::json::object();
}

int64_t context_length(const config::ModelVariant& arch) {
  return std::visit(
      [](const auto& model) -> int64_t {
        if constexpr (requires { model.context_length; }) return model.context_length;
        return 0;  // has no Hugging Face format
      },
      arch);
}

// Without its files, with a warning, the weights are still of use.
Result<std::optional<int32_t>> write_tokenizer(const config::Config& config,
                                               const checkpoint::Manifest& manifest,
                                               const NewFolder& folder, const Console& console) {
  const config::TokenizerConfig* const tokenizer = config::training_tokenizer(config);
  if (tokenizer == nullptr) return std::optional<int32_t>();
  const auto read =
      read_tokenizer_files(tokenizer->path, manifest.tokenizer, context_length(config.model.arch));
  if (!read) {
    console.err << "stokerctl: warning: " << printable(read.status().message())
                << "; the folder has no tokenizer\n";
    return std::optional<int32_t>();
  }
  for (const auto& [name, content] : read->files)
    STOKER_RETURN_IF_ERROR(folder.write(name, content));
  return read->end_token;
}

// What transformers calls the task of a model with one output per label.
std::string problem_type(config::TaskName task) {
  switch (task) {
    case config::TaskName::kClassification:
      return "single_label_classification";
    case config::TaskName::kBinaryClassification:  // a logit per label
    case config::TaskName::kMultilabelClassification:
      return "multi_label_classification";
    case config::TaskName::kRegression:
      return "regression";
    default:
      return {};
  }
}

// config.json, and of a language model generation_config.json, with the ids of special tokens: those
// of the source, or the end token of the tokenizer. `labels`: the outputs of a bert.
Status write_configs(const config::Config& config, std::optional<int32_t> maybe_end_token,
                     int64_t labels, const NewFolder& folder) {
  STOKER_ASSIGN_OR_RETURN(
      const std::string text,
      config::format_huggingface_config(
          config.model.arch,
          {.num_labels = labels, .problem_type = problem_type(config.task.name())}));
  boost::system::error_code error;
  boost::json::object written = parse_json(text, error).as_object();
  const std::string source = source_folder(config);
  const boost::json::object before =
      source.empty() ? boost::json::object() : read_object(join_path(source, "config.json"));
  boost::json::object generation = source.empty()
                                       ? boost::json::object()
                                       : read_object(join_path(source, "generation_config.json"));
  for (const char* const id : kTokenIds) {
    const boost::json::value* const found = before.if_contains(id);
    if (found != nullptr || !written.contains(id))
      written[id] = found == nullptr ? boost::json::value() : *found;
    if (written[id].is_null() && std::string_view(id) == kEndTokenId && maybe_end_token)
      written[id] = *maybe_end_token;
    if (!generation.contains(id)) generation[id] = written[id];
  }
  STOKER_RETURN_IF_ERROR(folder.write("config.json", boost::json::serialize(written) + "\n"));
  if (!config.model.is_language_model()) return {};
  return folder.write("generation_config.json", boost::json::serialize(generation) + "\n");
}

// Of the center crop and the resizing before it: those of the evaluation, or else of training.
void add_preprocessing(const config::Config& config, config::ImageFacts& facts) {
  if (const auto* const normalize = config::training_normalization(config))
    facts.normalize = *normalize;
  for (const char* const name : {"val", "train"}) {
    const auto found = config.data.find(name);
    if (facts.image_size || found == config.data.end() || found->second.combines_datasets())
      continue;
    const config::Transforms* const transforms = found->second.transforms();
    if (transforms == nullptr) continue;
    if (const auto* const resize = config::find_transform<config::Resize>(*transforms)) {
      facts.resize = resize->size;
      facts.interpolation = resize->interpolation;
    }
    if (const auto* const crop = config::find_transform<config::CenterCrop>(*transforms))
      facts.crop = crop->size;
    if (const auto* const crop = config::find_transform<config::RandomResizedCrop>(*transforms)) {
      facts.resize = {std::ranges::max(crop->size)};
      facts.crop = crop->size;
      facts.interpolation = crop->interpolation;
    }
    const std::vector<int64_t>& size = facts.crop.empty() ? facts.resize : facts.crop;
    if (!size.empty() && size.front() == size.back()) facts.image_size = size.front();
  }
}

// config.json, and for transformers preprocessor_config.json.
Status write_image_configs(const config::Config& config, ExportFormat format,
                           const checkpoint::TensorRangeSource& file, const NewFolder& folder) {
  const ImageModelShape shape = image_model_shape(file);
  config::ImageFacts facts{.num_classes = shape.outputs, .num_channels = shape.channels};
  add_preprocessing(config, facts);
  if (const auto* const vit = std::get_if<config::VitConfig>(&config.model.arch)) {
    if (vit->image_size && facts.image_size != vit->image_size) {
      facts.resize = {*vit->image_size, *vit->image_size};
      facts.crop.clear();
    }
    facts.image_size = vit->image_size;
  }
  if (format == ExportFormat::kTimm) {
    STOKER_ASSIGN_OR_RETURN(const std::string text,
                            config::format_timm_config(config.model.arch, facts));
    return folder.write("config.json", text + "\n");
  }
  STOKER_ASSIGN_OR_RETURN(const std::string text,
                          config::format_huggingface_config(
                              config.model.arch, {.num_labels = shape.outputs,
                                                  .problem_type = problem_type(config.task.name()),
                                                  .num_channels = shape.channels}));
  STOKER_RETURN_IF_ERROR(folder.write("config.json", text + "\n"));
  return folder.write("preprocessor_config.json", config::format_preprocessor_config(facts) + "\n");
}

// Text of a file for a line of Markdown.
std::string inline_code(const std::string& text) {
  std::string line = printable(text);
  std::erase(line, '`');
  return "`" + line + "`";
}

std::string pipeline_tag(const config::ModelConfig& model) {
  if (model.is_language_model()) return "\npipeline_tag: text-generation";
  if (config::is_image_model(model.arch)) return "\npipeline_tag: image-classification";
  const auto* const bert = std::get_if<config::BertConfig>(&model.arch);
  if (bert == nullptr) return {};
  return bert->pooling == config::BertPooling::kNone ? "\npipeline_tag: token-classification"
                                                     : "\npipeline_tag: text-classification";
}

std::string library_name(ExportFormat format) {
  switch (format) {
    case ExportFormat::kHuggingFace:
      return "transformers";
    case ExportFormat::kTimm:
      return "timm";
    case ExportFormat::kPeft:
      return "peft";
    case ExportFormat::kSafetensors:
    case ExportFormat::kTorch:
    case ExportFormat::kDcp:
      break;  // not a folder with a model card
  }
  return {};
}

}  // namespace

Result<NewFolder> NewFolder::create(std::string path) {
  while (path.ends_with('/')) path.pop_back();
  if (path.empty()) return Status(StatusCode::kInvalidArgument, "the folder has no name");
  if (std::filesystem::exists(std::filesystem::symlink_status(path)))
    return Status(StatusCode::kAlreadyExists,
                  path + ": already exists; remove it, or choose another name");
  std::string temporary = temporary_path(path);
  // Readable by all, like the files.
  STOKER_ASSIGN_OR_RETURN(DirectoryRoot root, DirectoryRoot::create(temporary, 0755));
  return NewFolder(std::move(path), std::move(temporary), std::move(root));
}

NewFolder::~NewFolder() {
  if (!temporary_.empty()) static_cast<void>(default_file_system().remove_tree(temporary_));
}

Status NewFolder::write(const std::string& name, const std::string& text) const {
  STOKER_ASSIGN_OR_RETURN(checkpoint::NewFile file,
                          checkpoint::NewFile::create(default_file_system(), *this / name));
  STOKER_RETURN_IF_ERROR(file.append(std::as_bytes(std::span(text))));
  return file.commit();
}

Status NewFolder::commit() {
  FileSystem& files = default_file_system();
  STOKER_RETURN_IF_ERROR(files.sync_directory(temporary_));
  STOKER_RETURN_IF_ERROR(files.rename_noreplace(temporary_, path_));
  temporary_.clear();
  const std::string parent = std::filesystem::path(path_).parent_path();
  return files.sync_directory(parent.empty() ? "." : parent);
}

Status write_model_files(const config::Config& config, ExportFormat format,
                         const checkpoint::Manifest& manifest,
                         const checkpoint::TensorRangeSource& file, const NewFolder& folder,
                         const Console& console) {
  assert(format == ExportFormat::kHuggingFace || format == ExportFormat::kTimm);
  if (config::is_image_model(config.model.arch))
    return write_image_configs(config, format, file, folder);
  STOKER_ASSIGN_OR_RETURN(const auto maybe_end_token,
                          write_tokenizer(config, manifest, folder, console));
  return write_configs(config, maybe_end_token, num_labels(file), folder);
}

std::string model_card(const config::Config& config, const run::RunLayout& layout,
                       const checkpoint::VerifiedCheckpoint& checkpoint, ExportContent content,
                       ExportFormat format) {
  const checkpoint::Manifest& manifest = checkpoint.manifest();
  std::string text = "---\nlibrary_name: " + library_name(format) + pipeline_tag(config.model) +
                     "\n---\n\n# " + inline_code(std::filesystem::path(layout.root()).filename()) +
                     "\n\nTrained by stoker " + manifest.stoker_version + " with LibTorch " +
                     manifest.torch_version + ".\n\n";
  const auto add = [&text](const std::string& what, const std::string& value) {
    text += "- " + what + ": " + value + "\n";
  };
  add("model", config.model.name());
  if (config.model.pretrained) add("started from", inline_code(config.model.pretrained->path));
  add("step", std::to_string(manifest.step) + " of " + std::to_string(config.train.max_steps));
  add("weights", content == ExportContent::kEma ? "averaged" : "trained");
  add("samples per step",
      std::to_string(config.train.micro_batch_size * config.train.gradient_accumulation_steps));
  add("optimizer", std::string(config::to_string(config.optimizer.name())) + ", learning rate " +
                       format_setting(config.optimizer.lr()));
  add("seed", std::to_string(config.run.seed));
  const auto result =
      run::find_eval_result(layout.eval_dir(), manifest.step, checkpoint.manifest_sha256());
  if (!result) return text;
  for (const run::DatasetResult& dataset : result->datasets)
    for (const auto& [metric, value] : dataset.metrics)
      add(metric + " of " + inline_code(dataset.dataset), format_shortest(value));
  return text;
}

}  // namespace stoker::ctl
