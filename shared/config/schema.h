// Schema: the descriptors of all settings. Reading, --set, --check-config, comparing two
// configurations, the manual config/stoker.yaml, docs/configuration.md, the JSON Schema, the man
// page and the completion of --set all use these tables. A new setting consists of a member in its struct, an entry in its
// table (settings_*.cc) and the code that uses it.
//
// Threads: values that point into the Config they describe.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "shared/config/config.h"

namespace stoker::config {

struct Field;

inline constexpr double kMaxEpochs = 1e9;
inline constexpr double kMaxSeed =
    18446744073709551616.0;  // 2^64: the largest uint64_t as a double

// A word of an enum.
struct EnumField {
  std::span<const std::string_view> words;
  void* target;
  // null is words.size(), if it is accepted.
  size_t (*get)(const void* target);
  void (*set)(void* target, size_t value);
  bool accepts_null = false;
};

// A mapping with fixed keys: eval.early_stopping. If it is optional, null unsets it.
struct MappingField {
  void* target;
  bool is_optional;
  bool (*is_set)(const void* target);
  void (*reset)(void* target, bool is_set);    // sets the defaults, or null if `is_set` is false
  std::vector<Field> (*fields)(void* target);  // fields of a mapping that is set
};

// A list of mappings with the same fixed keys: optimizer.param_groups.
struct ListField {
  void* target;
  size_t (*size)(const void* target);
  void (*resize)(void* target, size_t size);  // new items have their defaults
  std::vector<Field> (*fields)(void* target, size_t item);
};

// A list of mappings with a single key that names a variant: data.train.transforms, model.layers.
// The value of the key is a mapping of the variant's fields; `- name` alone uses the defaults. If
// the only field of a variant has no name, the value of the key is that field: random_choice.
struct TaggedListField {
  std::span<const std::string_view> names;
  void* target;
  size_t (*size)(const void* target);
  void (*clear)(void* target);
  void (*add)(void* target, size_t variant);  // with its defaults
  size_t (*variant)(const void* target, size_t item);
  std::vector<Field> (*fields)(void* target, size_t item);
};

// A mapping with patterns as keys, whose values have the form of the items of a tagged list:
// model.init.
struct TaggedMapField {
  TaggedListField values;
  std::string& (*pattern)(void* target, size_t item);
};

// A mapping with user-defined keys, as the text of a JSON object: model.args of a plugin.
struct UntypedMapField {
  std::string* json;
};

// A mapping of names to numbers above 0: data.NAME.mixture.
struct SharesField {
  std::vector<std::pair<std::string, double>>* shares;
};

// A list of numbers, or one word: task.class_weights.
struct NumbersOrKeyword {
  std::vector<double>* numbers;  // empty if the value is the word
  bool* is_keyword;
  std::string_view keyword;
};

using Target = std::variant<bool*, int*, int64_t*, uint64_t*, double*, std::string*,
                            std::optional<int>*, std::optional<int64_t>*, std::optional<uint64_t>*,
                            std::optional<double>*, std::optional<std::string>*,
                            std::vector<double>*, std::vector<int64_t>*, std::vector<std::string>*,
                            DeviceConfig*, EnumField, NumbersOrKeyword, MappingField, ListField,
                            TaggedListField, TaggedMapField, UntypedMapField, SharesField>;

struct Field {
  std::string_view name;
  Target target;
  // One line: a noun phrase or an imperative, with the unit, without a full stop.
  std::string_view help;
  // More text for the manual: range, effect, costs, examples. Sentences; can be empty.
  std::string_view details = {};
  // Bounds of a number, or of each number of a list.
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
  bool exclusive_min = false;
  // The word for an absent number: "auto" for feed.num_workers, otherwise null.
  std::string_view null_word = {};
  bool accepts_null = false;          // for a text or list: null means empty
  bool accepts_scalar = false;        // for a list of texts: one text is a list of one
  bool accepts_epochs = false;        // for steps: also {epochs: 1.5}; see Config::epochs
  bool is_required = false;           // for a text, number or list: it has no default
  std::string_view replaced_by = {};  // a key of the section with which this one is not required
  bool affects_result = false;        // included in digest()
  OnResume on_resume = OnResume::kFree;
  std::string_view example = {};  // YAML, for the manual, if the default is not informative
  // The value can contain credentials, as a command or a URL can: only owner and operators see it.
  // Of a field of a section or mapping; it covers the fields of a list.
  bool is_secret = false;
};

// ---- creating targets ---------------------------------------------------------------------------

template <typename Enum>
EnumField choice(Enum& target) {
  return {
      .words = kWords<Enum>,
      .target = &target,
      .get = [](const void* from) { return static_cast<size_t>(*static_cast<const Enum*>(from)); },
      .set = [](void* to, size_t value) { *static_cast<Enum*>(to) = static_cast<Enum>(value); }};
}

template <typename Enum>
EnumField choice(std::optional<Enum>& target) {
  using Optional = std::optional<Enum>;
  return {.words = kWords<Enum>,
          .target = &target,
          .get =
              [](const void* from) {
                const auto& value = *static_cast<const Optional*>(from);
                return value ? static_cast<size_t>(*value) : kWords<Enum>.size();
              },
          .set =
              [](void* to, size_t value) {
                const bool is_null = value == kWords<Enum>.size();
                *static_cast<Optional*>(to) =
                    is_null ? Optional() : Optional(static_cast<Enum>(value));
              },
          .accepts_null = true};
}

// `fields_of(value)` describes the keys of one mapping.
template <auto fields_of, typename T>
MappingField mapping(T& target) {
  return {.target = &target,
          .is_optional = false,
          .is_set = [](const void*) { return true; },
          .reset = [](void* to, bool) { *static_cast<T*>(to) = T(); },
          .fields = [](void* of) { return fields_of(*static_cast<T*>(of)); }};
}
template <auto fields_of, typename T>
MappingField mapping(std::optional<T>& target) {
  using Optional = std::optional<T>;
  return {.target = &target,
          .is_optional = true,
          .is_set = [](const void* of) { return static_cast<const Optional*>(of)->has_value(); },
          .reset =
              [](void* to, bool is_set) {
                auto& optional = *static_cast<Optional*>(to);
                if (is_set)
                  optional.emplace();
                else
                  optional.reset();
              },
          .fields = [](void* of) { return fields_of(**static_cast<Optional*>(of)); }};
}

template <auto fields_of, typename T>
ListField list(std::vector<T>& target) {
  using List = std::vector<T>;
  return {
      .target = &target,
      .size = [](const void* of) { return static_cast<const List*>(of)->size(); },
      .resize = [](void* of, size_t size) { static_cast<List*>(of)->resize(size); },
      .fields = [](void* of, size_t item) { return fields_of((*static_cast<List*>(of))[item]); }};
}

// Replaces `variant` by a default-constructed alternative `index`.
template <typename... Ts>
void emplace_alternative(std::variant<Ts...>& variant, size_t index) {
  size_t i = 0;
  ((i++ == index ? void(variant.template emplace<Ts>()) : void()), ...);
}

// `fields_of(item)` describes the keys of the item's alternative; `names` has the same order as the
// alternatives. T is a std::variant, or a type derived from one.
template <auto fields_of, typename T>
TaggedListField tagged_list(std::vector<T>& target, std::span<const std::string_view> names) {
  using List = std::vector<T>;
  return {
      .names = names,
      .target = &target,
      .size = [](const void* of) { return static_cast<const List*>(of)->size(); },
      .clear = [](void* of) { static_cast<List*>(of)->clear(); },
      .add =
          [](void* of, size_t variant) {
            emplace_alternative(static_cast<List*>(of)->emplace_back(), variant);
          },
      .variant = [](const void* of,
                    size_t item) { return (*static_cast<const List*>(of))[item].index(); },
      .fields = [](void* of, size_t item) { return fields_of((*static_cast<List*>(of))[item]); }};
}

// As tagged_list(), for items with a `pattern` and the variant in `value`.
template <auto fields_of, typename T>
TaggedMapField tagged_map(std::vector<T>& target, std::span<const std::string_view> names) {
  using Map = std::vector<T>;
  return {
      .values = {
          .names = names,
          .target = &target,
          .size = [](const void* of) { return static_cast<const Map*>(of)->size(); },
          .clear = [](void* of) { static_cast<Map*>(of)->clear(); },
          .add =
              [](void* of, size_t variant) {
                emplace_alternative(static_cast<Map*>(of)->emplace_back().value, variant);
              },
          .variant = [](const void* of,
                        size_t item) { return (*static_cast<const Map*>(of))[item].value.index(); },
          .fields = [](void* of,
                       size_t item) { return fields_of((*static_cast<Map*>(of))[item].value); }},
      .pattern = [](void* of, size_t item) -> std::string& {
        return (*static_cast<Map*>(of))[item].pattern;
      }};
}

// ---- sections ------------------------------------------------------------------------------------

// A name that a discriminator had in an earlier release.
struct RemovedName {
  std::string_view name;
  std::string_view instead;  // "was removed; set …"
};

// A section whose keys depend on one of them: `name` of a model, `format` of a dataset.
struct Variants {
  std::string_view discriminator = {};  // empty: the section has no variants
  std::string_view noun = {};           // in messages: "model", "format"
  std::vector<std::string_view> names;
  size_t selected = 0;
  // Replaces the value by the defaults of names[i]; the section must then be rebuilt.
  std::function<void(size_t)> select;
  // The keys of names[i].
  std::function<std::vector<std::string_view>(size_t)> keys;
  // Names from this index on are keys that replace the discriminator: mixture, concat.
  size_t first_key = std::numeric_limits<size_t>::max();
  std::string_view help = {};
  std::string_view details = {};
  std::span<const RemovedName> removed = {};
  bool is_required = false;
  std::string_view required_help = {};  // "set it to …"; empty: to one of the names
  bool affects_result = true;
  OnResume on_resume = OnResume::kModel;
};

using Fields = std::vector<Field>;

inline Fields concat(std::initializer_list<Fields> parts) {
  Fields all;
  for (const Fields& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

struct Section {
  std::string key;  // "train", "data.val"
  std::string_view help;
  std::vector<Field> fields;  // of the selected variant; the discriminator is not among them
  Variants variants;

  const Field* find(std::string_view name) const;
};

Section dataset_section(const std::string& name, DatasetConfig& dataset);
Section feed_section(FeedConfig& feed);
Section model_section(ModelConfig& model);
Section task_section(TaskConfig& task);
Section optimizer_section(OptimizerConfig& optimizer);
Section scheduler_section(SchedulerConfig& scheduler);
Section train_section(TrainConfig& train);
Section distributed_section(DistributedConfig& distributed);
Section cluster_section(ClusterConfig& cluster);
Section run_section(RunConfig& run);
Section checkpoint_section(CheckpointConfig& checkpoint);
Section eval_section(EvalConfig& eval);
Section metrics_section(MetricsConfig& metrics);
Section watchdog_section(WatchdogConfig& watchdog);
Section control_section(ControlConfig& control);
Section log_section(LogConfig& log);

// All sections in the order of config/stoker.yaml; datasets by name, train first.
std::vector<Section> all_sections(Config& config);
// The one with this key; an empty one if there is none.
Section find_section(Config& config, const std::string& key);

// The field's value as YAML on one line.
std::string to_yaml(const Target& target);

}  // namespace stoker::config
