#include "shared/config/reference.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/config/load_config.h"
#include "shared/config/reference_entries.h"

namespace stoker::config {
namespace {

constexpr size_t kColumns = 99;

constexpr std::string_view kManualHead =
    R"(# yaml-language-server: $schema=stoker.schema.json
#
# The manual of stoker's configuration: every setting with its default. This file is generated from
# the descriptors in shared/config (scripts/generate.sh) and is itself a valid configuration: it
# trains a small byte-level GPT on the C++ headers of this machine. Your own file needs only what
# differs from the defaults:
#
#     data: {train: {format: text, path: corpus.txt}}
#
# A line "#key: value", without a space after the #, is a setting that is not in use here:
#
#   - "Only: NAMES" and "Not: NAMES" in a comment list the formats, models, tasks, optimizers or
#     schedulers that have the key or lack it. A key that the selected one lacks is an error. A key
#     that occurs several times in a row has another meaning or default for each of them.
#   - Keys below "key:  # null" belong to a mapping that is null unless one of them is set.
#
#   stokerd --config my.yaml --check-config   print the resolved configuration, or all its errors
#   stokerd --config my.yaml                  train, or resume if the run directory has checkpoints
#   stokerd --config my.yaml --set train.max_steps=500 --set 'data.val.split=[0.95, 1.0]'
#
# --set overrides the file; the last one for a key wins; "--set train.max_steps=" restores the
# default. null means off, unlimited or automatic. Paths are relative to the working directory; ~
# and $VARIABLE are not expanded. The file is YAML in UTF-8, at most 1 MiB, without anchors,
# aliases, tags and duplicate keys.
#
# docs/configuration.md has all keys in tables, and what a resumed run may change.
)";

constexpr std::string_view kManualConfig = R"(
data:
  train: {format: text, path: /usr/include/c++, split: [0.0, 0.9]}
  val: {format: text, path: /usr/include/c++, split: [0.9, 1.0]}
)";

constexpr const char* kDataHelp = "Datasets by name";
constexpr std::string_view kDataNames =
    "Up to 64 datasets. train is required; the others are for the evaluator (eval.datasets), or "
    "components of a mixture or concat. Names consist of letters, digits, _ and -. Each dataset "
    "has "
    "exactly one of format, mixture and concat. Formats and examples: docs/datasets.md.";

Config manual_config() {
  auto config = parse_config(kManualConfig, "manual", {});
  return config.ok() ? *std::move(config) : Config();
}

// Wraps `text` into lines of up to kColumns characters with `prefix`.
std::string wrapped(std::string_view text, const std::string& prefix) {
  std::string out, line = prefix;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.size() > prefix.size() && line.size() + 1 + word.size() > kColumns) {
      out += line + '\n';
      line = prefix;
    }
    if (line.size() > prefix.size()) line += ' ';
    line += word;
  }
  return out + line + '\n';
}

// " Only: text, tokens.", or " Not: mixture, concat." if that is shorter. Empty if all variants
// have the setting.
std::string variants_text(const ReferenceEntry& entry) {
  if (entry.variants.empty()) return {};
  // A dataset with one of these keys has no `format`.
  if (entry.variants.size() == 1 && entry.variants.front() == entry.name)
    return " Instead of format.";
  if (entry.variants.size() > entry.exceptions.size())
    return " Not: " + join(entry.exceptions, ", ") + '.';
  return " Only: " + join(entry.variants, ", ") + '.';
}

// ---- manual --------------------------------------------------------------------------------------

class ManualWriter {
 public:
  ManualWriter(std::string indent, std::string& out) : indent_(std::move(indent)), out_(out) {}

  // `section` contains the values to show.
  void write(const Section& section, const std::vector<ReferenceEntry>& entries) {
    write_discriminator(section.variants);
    const ReferenceEntry* previous = nullptr;
    for (const ReferenceEntry& entry : entries) {
      const bool is_repeated = previous != nullptr && previous->name == entry.name &&
                               previous->help == entry.help && previous->details == entry.details;
      write_comment(entry, is_repeated);
      const Field* const field = entry.is_selected ? section.find(entry.name) : nullptr;
      write_key(entry, field);
      out_ += '\n';
      previous = &entry;
    }
  }

 private:
  void write_discriminator(const Variants& variants) {
    if (variants.discriminator.empty()) return;
    out_ += wrapped(sentences(std::string(variants.help), std::string(variants.details)) +
                        " One of: " + join(selectable_names(variants), ", ") + ".",
                    indent_ + "# ");
    out_ += indent_ + std::string(variants.discriminator) + ": " +
            std::string(variants.names[variants.selected]) + "\n\n";
  }

  // Description, variants and example of the setting, each on a separate line.
  void write_comment(const ReferenceEntry& entry, bool is_repeated) {
    const std::string prefix = indent_ + "# ";
    const std::string repeated = entry.nesting == Nesting::kKeys
                                     ? "As above, with other keys."
                                     : "As above, with another default.";
    out_ += wrapped(is_repeated ? repeated : sentences(entry.help, entry.details), prefix);
    write_remarks(entry, prefix);
    if (entry.nesting == Nesting::kItem) write_item(entry);
    if (entry.nesting == Nesting::kChoices)
      write_choices(entry, "Items of the list, with their arguments:", "- ");
    if (entry.nesting == Nesting::kValues)
      write_choices(entry, "Values of the mapping, with their arguments:", "");
  }

  void write_remarks(const ReferenceEntry& entry, const std::string& prefix) {
    std::string text = entry.is_required ? " Required." : "";
    text += variants_text(entry);
    if (!text.empty()) out_ += wrapped(text.substr(1), prefix);
    const bool is_shown = entry.is_required && !entry.is_selected;
    if (!entry.example.empty() && !is_shown)
      out_ += prefix + "Example: " + entry.name + ": " + entry.example + '\n';
  }

  void write_item(const ReferenceEntry& entry) {
    out_ += indent_ + "# Keys of an item:\n";
    for (const ReferenceEntry& key : entry.nested) write_argument(key, indent_ + "#   ");
  }

  // Writes "size: Size after resizing, in pixels. …".
  void write_argument(const ReferenceEntry& argument, const std::string& prefix) {
    std::string text = argument.name.empty() ? "" : argument.name + ": ";
    text += sentences(argument.help, argument.details);
    text += argument.is_required ? " Required." : " Default: " + argument.default_value + ".";
    write_hanging(text, prefix);
  }
  // Indents lines after the first by two more spaces.
  void write_hanging(const std::string& text, const std::string& prefix) {
    std::string lines = wrapped(text, prefix + "  ");
    lines.erase(prefix.size(), 2);
    out_ += lines;
  }

  // `start`: written before each choice.
  void write_choices(const ReferenceEntry& entry, std::string_view title,
                     const std::string& start) {
    if (!choices_seen_.insert(choices_key(entry)).second) return;
    out_ += indent_ + "# " + std::string(title) + '\n';
    std::vector<std::string> bare;
    for (const ReferenceEntry& choice : entry.nested) {
      if (choice.nested.empty()) {
        bare.push_back(choice.name);
        continue;
      }
      write_hanging(start + choice.name + ": " + arguments_of(choice), indent_ + "#   ");
      for (const ReferenceEntry& argument : choice.nested)
        write_argument(argument, indent_ + "#       ");
    }
    if (!bare.empty())
      out_ += wrapped(start + join(bare, ", " + start) + ": without arguments.", indent_ + "#   ");
  }
  static std::string choices_key(const ReferenceEntry& entry) {
    std::string key = entry.name;
    for (const ReferenceEntry& choice : entry.nested)
      key += ' ' + choice.name + arguments_of(choice);
    return key;
  }
  static std::string arguments_of(const ReferenceEntry& choice) {
    if (choice.nested.size() == 1 && choice.nested[0].name.empty()) return choice.nested[0].example;
    std::vector<std::string> arguments;
    for (const ReferenceEntry& each : choice.nested)
      arguments.push_back(each.name + ": " +
                          (each.is_required ? each.example : each.default_value));
    return '{' + join(arguments, ", ") + '}';
  }

  // `field`: set for an active key; null: the key is commented out.
  void write_key(const ReferenceEntry& entry, const Field* field) {
    const std::string start = indent_ + (field == nullptr ? "#" : "") + entry.name + ":";
    if (entry.nesting != Nesting::kKeys) {
      const bool shows_example = field == nullptr && entry.is_required;
      out_ += start + ' ' +
              (field != nullptr ? field_value(*field)
               : shows_example  ? entry.example
                                : entry.default_value) +
              '\n';
      return;
    }
    const bool is_null = entry.is_null_mapping();
    out_ += start + (is_null ? "  # null" : "") + '\n';
    for (const ReferenceEntry& key : entry.nested) {
      const bool is_new =
          nested_seen_.insert(entry.name + '.' + key.name + ' ' + key.help + ' ' + key.details)
              .second;
      if (is_new) {
        out_ += wrapped(sentences(key.help, key.details), indent_ + "  # ");
        write_remarks(key, indent_ + "  # ");
      }
      const bool is_in_use = field != nullptr && !is_null;
      out_ += indent_ + "  " + (is_in_use ? "" : "#") + key.name + ": " +
              (key.is_required ? key.example : key.default_value) + '\n';
    }
  }

  const std::string indent_;
  std::string& out_;
  std::set<std::string> choices_seen_;  // choices already described
  std::set<std::string> nested_seen_;
};

std::string headline(const std::string& title) {
  std::string line = "# ---- " + title + ' ';
  line.append(line.size() < kColumns ? kColumns - line.size() : 0, '-');
  return '\n' + line + "\n\n";
}

// ---- tables --------------------------------------------------------------------------------------

// Escapes '|', which ends a table cell even inside `code`.
std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
    text.insert(at, "\\");
  return text;
}

const char* resume_mark(OnResume on_resume) {
  switch (on_resume) {
    case OnResume::kFree:
      return "";
    case OnResume::kLive:
      return "live";
    case OnResume::kData:
      return "data";
    case OnResume::kBatch:
      return "batch";
    case OnResume::kModel:
      return "model";
  }
  return "";
}

class TableWriter {
 public:
  explicit TableWriter(std::string& out) : out_(out) {
    out_ += "| key | values | default | meaning | resume |\n|---|---|---|---|---|\n";
  }

  void write_discriminator(const Variants& variants) {
    if (variants.discriminator.empty()) return;
    ReferenceEntry entry{.name = std::string(variants.discriminator),
                         .help = std::string(variants.help),
                         .values = join(selectable_names(variants), ", "),
                         .default_value = std::string(variants.names[variants.selected]),
                         .is_required = variants.is_required,
                         .on_resume = variants.on_resume};
    write(entry.name, entry);
  }

  void write(const std::string& key, const ReferenceEntry& entry) {
    write_row(key, entry);
    for (const ReferenceEntry& each : entry.nested) {
      switch (entry.nesting) {
        case Nesting::kNone:
          break;
        case Nesting::kKeys:
          write(key + '.' + each.name, each);
          break;
        case Nesting::kItem:
          write(key + "[]." + each.name, each);
          break;
        case Nesting::kChoices:
          write_choice(key + "[]." + each.name, each);
          break;
        case Nesting::kValues:
          write_choice(key + ".*." + each.name, each);
          break;
      }
    }
  }

 private:
  // "layers[].relu" has no arguments, "batch_transforms[].random_choice" has an unnamed one.
  void write_choice(const std::string& key, const ReferenceEntry& choice) {
    if (choice.nested.empty())
      write_row(key,
                {.name = choice.name, .help = "No arguments", .values = "", .is_required = true});
    for (const ReferenceEntry& argument : choice.nested)
      write(argument.name.empty() ? key : key + '.' + argument.name, argument);
  }

  void write_row(const std::string& key, const ReferenceEntry& entry) {
    const bool has_default =
        !entry.is_required && (entry.nesting != Nesting::kKeys || entry.is_null_mapping());
    const bool needs_value = entry.is_required && !entry.values.empty();
    const std::string row =
        "| `" + key + "` | " + cell(entry.values) + " | " +
        (has_default ? '`' + cell(entry.default_value) + '`' : "") + " | " +
        cell(entry.help + (needs_value ? " (required)." : ".") + variants_text(entry)) + " | " +
        resume_mark(entry.on_resume) + " |\n";
    if (rows_.insert(row).second) out_ += row;
  }

  std::string& out_;
  std::set<std::string> rows_;  // rows already written: formats share keys below `fields`
};

bool is_dataset(const Section& section) { return section.key.starts_with("data."); }

}  // namespace

std::string manual_yaml() {
  Config config = manual_config();
  std::string out(kManualHead);
  for (const Section& section : all_sections(config)) {
    const std::vector<ReferenceEntry> entries = reference_entries(config, section.key);
    if (!is_dataset(section)) {
      out += headline(section.key + ": " + std::string(section.help)) + section.key + ":\n";
      ManualWriter("  ", out).write(section, entries);
    } else if (section.key == "data.train") {
      out += headline(std::string("data: ") + kDataHelp) + wrapped(kDataNames, "# ") +
             "data:\n  train:\n";
      ManualWriter("    ", out).write(section, entries);
    } else {
      out += "\n  # Each dataset has the keys of data.train.\n  " + section.key.substr(5) +
             ":\n    format: text\n    path: /usr/include/c++\n    split: [0.9, 1.0]\n";
    }
    while (out.ends_with("\n\n")) out.pop_back();
  }
  return out;
}

std::string reference_markdown() {
  Config config = manual_config();
  std::string out;
  for (const Section& section : all_sections(config)) {
    if (is_dataset(section) && section.key != "data.train") continue;
    const bool is_data = is_dataset(section);
    out += (out.empty() ? "### " : "\n### ") + (is_data ? std::string("data.NAME") : section.key) +
           "\n\n";
    const std::string help = is_data ? kDataHelp : std::string(section.help);
    out += is_data ? std::string(kDataNames) : sentences(help, "");
    out += "\n\n";
    TableWriter table(out);
    table.write_discriminator(section.variants);
    for (const ReferenceEntry& entry : reference_entries(config, section.key))
      table.write(entry.name, entry);
  }
  return out;
}

}  // namespace stoker::config
