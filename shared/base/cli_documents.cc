#include "shared/base/cli_documents.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>

#include "shared/base/man_page.h"
#include "shared/base/utf8.h"

namespace stoker {
namespace {

using Words = std::vector<std::string>;
using Options = std::vector<const CLI::Option*>;

// ---- options of CLI11 ---------------------------------------------------------------------------

// Options in the order of --help, without the hidden ones; a command shares --help with the program.
Options visible_options(const CLI::App& app, bool is_positional) {
  return app.get_options([&](const CLI::Option* option) {
    const bool is_inherited = app.get_parent() != nullptr && option == app.get_help_ptr();
    return !option->get_group().empty() && !is_inherited &&
           option->get_positional() == is_positional;
  });
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_name().empty(); });
}

Words command_names(const CLI::App& app) {
  Words names;
  for (const CLI::App* const command : commands_of(app)) names.push_back(command->get_name());
  return names;
}

bool takes_value(const CLI::Option& option) { return option.get_expected_max() != 0; }

// The name of the argument: "FILE". CLI11 adds a description of the check: "N:INT in [1 - 1000]".
std::string argument_name(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.substr(0, type.find(':'));
}

// "{model,ema}" or "INT in [1 - 1000]"; empty without a check.
std::string check_text(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t colon = type.find(':');
  return colon == std::string::npos ? "" : type.substr(colon + 1);
}

// The words of CLI::IsMember.
Words allowed_words(const CLI::Option& option) {
  const std::string check = check_text(option);
  Words words;
  if (!check.starts_with('{') || !check.ends_with('}')) return words;
  std::istringstream list(check.substr(1, check.size() - 2));
  for (std::string word; std::getline(list, word, ',');) words.push_back(word);
  return words;
}

// "From 1 to 1000", of CLI::Range.
std::string allowed_range(const CLI::Option& option) {
  const std::string check = check_text(option);
  const size_t from = check.find(" in ["), middle = check.find(" - ");
  if (from == std::string::npos || middle == std::string::npos || !check.ends_with(']')) return "";
  const size_t first = from + 5;
  return "From " + check.substr(first, middle - first) + " to " +
         check.substr(middle + 3, check.size() - middle - 4);
}

// "-f" and "--follow".
Words names_of(const CLI::Option& option) {
  Words names;
  for (const std::string& name : option.get_snames()) names.push_back('-' + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

// Sorted, because CLI11 orders them by address.
std::string sorted_names(const std::set<CLI::Option*>& options) {
  Words names;
  for (const CLI::Option* const option : options) names.push_back(option->get_name());
  std::ranges::sort(names);
  return join(names, ", ");
}

// ---- man page -----------------------------------------------------------------------------------

std::string sentence(std::string text) {
  if (!text.empty() && !text.ends_with('.')) text += '.';
  return text;
}

std::string description_of(const CLI::Option& option) {
  std::string text = sentence(option.get_description());
  const auto add = [&](const std::string& title, const std::string& value) {
    if (!value.empty()) text += ' ' + sentence(title + value);
  };
  add("", allowed_range(option));
  add("Default: ", option.get_default_str());
  add("Only with ", sorted_names(option.get_needs()));
  add("Not with ", sorted_names(option.get_excludes()));
  if (option.get_required() && !option.get_positional()) add("", "Required");
  return text;
}

std::string term_of(const CLI::Option& option) {
  if (option.get_positional()) return option.get_single_name();
  const std::string names = join(names_of(option), ", ");
  return takes_value(option) ? names + ' ' + argument_name(option) : names;
}

// "stokerd --config FILE [OPTIONS]".
std::string usage_of(const CLI::App& app) {
  std::string usage = app.get_name();
  bool has_options = false;
  for (const CLI::Option* const option : visible_options(app, false)) {
    if (option->get_required())
      usage += ' ' + term_of(*option);
    else
      has_options = true;
  }
  if (has_options) usage += " [OPTIONS]";
  for (const CLI::Option* const option : visible_options(app, true))
    usage += option->get_required() ? ' ' + term_of(*option) : " [" + term_of(*option) + ']';
  if (!commands_of(app).empty()) usage += " COMMAND [ARGUMENTS]";
  return usage;
}

void add_items(const Options& options, ManPage& page) {
  for (const CLI::Option* const option : options)
    page.add_item(term_of(*option), description_of(*option));
}

// A group other than the first has its own title.
void add_options(const CLI::App& app, ManPage& page) {
  const Options options = visible_options(app, false);
  page.add_section("OPTIONS");
  std::string group = options.empty() ? "" : options.front()->get_group();
  for (const CLI::Option* const option : options) {
    if (option->get_group() != group) page.add_subsection(group = option->get_group());
    add_items({option}, page);
  }
}

void add_commands(const CLI::App& app, ManPage& page) {
  if (commands_of(app).empty()) return;
  page.add_section("COMMANDS");
  for (const CLI::App* const command : commands_of(app)) {
    page.add_subsection(usage_of(*command));
    page.add_paragraph(sentence(command->get_description()));
    add_items(visible_options(*command, true), page);
    add_items(visible_options(*command, false), page);
  }
}

std::string uppercase(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// The footer of --help as sections.
class FooterWriter {
 public:
  explicit FooterWriter(ManPage& page) : page_(page) {}

  void write(const std::string& footer) {
    std::istringstream lines(footer);
    for (std::string line; std::getline(lines, line);) {
      const size_t indent = std::min(line.find_first_not_of(' '), line.size());
      if (indent == line.size())
        finish();
      else if (indent > 0)
        add_indented(line.substr(indent), indent > kIndent);
      else
        add_unindented(line);
    }
    finish();
  }

 private:
  static constexpr size_t kIndent = 2;

  // "COMMAND   what it does", or more of what the previous one does.
  void add_indented(const std::string& line, bool is_continued) {
    const size_t gap = is_continued ? 0 : std::min(line.find("  "), line.size());
    if (!is_continued) {
      finish_item();
      term_ = line.substr(0, gap);
    }
    const size_t start = line.find_first_not_of(' ', gap);
    if (start != std::string::npos) text_ += (text_.empty() ? "" : " ") + line.substr(start);
  }

  void add_unindented(const std::string& line) {
    constexpr std::string_view kExitCodes = "Exit codes: ";
    if (line.ends_with(':')) {
      finish();
      page_.add_section(uppercase(line.substr(0, line.size() - 1)));
      is_titled_ = false;
      return;
    }
    if (line.starts_with(kExitCodes)) {
      finish();
      page_.add_section("EXIT STATUS");
      is_titled_ = true;
      paragraph_ = line.substr(kExitCodes.size());
      return;
    }
    finish_item();
    if (!std::exchange(is_titled_, true)) page_.add_section("NOTES");
    paragraph_ += (paragraph_.empty() ? "" : " ") + line;
  }

  void finish_item() {
    if (!term_.empty()) page_.add_item(term_, text_);
    term_.clear();
    text_.clear();
  }
  void finish() {
    finish_item();
    if (!paragraph_.empty()) page_.add_paragraph(paragraph_);
    paragraph_.clear();
  }

  ManPage& page_;
  bool is_titled_ = false;  // a section for paragraphs has started
  std::string term_, text_;
  std::string paragraph_;
};

// ---- bash completion ----------------------------------------------------------------------------

constexpr std::string_view kStart = R"(() {
  local line=${COMP_LINE:0:COMP_POINT} word option prefix command="" options="" candidates=""
  local -a words
  # Not COMP_WORDS, which has "--set", "KEY", "=" and "VALUE".
  read -d '' -ra words <<<"$line"
  [[ $line != *[[:space:]] ]] || words+=('')
  word=${words[-1]}
  unset 'words[-1]'
  option=${words[-1]}
  [[ $word != --*=* ]] || option=${word%%=*}
)";

// If bash breaks words at '=', a completion replaces only what follows it.
constexpr std::string_view kEnd =
    R"(  mapfile -t COMPREPLY < <(compgen -W "$candidates" -- "${word##*=}")
  prefix=${word%"${word##*=}"}
  [[ $COMP_WORDBREAKS == *=* ]] || COMPREPLY=("${COMPREPLY[@]/#/$prefix}")
}
)";

constexpr std::string_view kNoFiles = "compopt +o default +o bashdefault";

// The value is a path: readline completes it.
bool is_path(const CLI::Option& option) {
  const std::string name = argument_name(option);
  return name == "FILE" || name == "DIR" || name == "PATH" || name == "CHECKPOINT";
}

class CompletionWriter {
 public:
  CompletionWriter(const CLI::App& app, const KeyCompletions& keys) : app_(app), keys_(keys) {}

  std::string write() {
    const std::string name = app_.get_name();
    std::string function = '_' + name;
    std::ranges::replace(function, '-', '_');
    out_ = "# bash completion of " + name + ", printed by \"" + name +
           " --print-document completion\".\n" + function + std::string(kStart);
    write_command();
    write_options();
    write_values();
    out_ +=
        std::string(kEnd) + "complete -o bashdefault -o default -F " + function + ' ' + name + '\n';
    return std::move(out_);
  }

 private:
  // Finds the command among the words; the value of an option is none.
  void write_command() {
    if (commands_of(app_).empty()) return;
    Words with_value;
    for (const CLI::Option* const option : visible_options(app_, false))
      if (takes_value(*option))
        std::ranges::copy(names_of(*option), std::back_inserter(with_value));
    out_ += "  local i\n  for ((i = 1; i < ${#words[@]}; ++i)); do\n    case ${words[i]} in\n";
    if (!with_value.empty()) out_ += "      " + join(with_value, " | ") + ") ((++i)) ;;\n";
    out_ += "      " + join(command_names(app_), " | ") +
            ")\n        command=${words[i]}\n        break\n        ;;\n    esac\n  done\n";
  }

  void write_options() {
    const std::string shared = join(long_names(app_), " ");
    out_ += "  options='" + shared + "'\n";
    if (commands_of(app_).empty()) return;
    out_ += "  case $command in\n    '') candidates='" + join(command_names(app_), " ") + "' ;;\n";
    for (const CLI::App* const command : commands_of(app_)) {
      const Words names = long_names(*command);
      if (!names.empty())
        out_ += "    " + command->get_name() + ") options+=' " + join(names, " ") + "' ;;\n";
    }
    out_ += "  esac\n";
  }
  static Words long_names(const CLI::App& app) {
    Words names;
    for (const CLI::Option* const option : visible_options(app, false))
      names.push_back(names_of(*option).back());
    return names;
  }

  void write_values() {
    out_ += "  case $command:$option in\n";
    write_values_of(app_, "*");
    for (const CLI::App* const command : commands_of(app_))
      write_values_of(*command, command->get_name());
    out_ += "    *)\n      " + std::string(kNoFiles) +
            "\n      [[ $word != -* ]] || candidates=$options\n      ;;\n  esac\n";
  }

  // `command`: a pattern. The options of a program can follow any command.
  void write_values_of(const CLI::App& app, const std::string& command) {
    for (const CLI::Option* const option : visible_options(app, false)) {
      if (!takes_value(*option)) continue;
      Words patterns;
      for (const std::string& name : names_of(*option)) patterns.push_back(command + ':' + name);
      out_ += "    " + join(patterns, " | ") + ')';
      if (argument_name(*option) == "KEY=VALUE" && !keys_.empty())
        write_settings();
      else if (is_path(*option))
        out_ += " return ;;\n";
      else
        out_ += "\n      " + std::string(kNoFiles) + "\n      candidates='" +
                join(allowed_words(*option), " ") + "'\n      ;;\n";
    }
  }

  void write_settings() {
    std::map<std::string, Words> keys_by_words;  // "true false" has many keys
    for (const KeyCompletion& key : keys_)
      if (!key.words.empty()) keys_by_words[join(key.words, " ")].push_back(key.key + "=*");
    out_ += "\n      case ${word#\"$option=\"} in\n";
    for (const auto& [words, keys] : keys_by_words)
      out_ += "        " + join(keys, " | \\\n          ") + ")\n          " +
              std::string(kNoFiles) + "\n          candidates='" + words + "'\n          ;;\n";
    out_ += "        *=*) return ;;\n        *)\n          " + std::string(kNoFiles) +
            " -o nospace\n          candidates='\n";
    for (const KeyCompletion& key : keys_) out_ += key.key + "=\n";
    out_ += "'\n          ;;\n      esac\n      ;;\n";
  }

  const CLI::App& app_;
  const KeyCompletions& keys_;
  std::string out_;
};

}  // namespace

std::string man_page(const CLI::App& app, int section) {
  const std::string description = app.get_description();
  std::string summary = description;
  if (summary.starts_with(app.get_name() + ' ')) summary.erase(0, app.get_name().size() + 1);
  if (summary.ends_with('.')) summary.pop_back();
  ManPage page(app.get_name(), section, summary);
  page.add_section("SYNOPSIS");
  page.add_command(usage_of(app));
  page.add_section("DESCRIPTION");
  page.add_paragraph(description);
  add_options(app, page);
  add_commands(app, page);
  FooterWriter(page).write(app.get_footer());
  return page.text();
}

std::string bash_completion(const CLI::App& app, const KeyCompletions& keys) {
  return CompletionWriter(app, keys).write();
}

void add_document_option(CLI::App& app, int section, std::function<KeyCompletions()> keys) {
  app.add_option_function<std::string>(
         "--print-document",
         [&app, section, keys = std::move(keys)](const std::string& what) {
           throw CLI::CallForVersion(what == "man"
                                         ? man_page(app, section)
                                         : bash_completion(app, keys ? keys() : KeyCompletions()),
                                     0);
         },
         "Print the man page or the bash completion and exit")
      ->check(CLI::IsMember({"man", "completion"}))
      ->group("");
}

}  // namespace stoker
