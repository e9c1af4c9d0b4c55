// Conditions between the settings of datasets, and between datasets and feed.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>

#include "shared/base/tensor_role.h"
#include "shared/config/former_defaults.h"
#include "shared/config/validation.h"

namespace stoker::config {
namespace {

constexpr double kMaxHue = 0.5;
constexpr int64_t kMaxMaskClasses = 255;  // 255 itself is ignored

// The accepted order of transforms: resizing, at most one of two; random ones in any order; normalize.
size_t rank_of(const Transform& transform) {
  if (std::holds_alternative<CenterCrop>(transform)) return 1;
  if (std::holds_alternative<Normalize>(transform)) return 3;
  const bool resizes = std::holds_alternative<Resize>(transform) ||
                       std::holds_alternative<RandomResizedCrop>(transform);
  return resizes ? 0 : 2;
}
constexpr const char* kAcceptedOrder =
    "resize, resize and center_crop, or random_resized_crop; then random transforms; then "
    "normalize";

bool are_in_order(const Transforms& transforms) {
  std::set<size_t> seen;
  size_t rank = 0;
  for (const Transform& each : transforms) {
    const bool is_new = seen.insert(each.index()).second;
    if (!is_new || rank_of(each) < rank) return false;
    rank = rank_of(each);
  }
  return find_transform<Resize>(transforms) == nullptr ||
         find_transform<RandomResizedCrop>(transforms) == nullptr;
}

bool is_range(const std::vector<double>& numbers) {
  return numbers.size() == 2 && numbers[0] <= numbers[1];
}

// Common properties of the training datasets.
struct TrainedDatasets {
  bool are_valid = true;  // false: they already have errors
  bool have_variable_length = true;
  bool are_packed = false;
  bool occur_once = true;  // each sample occurs once per epoch of unchanged data
  int64_t max_length = std::numeric_limits<int64_t>::max();
};

class DataValidator {
 public:
  DataValidator(const Config& config, const ExplicitKeys& keys, ConfigErrors& errors)
      : config_(config), keys_(keys), errors_(errors), trained_(training_datasets(config)) {}

  void run() {
    if (!config_.data.contains("train")) validate_missing_train();
    for (const auto& [name, dataset] : config_.data) {
      section_ = "data." + name + '.';
      if (errors_.has_error_in("data." + name)) continue;
      validate_range(dataset);
      if (dataset.combines_datasets()) {
        validate_components(name, dataset);
      } else {
        validate_format(dataset);
        validate_transforms(dataset);
        validate_sequence(dataset);
        if (dataset.is_refreshable()) validate_refresh(name, dataset);
        if (dataset.stream) validate_stream(name, dataset, *dataset.stream);
        validate_priority(dataset);
        validate_others(dataset);
      }
      if (!dataset.batch_transforms.empty()) validate_batch_transforms(name, dataset);
    }
    section_.clear();
    validate_normalization();
    validate_last_batch();
    validate_refresh_and_weights();
    validate_buckets();
  }

 private:
  void add_error(const std::string& key, const std::string& message) {
    if (errors_.has_error_for(key) || errors_.names_key_with_error(message, section_)) return;
    errors_.add(keys_.location_of(key), key, message);
  }
  // Adds an error of the dataset that is being validated.
  void add(const std::string& key, const std::string& message) {
    add_error(section_ + key, message);
  }
  bool has_error_in_trained() const {
    return std::ranges::any_of(
        trained_, [this](const std::string& name) { return errors_.has_error_in("data." + name); });
  }
  bool is_trained(const std::string& name) const { return std::ranges::count(trained_, name) > 0; }

  void validate_missing_train() {
    // An unreadable section or dataset can be the one that is missing.
    const bool is_unreadable = std::ranges::any_of(config_.data, [this](const auto& dataset) {
      return errors_.has_error_for("data." + dataset.first);
    });
    if (is_unreadable) return errors_.mark("data");
    std::string hint;
    std::vector<std::string> names;
    for (const auto& [name, dataset] : config_.data) names.push_back(name);
    if (const std::string near = closest_match("train", names); !near.empty())
      hint = "; rename data." + near + ", or";
    add_error("data.train", "is required" + (hint.empty() ? ";" : hint) +
                                " set it to the dataset to train on, for example 'train: {format: "
                                "text, path: corpus.txt}'");
    if (names.empty()) errors_.mark("data");
  }

  void validate_range(const DatasetConfig& dataset) {
    const std::vector<double>& split = dataset.split;
    if (split.size() != 2 || split[0] >= split[1])
      add("split", "must be [from, to) with from below to, for example [0.0, 0.9]");
    if (!dataset.combines_datasets()) validate_groups(dataset);
    if (!dataset.sample_weights_path.empty() && dataset.repeat != 1)
      add("repeat", "cannot be combined with sample_weights_path; remove one of them");
  }

  void validate_groups(const DatasetConfig& dataset) {
    const FieldNames* const fields = dataset.fields();
    const bool has_group = fields != nullptr && !fields->group.empty();
    const bool is_by_group = dataset.split_by == SplitBy::kGroup;
    if (has_group && !is_by_group && dataset.has_split())
      add("split_by", "must be group to use fields.group; set it, or remove fields.group");
    if (!is_by_group || has_group) return;
    if (fields != nullptr)
      add("fields.group", "is required with split_by group; set it to the name of the group");
    else if (dataset.format() == DatasetFormat::kIdx ||
             dataset.format() == DatasetFormat::kCifar10 ||
             dataset.format() == DatasetFormat::kCifar100 ||
             dataset.format() == DatasetFormat::kSynthetic)
      add("split_by", "must not be group for this format, which has no groups; set stratified");
  }

  // ---- formats -----------------------------------------------------------------------------------

  void validate_format(const DatasetConfig& dataset) {
    if (const auto* const numpy = std::get_if<NumpyDataset>(&dataset.source)) {
      if (numpy->fields.input.size() > 1) add("fields.input", "must be one array");
      if (numpy->fields.target.size() > 1) add("fields.target", "must be one array");
      if (!numpy->fields.label.empty() && !numpy->fields.target.empty())
        add("fields.target", "cannot be combined with fields.label; remove one of them");
    }
    if (const auto* const csv = std::get_if<CsvDataset>(&dataset.source)) {
      if (csv->delimiter.size() != 1 || csv->delimiter == "\"")
        add("delimiter", "must be one character and not a quote, for example \"\\t\"");
    }
    if (const auto* const synthetic = std::get_if<SyntheticDataset>(&dataset.source)) {
      if (synthetic->label_rule == LabelRule::kSumPositive &&
          synthetic->num_classes.value_or(2) != 2)
        add("num_classes", "must be 2 for label_rule sum_positive; remove it");
    }
    if (const CacheConfig* const cache = dataset.cache() ? &*dataset.cache() : nullptr) {
      if (cache->jpeg_restart_markers && dataset.applies_exif_orientation())
        add("cache.jpeg_restart_markers",
            "cannot be combined with apply_exif_orientation: rewritten files have no EXIF data");
      if (cache->jpeg_restart_markers && cache->type != CacheType::kPacked)
        add("cache.jpeg_restart_markers", "requires cache.type packed");
      if (cache->type == CacheType::kPacked && dataset.has_named_fields())
        add("cache.type",
            "packed is not supported by this format, whose images are packed already; "
            "set decoded");
      if (cache->type == CacheType::kDecoded && dataset.transforms() != nullptr &&
          find_transform<RandomResizedCrop>(*dataset.transforms()) != nullptr)
        add("cache.type",
            "decoded cannot be combined with random_resized_crop; remove one of them");
    }
    validate_class_names(dataset);
    if (dataset.has_captions()) return validate_captions(dataset);
    if (dataset.tokenizer() != nullptr && dataset.tokenizer()->has_value())
      validate_text_tokenizer(dataset);
    if (dataset.can_be_streamed() && !dataset.stream && dataset.path().empty())
      add("path", "must not be empty without stream");
    if (const RecordConfig* const record = dataset.record()) validate_record(dataset, *record);
  }

  static bool has_default_glob(const DatasetConfig& dataset) {
    return std::visit(
        [](const auto& format) {
          if constexpr (requires { format.glob; })
            return format.glob == std::decay_t<decltype(format)>().glob ||
                   format.glob == kFormerDefaultGlob;
          else
            return true;
        },
        dataset.source);
  }

  static bool is_whole_number(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  }

  void validate_class_names(const DatasetConfig& dataset) {
    std::vector<std::string> names = dataset.class_names();
    if (names.empty()) return;
    if (dataset.has_captions() || (dataset.record() != nullptr && dataset.fields()->label.empty()))
      add("class_names", "requires fields.label; remove it");
    // Their labels are indices of the list: a 7 must not be meant as the name of another class.
    const bool are_indices = std::holds_alternative<NumpyDataset>(dataset.source) ||
                             std::holds_alternative<IdxDataset>(dataset.source);
    for (size_t index = 0; are_indices && index < names.size(); ++index)
      if (is_whole_number(names[index]) && names[index] != std::to_string(index)) {
        add("class_names", "has '" + names[index] + "' for label " + std::to_string(index) +
                               ", which is the name of another label; use other names");
        break;
      }
    std::ranges::sort(names);
    if (const auto twice = std::ranges::adjacent_find(names); twice != names.end())
      add("class_names", "has '" + *twice + "' twice; remove one of them");
    if (std::ranges::count(names, "") > 0) add("class_names", "must not have an empty name");
  }

  void validate_captions(const DatasetConfig& dataset) {
    const FieldNames& fields = *dataset.fields();
    const bool is_list = std::holds_alternative<ImageListDataset>(dataset.source);
    const bool has_label = !fields.label.empty() && !is_list;  // which has one by default
    if (fields.image.empty())
      add("fields.image", "is required with fields.caption; set it to the name of the image");
    if (has_label || !fields.target.empty() || !fields.labels.empty() || !fields.text.empty() ||
        !fields.input_ids.empty() || !fields.input.empty())
      add("fields.caption",
          "cannot be combined with input, label, labels, target, text and input_ids; remove it or "
          "these");
    if (dataset.num_classes())
      add("num_classes", "cannot be combined with fields.caption, whose classes are words");
    if (dataset.sequence()->on_overflow == OnOverflow::kDrop)
      add("sequence.on_overflow", "must be error or truncate for captions");
    if (dataset.sequence()->max_length || dataset.sequence()->block_size)
      add("sequence.max_length", "cannot be combined with fields.caption; set max_label_length");
    if (dataset.tokenizer()->has_value())
      validate_tokenizer(**dataset.tokenizer());
    else if (!has_error_in_trained())
      add("tokenizer",
          "is required with fields.caption; set its path to a file with a word per line");
    if (dataset.can_be_streamed() && !dataset.stream && dataset.path().empty())
      add("path", "must not be empty without stream");
  }

  void validate_text_tokenizer(const DatasetConfig& dataset) {
    if (!dataset.has_text())
      return add("tokenizer",
                 "requires fields.text, fields.messages or fields.caption; remove it or set one");
    if (dataset.record() != nullptr && !dataset.has_variable_length())
      add("tokenizer",
          "requires sequence.max_length with fields.text, so that each record is a sample");
    if (dataset.stream) add("tokenizer", "cannot be combined with stream; remove one of them");
    if (dataset.is_refreshable() && dataset.record() == nullptr)
      add("refresh", "cannot be combined with tokenizer; remove one of them");
    validate_tokenizer(*dataset.text_tokenizer());
  }

  // All datasets must have that of the first one trained on, whose tokens are the model's classes.
  void validate_tokenizer(const TokenizerConfig& tokenizer) {
    if (has_error_in_trained()) return;
    for (const std::string& name : sampled_datasets(config_)) {
      const auto trained = config_.data.find(name);
      if (trained == config_.data.end() || trained->second.tokenizer() == nullptr) continue;
      const auto& expected = *trained->second.tokenizer();
      if (!expected && !trained->second.has_text()) continue;
      if (!expected || expected->path != tokenizer.path)
        add("tokenizer", "must be that of data." + name +
                             (expected ? "; remove it to use that one" : ", which has none"));
      return;
    }
  }

  bool has_own_loss() const { return config_.task.name() == TaskName::kCustom; }

  void validate_others(const DatasetConfig& dataset) {
    const FieldNames* const fields = dataset.fields();
    if (fields == nullptr) return;
    std::vector<std::string> names = fields->others, lists;
    for (const ListConfig& list : fields->lists) lists.push_back(list.name);
    names.insert(names.end(), lists.begin(), lists.end());
    validate_other_names(dataset, "fields.others", fields->others, names);
    validate_other_names(dataset, "fields.lists", lists, names);
    for (const ListConfig& list : fields->lists)
      if (list.padding_value != 0 && !list.max_length)
        add("fields.lists",
            quoted(list.name) + " has padding_value without max_length; set max_length");
  }
  // `all`: of the tensors of others and lists.
  void validate_other_names(const DatasetConfig& dataset, const char* key,
                            const std::vector<std::string>& names,
                            const std::vector<std::string>& all) {
    if (names.empty()) return;
    if (!has_own_loss() && !config_.model.has_loss())
      add(key, "is only used by a model with its own loss, with task custom; remove it");
    if (!dataset.fields()->text.empty() && !dataset.has_variable_length())
      add(key, "cannot be combined with text without sequence.max_length");
    if (!dataset.fields()->caption.empty()) add(key, "cannot be combined with caption");
    for (const std::string& name : names) {
      const bool is_mask =
          name == tensor_name(TensorRole::kMask) && !dataset.fields()->mask.empty();
      if (name.empty() || is_mask || role_of({.name = name, .shape = {}}))
        add(key, quoted(name) +
                     " is not a name for a tensor; use one that is not empty "
                     "or that of another tensor of the sample");
      if (std::ranges::count(all, name) > 1) add(key, "has " + quoted(name) + " twice; remove one");
    }
  }

  void validate_record(const DatasetConfig& dataset, const RecordConfig& record) {
    const FieldNames& fields = record.fields;
    const bool has_input = !fields.image.empty() || !fields.input.empty();
    const bool has_answer = !fields.label.empty() || !fields.target.empty() || !fields.mask.empty();
    if (!fields.mask.empty()) validate_mask(dataset, record);
    if (dataset.has_variable_length()) return validate_record_sequence(record);
    if (dataset.has_messages()) return;  // validate_sequence() reports the missing length
    if (!fields.text.empty()) {
      if (has_input || has_answer)
        add("fields.text",
            "cannot be combined with image, input, label and target; remove it or these");
      return;
    }
    if (!fields.image.empty() && !fields.input.empty())
      add("fields.input", "cannot be combined with fields.image; remove one of them");
    const bool is_csv = std::holds_alternative<CsvDataset>(dataset.source);
    if (!has_input && !is_csv && fields.input_ids.empty()) {
      add("fields", "requires input" + std::string(dataset.is_tabular() ? "" : " or image") +
                        " (or text, for a language model); set it to the name of a value");
      return;
    }
    if (!fields.input.empty() && fields.image.empty() && !dataset.is_tabular() &&
        record.input_shape.empty())
      add("input_shape",
          "is required with fields.input; set it to the shape of the input, for "
          "example [3, 32, 32]");
    if (!fields.image.empty() && !record.input_shape.empty())
      add("input_shape", "cannot be combined with fields.image; remove one of them");
    // validate_sequence() reports labels without their length.
    if (!has_answer && fields.labels.empty() && fields.input_ids.empty() && !has_own_loss())
      add("fields", "requires label (or target, for a regression); set it to the name of a value");
    if (!fields.label.empty() && !fields.target.empty())
      add("fields.target", "cannot be combined with fields.label; remove one of them");
  }

  void validate_mask(const DatasetConfig& dataset, const RecordConfig& record) {
    const FieldNames& fields = record.fields;
    if (fields.image.empty())
      add("fields.mask", "requires fields.image; set it to the name of the image");
    if (!fields.label.empty() || !fields.target.empty() || !fields.labels.empty() ||
        !fields.caption.empty())
      add("fields.mask", "cannot be combined with label, target, labels and caption; remove it");
    if (!record.num_classes)
      add("num_classes", "is required with fields.mask, whose pixels are not scanned");
    if (record.num_classes.value_or(0) > kMaxMaskClasses)
      add("num_classes", "must be at most 255 with fields.mask");
    if (!dataset.batch_transforms.empty())
      add("batch_transforms",
          "mixup and cutmix cannot be combined with fields.mask: they mix one label per image; "
          "remove them");
    if (dataset.transforms() != nullptr && find_transform<AugMix>(*dataset.transforms()) != nullptr)
      add("transforms",
          "aug_mix cannot be combined with fields.mask, because it mixes images whose pixels have "
          "moved; set rand_augment or trivial_augment_wide");
  }

  // ---- sequences ---------------------------------------------------------------------------------

  void validate_sequence(const DatasetConfig& dataset) {
    const SequenceConfig* const sequence = dataset.sequence();
    if (sequence == nullptr || dataset.has_captions()) return;
    if (sequence->max_length) {
      if (sequence->block_size)
        add("sequence.block_size",
            "cannot be combined with sequence.max_length; remove one of them");
      if (sequence->packing) validate_packing(dataset);
      return;
    }
    validate_missing_length(dataset, *sequence);
  }

  // One error of the settings that need the length.
  void validate_missing_length(const DatasetConfig& dataset, const SequenceConfig& sequence) {
    const FieldNames none;
    const FieldNames& fields = dataset.fields() == nullptr ? none : *dataset.fields();
    const auto* const numpy = std::get_if<NumpyDataset>(&dataset.source);
    const std::pair<const char*, bool> needing[] = {
        {"fields.labels", !fields.labels.empty()},
        {"fields.input_ids", !fields.input_ids.empty()},
        {"fields.messages", !fields.messages.empty()},
        {"fields.length", !fields.length.empty()},
        {"lengths_path", numpy != nullptr && !numpy->lengths_path.empty()},
        {"sequence.on_overflow", sequence.on_overflow != OnOverflow::kError},
        {"sequence.max_label_length", sequence.max_label_length.has_value()},
        {"sequence.packing", sequence.packing}};
    for (const auto& [key, is_set] : needing)
      if (is_set)
        return add(key, "requires sequence.max_length, the length to which samples are padded");
  }

  void validate_packing(const DatasetConfig& dataset) {
    const FieldNames& fields = *dataset.fields();
    if (!dataset.has_tokens() || !fields.label.empty() || !fields.labels.empty() ||
        !fields.target.empty())
      add("sequence.packing",
          "requires fields.text, messages or input_ids without label, labels and target; a sample "
          "of "
          "several documents is for language modeling");
    if (dataset.stream)
      add("sequence.packing", "cannot be combined with stream, which has no index; remove it");
    if (!dataset.sample_weights_path.empty())
      add("sample_weights_path",
          "cannot be combined with sequence.packing, where a sample has several documents; remove "
          "one of them");
  }

  void validate_messages(const RecordConfig& record, bool has_answer) {
    if (has_answer)
      add("fields.messages", "cannot be combined with label, labels and target; remove these");
    if (!record.tokenizer || !record.tokenizer->chat_template)
      add("tokenizer.chat_template",
          "is required with fields.messages; set tokenizer: {path: tokenizer.json, chat_template: "
          "chatml}, llama3 or mistral");
  }

  void validate_record_sequence(const RecordConfig& record) {
    const FieldNames& fields = record.fields;
    const int sources = (fields.input.empty() ? 0 : 1) + (fields.text.empty() ? 0 : 1) +
                        (fields.input_ids.empty() ? 0 : 1) + (fields.messages.empty() ? 0 : 1);
    if (!fields.image.empty())
      add("fields.image", "cannot be combined with sequence.max_length; remove one of them");
    else if (sources != 1)
      add("fields", "requires one of input, text, messages and input_ids with sequence.max_length");
    if (fields.input.size() > 1) add("fields.input", "must be one name with sequence.max_length");
    const int answers = (fields.label.empty() ? 0 : 1) + (fields.labels.empty() ? 0 : 1) +
                        (fields.target.empty() ? 0 : 1);
    if (answers > 1)
      add("fields.label", "cannot be combined with labels and target; set one of them");
    if (answers == 0 && !fields.input.empty() && !has_own_loss())
      add("fields", "requires label, labels or target; set it to the name of a value");
    if (!fields.messages.empty()) validate_messages(record, answers > 0);
    if (!record.input_shape.empty() && fields.input.empty())
      add("input_shape", "requires fields.input; tokens have no shape");
    if (record.sequence.max_label_length && fields.labels.empty())
      add("sequence.max_label_length", "requires fields.labels");
  }

  // ---- transforms --------------------------------------------------------------------------------

  // True if images are encoded and must be resized to one shape.
  static bool has_encoded_images(const DatasetConfig& dataset) {
    if (std::holds_alternative<ImageFolderDataset>(dataset.source) ||
        std::holds_alternative<ImageListDataset>(dataset.source))
      return true;
    const RecordConfig* const record = dataset.record();
    return record != nullptr && !record->fields.image.empty();
  }

  void validate_transforms(const DatasetConfig& dataset) {
    const Transforms* const transforms = dataset.transforms();
    if (transforms == nullptr || errors_.has_error_for(section_ + "transforms")) return;
    for (size_t i = 0; i < transforms->size(); ++i)
      validate_transform((*transforms)[i], "transforms[" + std::to_string(i) + "]." +
                                               std::string(name_of((*transforms)[i])) + '.');
    if (!are_in_order(*transforms))
      return add("transforms",
                 std::string("must be in the order ") + kAcceptedOrder + "; each at most once");
    const auto* const resize = find_transform<Resize>(*transforms);
    const auto* const center_crop = find_transform<CenterCrop>(*transforms);
    const bool is_resized =
        resize != nullptr || find_transform<RandomResizedCrop>(*transforms) != nullptr;
    if (!has_encoded_images(dataset)) {
      if (is_resized || center_crop != nullptr)
        add("transforms", "resize, center_crop and random_resized_crop require encoded images");
      if (dataset.record() != nullptr && !transforms->empty())
        add("transforms", "requires fields.image");
      return;
    }
    if (!is_resized)
      return add(
          "transforms",
          "must start with a resizing transform, for example [resize: {size: [224, 224]}] or "
          "[random_resized_crop: {size: 224}]");
    validate_center_crop(resize, center_crop);
  }

  void validate_center_crop(const Resize* resize, const CenterCrop* center_crop) {
    if (center_crop != nullptr && resize == nullptr)
      return add("transforms", "center_crop requires resize before it");
    if (resize == nullptr || resize->size.empty()) return;
    if (resize->size.size() == 1 && center_crop == nullptr)
      return add("transforms",
                 "resize to a shorter side requires center_crop after it, because batches need one "
                 "shape; or set size to [height, width]");
    if (center_crop == nullptr || center_crop->size.empty()) return;
    const int64_t height = resize->size.front(), width = resize->size.back();
    if (center_crop->size.front() > height || center_crop->size.back() > width)
      add("transforms", "center_crop must fit into the resized image");
  }

  // Of one transform. `prefix`: "transforms[1].random_affine."
  void validate_transform(const Transform& transform, const std::string& prefix) {
    const auto is_interval = [](const std::vector<double>& numbers) {
      return is_range(numbers) && numbers[0] > 0;
    };
    std::visit(
        [&](const auto& each) {
          using T = std::decay_t<decltype(each)>;
          if constexpr (requires { each.size; }) {
            if (each.size.size() > 2)
              add(prefix + "size", "must be a number or [height, width] in pixels");
          }
          if constexpr (std::is_same_v<T, RandomResizedCrop> || std::is_same_v<T, RandomErasing>) {
            if (!is_interval(each.scale) || each.scale[1] > 1)
              add(prefix + "scale",
                  "must be [from, to] with 0 < from <= to <= 1, for example [0.08, 1.0]");
            if (!is_interval(each.ratio))
              add(prefix + "ratio",
                  "must be [from, to] with 0 < from <= to, for example [0.75, 1.3333]");
          }
          if constexpr (std::is_same_v<T, ColorJitter>) {
            if (each.hue > kMaxHue) add(prefix + "hue", "must be a number from 0 to 0.5");
          }
          if constexpr (std::is_same_v<T, GaussianBlur>) {
            if (each.kernel_size % 2 == 0) add(prefix + "kernel_size", "must be odd");
            if (each.sigma.size() != 1 && !is_range(each.sigma))
              add(prefix + "sigma", "must be a number or [from, to], for example [0.1, 2.0]");
          }
          if constexpr (std::is_same_v<T, RandAugment>) {
            if (each.magnitude >= each.num_magnitude_bins)
              add(prefix + "magnitude", "must be below num_magnitude_bins (" +
                                            std::to_string(each.num_magnitude_bins) + "), got " +
                                            std::to_string(each.magnitude));
          }
          if constexpr (std::is_same_v<T, RandomAffine>) validate_affine(each, prefix);
          if constexpr (requires { each.degrees; }) {
            if (each.degrees.size() != 1 && !is_range(each.degrees))
              add(prefix + "degrees", "must be a number or [from, to], for example [-15, 15]");
            else if (each.degrees.size() == 1 && each.degrees[0] < 0)
              add(prefix + "degrees", "must be at least 0 as one number x, which means [-x, x]");
          }
          if constexpr (requires { each.fill; }) {
            if (each.interpolation == Interpolation::kBicubic)
              add(prefix + "interpolation",
                  "must be nearest or bilinear; only resizing has bicubic");
            validate_levels(each.fill, prefix + "fill");
            if constexpr (requires { each.degrees; })
              if (each.fill.empty()) add(prefix + "fill", "must not be empty, for example 0");
          }
          if constexpr (std::is_same_v<T, RandomErasing>) {
            validate_levels(each.value, prefix + "value");
            if (each.value.empty()) add(prefix + "value", "must not be empty, for example 0");
          }
          if constexpr (std::is_same_v<T, Normalize>) {
            if (each.mean.empty() || each.mean.size() != each.std.size())
              add(prefix + "mean",
                  "must have as many numbers as std, one or one per channel, for example [0.485, "
                  "0.456, 0.406]");
          }
        },
        transform);
  }

  void validate_affine(const RandomAffine& affine, const std::string& prefix) {
    if (!affine.translate.empty() && affine.translate.size() != 2)
      add(prefix + "translate", "must be two numbers, for example [0.1, 0.1]");
    if (!affine.scale.empty() && !is_range(affine.scale))
      add(prefix + "scale", "must be [from, to], for example [0.8, 1.2]");
    const std::vector<double>& shear = affine.shear;
    const bool are_ranges =
        is_range({shear.begin(), shear.begin() + ptrdiff_t(shear.size() / 2)}) &&
        is_range({shear.begin() + ptrdiff_t(shear.size() / 2), shear.end()});
    if (!shear.empty() && !(shear.size() == 1 && shear[0] >= 0) && !is_range(shear) && !are_ranges)
      add(prefix + "shear",
          "must be a number, [from, to] or [x from, x to, y from, y to], for example 10");
  }

  void validate_levels(const std::vector<double>& levels, const std::string& key) {
    const bool are_whole =
        std::ranges::all_of(levels, [](double level) { return level == std::floor(level); });
    if (levels.size() == 2 || levels.size() > 3 || !are_whole)
      add(key, "must be one whole number from 0 to 255, or one per channel");
  }

  // All datasets of a run must share it, because the model expects inputs of one distribution.
  void validate_normalization() {
    if (has_error_in_trained()) return;
    const Normalize* const expected = training_normalization(config_);
    for (const auto& [name, dataset] : config_.data) {
      const std::string key = "data." + name + ".transforms";
      if (errors_.has_error_for(key) || dataset.transforms() == nullptr) continue;
      const auto* const normalize = find_transform<Normalize>(*dataset.transforms());
      const bool is_component = is_trained(name);
      if (normalize == nullptr && !(is_component && expected != nullptr)) continue;
      if (normalize != nullptr && expected != nullptr && *normalize == *expected) continue;
      if (normalize == nullptr)
        add_error(key, "normalize is required, as in the other datasets that are trained on");
      else
        add_error(key, expected == nullptr
                           ? "normalize is not in data.train; add it there or remove it here"
                           : "normalize must be that of data.train; remove it to use that one");
    }
  }

  void validate_batch_transforms(const std::string& name, const DatasetConfig& dataset) {
    if (name != "train") return add("batch_transforms", "is only used in data.train; remove it");
    if (dataset.batch_transforms.size() > 1)
      add("batch_transforms",
          "must be one of [mixup: {}], [cutmix: {}] and [random_choice: [mixup, cutmix]]");
    const auto* const choice = std::get_if<RandomChoice>(&dataset.batch_transforms.front());
    if (choice == nullptr) return;
    const bool has_both = choice->transforms.size() == 2 &&
                          choice->transforms[0].index() != choice->transforms[1].index();
    if (!has_both) add("batch_transforms", "random_choice must have mixup and cutmix");
  }

  // ---- mixture, concat ---------------------------------------------------------------------------

  void validate_components(const std::string& name, const DatasetConfig& dataset) {
    const auto* const mixture = std::get_if<Mixture>(&dataset.source);
    const std::string key = section_ + (mixture != nullptr ? "mixture" : "concat");
    std::set<std::string> seen;
    std::vector<std::string> others;
    for (const auto& [other, config] : config_.data)
      if (!config.combines_datasets()) others.push_back(other);
    for (const std::string& component : dataset.components()) {
      if (!seen.insert(component).second)
        add_error(key, "contains " + quoted(component) + " twice; remove one");
      const auto found = config_.data.find(component);
      if (found == config_.data.end()) {
        add_error(key, "contains " + quoted(component) + ", which is not a dataset" +
                           did_you_mean(component, others));
      } else if (found->second.combines_datasets()) {
        add_error(key, "contains " + quoted(component) +
                           ", which is a mixture or concat itself; list its datasets");
      } else {
        validate_component(component, found->second, name, mixture != nullptr);
      }
    }
  }

  void validate_component(const std::string& name, const DatasetConfig& dataset,
                          const std::string& owner, bool is_weighted) {
    if (is_weighted && dataset.repeat != 1)
      add_error("data." + name + ".repeat", "cannot be combined with data." + owner +
                                                ".mixture, which sets the shares; remove it");
    if (!is_weighted && !dataset.sample_weights_path.empty())
      add_error("data." + name + ".sample_weights_path",
                "requires a mixture; in data." + owner + ".concat every sample occurs once");
    if (dataset.stream && owner != "train")
      add_error("data." + owner + (is_weighted ? ".mixture" : ".concat"),
                "contains " + quoted(name) + ", a stream, which only data.train can read");
  }

  // last_batch applies only to epochs in which every sample occurs.
  void validate_last_batch() {
    const auto train = config_.data.find("train");
    if (train == config_.data.end() || config_.feed.last_batch == LastBatchPolicy::kCarryOver)
      return;
    if (std::holds_alternative<Mixture>(train->second.source))
      add_error("feed.last_batch",
                "must be carry_over with data.train.mixture, whose datasets have their own epochs");
    if (!train->second.sample_weights_path.empty())
      add_error("feed.last_batch",
                "must be carry_over with data.train.sample_weights_path; random samples have no "
                "last batch");
  }

  // ---- stream ------------------------------------------------------------------------------------

  void validate_stream(const std::string& name, const DatasetConfig& dataset,
                       const StreamConfig& stream) {
    if (!is_trained(name))
      return add("stream", "is only used in data.train and the datasets of its mixture; remove it");
    const DatasetConfig& train = config_.data.at("train");
    if (std::holds_alternative<Concat>(train.source))
      return add("stream",
                 "cannot be combined with data.train.concat, whose epochs need an index; "
                 "use a mixture");
    reject_what_needs_index(dataset, stream.is_spool());
    if (stream.is_spool() && dataset.path().empty())
      add("path", "is required with stream.source spool");
    validate_feed_of_stream(train.combines_datasets());
    validate_stream_queue(dataset, stream);
    validate_stream_samples(dataset);
    if (train.combines_datasets()) validate_others_of_stream(name);
  }

  void validate_feed_of_stream(bool is_mixed) {
    const std::string stream = section_ + "stream";
    const std::string hint =
        "cannot be combined with " + stream + ", which has no index; set " + stream + ".queue";
    if (!is_mixed && config_.feed.shuffle != ShuffleMode::kFull) add_error("feed.shuffle", hint);
    if (!config_.feed.bucket_boundaries.empty()) add_error("feed.bucket_boundaries", hint);
    for (const auto& [key, epochs] : config_.epochs)
      add_error(
          key == "train.max_steps" && keys_.contains("train.max_epochs") ? "train.max_epochs" : key,
          "cannot be combined with " + stream + ", which has no epochs; set a number of steps");
    if (!keys_.contains("train.max_steps") && !config_.train.max_epochs)
      add_error("train.max_steps", "is required with " + stream + ", which has no epochs");
    const std::string worker = "with " + stream + ", which one worker process reads";
    if (config_.feed.num_processes == 0) add_error("feed.num_processes", "must not be 0 " + worker);
    if (config_.feed.producers != ProducerMode::kInternal)
      add_error("feed.producers", "must be internal " + worker);
  }

  // The other datasets of the mixture.
  void validate_others_of_stream(const std::string& name) {
    for (const std::string& other : config_.data.at("train").components()) {
      const auto found = config_.data.find(other);
      if (other == name || found == config_.data.end()) continue;
      if (found->second.stream)
        add_error("data.train.mixture",
                  "contains more than one stream, " + quoted(std::min(name, other)) + " and " +
                      quoted(std::max(name, other)) + "; one worker process reads one stream");
      if (found->second.is_refreshable())
        add_error("data." + other + ".refresh",
                  "cannot be combined with data." + name + ".stream in a mixture; remove it");
    }
  }

  void reject_what_needs_index(const DatasetConfig& dataset, bool is_spool) {
    const DatasetConfig defaults{.source = TextDataset()};
    const auto reject = [this](const char* key, bool is_set) {
      if (is_set) add(key, "cannot be combined with stream, which has no index; remove it");
    };
    reject("path", !dataset.path().empty() && !is_spool);
    reject("glob", !has_default_glob(dataset));
    reject("split", dataset.has_split());
    reject("split_by", dataset.split_by != defaults.split_by);
    reject("split_seed", dataset.split_seed != defaults.split_seed);
    reject("fields.group", dataset.fields() != nullptr && !dataset.fields()->group.empty());
    reject("skip_samples", dataset.skip_samples != 0);
    reject("max_samples", dataset.max_samples.has_value());
    reject("repeat", dataset.repeat != 1);
    reject("sample_weights_path", !dataset.sample_weights_path.empty());
    reject("cache", dataset.cache().has_value());
    reject("refresh", dataset.is_refreshable());
  }

  void validate_stream_queue(const DatasetConfig& dataset, const StreamConfig& stream) {
    if (stream.min_after_dequeue && stream.queue != StreamQueue::kRandomShuffle)
      add("stream.min_after_dequeue", "requires queue random_shuffle");
    const int64_t needed = stream.shuffle_minimum() + config_.train.micro_batch_size;
    if (stream.capacity < needed)
      add("stream.capacity",
          "must be at least min_after_dequeue and train.micro_batch_size together (" +
              std::to_string(needed) + "), got " + std::to_string(stream.capacity));
    if (stream.queue == StreamQueue::kPaddingFifo && !dataset.has_variable_length())
      add("stream.queue", "padding_fifo requires sequence.max_length");
    const bool is_external = stream.source == "external";
    if ((stream.is_stdin() || stream.is_spool() || is_external) && stream.num_epochs)
      add("stream.num_epochs", "requires a pattern of files as source");
    if (stream.is_stdin() && stream.num_threads.value_or(1) != 1)
      add("stream.num_threads", "must be 1 for stdin, which one thread reads");
  }

  void validate_priority(const DatasetConfig& dataset) {
    const FieldNames* const fields = dataset.fields();
    const bool has_priority = fields != nullptr && !fields->priority.empty();
    const bool is_used = dataset.stream && dataset.stream->queue == StreamQueue::kPriority;
    if (has_priority && !is_used)
      add("fields.priority", "is only used by stream.queue priority; remove it");
    if (!is_used || has_priority) return;
    if (fields == nullptr)
      add("stream.queue",
          "priority requires fields.priority, and records of text and tokens have "
          "no fields");
    else
      add("fields.priority",
          "is required with stream.queue priority; set it to the name of an integer");
  }

  // Nothing is scanned before the first step.
  void validate_stream_samples(const DatasetConfig& dataset) {
    const FieldNames* const fields = dataset.fields();
    if (fields == nullptr) return;
    const bool has_labels = !fields->label.empty() || !fields->labels.empty();
    if (has_labels && !dataset.num_classes() && dataset.class_names().empty())
      add("num_classes", "is required with stream, because nothing is scanned");
    if (!fields->text.empty() && !dataset.has_variable_length())
      add("sequence.max_length",
          "is required for fields.text with stream; blocks of several texts need an index");
  }

  // ---- refresh -----------------------------------------------------------------------------------

  void validate_refresh(const std::string& name, const DatasetConfig& dataset) {
    if (!is_trained(name))
      add("refresh", "is only supported for training datasets; evaluation data stays the same");
    if (dataset.has_split() && !dataset.has_stable_split())
      add("refresh",
          "cannot be combined with split, which would select other samples of more data; set "
          "split_by: random or group");
    if (dataset.skip_samples != 0 || dataset.max_samples)
      add("refresh",
          "cannot be combined with skip_samples and max_samples, which would select other "
          "samples of more data");
    if (dataset.cache()) add("refresh", "cannot be combined with cache");
  }

  void validate_refresh_and_weights() {
    bool has_weights = false;
    for (const std::string& name : trained_)
      if (const auto found = config_.data.find(name); found != config_.data.end())
        has_weights = has_weights || !found->second.sample_weights_path.empty();
    if (!has_weights) return;
    for (const auto& [name, dataset] : config_.data)
      if (dataset.is_refreshable())
        add_error("data." + name + ".refresh",
                  "cannot be combined with sample_weights_path, which has a number per sample");
  }

  // ---- buckets -----------------------------------------------------------------------------------

  TrainedDatasets trained_datasets() const {
    TrainedDatasets all;
    for (const std::string& name : trained_) {
      const auto found = config_.data.find(name);
      if (found == config_.data.end() || errors_.has_error_in("data." + name)) {
        all.are_valid = false;
        return all;
      }
      const DatasetConfig& dataset = found->second;
      all.occur_once = all.occur_once && dataset.repeat == 1 &&
                       dataset.sample_weights_path.empty() && !dataset.is_refreshable() &&
                       !std::holds_alternative<Mixture>(dataset.source);
      if (dataset.combines_datasets()) continue;
      all.have_variable_length = all.have_variable_length && dataset.has_variable_length();
      all.are_packed = all.are_packed || dataset.is_packed();
      if (dataset.has_variable_length())
        all.max_length = std::min(all.max_length, *dataset.sequence()->max_length);
    }
    return all;
  }

  void validate_buckets() {
    const std::vector<int64_t>& bounds = config_.feed.bucket_boundaries;
    const std::string key = "feed.bucket_boundaries";
    const TrainedDatasets datasets = trained_datasets();
    if (bounds.empty() || !datasets.are_valid) return;
    const ShuffleMode shuffle = config_.feed.shuffle;
    if (datasets.are_packed)
      add_error(
          key,
          "cannot be combined with sequence.packing in data.train, which leaves no padding to "
          "save; remove one of them");
    else if (!datasets.have_variable_length)
      add_error(key, "requires sequence.max_length in data.train");
    if (std::ranges::adjacent_find(bounds, std::greater_equal<>()) != bounds.end())
      add_error(key, "must be increasing, for example [32, 64, 128]");
    if (bounds.back() > datasets.max_length)
      add_error(key, "must not exceed sequence.max_length of data.train (" +
                         std::to_string(datasets.max_length) + "), got " +
                         std::to_string(bounds.back()));
    if (shuffle != ShuffleMode::kFull && shuffle != ShuffleMode::kNone)
      add_error(key, "requires feed.shuffle full or none");
    if (!datasets.occur_once)
      add_error(key,
                "cannot be combined with mixture, sample_weights_path, repeat and refresh; a "
                "sample must occur once per epoch");
    if (config_.feed.producers != ProducerMode::kInternal)
      add_error(key, "requires feed.producers internal; external producers know one batch shape");
  }

  const Config& config_;
  const ExplicitKeys& keys_;
  ConfigErrors& errors_;
  const std::vector<std::string> trained_;
  std::string section_;  // "data.train."
};

}  // namespace

void validate_data(const Config& config, const ExplicitKeys& keys, ConfigErrors& errors) {
  DataValidator(config, keys, errors).run();
}

}  // namespace stoker::config
