#include "shared/checkpoint/huggingface.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include <boost/json/object.hpp>

#include "shared/base/file.h"
#include "shared/base/glob.h"
#include "shared/base/json_parser.h"
#include "shared/base/utf8.h"
#include "shared/checkpoint/safetensors.h"
#include "shared/checkpoint/torch_file.h"

namespace stoker::checkpoint {
namespace {

// Names of the files of a format, of which transformers reads the first that a folder has.
struct FolderFormat {
  std::string_view whole;   // one file with all tensors
  std::string_view index;   // names the files that the tensors are divided into
  std::string_view shards;  // glob of their usual names
  std::string_view ending;
};
constexpr std::array<FolderFormat, 2> kFolderFormats{
    {{"model.safetensors", "model.safetensors.index.json", "model-*-of-*.safetensors",
      ".safetensors"},
     {"pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*-of-*.bin", ".bin"}}};
constexpr uint64_t kMaxIndexBytes = uint64_t{16} << 20;
constexpr size_t kMaxShards = 1000;  // open files

bool file_exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

class FolderTensors final : public TensorSource {
 public:
  void add(const TensorSpec& spec, const TensorSource* shard) {
    index_.emplace(spec.name, specs_.size());
    specs_.push_back(spec);
    shard_of_.push_back(shard);
  }
  const TensorSource* add_shard(std::unique_ptr<TensorSource> shard) {
    shards_.push_back(std::move(shard));
    return shards_.back().get();
  }

  const std::vector<TensorSpec>& tensors() const override { return specs_; }
  const TensorSpec* find(const std::string& name) const override {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &specs_[found->second];
  }
  Status read(const std::string& name, std::span<std::byte> out) const override {
    const auto found = index_.find(name);
    if (found == index_.end())
      return Status(StatusCode::kNotFound, name + ": is not in the folder");
    return shard_of_[found->second]->read(name, out);
  }

 private:
  std::vector<std::unique_ptr<TensorSource>> shards_;
  std::vector<TensorSpec> specs_;
  std::vector<const TensorSource*> shard_of_;  // of specs_[i]
  std::unordered_map<std::string, size_t> index_;
};

using WeightMap = std::map<std::string, std::string>;  // tensor -> file

Status corrupt_folder(const std::string& path, const std::string& what) {
  return Status(StatusCode::kCorrupt, path + ": " + what);
}

// A name of a file of the folder itself. Links are followed: the cache of Hugging Face has them.
bool is_shard_name(const std::string& name, const FolderFormat& format) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos &&
         printable(name) == name && name.ends_with(format.ending);
}

Result<WeightMap> read_index(const std::string& path, const FolderFormat& format) {
  STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxIndexBytes));
  STOKER_ASSIGN_OR_RETURN(WeightMap weights,
                          parse_json_object<WeightMap>(text, path, [](const auto& object) {
                            WeightMap map;
                            for (const auto& [name, file] : object.at("weight_map").as_object())
                              map[std::string(name)] = std::string(file.as_string());
                            return map;
                          }));
  if (weights.empty()) return corrupt_folder(path, "weight_map is empty");
  for (const auto& [name, file] : weights)
    if (!is_shard_name(file, format))
      return corrupt_folder(path, "tensor " + quote_for_message(name) + " is in " +
                                      quote_for_message(file) + ", which is not a " +
                                      std::string(format.ending) + " file of this folder");
  return weights;
}

// Files that are named like shards but that the index does not name.
Status check_all_named(const std::string& path, const FolderFormat& format,
                       const std::map<std::string, const TensorSource*>& named) {
  const NameGlob shards(format.shards);
  STOKER_ASSIGN_OR_RETURN(const auto files, list_directory(path));
  for (const std::string& file : files)
    if (shards.matches(file) && !named.contains(file))
      return corrupt_folder(join_path(path, file), "is not in " + std::string(format.index) +
                                                       "; remove it if it is of another model");
  return {};
}

Result<std::unique_ptr<TensorSource>> open_shards(const std::string& path,
                                                  const FolderFormat& format) {
  const std::string index_name(format.index);
  const std::string index = join_path(path, index_name);
  STOKER_ASSIGN_OR_RETURN(const WeightMap weights, read_index(index, format));
  auto tensors = std::make_unique<FolderTensors>();
  std::map<std::string, const TensorSource*> shards;
  for (const auto& [name, file] : weights) {
    if (shards.contains(file)) continue;
    if (shards.size() == kMaxShards)
      return corrupt_folder(index, "names more than " + std::to_string(kMaxShards) + " files");
    const std::string shard = join_path(path, file);
    auto opened = open_tensor_file(shard);
    if (opened.status().code() == StatusCode::kNotFound)
      return Status(StatusCode::kNotFound, shard + ": does not exist, but " + index_name +
                                               " has tensors in it; download it");
    if (!opened.ok()) return opened.status();
    shards[file] = tensors->add_shard(*std::move(opened));
  }
  STOKER_RETURN_IF_ERROR(check_all_named(path, format, shards));
  for (const auto& [file, shard] : shards) {
    for (const TensorSpec& spec : shard->tensors()) {
      const auto found = weights.find(spec.name);
      if (found == weights.end())
        return corrupt_folder(join_path(path, file),
                              "tensor '" + spec.name + "' is not in " + index_name);
      if (found->second != file)
        return corrupt_folder(
            join_path(path, file),
            "tensor '" + spec.name + "' is in " + found->second + " according to " + index_name);
      tensors->add(spec, shard);
    }
  }
  for (const auto& [name, file] : weights)
    if (tensors->find(name) == nullptr)
      return corrupt_folder(index, "tensor " + quote_for_message(name) + " is not in " + file);
  return std::unique_ptr<TensorSource>(std::move(tensors));
}

// ---- Names

using Module = HuggingFaceNames::Module;

constexpr std::array kGpt2Modules{
    Module{"tok", "wte"},
    Module{"pos", "wpe"},
    Module{"blocks.*.ln1", "h.*.ln_1"},
    Module{"blocks.*.qkv", "h.*.attn.c_attn", true},
    Module{"blocks.*.proj", "h.*.attn.c_proj", true},
    Module{"blocks.*.ln2", "h.*.ln_2"},
    Module{"blocks.*.up", "h.*.mlp.c_fc", true},
    Module{"blocks.*.down", "h.*.mlp.c_proj", true},
    Module{"ln", "ln_f"},
};
constexpr std::array<std::string_view, 2> kGpt2Ignored{"h.*.attn.bias", "h.*.attn.masked_bias"};

constexpr std::array kLlamaModules{
    Module{"tok", "embed_tokens"},
    Module{"blocks.*.ln1", "layers.*.input_layernorm"},
    Module{"blocks.*.q", "layers.*.self_attn.q_proj"},
    Module{"blocks.*.k", "layers.*.self_attn.k_proj"},
    Module{"blocks.*.v", "layers.*.self_attn.v_proj"},
    Module{"blocks.*.q_norm", "layers.*.self_attn.q_norm"},
    Module{"blocks.*.k_norm", "layers.*.self_attn.k_norm"},
    Module{"blocks.*.proj", "layers.*.self_attn.o_proj"},
    Module{"blocks.*.ln2", "layers.*.post_attention_layernorm"},
    Module{"blocks.*.gate", "layers.*.mlp.gate_proj"},
    Module{"blocks.*.up", "layers.*.mlp.up_proj"},
    Module{"blocks.*.down", "layers.*.mlp.down_proj"},
    Module{"ln", "norm"},
};
constexpr std::array<std::string_view, 2> kLlamaIgnored{"layers.*.self_attn.rotary_emb.inv_freq",
                                                        "rotary_emb.inv_freq"};

// A pattern that others include follows them: * matches dots, too.
constexpr std::array kBertModules{
    Module{"tok", "embeddings.word_embeddings"},
    Module{"pos", "embeddings.position_embeddings"},
    Module{"type", "embeddings.token_type_embeddings"},
    Module{"embed_ln", "embeddings.LayerNorm"},
    Module{"blocks.*.q", "encoder.layer.*.attention.self.query"},
    Module{"blocks.*.k", "encoder.layer.*.attention.self.key"},
    Module{"blocks.*.v", "encoder.layer.*.attention.self.value"},
    Module{"blocks.*.proj", "encoder.layer.*.attention.output.dense"},
    Module{"blocks.*.ln1", "encoder.layer.*.attention.output.LayerNorm"},
    Module{"blocks.*.up", "encoder.layer.*.intermediate.dense"},
    Module{"blocks.*.down", "encoder.layer.*.output.dense"},
    Module{"blocks.*.ln2", "encoder.layer.*.output.LayerNorm"},
    Module{"pooler", "pooler.dense"},
    Module{.name = "fc", .theirs = "classifier", .has_prefix = false},
};
// Its positions, and the output layers of the pretraining.
constexpr std::array<std::string_view, 2> kBertIgnored{"embeddings.position_ids", "cls.*"};

// In the files of the first BERTs, and their names today.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kEarlyParameters{
    {{"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}}};

constexpr std::string_view kTheirHead = "lm_head.weight";  // without prefix

struct SplitName {
  std::string_view module, parameter;  // "h.0.attn.c_attn", "weight"
};
// Of modules of a table; the last three are buffers of batch norms.
constexpr std::array<std::string_view, 5> kParameters{"weight", "bias", "running_mean",
                                                      "running_var", "num_batches_tracked"};
std::optional<SplitName> split_name(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const SplitName split{name.substr(0, dot), name.substr(dot + 1)};
  if (std::ranges::count(kParameters, split.parameter) == 0) return std::nullopt;
  return split;
}

}  // namespace

Result<std::unique_ptr<TensorSource>> open_huggingface_folder(const std::string& path) {
  std::string names;
  for (const FolderFormat& format : kFolderFormats) {
    const std::string whole = join_path(path, format.whole);
    const bool has_index = file_exists(join_path(path, format.index));
    if (has_index && file_exists(whole))
      return corrupt_folder(path, "has " + std::string(format.whole) + " and " +
                                      std::string(format.index) +
                                      "; remove the one that is not of this model");
    if (has_index) return open_shards(path, format);
    if (file_exists(whole)) return open_tensor_file(whole);
    names +=
        (names.empty() ? "" : ", ") + std::string(format.whole) + ", " + std::string(format.index);
  }
  return Status(StatusCode::kNotFound, path + ": has none of " + names);
}

const HuggingFaceNames* HuggingFaceNames::find(std::string_view model_name) {
  static const HuggingFaceNames kGpt2("transformer.", kGpt2Modules, kGpt2Ignored);
  static const HuggingFaceNames kLlama("model.", kLlamaModules, kLlamaIgnored);
  static const HuggingFaceNames kBert("bert.", kBertModules, kBertIgnored);
  if (model_name == "gpt2") return &kGpt2;
  if (model_name == "bert") return &kBert;
  if (model_name == "llama") return &kLlama;
  return nullptr;
}

std::optional<HuggingFaceNames::Name> HuggingFaceNames::translate(
    std::string_view name, std::string_view Module::*from, std::string_view Module::*to) const {
  const auto split = split_name(name);
  for (const Module& module : modules_) {
    if (!module.is_tensor && !split) continue;
    const auto parts = NameGlob(module.*from).match_parts(module.is_tensor ? name : split->module);
    if (!parts) continue;
    std::string renamed = expand_wildcards(module.*to, *parts);
    if (module.is_tensor) return Name{std::move(renamed)};
    return Name{std::move(renamed) + '.' + std::string(split->parameter),
                module.is_transposed && split->parameter == "weight"};
  }
  return std::nullopt;
}

std::optional<HuggingFaceNames::Name> HuggingFaceNames::to_stoker(std::string_view theirs) const {
  if (theirs == kTheirHead) return Name{std::string(kHeadWeight)};
  for (const auto& [early, later] : kEarlyParameters)
    if (theirs.ends_with(early))
      return to_stoker(std::string(theirs.substr(0, theirs.size() - early.size())) +
                       std::string(later));
  return translate(without_prefix(theirs), &Module::theirs, &Module::name);
}

std::optional<HuggingFaceNames::Name> HuggingFaceNames::from_stoker(std::string_view name) const {
  if (name == kHeadWeight) return Name{std::string(kTheirHead)};
  auto theirs = translate(name, &Module::name, &Module::theirs);
  const auto split = theirs ? split_name(theirs->name) : std::nullopt;
  const bool has_prefix = theirs && std::ranges::none_of(modules_, [&](const Module& module) {
                            return !module.has_prefix && split && module.theirs == split->module;
                          });
  if (has_prefix) theirs->name.insert(0, prefix_);
  return theirs;
}

bool HuggingFaceNames::is_ignored(std::string_view theirs) const {
  return std::ranges::any_of(ignored_, [&](std::string_view pattern) {
    return NameGlob(pattern).matches(without_prefix(theirs));
  });
}

}  // namespace stoker::checkpoint
