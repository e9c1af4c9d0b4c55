#include "tests/shared/config/random_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "shared/config/run_metrics.h"

namespace stoker::config::test {
namespace {

// Texts that YAML parsers can interpret as something else.
constexpr std::array kTexts{
    "a",  "runs/x", "a b",   "~",  "null", "true", "off",   "No",      "1",    "1e5",
    "0x", "-",      "- a",   "[a", "{a}",  "#a",   "a #b",  "a:",      "a: b", "&a",
    "*a", "!a",     "|",     ">",  "'",    "''",   "\"",    "a\\",     "\\x",  "%a",
    "@a", "`a",     "?",     ", ", " a ",  "Ü",    "日本",  "😀",       "---",  "...",
    "=",  "<<",     "x\"y'", "*",  ".5",   "+1",   "NULL ", "\u0085b", "_",    "2020-01-01"};

class Filler {
 public:
  explicit Filler(std::mt19937_64& random) : random_(random) {}

  void fill(const std::vector<Field>& fields) {
    for (const Field& field : fields) fill(field);
  }
  void fill(const Field& field) {
    std::visit([&](const auto& target) { fill(field, target); }, field.target);
  }

  uint64_t below(uint64_t end) { return random_() % end; }
  bool coin() { return below(2) == 0; }
  // Greater than 0, up to 1.
  double fraction() { return std::uniform_real_distribution<double>(1e-9, 1.0)(random_); }
  std::string text() { return kTexts[below(kTexts.size())]; }

 private:
  double number(const Field& field) {
    if (field.min == std::numeric_limits<double>::lowest()) return fraction() - 0.5;
    const double room = std::min(field.max - field.min, 1e6);
    const bool is_small = below(3) == 0;
    const double value = field.min + fraction() * (is_small ? std::min(room, 1e-6) : room);
    const double rounded = std::ceil(value);
    return below(3) == 0 && rounded <= field.max ? rounded : value;
  }

  void fill(const Field& field, double* target) { *target = number(field); }
  template <typename Integer>
  requires std::is_integral_v<Integer>
  void fill(const Field& field, Integer* target) {
    *target = static_cast<Integer>(std::floor(number(field)));
  }
  void fill(const Field&, bool* target) { *target = coin(); }
  void fill(const Field&, std::string* target) { *target = text(); }
  void fill(const Field&, DeviceConfig* target) {
    *target = *parse_device(coin() ? "cuda:3" : "cpu");
  }
  template <typename T>
  void fill(const Field& field, std::optional<T>* target) {
    target->reset();
    if (below(3) != 0) fill(field, &target->emplace());
  }
  template <typename T>
  void fill(const Field& field, std::vector<T>* target) {
    std::vector<T> list(below(4) + (field.is_required ? 1 : 0));
    for (T& item : list) fill(field, &item);
    *target = std::move(list);
  }
  void fill(const Field&, const EnumField& target) {
    target.set(target.target, below(target.words.size()));
  }
  void fill(const Field& field, const NumbersOrKeyword& target) {
    fill(field, target.numbers);
    *target.is_keyword = coin();
    if (*target.is_keyword) target.numbers->clear();
  }
  // For texts only: separate tests cover other values.
  void fill(const Field&, const UntypedMapField& target) {
    std::string value = text();
    for (size_t at = 0; (at = value.find_first_of("\"\\", at)) != std::string::npos; at += 2)
      value.insert(at, 1, '\\');
    *target.json = R"({"key": ")" + value + R"("})";
  }
  void fill(const Field& field, const SharesField& target) {
    target.shares->clear();
    for (uint64_t i = 0; i < 1 + below(3); ++i)
      target.shares->emplace_back("d" + std::to_string(i), number(field));
  }
  void fill(const Field&, const TaggedMapField& target) {
    const TaggedListField& values = target.values;
    values.clear(values.target);
    for (size_t i = 0; i < below(3); ++i) {
      values.add(values.target, below(values.names.size()));
      target.pattern(values.target, i) = text() + std::to_string(i);
      fill(values.fields(values.target, i));
    }
  }
  void fill(const Field&, const MappingField& target) {
    const bool is_set = !target.is_optional || coin();
    target.reset(target.target, is_set);
    if (is_set) fill(target.fields(target.target));
  }
  void fill(const Field&, const ListField& target) {
    target.resize(target.target, 0);
    target.resize(target.target, below(3));
    for (size_t i = 0; i < target.size(target.target); ++i) fill(target.fields(target.target, i));
  }
  void fill(const Field& field, const TaggedListField& target) {
    target.clear(target.target);
    const bool may_be_empty = !field.is_required;
    if (depth_ == 3 && may_be_empty) return;  // layers contain layers, so the depth is limited
    ++depth_;
    const size_t count = (may_be_empty ? 0 : 1) + (depth_ < 3 ? below(3) : 0);
    for (size_t i = 0; i < count; ++i) {
      // No residual, the last layer type, below the third level.
      const size_t names = target.names.size() - (depth_ >= 3 ? 1 : 0);
      target.add(target.target, below(names));
      fill(target.fields(target.target, i));
    }
    --depth_;
  }

  std::mt19937_64& random_;
  int depth_ = 0;
};

// Selects a random variant of the section among [first, last], and fills its fields.
void fill_section(Config& config, const std::string& key, Filler& filler, size_t first = 0,
                  size_t last = std::string::npos) {
  const auto find = [&] {
    for (Section& section : all_sections(config))
      if (section.key == key) return std::move(section);
    return Section();
  };
  Section section = find();
  if (!section.variants.names.empty()) {
    last = std::min(last, section.variants.names.size() - 1);
    section.variants.select(first + filler.below(last - first + 1));
    section = find();
  }
  filler.fill(section.fields);
}

// ---- model, task ---------------------------------------------------------------------------------

void fix_weights(std::vector<double>& weights) {
  if (!weights.empty()) weights.front() = 1;
}

void fill_task(Config& config, Filler& filler) {
  const ModelVariant& arch = config.model.arch;
  const bool has_steps =
      std::holds_alternative<BertConfig>(arch) || std::holds_alternative<BlstmConfig>(arch) ||
      std::holds_alternative<SequentialConfig>(arch) || config.model.is_user_file();
  if (config.model.is_language_model())
    fill_section(config, "task", filler, 0, 0);
  else if (std::holds_alternative<CaptionerConfig>(arch))
    fill_section(config, "task", filler, 7, 7);
  else if (config.model.has_loss() && filler.coin())
    fill_section(config, "task", filler, 8, 8);
  else
    fill_section(config, "task", filler, 1, has_steps ? 6 : 4);
  if (auto* const blstm = std::get_if<BlstmConfig>(&config.model.arch)) {
    const bool is_per_step = config.task.has_per_step_labels();
    blstm->pooling = is_per_step ? Pooling::kNone : filler.coin() ? Pooling::kLast : Pooling::kMean;
  }
  if (auto* const bert = std::get_if<BertConfig>(&config.model.arch)) {
    const bool is_per_step = config.task.has_per_step_labels();
    bert->pooling = is_per_step     ? BertPooling::kNone
                    : filler.coin() ? BertPooling::kPooler
                                    : BertPooling::kMean;
  }
  if (config.task.name() == TaskName::kBinaryClassification)
    config.model.num_classes = 1;
  else if (config.task.has_classes() && config.model.num_classes)
    ++*config.model.num_classes;
  if (auto* const task = std::get_if<ClassificationTask>(&config.task.task))
    fix_weights(task->class_weights.values);
  if (auto* const task = std::get_if<SequenceLabelingTask>(&config.task.task))
    fix_weights(task->class_weights);
  if (auto* const task = std::get_if<MultilabelClassificationTask>(&config.task.task))
    fix_weights(task->pos_weight);
}

// The bounds of an initialization must be increasing.
void fix_init(std::vector<InitRule>& rules) {
  for (InitRule& rule : rules)
    std::visit(
        [](auto& init) {
          if constexpr (requires { init.b; }) init.b = init.a + 1;
        },
        rule.value);
}

void fill_model(Config& config, Filler& filler) {
  fill_section(config, "model", filler);
  fix_init(config.model.init);
  ModelVariant& arch = config.model.arch;
  const auto heads = static_cast<int64_t>(1 + filler.below(16));
  const auto width = heads * static_cast<int64_t>(1 + filler.below(100));
  if (auto* const gpt = std::get_if<GptConfig>(&arch))
    gpt->num_heads = heads, gpt->embed_dim = width, gpt->vocab_size = 256 + filler.below(1000);
  if (auto* const gpt2 = std::get_if<Gpt2Config>(&arch))
    gpt2->num_heads = heads, gpt2->embed_dim = width, gpt2->vocab_size = 256 + filler.below(1000);
  if (auto* const llama = std::get_if<LlamaConfig>(&arch)) {
    llama->num_heads = heads, llama->embed_dim = 2 * width;
    llama->vocab_size = 256 + filler.below(1000);
    if (llama->pad_token) llama->pad_token = *llama->pad_token % *llama->vocab_size;
    if (llama->num_key_value_heads) llama->num_key_value_heads = filler.coin() ? 1 : heads;
    if (llama->head_dim) llama->head_dim = 2 * static_cast<int64_t>(1 + filler.below(100));
    if (auto& scaling = llama->rope_scaling)
      scaling->low_freq_factor /= 2, scaling->high_freq_factor = 1 + scaling->low_freq_factor;
  }
  if (auto* const lstm = std::get_if<LstmLmConfig>(&arch))
    lstm->vocab_size = 256 + filler.below(1000);
  if (auto* const blstm = std::get_if<BlstmConfig>(&arch)) blstm->vocab_size += 256;
  if (auto* const bert = std::get_if<BertConfig>(&arch)) {
    bert->num_heads = heads, bert->embed_dim = width, bert->vocab_size += 256;
    if (bert->pad_token) bert->pad_token = *bert->pad_token % bert->vocab_size;
    if (bert->sep_token) bert->sep_token = *bert->sep_token % bert->vocab_size;
    bert->context_length = 1000;  // not below the max_length of the data
  }
  if (auto* const vit = std::get_if<VitConfig>(&arch); vit != nullptr && vit->preset.empty())
    vit->num_heads = heads, vit->hidden_dim = width;
  if (auto* const captioner = std::get_if<CaptionerConfig>(&arch)) {
    captioner->decoder.num_heads = heads, captioner->decoder.hidden_size = width;
    if (!captioner->has_blocks()) captioner->activation_checkpointing = false;
  }
  if (!config.model.supports_layer_decay()) config.optimizer.layer_decay.reset();
  if (!config.model.supports_lora() || !config.model.pretrained) config.model.lora.reset();
  if (config.model.lora) config.model.lora->target_modules.emplace_back("all-linear");
  if (config.model.freeze.empty()) config.model.unfreeze_at_step.reset();
  if (auto* const sequential = std::get_if<SequentialConfig>(&arch)) {
    const Layer first = filler.coin() ? Layer(FlattenLayer()) : Layer(EmbeddingLayer{300, 8});
    sequential->layers.insert(sequential->layers.begin(), first);
  }
  if (config.model.pretrained)
    for (KeyMapping& rule : config.model.pretrained->key_mapping) rule.from += std::string(8, '*');
  fill_task(config, filler);
  if (!config.model.has_loss()) return;
  config.model.init.clear();
  if (config.task.name() != TaskName::kBinaryClassification) config.model.num_classes.reset();
  const auto name = static_cast<size_t>(config.task.name());
  task_section(config.task).variants.select(name);  // the defaults: the loss is the model's
}

// ---- data ----------------------------------------------------------------------------------------

Transforms random_transforms(bool are_encoded, const std::optional<Normalize>& normalize,
                             Filler& filler) {
  Transforms transforms;
  const double from = filler.fraction() / 2;
  if (are_encoded) {
    switch (filler.below(3)) {
      case 0:
        transforms.emplace_back(Resize{{8, 9}});
        break;
      case 1:
        transforms.emplace_back(Resize{{16}});
        transforms.emplace_back(CenterCrop{{16, 9}});
        break;
      default:
        transforms.emplace_back(RandomResizedCrop{
            {7}, {from, from + filler.fraction() / 2}, {from, from + filler.fraction()}});
    }
  }
  if (filler.coin()) transforms.emplace_back(RandomCrop{{8, 9}, 2});
  if (filler.coin()) transforms.emplace_back(RandomHorizontalFlip{filler.fraction()});
  if (filler.coin())
    transforms.emplace_back(
        ColorJitter{filler.fraction(), filler.fraction(), 0, filler.fraction() / 2});
  if (filler.coin())
    transforms.emplace_back(RandomAffine{.degrees = {from, from + 3},
                                         .translate = {from, filler.fraction()},
                                         .shear = {-from, from, -1, 1}});
  if (filler.coin())
    transforms.emplace_back(RandAugment{.magnitude = static_cast<int64_t>(filler.below(9)),
                                        .fill = {static_cast<double>(filler.below(256))}});
  if (filler.coin()) transforms.emplace_back(RandomErasing{.p = filler.fraction()});
  if (filler.coin())
    transforms.emplace_back(GaussianBlur{.kernel_size = 3, .sigma = {filler.fraction()}});
  const std::vector<Transform> others{
      RandomVerticalFlip{filler.fraction()},
      RandomRotation{.degrees = {filler.fraction()}},
      RandomPerspective{.distortion_scale = filler.fraction()},
      RandomGrayscale{filler.fraction()},
      RandomInvert{filler.fraction()},
      RandomPosterize{.bits = static_cast<int64_t>(filler.below(9)), .p = filler.fraction()},
      RandomSolarize{.threshold = filler.fraction()},
      RandomAdjustSharpness{.sharpness_factor = filler.fraction()},
      RandomAutocontrast{filler.fraction()},
      RandomEqualize{filler.fraction()},
      TrivialAugmentWide{.num_magnitude_bins = 2 + static_cast<int64_t>(filler.below(30))},
      AutoAugment{.policy = filler.coin() ? AugmentPolicy::kCifar10 : AugmentPolicy::kSvhn},
      AugMix{.severity = 1 + static_cast<int64_t>(filler.below(10)),
             .fill = {static_cast<double>(filler.below(256))}}};
  if (filler.coin()) transforms.push_back(others[filler.below(others.size())]);
  if (normalize) transforms.emplace_back(*normalize);
  return transforms;
}

// The formats that can train a model with or without tokens.
DatasetFormat random_format(bool has_tokens, Filler& filler) {
  constexpr std::array kOfTokens{DatasetFormat::kText, DatasetFormat::kTokens,
                                 DatasetFormat::kTfrecord, DatasetFormat::kWebdataset,
                                 DatasetFormat::kJsonl};
  if (has_tokens) return kOfTokens[filler.below(kOfTokens.size())];
  return static_cast<DatasetFormat>(2 + filler.below(kWords<DatasetFormat>.size() - 2));
}

class DatasetFiller {
 public:
  DatasetFiller(const Config& config, bool has_tokens, std::optional<Normalize> normalize,
                Filler& filler)
      : config_(config),
        has_tokens_(has_tokens),
        normalize_(std::move(normalize)),
        filler_(filler) {}

  DatasetConfig make() {
    DatasetConfig dataset;
    constexpr std::array kOfCaptions{DatasetFormat::kImageList, DatasetFormat::kTfrecord,
                                     DatasetFormat::kWebdataset};
    const DatasetFormat format = captioner() != nullptr ? kOfCaptions[filler_.below(3)]
                                                        : random_format(has_tokens_, filler_);
    dataset_section("x", dataset).variants.select(static_cast<size_t>(format));
    filler_.fill(dataset_section("x", dataset).fields);
    const double from = filler_.fraction() / 2;
    dataset.split = {from, from + filler_.fraction() / 2};
    if (dataset.split_by == SplitBy::kGroup) dataset.split_by = SplitBy::kStratified;
    dataset.batch_transforms.clear();
    dataset.stream.reset();  // a run has one, in data.train, and it excludes most other keys
    if (!dataset.sample_weights_path.empty()) dataset.repeat = 1;
    can_pack_ = is_decoder() && dataset.sample_weights_path.empty();
    std::visit([this](auto& each) { fix(each); }, dataset.source);
    std::visit(
        [](auto& each) {
          if constexpr (requires { each.refresh; }) each.refresh = Refresh::kNever;
        },
        dataset.source);
    fix_groups(dataset);
    return dataset;
  }

 private:
  void fix_groups(DatasetConfig& dataset) {
    auto* const fields = const_cast<FieldNames*>(dataset.fields());
    if (fields == nullptr) return;
    fields->group = filler_.coin() ? filler_.text() + "g" : "";
    if (!fields->group.empty()) dataset.split_by = SplitBy::kGroup;
  }
  int64_t block_size() {
    const int64_t context = config_.model.context_length().value_or(100);
    return 1 + static_cast<int64_t>(filler_.below(static_cast<uint64_t>(context)));
  }

  const CaptionerConfig* captioner() const {
    return std::get_if<CaptionerConfig>(&config_.model.arch);
  }
  void fix_captions(FieldNames& fields, SequenceConfig& sequence,
                    std::optional<TokenizerConfig>& tokenizer,
                    std::optional<int64_t>& num_classes) {
    sequence = {};
    tokenizer.reset();
    fields.caption.clear();
    if (captioner() == nullptr) return;
    fields = {.image = filler_.text() + 'x', .caption = filler_.text() + 'y'};
    sequence.max_captions = 1 + static_cast<int64_t>(filler_.below(9));
    sequence.max_label_length = captioner()->max_length;
    tokenizer = TokenizerConfig{"words.txt"};
    num_classes.reset();
  }

  void fix(TextDataset& text) {
    text.sequence.block_size = block_size();
    text.tokenizer.reset();
    text.token_cache.reset();
  }
  void fix(TokensDataset& tokens) { tokens.sequence.block_size = block_size(); }
  void fix_images(auto& images) {
    images.transforms = random_transforms(true, normalize_, filler_);
    if (images.cache && images.apply_exif_orientation) images.cache->jpeg_restart_markers = false;
    if (images.cache && images.cache->type == CacheType::kDecoded) {
      images.cache->jpeg_restart_markers = false;
      if (find_transform<RandomResizedCrop>(images.transforms) != nullptr)
        images.cache->type = CacheType::kPacked;
    }
  }
  void fix(ImageFolderDataset& images) { fix_images(images); }
  void fix(ImageListDataset& images) {
    fix_images(images);
    fix_captions(images.fields, images.sequence, images.tokenizer, images.num_classes);
    fix_class_names(images.class_names, captioner() == nullptr);
  }
  void fix(IdxDataset& idx) {
    idx.transforms = random_transforms(false, normalize_, filler_);
    fix_class_names(idx.class_names, true);
  }
  void fix(CifarDataset& cifar) {
    cifar.transforms = random_transforms(false, normalize_, filler_);
  }
  void fix(NumpyDataset& numpy) {
    fix_class_names(numpy.class_names, true);
    numpy.transforms = random_transforms(false, normalize_, filler_);
    numpy.fields.input.resize(std::min<size_t>(numpy.fields.input.size(), 1));
    numpy.fields.target.clear();
    numpy.fields.others.clear();
    if (numpy.sequence.max_length) return;
    numpy.fields.labels.clear();
    numpy.fields.length.clear();
    numpy.lengths_path.clear();
  }
  void fix_shards(auto& shards) {
    shards.transforms.clear();
    if (shards.cache) shards.cache->type = CacheType::kDecoded;
    const bool has_images = captioner() != nullptr || (!has_tokens_ && filler_.coin());
    fix_record(shards.record, has_images, false);
    if (captioner() != nullptr) {
      fix_captions(shards.record.fields, shards.record.sequence, shards.record.tokenizer,
                   shards.record.num_classes);
      shards.record.input_shape.clear();
    }
    fix_class_names(shards.record.class_names, !shards.record.fields.label.empty());
    if (!has_images) return;
    shards.transforms = random_transforms(true, normalize_, filler_);
    if (find_transform<RandomResizedCrop>(shards.transforms) != nullptr) shards.cache.reset();
  }
  void fix(TfrecordDataset& records) { fix_shards(records); }
  void fix(WebdatasetDataset& shards) { fix_shards(shards); }
  void fix(CsvDataset& csv) {
    csv.delimiter = filler_.coin() ? "\t" : ";";
    FieldNames& fields = csv.record.fields;
    fields.others.clear();
    if (filler_.coin())
      fields.label.clear(), fields.target.emplace_back("y");
    else
      fields.label += 'y', fields.target.clear();
    fix_class_names(csv.record.class_names, !fields.label.empty());
  }
  void fix(JsonlDataset& jsonl) {
    fix_record(jsonl.record, false, true);
    fix_class_names(jsonl.record.class_names, !jsonl.record.fields.label.empty());
  }
  // Different names that are not empty.
  static void fix_class_names(std::vector<std::string>& names, bool has_label) {
    if (!has_label) names.clear();
    for (size_t i = 0; i < names.size(); ++i) names[i] += 'c' + std::to_string(i);
  }
  void fix(SyntheticDataset& synthetic) {
    synthetic.num_samples += 1;
    if (synthetic.label_rule == LabelRule::kSumPositive) synthetic.num_classes.reset();
  }
  void fix(Mixture&) {}
  void fix(Concat&) {}

  bool is_decoder() const {
    const ModelVariant& arch = config_.model.arch;
    return std::holds_alternative<GptConfig>(arch) || std::holds_alternative<Gpt2Config>(arch) ||
           std::holds_alternative<LlamaConfig>(arch);
  }

  void fix_record(RecordConfig& record, bool has_images, bool is_tabular) {
    FieldNames names;
    record.tokenizer.reset();
    const std::string name = filler_.text();
    const bool is_padded = !has_images && filler_.coin();
    const bool has_ids = is_padded && filler_.coin();
    if (has_tokens_)
      (has_ids ? names.input_ids : names.text) = name;
    else if (has_images)
      names.image = name;
    else
      names.input = {name};
    if (!has_tokens_) names.label = name + 'y';
    record.fields = names;
    const bool has_input = !names.input.empty();
    if (!has_input) record.input_shape.clear();
    if (has_input && !is_tabular && record.input_shape.empty()) record.input_shape = {3, 4};
    SequenceConfig sequence;
    if (is_padded) {
      sequence.max_length = 1 + static_cast<int64_t>(filler_.below(1000));
      sequence.on_overflow = static_cast<OnOverflow>(filler_.below(3));
      sequence.packing = can_pack_ && has_tokens_ && filler_.coin();
      if (!has_tokens_ && filler_.coin()) {
        std::swap(record.fields.label, record.fields.labels);
        sequence.max_label_length = 5;
      }
    } else if (has_tokens_) {
      sequence.block_size = block_size();
    }
    record.sequence = sequence;
  }

  const Config& config_;
  bool can_pack_ = false;
  const bool has_tokens_;
  const std::optional<Normalize> normalize_;
  Filler& filler_;
};

// Makes data.train a mixture or concatenation of the other datasets.
void combine(Config& config, Filler& filler) {
  DatasetConfig& train = config.data["train"];
  train = {};
  if (filler.coin()) {
    Mixture mixture;
    for (auto& [name, dataset] : config.data) {
      if (name == "train") continue;
      mixture.shares.emplace_back(name, filler.fraction() * 10);
      dataset.repeat = 1;
    }
    std::ranges::reverse(mixture.shares);  // the order of the file is preserved
    train.source = mixture;
  } else {
    Concat concat;
    for (auto& [name, dataset] : config.data) {
      if (name == "train") continue;
      concat.datasets.push_back(name);
      dataset.sample_weights_path.clear();
    }
    train.source = concat;
  }
}

void refresh_training_data(Config& config, Filler& filler) {
  for (const std::string& name : sampled_datasets(config)) {
    DatasetConfig& dataset = config.data[name];
    if (!dataset.sample_weights_path.empty() || dataset.cache()) return;
  }
  for (const std::string& name : sampled_datasets(config)) {
    DatasetConfig& dataset = config.data[name];
    std::visit(
        [&](auto& each) {
          if constexpr (requires { each.refresh; })
            each.refresh = static_cast<Refresh>(filler.below(3));
        },
        dataset.source);
    if (!dataset.is_refreshable()) continue;
    dataset.split = {0.0, 1.0};
    dataset.skip_samples = 0;
    dataset.max_samples.reset();
  }
}

void fill_batch_transforms(Config& config, Filler& filler) {
  if (config.task.name() != TaskName::kClassification || config.model.has_loss()) return;
  const Mixup mixup{.alpha = filler.fraction()};
  const Cutmix cutmix{.alpha = filler.fraction()};
  std::vector<BatchTransform>& transforms = config.data["train"].batch_transforms;
  switch (filler.below(4)) {
    case 0:
      transforms = {mixup};
      break;
    case 1:
      transforms = {cutmix};
      break;
    case 2:
      transforms = {RandomChoice{{cutmix, mixup}}};
      break;
    default:
      break;
  }
}

void fill_data(Config& config, Filler& filler) {
  const bool has_tokens = config.model.is_language_model();
  std::optional<Normalize> normalize;
  const uint64_t others = filler.below(4);
  const bool is_combined = others > 0 && filler.coin();
  // Datasets without images cannot be normalized, and the components of a mixture must share the
  // normalization.
  if (!is_combined && filler.coin()) normalize = Normalize{{0.4, 0.5, 0.6}, {0.1, 0.2, 0.3}};
  config.data["train"] = DatasetFiller(config, has_tokens, normalize, filler).make();
  for (uint64_t i = 0; i < others; ++i)
    config.data["d" + std::to_string(i)] =
        DatasetFiller(config, has_tokens, std::nullopt, filler).make();
  if (is_combined) combine(config, filler);
  if (filler.coin()) refresh_training_data(config, filler);
  fill_batch_transforms(config, filler);
}

// ---- the other sections --------------------------------------------------------------------------

void fix_feed(Config& config, Filler& filler) {
  FeedConfig& feed = config.feed;
  const FeedConfig defaults;
  feed.num_processes = std::min(feed.num_processes, feed.num_workers.value_or(feed.num_processes));
  if (feed.shuffle != ShuffleMode::kBlock) feed.shuffle_block_size = defaults.shuffle_block_size;
  if (feed.shuffle != ShuffleMode::kShards) feed.shuffle_open_shards = defaults.shuffle_open_shards;
  if (config.task.has_balanced_weights()) feed.producers = ProducerMode::kInternal;
  const DatasetConfig& train = config.data["train"];
  if (std::holds_alternative<Mixture>(train.source) || !train.sample_weights_path.empty())
    feed.last_batch = LastBatchPolicy::kCarryOver;
  feed.bucket_boundaries.clear();
  const bool has_buckets = train.has_variable_length() && *train.sequence()->max_length > 4 &&
                           train.repeat == 1 && train.sample_weights_path.empty() &&
                           !train.is_packed() && !train.is_refreshable();
  if (!has_buckets || filler.coin()) return;
  feed.bucket_boundaries = {2, 4};
  feed.shuffle = ShuffleMode::kFull;
  feed.shuffle_block_size = defaults.shuffle_block_size;
  feed.shuffle_open_shards = defaults.shuffle_open_shards;
  feed.producers = ProducerMode::kInternal;
}

// Numbers of a loss that is not selected keep their defaults.
void fix_loss(Config& config, Filler& filler) {
  const bool is_mixed = !config.data.at("train").batch_transforms.empty();
  std::visit(
      [&](auto& task) {
        const std::decay_t<decltype(task)> defaults;
        if constexpr (requires { task.gamma; }) {
          if (is_mixed) task.loss = defaults.loss;
          const bool is_focal = task.loss == decltype(task.loss)::kFocal;
          if (!is_focal) task.gamma = defaults.gamma;
          if constexpr (requires { task.alpha; })
            if (!is_focal) task.alpha.reset();
          if constexpr (requires { task.label_smoothing; })
            if (is_focal) task.label_smoothing = 0;
          if constexpr (requires { task.smooth; }) {
            const bool is_dice = task.loss == BinaryLoss::kDice;
            (is_dice ? task.pos_weight.clear() : void(task.smooth = defaults.smooth));
          } else if constexpr (requires { task.pos_weight; }) {
            if (task.loss == BinaryLoss::kDice) task.loss = defaults.loss;
          }
          if constexpr (requires { task.tags; })
            if (!config.model.has_loss()) task.tags = {"O", "B-a", "S-b"};
        } else if constexpr (requires { task.quantile; }) {
          task.quantile =
              task.loss == RegressionLoss::kQuantile ? filler.fraction() / 2 : defaults.quantile;
          if (task.loss != RegressionLoss::kHuber) task.delta = defaults.delta;
          if (task.loss != RegressionLoss::kSmoothL1) task.beta = defaults.beta;
        }
      },
      config.task.task);
}

void fix_epochs(Config& config) {
  if (streamed_dataset(config) != nullptr) config.train.max_epochs.reset();
  if (!config.train.max_epochs) return;
  config.epochs["train.max_steps"] = {*config.train.max_epochs};
  config.train.max_steps = 0;
}

void fix_training(Config& config, Filler& filler) {
  std::visit(
      [&](auto& method) {
        if constexpr (requires { method.betas; })
          method.betas = {filler.fraction() / 2, filler.fraction() / 2};
        if constexpr (requires { method.eps.size(); })
          method.eps = {filler.fraction(), filler.fraction()};
        if constexpr (requires { method.nesterov&& method.momentum > 0; })
          if constexpr (!std::is_same_v<std::decay_t<decltype(method)>, MuonConfig>)
            method.nesterov = method.nesterov && method.momentum > 0;
      },
      config.optimizer.method);
  std::visit(
      [&](auto& schedule) {
        if constexpr (requires { schedule.num_reductions; })
          schedule.monitor = PlateauMonitor::kTrainLoss;  // eval needs other settings
        if constexpr (requires { schedule.min_lr; }) {
          if (schedule.min_lr) schedule.min_lr = config.optimizer.lr() * filler.fraction();
        } else if constexpr (requires { schedule.milestones; }) {
          std::ranges::sort(schedule.milestones);
          const auto repeated = std::ranges::unique(schedule.milestones);
          schedule.milestones.erase(repeated.begin(), repeated.end());
        } else if constexpr (requires { schedule.pct_start; }) {
          schedule.pct_start = filler.fraction() / 2;
        }
      },
      config.scheduler.schedule);
}

void fix_cluster(ClusterConfig& cluster, Filler& filler) {
  cluster.ps.clear();
  cluster.worker.clear();
  if (filler.coin()) {
    for (uint64_t i = 0; i < 1 + filler.below(2); ++i)
      cluster.ps.push_back("ps" + std::to_string(i) + ":1");
    for (uint64_t i = 0; i < 1 + filler.below(3); ++i)
      cluster.worker.push_back("[::1]:" + std::to_string(2222 + i));
  }
  if (cluster.replicas == ReplicaMode::kSync) cluster.max_staleness.reset();
}

void fix_eval(Config& config, Filler& filler) {
  EvalConfig& eval = config.eval;
  eval.datasets.clear();
  for (const auto& [name, dataset] : config.data)
    if (filler.coin()) eval.datasets.push_back(name);
  const auto metric = [&] {
    return (eval.datasets.empty() || filler.coin() ? "" : eval.datasets.back() + "/") +
           task_metrics(config).names().back();
  };
  eval.monitor = metric();
  for (std::string& each : config.checkpoint.monitor) each = metric();
  if (config.optimizer.averages()) {
    config.train.ema_decay.reset();
    config.distributed.shard = Shard::kNone;
  }
  if (!config.train.ema_decay) {
    eval.use_ema = false;
    config.train.ema_every_steps = 1;
    config.train.ema_warmup.reset();
  }
  if (eval.checkpoints != CheckpointSelection::kInterval)
    eval.every_steps = EvalConfig{}.every_steps;
}

}  // namespace

void fill_field(const Field& field, std::mt19937_64& random) { Filler(random).fill(field); }

Config random_config(std::mt19937_64& random) {
  Filler filler(random);
  Config config;
  for (const char* const section : {"run", "feed", "optimizer", "scheduler", "train", "cluster",
                                    "checkpoint", "eval", "metrics", "control", "log"})
    fill_section(config, section, filler);
  fill_model(config, filler);
  fill_data(config, filler);
  fix_feed(config, filler);
  fix_training(config, filler);
  fix_loss(config, filler);
  fix_epochs(config);
  fix_cluster(config.cluster, filler);
  fix_eval(config, filler);
  for (EventCommand& item : config.run.on_event_command) {
    item.events = {"daemon *", "checkpoint saved"};
    if (item.command.empty() || item.command.front().empty()) item.command = {"a b"};
  }
  return config;
}

}  // namespace stoker::config::test
