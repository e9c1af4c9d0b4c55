#include "shared/config/read_settings.h"

#include <algorithm>

#include "shared/config/field_reader.h"
#include "shared/config/nearest_word.h"
#include "shared/config/schema.h"

namespace stoker::config {
namespace {

constexpr size_t kMaxDatasets = 64;
constexpr size_t kMaxDatasetName = 64;

// --set KEY= : what the file said is gone, and the default holds.
bool is_taken_out(const Entry& entry) {
  return entry.value.type == Value::Type::kNothing && entry.place.flag >= 0;
}

class SettingsReader {
 public:
  SettingsReader(const Value& root, Config& config, Mistakes& mistakes)
      : root_(root), config_(config), mistakes_(mistakes) {}

  GivenKeys read() {
    if (root_.type == Value::Type::kNothing) return given_;
    if (root_.type != Value::Type::kMap) {
      mistakes_.add(root_.place, "",
                    "a configuration is sections of keys, such as 'train: {steps: 100}'");
      return given_;
    }
    read_datasets();  // first: they add sections
    const std::vector<Section> sections = sections_of(config_);
    for (const Entry& entry : root_.entries) {
      if (entry.key == "data") continue;
      const auto section = std::ranges::find(sections, entry.key, &Section::key);
      if (section == sections.end()) {
        unknown_section(sections, entry);
      } else {
        read_section(*section, entry);
      }
    }
    return given_;
  }

 private:
  void unknown_section(const std::vector<Section>& sections, const Entry& entry) {
    std::vector<std::string> names = {"data"};
    std::string home;
    for (const Section& section : sections) {
      if (section.key.starts_with("data.")) continue;
      names.push_back(section.key);
      if (home.empty() && section.find(entry.key) != nullptr) home = section.key + '.' + entry.key;
    }
    std::string near = nearest_word(entry.key, names);
    if (near.empty()) near = home;
    mistakes_.add(entry.place, entry.key,
                  "no such section" + (near.empty() ? "" : "; did you mean " + quoted(near) + "?"));
  }

  static bool is_dataset_name(std::string_view name) {
    const auto ok = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '-';
    };
    return !name.empty() && name.size() <= kMaxDatasetName && name[0] != '-' &&
           std::ranges::all_of(name, ok);
  }

  void read_datasets() {
    const auto data = std::ranges::find(root_.entries, "data", &Entry::key);
    if (data == root_.entries.end() || !is_section(*data, "data")) return;
    for (const Entry& entry : data->value.entries) {
      const std::string key = "data." + entry.key;
      if (is_taken_out(entry)) continue;
      if (!is_dataset_name(entry.key)) {
        mistakes_.add(entry.place, key, "a data set is named with letters, digits, _ and -");
      } else if (config_.data.size() == kMaxDatasets) {
        mistakes_.add(entry.place, key, "more than " + std::to_string(kMaxDatasets) + " data sets");
      } else {
        DatasetConfig& set = config_.data[entry.key];
        read_section(dataset_section(entry.key, set, false), entry);
      }
    }
  }

  // Whether `entry` can be read as a section; an empty one is (everything in it commented out).
  bool is_section(const Entry& entry, const std::string& key) {
    given_.add(key, entry.place);
    const bool fits =
        entry.value.type == Value::Type::kMap || entry.value.type == Value::Type::kNothing;
    if (!fits) mistakes_.add(entry.value.place, key, "is a section; write its keys below it");
    return fits;
  }

  void read_section(const Section& section, const Entry& entry) {
    if (!is_section(entry, section.key)) return;
    const std::vector<Entry>& entries = entry.value.entries;
    // The kind first: it decides which of the others are read.
    const auto kind = std::ranges::find(entries, section.kind_field, &Entry::key);
    if (kind != entries.end()) read_field(section, *kind);
    for (const Entry& each : entries)
      if (each.key != section.kind_field) read_field(section, each);
  }

  void read_field(const Section& section, const Entry& entry) {
    const std::string key = section.key + '.' + entry.key;
    const Field* const field = section.find(entry.key);
    if (field == nullptr) {
      std::vector<std::string> names;
      for (const Field& each : section.fields) names.emplace_back(each.name);
      const std::string near = nearest_word(entry.key, names);
      mistakes_.add(entry.place, key,
                    "no such key" + (near.empty() ? "" : "; did you mean " + quoted(near) + "?"));
      return;
    }
    if (is_taken_out(entry)) return;
    if (!section.reads(*field)) {
      const std::string kind_field(section.kind_field);
      if (mistakes_.touches(section.key + '.' + kind_field)) return;
      const std::string readers =
          field->kinds.empty() ? "" : " (only by " + std::string(field->kinds) + ')';
      mistakes_.add(entry.place, key,
                    "is not read by " + kind_field + ' ' + std::string(section.kind()) + readers +
                        "; remove it");
      return;
    }
    given_.add(key, entry.value.place.line > 0 || entry.value.place.flag >= 0 ? entry.value.place
                                                                              : entry.place);
    Value value = entry.value;
    if (value.type == Value::Type::kNothing) value.place = entry.place;
    config::read_field(*field, key, value, mistakes_);
  }

  const Value& root_;
  Config& config_;
  Mistakes& mistakes_;
  GivenKeys given_;
};

}  // namespace

GivenKeys read_settings(const Value& root, Config& config, Mistakes& mistakes) {
  return SettingsReader(root, config, mistakes).read();
}

}  // namespace stoker::config
