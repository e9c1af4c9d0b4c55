#include "shared/config/reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "shared/config/epochs.h"
#include "shared/config/key_suggestion.h"
#include "shared/config/schema.h"

namespace stoker::config {
namespace {

constexpr size_t kMaxItems = 1024;  // of a list
constexpr size_t kMaxDatasets = 64;
constexpr size_t kMaxDatasetName = 64;

std::vector<std::string> names_of(const std::vector<Field>& fields) {
  std::vector<std::string> names;
  for (const Field& field : fields) names.emplace_back(field.name);
  return names;
}

// A help text for use inside a sentence: "file or folder with the data".
std::string in_sentence(std::string_view help) {
  std::string text(help);
  const bool is_acronym = text.size() > 1 && text[1] >= 'A' && text[1] <= 'Z';
  if (!text.empty() && !is_acronym && text[0] >= 'A' && text[0] <= 'Z')
    text[0] = static_cast<char>(text[0] - 'A' + 'a');
  return text;
}

std::string required_message(std::string_view name, std::string_view help,
                             std::string_view example) {
  std::string text = "is required; set it to the " + in_sentence(help);
  if (!example.empty())
    text.append(", for example '").append(name).append(": ").append(example).append("'");
  return text;
}

class Reader {
 public:
  Reader(Config& config, ConfigErrors& errors) : config_(config), errors_(errors) {}

  ExplicitKeys read(const Value& root) {
    if (root.type == Value::Type::kNull) {
      check_required_sections(root);
      return keys_;
    }
    if (root.type != Value::Type::kMap) {
      errors_.add(root.location, "",
                  "a configuration is a mapping of sections, such as 'train: {max_steps: 100}'");
      return keys_;
    }
    read_datasets(root);  // first, because they add sections
    for (const Entry& entry : root.entries) {
      if (entry.key == "data") continue;
      const auto make = [&] { return find_section(entry.key); };
      if (make().key.empty()) {
        add_unknown_section(entry, root);
      } else {
        read_section(make, entry);
      }
    }
    check_required_sections(root);
    return keys_;
  }

 private:
  // ---- sections ----------------------------------------------------------------------------------

  Section find_section(const std::string& key) {
    for (Section& section : all_sections(config_))
      if (section.key == key) return std::move(section);
    return {};
  }

  void add_unknown_section(const Entry& entry, const Value& root) {
    std::vector<std::string> names = {"data"};
    for (const Section& section : all_sections(config_))
      if (!section.key.starts_with("data.")) names.push_back(section.key);
    add_unknown(entry, root, "", names, nullptr);
  }

  // An entry of `map` that is not in `names`. What was probably meant is not reported as missing, and
  // without a suggestion nothing of the mapping is.
  void add_unknown(const Entry& entry, const Value& map, const std::string& key,
                   const std::vector<std::string>& names, const Variants* maybe_variants) {
    const std::string prefix = key.empty() ? "" : key + '.';
    constexpr size_t kMaxErrorsWithSuggestion = 100;  // more than the errors that are reported
    const KeySuggestion meant = errors_.count() < kMaxErrorsWithSuggestion
                                    ? suggest_key(entry, key, names, maybe_variants)
                                    : KeySuggestion{};
    errors_.add(
        entry.location, key,
        (key.empty() ? "unknown section " : "unknown key ") + quoted(entry.key) + meant.text,
        prefix + entry.key);
    for (const std::string& each : meant.keys) errors_.mark(each);
    if (!meant.keys.empty()) return;
    for (const std::string& name : names)
      if (std::ranges::count(map.entries, name, &Entry::key) == 0) errors_.mark(prefix + name);
  }

  static bool is_dataset_name(std::string_view name) {
    const auto is_allowed = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '-';
    };
    return !name.empty() && name.size() <= kMaxDatasetName && name[0] != '-' &&
           std::ranges::all_of(name, is_allowed);
  }

  // The model, which has no default. An unknown section can be the one that is missing.
  void check_required_sections(const Value& root) {
    if (std::ranges::any_of(root.entries, [this](const Entry& entry) {
          return entry.key != "data" && find_section(entry.key).key.empty();
        }))
      return;
    for (const Section& section : all_sections(config_)) {
      const Variants& variants = section.variants;
      const std::string choice = section.key + '.' + std::string(variants.discriminator);
      if (variants.is_required && !section.key.starts_with("data.") && !keys_.contains(choice) &&
          !errors_.has_error_for(choice))
        errors_.add(root.location, choice, "is required; " + required_help(variants));
    }
  }

  void read_datasets(const Value& root) {
    const auto data = std::ranges::find(root.entries, "data", &Entry::key);
    if (data == root.entries.end() || !is_mapping(*data, "data")) return;
    for (const Entry& entry : data->value.entries) {
      const std::string key = "data." + entry.key;
      if (entry.value.type == Value::Type::kRemoved) continue;
      if (!is_dataset_name(entry.key)) {
        errors_.add(entry.location, key, "names of datasets consist of letters, digits, _ and -");
      } else if (config_.data.size() == kMaxDatasets) {
        errors_.add(entry.location, key, "more than " + std::to_string(kMaxDatasets) + " datasets");
      } else {
        DatasetConfig& dataset = config_.data[entry.key];
        read_section([&] { return dataset_section(entry.key, dataset); }, entry);
      }
    }
  }

  // True if `entry` can be read as a mapping. An empty value is one: all its keys are commented
  // out.
  bool is_mapping(const Entry& entry, const std::string& key) {
    keys_.add(key, entry.location);
    if (entry.value.type == Value::Type::kMap || entry.value.type == Value::Type::kNull)
      return true;
    if (entry.value.type != Value::Type::kRemoved)
      errors_.add(entry.value.location, key, "must be a mapping of settings" + got(entry.value));
    return false;
  }

  template <typename Make>
  void read_section(const Make& make, const Entry& entry) {
    Section section = make();
    if (!is_mapping(entry, section.key)) return;
    if (!section.variants.discriminator.empty() && select_variant(section, entry)) section = make();
    const std::string choice = section.key + '.' + std::string(section.variants.discriminator);
    if (errors_.has_error_for(choice)) return read_unknown_keys(section, entry.value);
    read_fields(section.fields, entry.value, section.key, &section.variants);
    check_required(section.fields, entry.location, section.key);
  }

  // True if the section was changed.
  bool select_variant(const Section& section, const Entry& entry) {
    const Variants& variants = section.variants;
    const std::string key = section.key + '.' + std::string(variants.discriminator);
    const Entry* chosen = nullptr;
    size_t index = 0;
    for (const Entry& each : entry.value.entries) {
      if (each.value.type == Value::Type::kRemoved) continue;
      const auto name = std::ranges::find(variants.names, each.key);
      const auto at = static_cast<size_t>(name - variants.names.begin());
      const bool is_key = name != variants.names.end() && at >= variants.first_key;
      if (!is_key && each.key != variants.discriminator) continue;
      if (chosen != nullptr) {
        errors_.add(each.location, section.key + '.' + each.key,
                    "cannot be combined with " + chosen->key + "; remove one of them");
        continue;
      }
      chosen = &each;
      index = at;
    }
    if (chosen == nullptr) {
      if (has_misspelt(section, entry.value)) {
        errors_.mark(key);
      } else if (variants.is_required) {
        errors_.add(entry.location, key, "is required; " + required_help(variants));
      }
      return false;
    }
    if (chosen->key == variants.discriminator) {
      keys_.add(key, chosen->value.location);
      if (!read_name(*chosen, variants, key, index)) return false;
    }
    variants.select(index);
    return true;
  }

  // True if an unknown key of `map` is probably the one that selects the variant. Where that is
  // required, any can be.
  static bool has_misspelt(const Section& section, const Value& map) {
    const Variants& variants = section.variants;
    const std::vector<std::string> names = names_with(section.fields, variants);
    const std::string discriminator = section.key + '.' + std::string(variants.discriminator);
    return std::ranges::any_of(map.entries, [&](const Entry& entry) {
      if (std::ranges::count(names, entry.key) > 0 || !owners_of(entry.key, variants).empty())
        return false;
      if (variants.is_required) return true;
      const KeySuggestion meant = suggest_key(entry, section.key, names, &variants);
      return std::ranges::count(meant.keys, discriminator) > 0;
    });
  }

  // The variants that have the key.
  static std::vector<std::string_view> owners_of(std::string_view key, const Variants& variants) {
    std::vector<std::string_view> owners;
    for (size_t i = 0; i < variants.names.size(); ++i)
      if (std::ranges::count(variants.keys(i), key) > 0) owners.push_back(variants.names[i]);
    return owners;
  }

  // Of a section whose variant is not known: the keys that no variant has.
  void read_unknown_keys(const Section& section, const Value& map) {
    for (const Entry& entry : map.entries) {
      const bool is_known = entry.key == section.variants.discriminator ||
                            section.find(entry.key) != nullptr ||
                            !owners_of(entry.key, section.variants).empty();
      if (!is_known) add_unknown_key(section.fields, entry, map, section.key, &section.variants);
    }
  }

  static std::vector<std::string> names_with(const std::vector<Field>& fields,
                                             const Variants& variants) {
    std::vector<std::string> names = names_of(fields);
    names.emplace(names.begin(), variants.discriminator);
    return names;
  }

  static std::string words_of(const Variants& variants) {
    std::vector<std::string> words;
    for (size_t i = 0; i < std::min(variants.names.size(), variants.first_key); ++i)
      words.emplace_back(variants.names[i]);
    return join_words(words, " or ");
  }

  static std::string required_help(const Variants& variants) {
    return variants.required_help.empty() ? "set it to " + words_of(variants)
                                          : std::string(variants.required_help);
  }

  bool read_name(const Entry& entry, const Variants& variants, const std::string& key,
                 size_t& index) {
    const size_t count = std::min(variants.names.size(), variants.first_key);
    for (size_t i = 0; i < count; ++i) {
      if (entry.value.type != Value::Type::kScalar || entry.value.text != variants.names[i])
        continue;
      index = i;
      return true;
    }
    const auto removed = std::ranges::find(variants.removed, entry.value.text, &RemovedName::name);
    if (removed != variants.removed.end()) {
      errors_.add(entry.value.location, key,
                  std::string(removed->name) + ' ' + std::string(removed->instead));
      return false;
    }
    std::vector<std::string> words(variants.names.begin(),
                                   variants.names.begin() + static_cast<ptrdiff_t>(count));
    const bool is_text = entry.value.type == Value::Type::kScalar;
    errors_.add(entry.value.location, key,
                "must be " + words_of(variants) + got(entry.value) +
                    (is_text ? did_you_mean(entry.value.text, words) : ""));
    return false;
  }

  // ---- mappings ----------------------------------------------------------------------------------

  void read_fields(const std::vector<Field>& fields, const Value& map, const std::string& key,
                   const Variants* variants) {
    for (const Entry& entry : map.entries) {
      if (variants != nullptr && entry.key == variants->discriminator) continue;
      const std::string full = key + '.' + entry.key;
      const auto field = std::ranges::find(fields, entry.key, &Field::name);
      if (field == fields.end()) {
        if (!errors_.has_error_for(full)) add_unknown_key(fields, entry, map, key, variants);
      } else if (entry.value.type != Value::Type::kRemoved) {
        const SourceLocation& at = entry.value.location;
        keys_.add(full, at.line > 0 || at.flag >= 0 ? at : entry.location);
        Value value = entry.value;
        if (value.type == Value::Type::kNull) value.location = entry.location;
        read_value(*field, full, value);
      }
    }
  }

  void add_unknown_key(const std::vector<Field>& fields, const Entry& entry, const Value& map,
                       const std::string& key, const Variants* variants) {
    if (variants == nullptr || variants->discriminator.empty())
      return add_unknown(entry, map, key, names_of(fields), nullptr);
    const std::vector<std::string_view> owners = owners_of(entry.key, *variants);
    if (owners.empty())
      return add_unknown(entry, map, key, names_with(fields, *variants), variants);
    const std::string choice = key + '.' + std::string(variants->discriminator);
    // Removed by --set KEY= because another choice on the command line requires that.
    const bool is_removed = entry.value.type == Value::Type::kRemoved;
    if (is_removed || errors_.has_error_for(choice)) return;
    const bool is_default = variants->selected < variants->first_key && !keys_.contains(choice);
    errors_.add(entry.location, key + '.' + entry.key,
                "not supported by " + std::string(variants->noun) + ' ' +
                    std::string(variants->names[variants->selected]) +
                    (is_default ? ", the default" : "") + " (only by " +
                    join_words(owners, " and ") + "); remove it" +
                    (is_default ? " or set " + choice : ""));
    // All keys of the variant that was meant would be errors.
    if (is_default) errors_.mark(choice);
  }

  void check_required(const std::vector<Field>& fields, const SourceLocation& location,
                      const std::string& key) {
    for (const Field& field : fields) {
      const std::string full = key + '.' + std::string(field.name);
      if (!field.is_required || errors_.has_error_for(full)) continue;
      const bool is_replaced =
          !field.replaced_by.empty() && keys_.contains(key + '.' + std::string(field.replaced_by));
      if (is_replaced) continue;
      if (!keys_.contains(full)) {
        errors_.add(location, full, required_message(field.name, field.help, field.example));
      } else if (is_empty(field)) {
        errors_.add(keys_.location_of(full), full, "must not be empty");
      }
    }
  }
  static bool is_empty(const Field& field) {
    return std::visit(
        [](const auto& target) {
          using T = std::decay_t<decltype(target)>;
          if constexpr (std::is_same_v<T, ListField> || std::is_same_v<T, TaggedListField>) {
            return target.size(target.target) == 0;
          } else if constexpr (std::is_same_v<T, SharesField>) {
            return target.shares->empty();
          } else if constexpr (requires { target->empty(); }) {
            return target->empty();
          } else {
            return false;
          }
        },
        field.target);
  }

  // ---- values ------------------------------------------------------------------------------------

  void read_value(const Field& field, const std::string& key, const Value& value) {
    if (field.accepts_epochs && value.type == Value::Type::kMap)
      return read_epochs(field, key, value);
    field_ = &field;
    key_ = key;
    std::visit([&](const auto& target) { read_into(value, target); }, field.target);
  }

  // "{epochs: 1.5}"; in the configuration of a run also with the steps that it has resolved them to.
  void read_epochs(const Field& field, const std::string& key, const Value& value) {
    const Field epochs_field{.name = "epochs",
                             .target = field.target,
                             .help = {},
                             .min = 0,
                             .max = kMaxEpochs,
                             .exclusive_min = field.min > 0};
    const Field steps_field{.name = "steps",
                            .target = field.target,
                            .help = {},
                            .min = 0,
                            .max = field.max,
                            .accepts_scalar = true};
    std::vector<double> epochs;
    std::vector<int64_t> steps;
    for (const Entry& entry : value.entries) {
      key_ = key + '.' + entry.key;
      if (entry.key == "steps") {
        field_ = &steps_field;
        read_into(entry.value, &steps);
      } else if (entry.key != "epochs") {
        errors_.add(entry.location, key,
                    "unknown key " + quoted(entry.key) + "; a number of epochs is {epochs: 1.5}");
      } else if (field_ = &epochs_field; is_list_of_steps(field)) {
        read_into(entry.value, &epochs);
      } else if (double number = 0; read_number(entry.value, number)) {
        epochs = {number};
      }
    }
    if (errors_.has_error_for(key) || errors_.has_error_for(key + ".epochs") ||
        errors_.has_error_for(key + ".steps"))
      return errors_.mark(key);
    if (epochs.empty()) {
      const bool has_key = std::ranges::count(value.entries, "epochs", &Entry::key) > 0;
      errors_.add(value.location, key,
                  has_key ? "must not be empty" : "must have the key epochs, as in {epochs: 1.5}");
      return;
    }
    steps.resize(epochs.size());
    config_.epochs[key] = epochs;
    set_steps(field, steps);
  }

  static std::string got(const Value& value) {
    switch (value.type) {
      case Value::Type::kScalar:
        return ", got " + quoted(value.text) + (value.in_quotes ? " in quotes" : "");
      case Value::Type::kList:
        return ", got a list";
      case Value::Type::kMap:
        return ", got a mapping";
      case Value::Type::kNull:
      case Value::Type::kRemoved:
        return ", got null";
    }
    return {};
  }
  void must_be(const Value& value, const std::string& what, const std::string& hint = {}) {
    errors_.add(value.location, key_, "must be " + what + got(value) + hint);
  }

  static bool is_null(const Value& value) { return value.type == Value::Type::kNull; }
  static bool is_word(const Value& value) {
    return value.type == Value::Type::kScalar && !value.in_quotes;
  }

  void read_into(const Value& value, bool* target) {
    if (is_word(value) && (value.text == "true" || value.text == "false")) {
      *target = value.text == "true";
    } else {
      must_be(value, "true or false");
    }
  }

  static std::string number_text(double number) {
    constexpr double kTwoTo64 = 18446744073709551616.0;  // exclusive upper bound of the seed
    if (number >= kTwoTo64) return std::to_string(std::numeric_limits<uint64_t>::max());
    if (number == std::floor(number) && number >= 0)
      return std::to_string(static_cast<uint64_t>(number));
    return to_yaml(Target(&number));
  }
  std::string range() const {
    const bool has_max = field_->max < std::numeric_limits<double>::max();
    const std::string from = (field_->exclusive_min ? "above "
                              : has_max             ? "from "
                                                    : "at least ") +
                             number_text(field_->min);
    if (!has_max) return from;
    return from + (field_->exclusive_min ? " and at most " : " to ") + number_text(field_->max);
  }
  bool in_range(double number) const {
    return number <= field_->max &&
           (field_->exclusive_min ? number > field_->min : number >= field_->min);
  }

  // `alternative`: other accepted values for the message, " or null".
  template <typename Number>
  bool read_number(const Value& value, Number& target, const std::string& alternative = {}) {
    const bool is_unbounded = field_->min == std::numeric_limits<double>::lowest();
    const std::string what = std::string(std::is_integral_v<Number> ? "an integer" : "a number") +
                             (is_unbounded ? "" : " " + range()) + alternative;
    Number number{};
    const char* begin = value.text.data();
    const char* const end = begin + value.text.size();
    if (begin != end && *begin == '+') ++begin;
    const auto parsed = std::from_chars(begin, end, number);
    const bool is_number = is_word(value) && parsed.ec == std::errc() && parsed.ptr == end &&
                           std::isfinite(static_cast<double>(number));
    if (!is_number || (!is_unbounded && !in_range(static_cast<double>(number)))) {
      must_be(value, what);
      return false;
    }
    target = number;
    return true;
  }
  void read_into(const Value& value, int* target) { read_number(value, *target); }
  void read_into(const Value& value, int64_t* target) { read_number(value, *target); }
  void read_into(const Value& value, uint64_t* target) { read_number(value, *target); }
  void read_into(const Value& value, double* target) { read_number(value, *target); }

  template <typename Number>
  void read_optional_number(const Value& value, std::optional<Number>* target) {
    const std::string_view word = field_->null_word.empty() ? "null" : field_->null_word;
    Number number{};
    if (is_null(value) || (is_word(value) && value.text == word)) {
      target->reset();
    } else if (read_number(value, number, " or " + std::string(word))) {
      *target = number;
    }
  }
  void read_into(const Value& value, std::optional<int>* target) {
    read_optional_number(value, target);
  }
  void read_into(const Value& value, std::optional<int64_t>* target) {
    read_optional_number(value, target);
  }
  void read_into(const Value& value, std::optional<uint64_t>* target) {
    read_optional_number(value, target);
  }
  void read_into(const Value& value, std::optional<double>* target) {
    read_optional_number(value, target);
  }

  bool read_text(const Value& value, std::string& target) {
    if (value.type != Value::Type::kScalar) {
      must_be(value, "text");
      return false;
    }
    // A tab is a valid delimiter of CSV files.
    const auto is_control = [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; };
    if (std::ranges::any_of(value.text, is_control)) {
      errors_.add(value.location, key_,
                  "must not contain a control character, got " + quoted(value.text));
      return false;
    }
    target = value.text;
    return true;
  }
  void read_into(const Value& value, std::string* target) {
    if (is_null(value) && field_->accepts_null) {
      target->clear();
    } else {
      read_text(value, *target);
    }
  }
  void read_into(const Value& value, std::optional<std::string>* target) {
    std::string text;
    if (is_null(value)) {
      target->reset();
    } else if (read_text(value, text)) {
      *target = std::move(text);
    }
  }

  void read_into(const Value& value, DeviceConfig* target) {
    const auto device =
        value.type == Value::Type::kScalar ? parse_device(value.text) : std::nullopt;
    if (device) {
      *target = *device;
    } else {
      must_be(value, "auto, cpu, cuda or cuda:N");
    }
  }

  void read_into(const Value& value, const EnumField& target) {
    if (is_null(value) && target.accepts_null) {
      target.set(target.target, target.words.size());
      return;
    }
    const auto found = std::ranges::find(target.words, std::string_view(value.text));
    if (value.type == Value::Type::kScalar && found != target.words.end()) {
      target.set(target.target, static_cast<size_t>(found - target.words.begin()));
      return;
    }
    const bool is_text = value.type == Value::Type::kScalar;
    must_be(value, join_words(target.words, " or ") + (target.accepts_null ? " or null" : ""),
            is_text ? did_you_mean(value.text, {target.words.begin(), target.words.end()}) : "");
  }

  void read_into(const Value& value, const NumbersOrKeyword& target) {
    *target.is_keyword = value.type == Value::Type::kScalar && value.text == target.keyword;
    if (*target.is_keyword || is_null(value)) {
      target.numbers->clear();
    } else if (value.type == Value::Type::kList) {
      read_into(value, target.numbers);
    } else {
      must_be(value,
              "a list such as [1, 2], the word " + std::string(target.keyword) + ", or null");
    }
  }

  template <typename T>
  void read_into(const Value& value, std::vector<T>* target) {
    constexpr bool kOfTexts = std::is_same_v<T, std::string>;
    if (is_null(value) && field_->accepts_null) {
      target->clear();
      return;
    }
    if constexpr (kOfTexts) {
      if (field_->accepts_scalar && value.type == Value::Type::kScalar) {
        std::string one;
        if (read_text(value, one)) *target = {std::move(one)};
        return;
      }
    } else if (field_->accepts_scalar && value.type == Value::Type::kScalar) {
      T one{};
      if (read_number(value, one)) *target = {one};
      return;
    }
    if (value.type != Value::Type::kList) {
      must_be(value, std::string("a list such as ") + (kOfTexts ? "[a, b]" : "[1, 2]") +
                         (field_->accepts_null ? ", or null" : ""));
      return;
    }
    if (!has_allowed_size(value)) return;
    std::vector<T> items(value.items.size());
    bool all_read = true;
    for (size_t i = 0; i < items.size(); ++i) {
      if constexpr (kOfTexts) {
        all_read = read_text(value.items[i], items[i]) && all_read;
      } else {
        all_read = read_number(value.items[i], items[i]) && all_read;
      }
    }
    if (all_read) *target = std::move(items);
  }
  bool has_allowed_size(const Value& value) {
    if (value.items.size() <= kMaxItems) return true;
    errors_.add(value.location, key_, "has more than " + std::to_string(kMaxItems) + " items");
    return false;
  }

  void read_into(const Value& value, const UntypedMapField& target) {
    if (value.type != Value::Type::kMap) {
      must_be(value, "a mapping such as {width: 64}");
    } else {
      *target.json = untyped_map_to_json(value, key_, errors_);
    }
  }

  void read_into(const Value& value, const SharesField& target) {
    if (value.type != Value::Type::kMap) {
      must_be(value, "a mapping of datasets to shares such as {code: 0.7, prose: 0.3}");
      return;
    }
    const std::string key = key_;
    target.shares->clear();
    for (const Entry& entry : value.entries) {
      if (entry.value.type == Value::Type::kRemoved) continue;
      key_ = key + '.' + entry.key;
      keys_.add(key_, entry.location);
      double share = 0;
      if (read_number(entry.value, share)) target.shares->emplace_back(entry.key, share);
    }
  }

  void read_into(const Value& value, const MappingField& target) {
    // A mapping that is always set has the defaults of its variant, not those of its type.
    if (is_null(value)) {
      if (target.is_optional) target.reset(target.target, false);
    } else if (value.type == Value::Type::kMap) {
      const std::string key = key_;
      if (target.is_optional) target.reset(target.target, true);
      const size_t errors_before = errors_.count();
      const std::vector<Field> fields = target.fields(target.target);
      read_fields(fields, value, key, nullptr);
      check_required(fields, value.location, key);
      if (errors_.count() != errors_before) errors_.mark(key);
    } else {
      if (target.is_optional) {
        must_be(value, "a mapping of settings or null");
      } else {
        must_be(value, "a mapping of settings",
                "; its keys are " + join_words(names_of(target.fields(target.target)), " and "));
      }
    }
  }

  void read_into(const Value& value, const ListField& target) {
    const std::string key = key_;
    target.resize(target.target, 1);
    const std::string form =
        "{" + join_words(names_of(target.fields(target.target, 0)), ", ") + "}";
    target.resize(target.target, 0);
    if (value.type != Value::Type::kList) {
      must_be(value, "a list such as [" + form + "]");
      return;
    }
    if (!has_allowed_size(value)) return;
    target.resize(target.target, value.items.size());
    for (size_t i = 0; i < value.items.size(); ++i) {
      const Value& item = value.items[i];
      key_ = key + '[' + std::to_string(i) + ']';
      if (item.type != Value::Type::kMap) {
        must_be(item, "a mapping of the form " + form);
        continue;
      }
      const std::string item_key = key_;
      const std::vector<Field> fields = target.fields(target.target, i);
      read_fields(fields, item, item_key, nullptr);
      check_required(fields, item.location, item_key);
    }
  }

  void read_into(const Value& value, const TaggedListField& target) {
    if (value.type != Value::Type::kList) {
      must_be(value, "a list such as [" + std::string(target.names[0]) + ": {}]");
      return;
    }
    if (!has_allowed_size(value)) return;
    const std::string key = key_;
    const size_t errors_before = errors_.count();
    target.clear(target.target);
    for (size_t i = 0; i < value.items.size(); ++i)
      read_item(value.items[i], target, key + '[' + std::to_string(i) + ']',
                "'- name: {arguments}'");
    // Consequential errors of a list with an invalid item are not reported.
    if (errors_.count() != errors_before) errors_.mark(key);
  }

  void read_into(const Value& value, const TaggedMapField& target) {
    const TaggedListField& values = target.values;
    if (value.type != Value::Type::kMap) {
      must_be(value, "a mapping such as {\"*\": " + std::string(values.names[0]) + "}");
      return;
    }
    const std::string key = key_;
    const size_t errors_before = errors_.count();
    values.clear(values.target);
    for (const Entry& entry : value.entries) {
      if (entry.value.type == Value::Type::kRemoved) continue;
      key_ = key;
      std::string pattern;
      const Value name{.type = Value::Type::kScalar, .location = entry.location, .text = entry.key};
      if (!read_text(name, pattern)) continue;
      const size_t size = values.size(values.target);
      read_item(entry.value, values, key + '.' + pattern, "'{name: {arguments}}'");
      if (values.size(values.target) > size) target.pattern(values.target, size) = pattern;
    }
    if (errors_.count() != errors_before) errors_.mark(key);
  }

  // `form`: of an item with arguments, for messages.
  void read_item(const Value& item, const TaggedListField& target, const std::string& key,
                 const char* form) {
    key_ = key;
    const bool is_mapping = item.type == Value::Type::kMap && item.entries.size() == 1;
    if (!is_mapping && item.type != Value::Type::kScalar) {
      must_be(item, std::string("a mapping with one key, ") + form);
      return;
    }
    const std::string& name = is_mapping ? item.entries[0].key : item.text;
    const auto found = std::ranges::find(target.names, std::string_view(name));
    if (found == target.names.end()) {
      errors_.add(item.location, key,
                  "must be " + join_words(target.names, " or ") + ", got " + quoted(name) +
                      did_you_mean(name, {target.names.begin(), target.names.end()}));
      return;
    }
    target.add(target.target, static_cast<size_t>(found - target.names.begin()));
    const std::vector<Field> fields = target.fields(target.target, target.size(target.target) - 1);
    const std::string item_key = key + '.' + name;
    keys_.add(item_key, item.location);
    const Value nothing{.type = Value::Type::kMap, .location = item.location};
    const Value& arguments = is_mapping ? item.entries[0].value : nothing;
    if (fields.size() == 1 && fields[0].name.empty()) {
      read_value(fields[0], item_key, arguments);
    } else if (arguments.type == Value::Type::kMap || is_null(arguments)) {
      read_fields(fields, arguments, item_key, nullptr);
      check_required(fields, item.location, item_key);
    } else {
      key_ = item_key;
      must_be(arguments, "a mapping of arguments");
    }
  }

  Config& config_;
  ConfigErrors& errors_;
  ExplicitKeys keys_;
  const Field* field_ = nullptr;  // field that is being read
  std::string key_;               // its full name
};

}  // namespace

ExplicitKeys read_settings(const Value& root, Config& config, ConfigErrors& errors) {
  return Reader(config, errors).read(root);
}

}  // namespace stoker::config
