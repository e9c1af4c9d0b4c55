// ReferenceEntry: the settings of a section in all its variants, as the generated documents show them.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "shared/config/config.h"
#include "shared/config/schema.h"

namespace stoker::config {

// What ReferenceEntry::nested is.
enum class Nesting {
  kNone,
  kKeys,     // of a mapping
  kItem,     // the keys of each item of a list
  kChoices,  // of which each item of a list names one: transforms, layers
};

// A setting as some variants of its section have it: another variant can give a key another meaning.
struct ReferenceEntry {
  std::string name;
  std::string help;           // one line
  std::string details;        // sentences, or empty
  std::string values;         // "integer from 1 to 1000, or null"
  std::string default_value;  // YAML
  std::string example;        // YAML, or empty
  bool is_required = false;
  bool is_selected = false;             // the selected variant has it
  std::vector<std::string> variants;    // that have it; empty: all
  std::vector<std::string> exceptions;  // the other ones
  OnResume on_resume = OnResume::kFree;
  Nesting nesting = Nesting::kNone;
  std::vector<ReferenceEntry> nested;

  // Whether it is a mapping that is null by default.
  bool is_null_mapping() const { return nesting == Nesting::kKeys && default_value == "null"; }
};

// Of the section with this key, in the order of the tables; entries with the same name are neighbors,
// that of the selected variant first.
std::vector<ReferenceEntry> reference_entries(const Config& config, const std::string& section);

// The field's value as YAML: "auto" or null where it is absent.
std::string field_value(const Field& field);

// Names that are selected by `format` or `name`; mixture and concat are not.
std::vector<std::string> selectable_names(const Variants& variants);

// "Number of samples. 1 to 1000.": a help text and its details as sentences.
std::string sentences(const std::string& help, const std::string& details);

std::string join(const std::vector<std::string>& words, const std::string& separator);

}  // namespace stoker::config
