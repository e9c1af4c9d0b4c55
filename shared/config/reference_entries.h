// ReferenceEntry: a setting of a section over all variants, as shown in the generated documents.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "shared/config/config.h"
#include "shared/config/schema.h"

namespace stoker::config {

// The content of ReferenceEntry::nested.
enum class Nesting {
  kNone,
  kKeys,     // keys of a mapping
  kItem,     // keys of each item of a list
  kChoices,  // choices for each item of a list: transforms, layers
  kValues,   // choices for each value of a mapping with patterns as keys: model.init
};

// A setting as some variants of its section define it; other variants can define the same key
// differently.
struct ReferenceEntry {
  std::string name;
  std::string help;                // one line
  std::string details;             // sentences, or empty
  std::string values;              // "integer from 1 to 1000, or null"
  std::vector<std::string> words;  // the values, if they are words: of an enum, true, false
  std::string default_value;       // YAML
  std::string example;             // YAML, or empty
  bool is_required = false;
  bool is_selected = false;             // the selected variant has it
  std::vector<std::string> variants;    // variants that have the setting; empty: all
  std::vector<std::string> exceptions;  // variants that do not have it
  OnResume on_resume = OnResume::kFree;
  Nesting nesting = Nesting::kNone;
  std::vector<ReferenceEntry> nested;

  // True if this is a mapping that is null by default.
  bool is_null_mapping() const { return nesting == Nesting::kKeys && default_value == "null"; }
};

// The entries of the section with this key, in table order. Entries with the same name are
// adjacent, with the one of the selected variant first.
std::vector<ReferenceEntry> reference_entries(const Config& config, const std::string& section);

// The field's value as YAML: "auto" or null if it is absent.
std::string field_value(const Field& field);

// Names that `format` or `name` can select, so without mixture and concat.
std::vector<std::string> selectable_names(const Variants& variants);

// A help text and its details as sentences: "Number of samples. 1 to 1000.".
std::string sentences(const std::string& help, const std::string& details);

}  // namespace stoker::config
