#include "shared/config/dataset_config.h"

#include <algorithm>
#include <type_traits>

namespace stoker::config {
namespace {

const std::string kNoPath;
const std::string kAllFiles = "**/*";
const std::optional<CacheConfig> kNoCache;

// The sequence member of `format` or of its RecordConfig; null if it has none.
auto* find_sequence(auto& format) {
  using Sequence = std::conditional_t<std::is_const_v<std::remove_reference_t<decltype(format)>>,
                                      const SequenceConfig, SequenceConfig>;
  if constexpr (requires { format.sequence; }) {
    return static_cast<Sequence*>(&format.sequence);
  } else if constexpr (requires { format.record; }) {
    return static_cast<Sequence*>(&format.record.sequence);
  } else {
    return static_cast<Sequence*>(nullptr);
  }
}

}  // namespace

DatasetSource::DatasetSource() = default;
DatasetSource::DatasetSource(const DatasetSource& other) = default;
DatasetSource::DatasetSource(DatasetSource&& other) noexcept = default;
DatasetSource& DatasetSource::operator=(const DatasetSource& other) = default;
DatasetSource& DatasetSource::operator=(DatasetSource&& other) noexcept = default;
DatasetSource::~DatasetSource() = default;
bool DatasetSource::operator==(const DatasetSource& other) const {
  return static_cast<const variant&>(*this) == static_cast<const variant&>(other);
}

DatasetFormat DatasetConfig::format() const {
  if (combines_datasets()) return DatasetFormat::kText;
  const auto first_cifar = static_cast<size_t>(DatasetFormat::kCifar10);
  const auto* const cifar = std::get_if<CifarDataset>(&source);
  if (cifar != nullptr)
    return cifar->num_classes == 100 ? DatasetFormat::kCifar100 : DatasetFormat::kCifar10;
  return static_cast<DatasetFormat>(source.index() + (source.index() > first_cifar ? 1 : 0));
}

bool DatasetConfig::combines_datasets() const {
  return std::holds_alternative<Mixture>(source) || std::holds_alternative<Concat>(source);
}

std::vector<std::string> DatasetConfig::components() const {
  if (const auto* const concat = std::get_if<Concat>(&source)) return concat->datasets;
  std::vector<std::string> names;
  if (const auto* const mixture = std::get_if<Mixture>(&source))
    for (const auto& [name, share] : mixture->shares) names.push_back(name);
  return names;
}

const std::string& DatasetConfig::path() const {
  return std::visit(
      [](const auto& format) -> const std::string& {
        if constexpr (requires { format.path; })
          return format.path;
        else
          return kNoPath;
      },
      source);
}

const std::string& DatasetConfig::glob() const {
  return std::visit(
      [](const auto& format) -> const std::string& {
        if constexpr (requires { format.glob; })
          return format.glob;
        else
          return kAllFiles;
      },
      source);
}

const Transforms* DatasetConfig::transforms() const {
  return std::visit(
      [](const auto& format) -> const Transforms* {
        if constexpr (requires { format.transforms; })
          return &format.transforms;
        else
          return nullptr;
      },
      source);
}

const std::optional<CacheConfig>& DatasetConfig::cache() const {
  return std::visit(
      [](const auto& format) -> const std::optional<CacheConfig>& {
        if constexpr (requires { format.cache; })
          return format.cache;
        else
          return kNoCache;
      },
      source);
}

ImageMode DatasetConfig::image_mode() const {
  return std::visit(
      [](const auto& format) {
        if constexpr (requires { format.image_mode; })
          return format.image_mode;
        else
          return ImageMode::kRgb;
      },
      source);
}

int64_t DatasetConfig::max_image_pixels() const {
  return std::visit(
      [](const auto& format) {
        if constexpr (requires { format.max_image_pixels; })
          return format.max_image_pixels;
        else
          return int64_t{0};
      },
      source);
}

bool DatasetConfig::applies_exif_orientation() const {
  return std::visit(
      [](const auto& format) {
        if constexpr (requires { format.apply_exif_orientation; })
          return format.apply_exif_orientation;
        else
          return false;
      },
      source);
}

const SequenceConfig* DatasetConfig::sequence() const {
  return std::visit([](const auto& format) { return find_sequence(format); }, source);
}

SequenceConfig* DatasetConfig::sequence() {
  return std::visit([](auto& format) { return find_sequence(format); }, source);
}

const FieldNames* DatasetConfig::fields() const {
  return std::visit(
      [](const auto& format) -> const FieldNames* {
        if constexpr (requires { format.fields; })
          return &format.fields;
        else if constexpr (requires { format.record; })
          return &format.record.fields;
        else
          return nullptr;
      },
      source);
}

std::optional<TokenizerConfig>* DatasetConfig::tokenizer() {
  return std::visit(
      [](auto& format) -> std::optional<TokenizerConfig>* {
        if constexpr (requires { format.tokenizer; })
          return &format.tokenizer;
        else if constexpr (requires { format.record.tokenizer; })
          return &format.record.tokenizer;
        else
          return nullptr;
      },
      source);
}

const RecordConfig* DatasetConfig::record() const {
  return std::visit(
      [](const auto& format) -> const RecordConfig* {
        if constexpr (requires { format.record; })
          return &format.record;
        else
          return nullptr;
      },
      source);
}

std::optional<int64_t> DatasetConfig::num_classes() const {
  return std::visit(
      [](const auto& format) -> std::optional<int64_t> {
        if constexpr (requires { format.num_classes; })
          return format.num_classes;
        else if constexpr (requires { format.record; })
          return format.record.num_classes;
        else
          return std::nullopt;
      },
      source);
}

std::vector<std::string> DatasetConfig::class_names() const {
  return std::visit(
      [](const auto& format) -> std::vector<std::string> {
        if constexpr (requires { format.class_names; })
          return format.class_names;
        else if constexpr (requires { format.record; })
          return format.record.class_names;
        else
          return {};
      },
      source);
}

Refresh DatasetConfig::refresh() const {
  return std::visit(
      [](const auto& format) {
        if constexpr (requires { format.refresh; })
          return format.refresh;
        else
          return Refresh::kNever;
      },
      source);
}

bool DatasetConfig::splits_files() const {
  const bool is_stream_of_tokens =
      std::holds_alternative<TextDataset>(source) || std::holds_alternative<TokensDataset>(source);
  return has_split() && split_by == SplitBy::kGroup && is_stream_of_tokens;
}

bool DatasetConfig::has_tokens() const {
  const RecordConfig* const records = record();
  return has_text() || std::holds_alternative<TokensDataset>(source) ||
         (records != nullptr && !records->fields.input_ids.empty());
}

bool DatasetConfig::has_text() const {
  const RecordConfig* const records = record();
  return std::holds_alternative<TextDataset>(source) || has_messages() ||
         (records != nullptr && !records->fields.text.empty());
}

bool DatasetConfig::has_messages() const {
  const RecordConfig* const records = record();
  return records != nullptr && !records->fields.messages.empty();
}

bool DatasetConfig::has_byte_tokens() const { return has_text() && text_tokenizer() == nullptr; }

const TokenizerConfig* DatasetConfig::text_tokenizer() const {
  const auto* const own = tokenizer();
  return has_text() && own != nullptr && own->has_value() ? &**own : nullptr;
}

bool DatasetConfig::has_variable_length() const {
  const SequenceConfig* const lengths = sequence();
  return lengths != nullptr && lengths->max_length.has_value();
}

bool DatasetConfig::is_packed() const {
  const SequenceConfig* const lengths = sequence();
  return lengths != nullptr && lengths->packing;
}

bool DatasetConfig::can_be_streamed() const {
  return std::holds_alternative<TextDataset>(source) ||
         std::holds_alternative<TokensDataset>(source) ||
         std::holds_alternative<TfrecordDataset>(source) ||
         std::holds_alternative<WebdatasetDataset>(source) ||
         std::holds_alternative<JsonlDataset>(source);
}

bool DatasetConfig::is_tabular() const {
  return std::holds_alternative<CsvDataset>(source) || std::holds_alternative<JsonlDataset>(source);
}

std::vector<std::string> sampled_datasets(const DatasetConfigs& data, const std::string& name) {
  const auto found = data.find(name);
  if (found == data.end() || !found->second.combines_datasets()) return {name};
  std::vector<std::string> names = found->second.components();
  std::stable_partition(names.begin(), names.end(), [&data](const std::string& component) {
    const auto dataset = data.find(component);
    return dataset == data.end() || !dataset->second.stream;
  });
  return names;
}

}  // namespace stoker::config
