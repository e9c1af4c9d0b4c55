#include "shared/config/reference.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/base/man_page.h"
#include "shared/base/utf8.h"
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
#     model: {name: gpt}
#
# A line "#key: value", without a space after the #, is a setting that is not in use here:
#
#   - "Only: NAMES" and "Not: NAMES" in a comment list the formats, models, tasks, optimizers or
#     schedulers that have the key or lack it. A key that the selected one lacks is an error. A key
#     that occurs several times in a row has another meaning or default for each of them.
#   - Keys below "key:  # null" belong to a mapping that is null unless one of them is set.
#
#   stokerd --config my.yaml --check-config   print the resolved configuration, or all its errors
#   stokerd --config my.yaml --check-data     open all datasets, print what they have, or all errors
#   stokerd --config my.yaml                  train, or resume if the run directory has checkpoints
#   stokerd --config my.yaml --set train.max_steps=500 --set 'data.val.split=[0.95, 1.0]'
#
)";

constexpr std::string_view kRules =
    "--set overrides the file; the last one for a key wins; \"--set train.max_steps=\" restores "
    "the "
    "default. null means off, unlimited or automatic. Paths are relative to the working directory; "
    "~ and $VARIABLE are not expanded. The file is YAML in UTF-8, at most 1 MiB, without anchors, "
    "aliases, tags and duplicate keys.";

constexpr std::string_view kManualTables = R"(#
# docs/configuration.md has all keys in tables, and what a resumed run may change.
)";

constexpr std::string_view kManualConfig = R"(
data:
  train: {format: text, path: /usr/include/c++, split: [0.0, 0.9]}
  val: {format: text, path: /usr/include/c++, split: [0.9, 1.0]}
model: {name: gpt}
)";

constexpr const char* kDataHelp = "Datasets by name";
constexpr std::string_view kDataNames =
    "Up to 64 datasets. train is required; the others are for the evaluator (eval.datasets), or "
    "components of a mixture or concat. Names consist of letters, digits, _ and -. Each dataset "
    "has "
    "exactly one of format, mixture and concat. Formats and examples: docs/datasets.md.";

Config manual_config() {
  auto config = parse_config(kManualConfig, "manual", {});
  assert(config.ok() && "the manual must be a valid configuration");
  return *std::move(config);
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

// ---- keys ----------------------------------------------------------------------------------------

// Calls visit(key, entry) for the entry and those nested in it: "cache.type",
// "transforms[].resize.size".
template <typename Visit>
void for_each_key(const std::string& key, const ReferenceEntry& entry, const Visit& visit);

// "layers[].relu" has no arguments, "batch_transforms[].random_choice" has an unnamed one.
template <typename Visit>
void for_each_argument(const std::string& key, const ReferenceEntry& choice, const Visit& visit) {
  if (choice.nested.empty())
    visit(key, ReferenceEntry{.name = choice.name, .help = "No arguments", .is_required = true});
  for (const ReferenceEntry& argument : choice.nested)
    for_each_key(argument.name.empty() ? key : key + '.' + argument.name, argument, visit);
}

template <typename Visit>
void for_each_key(const std::string& key, const ReferenceEntry& entry, const Visit& visit) {
  visit(key, entry);
  for (const ReferenceEntry& each : entry.nested) {
    switch (entry.nesting) {
      case Nesting::kNone:
        break;
      case Nesting::kKeys:
        for_each_key(key + '.' + each.name, each, visit);
        break;
      case Nesting::kItem:
        for_each_key(key + "[]." + each.name, each, visit);
        break;
      case Nesting::kChoices:
        for_each_argument(key + "[]." + each.name, each, visit);
        break;
      case Nesting::kValues:
        for_each_argument(key + ".*." + each.name, each, visit);
        break;
    }
  }
}

// The entries of a section, and before them the one of `format` or `name`.
std::vector<ReferenceEntry> all_entries(const Config& config, const Section& section) {
  std::vector<ReferenceEntry> entries = reference_entries(config, section.key);
  const Variants& variants = section.variants;
  if (variants.discriminator.empty()) return entries;
  const std::vector<std::string> names = selectable_names(variants);
  entries.insert(entries.begin(),
                 ReferenceEntry{.name = std::string(variants.discriminator),
                                .help = std::string(variants.help),
                                .details = std::string(variants.details),
                                .values = join(names, ", "),
                                .words = names,
                                .default_value = std::string(variants.names[variants.selected]),
                                .is_required = variants.is_required,
                                .on_resume = variants.on_resume});
  return entries;
}

// False for `train: {}`, whose keys have their own defaults, and for required keys.
bool has_default(const ReferenceEntry& entry) {
  return !entry.is_required && (entry.nesting != Nesting::kKeys || entry.is_null_mapping());
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

  void write(const ReferenceEntry& entry) {
    for_each_key(entry.name, entry, [this](const std::string& key, const ReferenceEntry& each) {
      write_row(key, each);
    });
  }

 private:
  void write_row(const std::string& key, const ReferenceEntry& entry) {
    const bool needs_value = entry.is_required && !entry.values.empty();
    const std::string row =
        "| `" + key + "` | " + cell(entry.values) + " | " +
        (has_default(entry) ? '`' + cell(entry.default_value) + '`' : "") + " | " +
        cell(entry.help + (needs_value ? " (required)." : ".") + variants_text(entry)) + " | " +
        resume_mark(entry.on_resume) + " |\n";
    if (rows_.insert(row).second) out_ += row;
  }

  std::string& out_;
  std::set<std::string> rows_;  // rows already written: formats share keys below `fields`
};

bool is_dataset(const Section& section) { return section.key.starts_with("data."); }

// ---- man page ------------------------------------------------------------------------------------

constexpr std::string_view kManIntroduction =
    "A YAML file configures a run; it needs only what differs from the defaults. stokerd and "
    "stoker-eval read it with --config; stoker-eval otherwise reads the config.yaml that stokerd "
    "writes into the run directory. \"stokerd --config FILE --check-config\" prints the resolved "
    "configuration or all its errors.";
constexpr std::string_view kManNotation =
    "\"Only:\" and \"Not:\" list the formats, models, tasks, optimizers or schedulers that have a "
    "key or lack it. [] stands for an item of a list, * for a pattern. \"On resume: data\" (batch, "
    "model): a resumed run may change the setting only with --allow-data-change "
    "(--allow-batch-change, --allow-model-change); \"live\": it can change during the run.";
constexpr std::string_view kManFiles =
    "share/stoker/config below the installation has examples, this page as a configuration with "
    "all "
    "defaults (stoker.yaml), and a JSON Schema for editors (stoker.schema.json).";

void add_setting(const std::string& key, const ReferenceEntry& entry, ManPage& page) {
  std::string text = sentences(entry.help, entry.details);
  const bool is_long = entry.nesting == Nesting::kChoices || entry.nesting == Nesting::kValues;
  if (!entry.values.empty() && !is_long) text += " Values: " + entry.values + '.';
  if (entry.is_required && !entry.values.empty()) text += " Required.";
  if (has_default(entry)) text += " Default: " + entry.default_value + '.';
  text += variants_text(entry);
  if (!entry.example.empty()) text += " Example: " + entry.name + ": " + entry.example + '.';
  const std::string mark = resume_mark(entry.on_resume);
  if (!mark.empty()) text += " On resume: " + mark + '.';
  page.add_item(key, text);
}

}  // namespace

std::string manual_yaml() {
  Config config = manual_config();
  std::string out = std::string(kManualHead) + wrapped(kRules, "# ") + std::string(kManualTables);
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

std::string man_page() {
  ManPage page("stoker.yaml", 5, "configuration of stokerd(8) and stoker-eval(1)");
  page.add_section("SYNOPSIS");
  page.add_command("stokerd --config stoker.yaml");
  page.add_section("DESCRIPTION");
  for (const std::string_view text : {kManIntroduction, kRules, kManNotation})
    page.add_paragraph(text);
  Config config = manual_config();
  for (const Section& section : all_sections(config)) {
    if (is_dataset(section) && section.key != "data.train") continue;
    const bool is_data = is_dataset(section);
    const std::string title = is_data ? "data.NAME" : section.key;
    page.add_section(title + ": " + (is_data ? kDataHelp : std::string(section.help)));
    if (is_data) page.add_paragraph(kDataNames);
    std::set<std::string> seen;  // formats share keys below `fields`
    for (const ReferenceEntry& entry : all_entries(config, section)) {
      for_each_key(
          title + '.' + entry.name, entry, [&](const std::string& key, const ReferenceEntry& each) {
            const bool is_new =
                seen.insert(key + ' ' + each.help + ' ' + each.default_value + variants_text(each))
                    .second;
            if (is_new) add_setting(key, each, page);
          });
    }
  }
  page.add_section("FILES");
  page.add_paragraph(kManFiles);
  return page.text();
}

KeyCompletions key_completions() {
  Config config = manual_config();
  KeyCompletions all;
  std::map<std::string, size_t> positions;
  for (const Section& section : all_sections(config)) {
    for (const ReferenceEntry& entry : all_entries(config, section)) {
      for_each_key(section.key + '.' + entry.name, entry,
                   [&](const std::string& key, const ReferenceEntry& each) {
                     const bool is_below_list = key.find_first_of("[*") != std::string::npos;
                     if (is_below_list || each.nesting == Nesting::kKeys) return;
                     const auto [at, is_new] = positions.emplace(key, all.size());
                     if (is_new) all.push_back({.key = key, .words = {}});
                     // Variants of a section can define a key differently.
                     auto& words = all[at->second].words;
                     for (const std::string& word : each.words)
                       if (std::ranges::count(words, word) == 0) words.push_back(word);
                   });
    }
  }
  return all;
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
    for (const ReferenceEntry& entry : all_entries(config, section)) table.write(entry);
  }
  return out;
}

}  // namespace stoker::config
