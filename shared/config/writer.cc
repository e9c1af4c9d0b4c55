// Configurations as text: YAML, digest, differences.
#include <algorithm>
#include <array>
#include <map>
#include <variant>

#include "shared/base/hash.h"
#include "shared/base/number_format.h"
#include "shared/base/utf8.h"
#include "shared/config/config_errors.h"
#include "shared/config/epochs.h"
#include "shared/config/former_defaults.h"
#include "shared/config/load_config.h"
#include "shared/config/schema.h"

namespace stoker::config {
namespace {

// ---- values --------------------------------------------------------------------------------------

// Words that YAML 1.1, which many parsers implement, reads as a bool or null.
bool is_yaml_word(std::string text) {
  constexpr std::array<std::string_view, 9> kWords{"null", "true", "false", "yes", "no",
                                                   "on",   "off",  "y",     "n"};
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return std::ranges::count(kWords, text) > 0;
}

// Unquoted if every YAML parser reads it as this text, otherwise in double quotes.
std::string yaml_of(const std::string& text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto is_plain = [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '/' || c == '.' || c == '-' ||
           c == '+';
  };
  const bool starts_plain = !text.empty() && (is_letter(text[0]) || text[0] == '/');
  if (starts_plain && !is_yaml_word(text) && std::ranges::all_of(text, is_plain)) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\t')
      out += "\\t";
    else
      out += c;
  }
  // C1 controls and bidirectional overrides: in YAML as in JSON.
  return printable_json(out) + '"';
}
std::string yaml_of(bool value) { return value ? "true" : "false"; }
std::string yaml_of(int value) { return format_shortest(value); }
std::string yaml_of(int64_t value) { return format_shortest(value); }
std::string yaml_of(uint64_t value) { return format_shortest(value); }
// An exponent requires a decimal point, because YAML 1.1 parses 1e-08 as text.
std::string yaml_of(double value) {
  std::string text = format_shortest(value);
  const size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos)
    text.insert(exponent, ".0");
  return text;
}
std::string yaml_of(const DeviceConfig& device) { return yaml_of(to_string(device)); }

template <typename T>
std::string yaml_of(const std::optional<T>& value) {
  return value ? yaml_of(*value) : "null";
}
template <typename T>
std::string yaml_of(const std::vector<T>& list) {
  std::string out = "[";
  for (const T& item : list) out += (out.size() > 1 ? ", " : "") + yaml_of(item);
  return out + "]";
}

std::string value_of(const Field& field);

// Required fields and those that differ from `defaults`, as "name: value, name: value". Empty if
// there are none.
std::string yaml_entries(const std::vector<Field>& fields, const std::vector<Field>& defaults) {
  std::string out;
  for (size_t i = 0; i < fields.size(); ++i) {
    const Field& field = fields[i];
    const std::string value = value_of(field);
    const bool is_required = field.is_required && field.replaced_by.empty();
    if (!is_required && i < defaults.size() && value == value_of(defaults[i])) continue;
    out += (out.empty() ? "" : ", ") + std::string(field.name) + ": " + value;
  }
  return out;
}

std::string yaml_of(const MappingField& mapping) {
  if (!mapping.is_set(mapping.target)) return "null";
  return '{' + yaml_entries(mapping.fields(mapping.target), {}) + '}';
}

// Each item with the values that differ from a new item: "[{params: "tok.*", lr_scale: 0.1}]".
std::string yaml_of(const ListField& list) {
  const size_t count = list.size(list.target);
  list.resize(list.target, count + 1);  // the last item has its defaults
  std::string out = "[";
  for (size_t i = 0; i < count; ++i)
    out += (i > 0 ? ", {" : "{") +
           yaml_entries(list.fields(list.target, i), list.fields(list.target, count)) + "}";
  list.resize(list.target, count);
  return out + "]";
}

std::string item_of(const TaggedListField& list, size_t i) {
  const std::string name(list.names[list.variant(list.target, i)]);
  const std::vector<Field> fields = list.fields(list.target, i);
  if (fields.empty()) return name;
  if (fields.size() == 1 && fields[0].name.empty()) return name + ": " + value_of(fields[0]);
  return name + ": {" + yaml_entries(fields, {}) + '}';
}
std::string yaml_of(const TaggedListField& list) {
  std::string out = "[";
  for (size_t i = 0; i < list.size(list.target); ++i) out += (i > 0 ? ", " : "") + item_of(list, i);
  return out + "]";
}

// "{weight: {normal: {mean: 0, std: 0.1}}, bias: zeros}"
std::string yaml_of(const TaggedMapField& map) {
  const TaggedListField& values = map.values;
  std::string out;
  for (size_t i = 0; i < values.size(values.target); ++i) {
    const std::string item = item_of(values, i);
    const bool has_arguments = !values.fields(values.target, i).empty();
    out += (i > 0 ? ", " : "") + yaml_of(map.pattern(values.target, i)) + ": " +
           (has_arguments ? '{' + item + '}' : item);
  }
  return '{' + out + '}';
}

std::string yaml_of(const SharesField& field) {
  std::string out;
  for (const auto& [name, share] : *field.shares)
    out += (out.empty() ? "" : ", ") + yaml_of(name) + ": " + yaml_of(share);
  return '{' + out + '}';
}

template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

// An absent number as its word; an empty text or list that accepts null as null.
std::string value_of(const Field& field) {
  return std::visit(
      [&](const auto& target) -> std::string {
        using T = std::decay_t<decltype(target)>;
        if constexpr (std::is_pointer_v<T>) {
          using Value = std::remove_pointer_t<T>;
          if constexpr (kIsOptional<Value>) {
            if (!*target && !field.null_word.empty()) return std::string(field.null_word);
          } else if constexpr (requires { target->empty(); }) {
            if (target->empty() && field.accepts_null) return "null";
          }
        }
        if constexpr (std::is_same_v<T, NumbersOrKeyword>) {
          if (!*target.is_keyword && target.numbers->empty() && field.accepts_null) return "null";
        }
        return to_yaml(field.target);
      },
      field.target);
}

// Of a setting in epochs, "epochs: 1.5".
std::string epochs_of(const std::vector<double>& epochs, const Field& field) {
  return "epochs: " + (is_list_of_steps(field) ? yaml_of(epochs) : yaml_of(epochs.front()));
}

// ---- leaves: every setting by its full name -----------------------------------------------------

struct Leaf {
  std::string key;
  std::string value;
  OnResume on_resume;
  bool affects_result;
  bool is_secret = false;
};

void add_leaves(const Config& config, const std::string& section, const std::vector<Field>& fields,
                std::vector<Leaf>& leaves) {
  for (const Field& field : fields) {
    const std::string key = section + '.' + std::string(field.name);
    const auto* const mapping = std::get_if<MappingField>(&field.target);
    if (mapping != nullptr && mapping->is_set(mapping->target)) {
      add_leaves(config, key, mapping->fields(mapping->target), leaves);
    } else {
      const auto epochs = config.epochs.find(key);
      const bool has_epochs = epochs != config.epochs.end();
      leaves.push_back({key,
                        has_epochs ? "{" + epochs_of(epochs->second, field) + "}" : value_of(field),
                        field.on_resume, field.affects_result, field.is_secret});
    }
  }
}

bool has_name(const Variants& variants) {
  return !variants.discriminator.empty() && variants.selected < variants.first_key;
}

std::vector<Leaf> leaves_of(const Config& config) {
  Config copy = config;  // the schema needs mutable pointers
  std::vector<Leaf> leaves;
  for (const Section& section : all_sections(copy)) {
    if (const Variants& variants = section.variants; has_name(variants)) {
      leaves.push_back({section.key + '.' + std::string(variants.discriminator),
                        std::string(variants.names[variants.selected]), variants.on_resume,
                        variants.affects_result});
    }
    add_leaves(copy, section.key, section.fields, leaves);
  }
  return leaves;
}

// A configuration with the same variants and otherwise default settings.
Config defaults_of(const Config& config) {
  Config copy = config;
  Config defaults;
  for (const auto& [name, dataset] : config.data) defaults.data[name] = {};
  for (const Section& section : all_sections(copy)) {
    if (section.variants.discriminator.empty()) continue;
    for (const Section& other : all_sections(defaults))
      if (other.key == section.key) {
        other.variants.select(section.variants.selected);
        break;
      }
  }
  return defaults;
}

// ---- blocks --------------------------------------------------------------------------------------

// `section`: the full name of what has the fields.
void write_fields(const Config& config, const std::string& section,
                  const std::vector<Field>& fields, const std::string& indent, std::string& out) {
  for (const Field& field : fields) {
    const std::string key = section + '.' + std::string(field.name);
    const std::string start = indent + std::string(field.name) + ":";
    const auto epochs = config.epochs.find(key);
    const auto* const list = std::get_if<TaggedListField>(&field.target);
    const auto* const mapping = std::get_if<MappingField>(&field.target);
    if (list != nullptr && list->size(list->target) > 0) {
      out += start + '\n';
      for (size_t i = 0; i < list->size(list->target); ++i)
        out += indent + "  - " + item_of(*list, i) + '\n';
    } else if (mapping != nullptr && mapping->is_set(mapping->target)) {
      out += start + '\n';
      write_fields(config, key, mapping->fields(mapping->target), indent + "  ", out);
    } else if (epochs != config.epochs.end()) {
      const std::string steps = are_steps_known(field) ? ", steps: " + value_of(field) : "";
      out += start + " {" + epochs_of(epochs->second, field) + steps + "}\n";
    } else {
      out += start + ' ' + value_of(field) + '\n';
    }
  }
}

}  // namespace

std::string to_yaml(const Target& target) {
  return std::visit(
      [](const auto& value) -> std::string {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_pointer_v<T>) {
          return yaml_of(*value);
        } else if constexpr (std::is_same_v<T, EnumField>) {
          const size_t word = value.get(value.target);
          return word == value.words.size() ? "null" : yaml_of(std::string(value.words[word]));
        } else if constexpr (std::is_same_v<T, NumbersOrKeyword>) {
          return *value.is_keyword ? std::string(value.keyword) : yaml_of(*value.numbers);
        } else if constexpr (std::is_same_v<T, UntypedMapField>) {
          return *value.json;
        } else {
          return yaml_of(value);
        }
      },
      target);
}

std::string to_yaml(const Config& config) {
  Config copy = config;
  std::string text;
  bool in_data = false;
  for (const Section& section : all_sections(copy)) {
    const bool is_dataset = section.key.starts_with("data.");
    if (is_dataset && !in_data) text += "data:\n";
    in_data = is_dataset;
    text += is_dataset ? "  " + section.key.substr(5) + ":\n" : section.key + ":\n";
    const std::string indent = is_dataset ? "    " : "  ";
    if (const Variants& variants = section.variants; has_name(variants))
      text += indent + std::string(variants.discriminator) + ": " +
              std::string(variants.names[variants.selected]) + '\n';
    write_fields(copy, section.key, section.fields, indent, text);
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> result_affecting_settings(const Config& config) {
  const std::vector<std::string> trained = training_datasets(config);
  std::vector<std::pair<std::string, std::string>> settings;
  for (Leaf& leaf : leaves_of(config)) {
    if (!leaf.affects_result) continue;
    if (leaf.key.starts_with("data.")) {
      const std::string name = leaf.key.substr(5, leaf.key.find('.', 5) - 5);
      if (std::ranges::count(trained, name) == 0) continue;
    }
    settings.emplace_back(std::move(leaf.key), std::move(leaf.value));
  }
  return settings;
}

// Settings at their defaults are omitted, so that a setting added by a later version does not
// change the digest unless it is used.
std::string digest(const Config& config) {
  std::map<std::string, std::string> defaults;
  for (Leaf& leaf : leaves_of(defaults_of(config)))
    defaults.emplace(std::move(leaf.key), std::move(leaf.value));
  std::string text;
  for (const auto& [key, value] : result_affecting_settings(config)) {
    const bool is_name = key.ends_with(".name") || key.ends_with(".format");
    const auto found = defaults.find(key);
    if (!is_name && found != defaults.end() && found->second == value) continue;
    if (key.ends_with(".glob") && value.find(kFormerDefaultGlob) != std::string::npos &&
        value.size() <= kFormerDefaultGlob.size() + 2)  // with quotes
      continue;
    text.append(key).append("=").append(value).append("\n");
  }
  return sha256_hex(text);
}

namespace {

// The keys of the secret settings, which all configurations have.
const std::vector<std::string>& secret_keys() {
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> found;
    for (Leaf& leaf : leaves_of(Config()))
      if (leaf.is_secret) found.push_back(std::move(leaf.key));
    return found;
  }();
  return keys;
}

bool is_at_or_below(std::string_view key, std::string_view above) {
  return key.starts_with(above) &&
         (key.size() == above.size() || key[above.size()] == '.' || key[above.size()] == '[');
}

// The secret key that a line of to_yaml() sets, without its section; empty: none.
std::string_view secret_name_of(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  for (const std::string& key : secret_keys()) {
    const std::string_view name = std::string_view(key).substr(key.rfind('.') + 1);
    if (line.starts_with(name) && line.substr(name.size()).starts_with(": ")) return name;
  }
  return {};
}

}  // namespace

bool is_secret_key(std::string_view key) {
  return std::ranges::any_of(secret_keys(), [key](const std::string& secret) {
    return is_at_or_below(key, secret) || is_at_or_below(secret, key);
  });
}

bool is_like_secret_key(std::string_view key) { return !closest_match(key, secret_keys()).empty(); }

std::string hide_secrets(std::string_view yaml) {
  std::string shown;
  while (!yaml.empty()) {
    const std::string_view line = yaml.substr(0, yaml.find('\n'));
    yaml.remove_prefix(std::min(yaml.size(), line.size() + 1));
    const std::string_view name = secret_name_of(line);
    const size_t end = name.empty() ? 0 : line.find(name) + name.size() + 2;
    const std::string_view value = line.substr(end);
    // A flow mapping, a quoted key, a block or lines that follow: not the form of to_yaml().
    const bool is_mentioned = std::ranges::any_of(secret_keys(), [&](const std::string& key) {
      return line.find(std::string_view(key).substr(key.rfind('.') + 1)) != line.npos;
    });
    const bool is_list = value.starts_with('[') && value.ends_with(']');
    if (name.empty() ? is_mentioned : !is_list) return std::string(kHiddenValue) + "\n";
    const bool is_hidden = !name.empty() && value != "[]";
    shown.append(is_hidden ? line.substr(0, end) : line).append(is_hidden ? kHiddenValue : "");
    shown += '\n';
  }
  return shown;
}

Status write_config(FileSystem& files, const std::string& path, const Config& config) {
  // Without values, secret settings have none.
  const std::string yaml = to_yaml(config);
  return hide_secrets(yaml) == yaml ? write_file_atomically(files, path, yaml)
                                    : write_private_file_atomically(files, path, yaml);
}

std::vector<Setting> all_settings(const Config& config) {
  std::vector<Setting> settings;
  for (Leaf& leaf : leaves_of(config))
    settings.push_back({.key = std::move(leaf.key),
                        .value = std::move(leaf.value),
                        .is_live = leaf.on_resume == OnResume::kLive,
                        .is_secret = leaf.is_secret});
  return settings;
}

std::vector<SettingChange> diff_configs(const Config& previous, const Config& current) {
  constexpr const char* kUnset = "(unset)";
  const std::vector<Leaf> old_leaves = leaves_of(previous), new_leaves = leaves_of(current);
  const auto by_key = [](const std::vector<Leaf>& leaves) {
    std::map<std::string, const Leaf*> map;
    for (const Leaf& leaf : leaves) map.emplace(leaf.key, &leaf);
    return map;
  };
  const auto old_by_key = by_key(old_leaves), new_by_key = by_key(new_leaves);
  std::vector<SettingChange> changes;
  for (const Leaf& leaf : new_leaves) {
    const auto old = old_by_key.find(leaf.key);
    const std::string was = old == old_by_key.end() ? kUnset : old->second->value;
    if (was == leaf.value) continue;
    const std::string hidden(kHiddenValue);
    changes.push_back({leaf.key, leaf.is_secret ? hidden : was,
                       leaf.is_secret ? hidden : leaf.value, leaf.on_resume});
  }
  for (const Leaf& leaf : old_leaves)
    if (!new_by_key.contains(leaf.key))
      changes.push_back({leaf.key, leaf.value, kUnset, leaf.on_resume});
  return changes;
}

}  // namespace stoker::config
