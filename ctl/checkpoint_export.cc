#include "ctl/checkpoint_export.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "ctl/run_locator.h"
#include "ctl/terminal.h"
#include "ctl/text_format.h"
#include "ctl/tokenizer_files.h"
#include "shared/base/file.h"
#include "shared/base/json_parser.h"
#include "shared/base/utf8.h"
#include "shared/checkpoint/export_tensors.h"
#include "shared/checkpoint/image_model_names.h"
#include "shared/checkpoint/peft.h"
#include "shared/checkpoint/store.h"
#include "shared/config/huggingface_config.h"
#include "shared/config/image_model_config.h"
#include "shared/config/load_config.h"
#include "shared/config/peft_config.h"
#include "shared/pretrained/merged_tensors.h"
#include "shared/pretrained/peft_settings.h"
#include "shared/pretrained/pretrained_file.h"
#include "shared/run/eval_result.h"

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

// A folder that appears with all of its files or not at all.
class NewFolder {
 public:
  static Result<NewFolder> create(std::string path) {
    while (path.ends_with('/')) path.pop_back();
    if (path.empty()) return Status(StatusCode::kInvalidArgument, "the folder has no name");
    if (std::filesystem::exists(std::filesystem::symlink_status(path)))
      return Status(StatusCode::kAlreadyExists,
                    path + ": already exists; remove it, or choose another name");
    NewFolder folder(path, temporary_path(path));
    // Readable by all, like the files.
    if (::mkdir(folder.temporary_.c_str(), 0755) != 0)
      return Status::from_errno(errno, "mkdir " + std::exchange(folder.temporary_, {}));
    return folder;
  }
  NewFolder(NewFolder&& other) noexcept
      : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, {})) {}
  NewFolder& operator=(NewFolder&&) = delete;
  ~NewFolder() {
    if (!temporary_.empty()) static_cast<void>(default_file_system().remove_tree(temporary_));
  }

  std::string operator/(const std::string& name) const { return join_path(temporary_, name); }
  Status write(const std::string& name, const std::string& text) const {
    STOKER_ASSIGN_OR_RETURN(checkpoint::NewFile file,
                            checkpoint::NewFile::create(default_file_system(), *this / name));
    STOKER_RETURN_IF_ERROR(file.append(std::as_bytes(std::span(text))));
    return file.commit();
  }
  Status commit() {
    FileSystem& files = default_file_system();
    STOKER_RETURN_IF_ERROR(files.sync_directory(temporary_));
    STOKER_RETURN_IF_ERROR(files.rename_noreplace(temporary_, path_));
    temporary_.clear();
    const std::string parent = std::filesystem::path(path_).parent_path();
    return files.sync_directory(parent.empty() ? "." : parent);
  }

 private:
  NewFolder(std::string path, std::string temporary)
      : path_(std::move(path)), temporary_(std::move(temporary)) {}

  std::string path_, temporary_;  // temporary_ is empty once committed
};

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

using Shapes = std::map<std::string, std::vector<int64_t>>;

void add_norm(Shapes& shapes, const std::string& name, int64_t width) {
  shapes[name + ".weight"] = shapes[name + ".bias"] = {width};
}
void add_linear(Shapes& shapes, const std::string& name, int64_t inputs, int64_t outputs) {
  shapes[name + ".weight"] = {outputs, inputs};
  shapes[name + ".bias"] = {outputs};
}

// The parameters of a model with these settings.
Shapes parameter_shapes(const config::Gpt2Config& gpt2) {
  const int64_t width = gpt2.embed_dim, mlp = gpt2.effective_mlp_dim(), vocab = *gpt2.vocab_size;
  Shapes shapes{{"tok.weight", {vocab, width}}, {"pos.weight", {gpt2.context_length, width}}};
  for (int64_t i = 0; i < gpt2.num_layers; ++i) {
    const std::string block = "blocks." + std::to_string(i) + ".";
    add_norm(shapes, block + "ln1", width);
    add_linear(shapes, block + "qkv", width, 3 * width);
    add_linear(shapes, block + "proj", width, width);
    add_norm(shapes, block + "ln2", width);
    add_linear(shapes, block + "up", width, mlp);
    add_linear(shapes, block + "down", mlp, width);
  }
  add_norm(shapes, "ln", width);
  if (!gpt2.tie_weights) shapes["head.weight"] = {vocab, width};
  return shapes;
}

Shapes parameter_shapes(const config::LlamaConfig& llama) {
  const int64_t width = llama.embed_dim, mlp = llama.effective_mlp_dim(),
                head = llama.effective_head_dim(), heads = llama.num_heads * head,
                groups = llama.effective_num_key_value_heads() * head, vocab = *llama.vocab_size;
  Shapes shapes{{"tok.weight", {vocab, width}}, {"ln.weight", {width}}};
  for (int64_t i = 0; i < llama.num_layers; ++i) {
    const std::string block = "blocks." + std::to_string(i) + ".";
    const auto add_linear = [&](const char* name, int64_t inputs, int64_t outputs, bool bias) {
      shapes[block + name + ".weight"] = {outputs, inputs};
      if (bias) shapes[block + name + ".bias"] = {outputs};
    };
    shapes[block + "ln1.weight"] = shapes[block + "ln2.weight"] = {width};
    if (llama.qk_norm) shapes[block + "q_norm.weight"] = shapes[block + "k_norm.weight"] = {head};
    add_linear("q", width, heads, llama.qkv_bias);
    add_linear("k", width, groups, llama.qkv_bias);
    add_linear("v", width, groups, llama.qkv_bias);
    add_linear("proj", heads, width, llama.proj_bias);
    for (const char* const name : {"gate", "up"}) add_linear(name, width, mlp, llama.mlp_bias);
    add_linear("down", mlp, width, llama.mlp_bias);
  }
  if (!llama.tie_weights) shapes["head.weight"] = {vocab, width};
  return shapes;
}

// `outputs`: of the last layer.
Shapes parameter_shapes(const config::BertConfig& bert, int64_t outputs) {
  const int64_t width = bert.embed_dim, mlp = bert.effective_mlp_dim();
  Shapes shapes{{"tok.weight", {bert.vocab_size, width}},
                {"pos.weight", {bert.context_length, width}},
                {"type.weight", {bert.num_token_types, width}}};
  add_norm(shapes, "embed_ln", width);
  for (int64_t i = 0; i < bert.num_layers; ++i) {
    const std::string block = "blocks." + std::to_string(i) + ".";
    for (const char* const name : {"q", "k", "v", "proj"})
      add_linear(shapes, block + name, width, width);
    add_norm(shapes, block + "ln1", width);
    add_linear(shapes, block + "up", width, mlp);
    add_linear(shapes, block + "down", mlp, width);
    add_norm(shapes, block + "ln2", width);
  }
  if (bert.pooling == config::BertPooling::kPooler) add_linear(shapes, "pooler", width, width);
  add_linear(shapes, "fc", width, outputs);
  return shapes;
}

// The number of outputs of a bert or an image model, of its tensors; 0: it has no output layer, or
// another model.
int64_t num_labels(const checkpoint::TensorRangeSource& file) {
  for (const char* const name : {"fc.bias", "heads.head.bias"})
    if (const TensorSpec* const bias = file.find(name); bias != nullptr && bias->shape.size() == 1)
      return bias->shape.front();
  return 0;
}

// `positions`: of the patches and the class token.
Shapes parameter_shapes(const config::VitConfig& vit, int64_t channels, int64_t positions,
                        int64_t outputs) {
  const int64_t width = vit.hidden_dim, mlp = vit.effective_mlp_dim();
  Shapes shapes{{"class_token", {1, 1, width}},
                {"encoder.pos_embedding", {1, positions, width}},
                {"conv_proj.weight", {width, channels, vit.patch_size, vit.patch_size}},
                {"conv_proj.bias", {width}}};
  for (int64_t i = 0; i < vit.num_layers; ++i) {
    const std::string block = "encoder.layers.encoder_layer_" + std::to_string(i) + ".";
    add_norm(shapes, block + "ln_1", width);
    shapes[block + "self_attention.in_proj_weight"] = {3 * width, width};
    shapes[block + "self_attention.in_proj_bias"] = {3 * width};
    add_linear(shapes, block + "self_attention.out_proj", width, width);
    add_norm(shapes, block + "ln_2", width);
    add_linear(shapes, block + "mlp.0", width, mlp);
    add_linear(shapes, block + "mlp.3", mlp, width);
  }
  add_norm(shapes, "encoder.ln", width);
  add_linear(shapes, "heads.head", width, outputs);
  return shapes;
}

// What the tensors of an image model show.
struct ImageShape {
  int64_t channels = 0, outputs = 0;
  int64_t positions = 0;  // of a vit
};

ImageShape image_shape(const checkpoint::TensorRangeSource& file) {
  ImageShape shape{.outputs = num_labels(file)};
  for (const char* const name : {"conv1.weight", "conv_proj.weight", "Conv2d_1a_3x3.conv.weight"})
    if (const TensorSpec* const first = file.find(name);
        first != nullptr && first->shape.size() == 4)
      shape.channels = first->shape[1];
  const TensorSpec* const positions = file.find("encoder.pos_embedding");
  if (positions != nullptr && positions->shape.size() == 3) shape.positions = positions->shape[1];
  return shape;
}

// Whether these tensors can be those of the settings; the names are compared when they are written.
bool is_layout_of(const checkpoint::TensorRangeSource& file, const config::ModelVariant& arch) {
  const auto has = [&](const std::string& name) { return file.find(name) != nullptr; };
  if (const auto* const inception = std::get_if<config::InceptionV3Config>(&arch))
    return has("Mixed_7c.branch_pool.conv.weight") &&
           has("AuxLogits.fc.weight") == inception->aux_logits;
  const auto* const resnet = std::get_if<config::ResnetConfig>(&arch);
  const auto* const layout =
      resnet == nullptr ? nullptr : config::find_resnet_layout(resnet->depth);
  if (layout == nullptr || has("layer1.0.conv3.weight") != layout->has_bottlenecks) return false;
  int stage = 0;
  return std::ranges::all_of(layout->blocks, [&](int64_t blocks) {
    const std::string prefix = "layer" + std::to_string(++stage) + ".", conv = ".conv1.weight";
    return has(prefix + std::to_string(blocks - 1) + conv) &&
           !has(prefix + std::to_string(blocks) + conv);
  });
}

// config.json describes the settings of the run, which can be others than those that the checkpoint
// was saved with. Sets vocab_size if the settings have null, and the image_size of a vit.
// kMismatch: the tensors are others.
Status check_settings(const checkpoint::TensorRangeSource& file, config::ModelVariant& arch) {
  const auto mismatch = [&](const std::string& is, const std::string& wanted) {
    return Status(StatusCode::kMismatch, "the checkpoint has " + is +
                                             ", but the model of the run's config.yaml has " +
                                             wanted +
                                             "; restore the settings that it was trained "
                                             "with");
  };
  const TensorSpec* const tokens = file.find("tok.weight");
  if (config::is_image_model(arch) && !std::holds_alternative<config::VitConfig>(arch))
    return is_layout_of(file, arch)
               ? Status()
               : mismatch("the tensors of another model", "those of model.name and its settings");
  const auto check_shapes = [&](Shapes wanted) -> Status {
    for (const TensorSpec& spec : file.tensors()) {
      const auto found = wanted.find(spec.name);
      if (found == wanted.end()) return mismatch(to_string(spec), "no such tensor");
      if (found->second != spec.shape)
        return mismatch(to_string(spec),
                        to_string(TensorSpec{spec.name, spec.dtype, found->second}));
      wanted.erase(found);
    }
    return wanted.empty() ? Status() : mismatch("no " + wanted.begin()->first, "one");
  };
  if (auto* const vit = std::get_if<config::VitConfig>(&arch)) {
    const ImageShape shape = image_shape(file);
    const auto patches = static_cast<double>(std::max<int64_t>(shape.positions - 1, 0));
    const auto side = static_cast<int64_t>(std::sqrt(patches));
    vit->image_size = side * vit->patch_size;
    return check_shapes(parameter_shapes(*vit, shape.channels, side * side + 1, shape.outputs));
  }
  if (tokens == nullptr || tokens->shape.size() != 2)
    return mismatch(tokens == nullptr ? "no tok.weight" : to_string(*tokens),
                    "a tok.weight of 2 dimensions");
  const auto check = [&](auto& model) -> Status {
    if (!model.vocab_size) model.vocab_size = tokens->shape.front();
    return check_shapes(parameter_shapes(model));
  };
  if (const auto* const bert = std::get_if<config::BertConfig>(&arch))
    return check_shapes(parameter_shapes(*bert, num_labels(file)));
  if (auto* const gpt2 = std::get_if<config::Gpt2Config>(&arch)) return check(*gpt2);
  if (auto* const llama = std::get_if<config::LlamaConfig>(&arch)) return check(*llama);
  return {};
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
    if (const auto* const resize = config::find_transform<config::Resize>(*transforms))
      facts.resize = resize->size;
    if (const auto* const crop = config::find_transform<config::CenterCrop>(*transforms))
      facts.crop = crop->size;
    if (const auto* const crop = config::find_transform<config::RandomResizedCrop>(*transforms)) {
      facts.resize = {std::ranges::max(crop->size)};
      facts.crop = crop->size;
    }
    const std::vector<int64_t>& size = facts.crop.empty() ? facts.resize : facts.crop;
    if (!size.empty() && size.front() == size.back()) facts.image_size = size.front();
  }
}

// config.json, and for transformers preprocessor_config.json.
Status write_image_configs(const config::Config& config, ExportFormat format,
                           const checkpoint::TensorRangeSource& file, const NewFolder& folder) {
  const ImageShape shape = image_shape(file);
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

std::string model_card(const config::Config& config, const run::RunLayout& layout,
                       const VerifiedCheckpoint& checkpoint, ExportContent content,
                       const std::string& library) {
  const checkpoint::Manifest& manifest = checkpoint.manifest();
  std::string text = "---\nlibrary_name: " + library + pipeline_tag(config.model) + "\n---\n\n# " +
                     inline_code(std::filesystem::path(layout.root()).filename()) +
                     "\n\nTrained by stoker " + manifest.stoker_version + " with LibTorch " +
                     manifest.torch_version + ".\n\n";
  const auto add = [&text](const std::string& what, const std::string& value) {
    text += "- " + what + ": " + value + "\n";
  };
  add("model", config.model.name());
  if (config.model.pretrained) add("started from", inline_code(config.model.pretrained->path));
  add("step", std::to_string(manifest.step) + " of " + std::to_string(config.train.max_steps));
  add("weights", content == ExportContent::kEma ? "averaged (`train.ema_decay`)" : "trained");
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

void warn_if_changed(const config::Config& config, const run::RunLayout& layout,
                     const VerifiedCheckpoint& verified, const Console& console) {
  if (verified.manifest().config_digest != config::digest(config))
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
  STOKER_RETURN_IF_ERROR(check_settings(*open.files.front(), config.model.arch));
  const checkpoint::TensorRangeSource& file = *open.files.front();
  if (config::is_image_model(config.model.arch)) {
    STOKER_RETURN_IF_ERROR(write_image_configs(config, format, file, folder));
  } else {
    STOKER_ASSIGN_OR_RETURN(const auto maybe_end_token,
                            write_tokenizer(config, verified.manifest(), folder, console));
    STOKER_RETURN_IF_ERROR(write_configs(config, maybe_end_token, num_labels(file), folder));
  }
  rename_tensors(config.model, format, open);
  if (request.dry_run) return planned(entry, path, open);
  STOKER_ASSIGN_OR_RETURN(
      checkpoint::NewFile out,
      checkpoint::NewFile::create(default_file_system(), folder / "model.safetensors"));
  STOKER_RETURN_IF_ERROR(write_tensors(open, format, entry.step, path, out, console, clock));
  STOKER_RETURN_IF_ERROR(folder.write(
      "README.md",
      model_card(config, layout, verified, request.content, is_timm ? "timm" : "transformers")));
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
  STOKER_RETURN_IF_ERROR(
      folder.write("README.md", model_card(config, layout, verified, request.content, "peft")));
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

std::string render_export(const Exported& exported) {
  return "step " + format_count(exported.step) + ": " + format_count(exported.tensors) +
         " tensors, " + format_bytes(exported.bytes) +
         (exported.is_dry_run ? ", would be written to " : ", in ") + printable(exported.path) +
         "\n";
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
