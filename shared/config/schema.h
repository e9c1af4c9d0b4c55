// schema: the fields of every section by name: what reads, writes and compares a configuration goes
// through this one list.
//
// Threads: values that point into the Config they were made of.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "shared/config/config.h"

namespace stoker::config {

// An enum field: its words in the order of the enumerators.
struct Choice {
  std::span<const std::string_view> words;
  void* target;
  int (*get)(const void* target);
  void (*set)(void* target, int value);
};

template <typename Enum>
Choice choice(Enum& target, std::span<const std::string_view> words) {
  static_assert(std::is_enum_v<Enum>);
  return {.words = words,
          .target = &target,
          .get = [](const void* from) { return static_cast<int>(*static_cast<const Enum*>(from)); },
          .set = [](void* to, int value) { *static_cast<Enum*>(to) = static_cast<Enum>(value); }};
}

struct Field;

// A list of small sections, each with the same few fields: optimizer.groups.
struct Rows {
  void* target;
  size_t (*size)(const void* target);
  void (*resize)(void* target, size_t rows);  // new rows are at their defaults
  std::vector<Field> (*fields)(void* target, size_t row);
};

// A mapping whose keys are not stoker's, as the text of a JSON object: free_map.h.
struct FreeMap {
  std::string* json;
};

// A list of numbers, or one word in its place.
struct NumbersOrWord {
  std::vector<double>* numbers;  // none where it is the word
  bool* is_word;
  std::string_view word;
};

using Target =
    std::variant<bool*, int*, int64_t*, uint64_t*, double*, std::optional<double>*,
                 std::optional<int>*, std::string*, Choice, std::vector<double>*,
                 std::vector<int64_t>*, std::vector<std::string>*, NumbersOrWord, Rows, FreeMap>;

struct Field {
  std::string_view name;
  Target target;
  // Of a number, or of each number of a list.
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
  bool above_min = false;           // min itself is not allowed
  std::string_view kinds = {};      // the kinds of the section that read it; empty: all …
  std::string_view not_kinds = {};  // … but these
  std::string_view words = {};      // of a text: the only values, "fp32 bf16"
  bool may_stand_alone = false;     // of a list of texts: one text is a list of one
  bool may_be_off = true;           // of a number that may be missing: the word off says that it is
  bool is_required = false;         // of a text or whole number in a row: it must be given
  bool decides = false;             // it has a part in what training computes: see digest()
};

// `fields_of(row)` names the fields of one row.
template <typename Row, std::vector<Field> (*fields_of)(Row& row)>
Rows rows(std::vector<Row>& target) {
  using List = std::vector<Row>;
  return {.target = &target,
          .size = [](const void* from) { return static_cast<const List*>(from)->size(); },
          .resize = [](void* to, size_t count) { static_cast<List*>(to)->resize(count); },
          .fields = [](void* of, size_t row) { return fields_of((*static_cast<List*>(of))[row]); }};
}

struct Section {
  std::string key;  // "train", "data.valid"
  std::vector<Field> fields;
  std::string_view kind_field = "kind";  // the field whose word is the section's kind

  const Field* find(std::string_view name) const;
  // The word of the kind's field; empty where the section has none.
  std::string_view kind() const;
  // Whether the section's kind reads the field.
  bool reads(const Field& field) const;
};

// `trains`: training reads the set.
Section dataset_section(const std::string& name, DatasetConfig& set, bool trains);
// All of them, in the order of config/stoker.yaml; data sets by name, train first.
std::vector<Section> sections_of(Config& config);

// Whether `word` stands in `words`, which are separated by spaces.
bool is_word_of(std::string_view words, std::string_view word);

// The field's value as YAML on one line.
std::string yaml_of(const Target& target);

}  // namespace stoker::config
