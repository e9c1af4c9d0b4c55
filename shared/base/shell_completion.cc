#include "shared/base/shell_completion.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>

#include "shared/base/cli_options.h"
#include "shared/base/utf8.h"

namespace stoker {
namespace {

// The value is a path, which the shell completes.
bool is_path(const CLI::Option& option) {
  const std::string name = argument_name(option);
  return name == "FILE" || name == "DIR" || name == "PATH" || name == "CHECKPOINT";
}

bool asks_program(const CLI::App& app) {
  return app.get_option_no_throw(kCandidatesOption) != nullptr;
}

// What to ask the program for; empty: nothing.
std::string candidates_of(const CLI::App& command, const CLI::Option& option) {
  const std::string name =
      option.get_positional() ? option.get_name(true) : names_of(option).back();
  if (name == "STEP" || name == "FROM" || name == "TO") return "steps";
  if (name == "--metric") return "metrics";
  if (name == "KEY") return command.get_name() == "get" ? "keys" : "live-keys";
  return "";
}

bool is_setting(const CLI::Option& option, const KeyCompletions& keys) {
  return argument_name(option) == "KEY=VALUE" && !keys.empty();
}

// The keys with the same words as values; "true false" has many.
std::map<std::string, Words> group_by_words(const KeyCompletions& keys) {
  std::map<std::string, Words> groups;
  for (const KeyCompletion& key : keys)
    if (!key.words.empty()) groups[join(key.words, " ")].push_back(key.key);
  return groups;
}

Words with_suffix(Words words, std::string_view suffix) {
  for (std::string& word : words) word += suffix;
  return words;
}

std::string replace_all(std::string_view text, char from, std::string_view to) {
  std::string result;
  for (const char c : text) {
    if (c == from)
      result += to;
    else
      result += c;
  }
  return result;
}

std::string function_name(const CLI::App& app) {
  return replace_all('_' + app.get_name(), '-', "_");
}

std::string first_line(const CLI::App& app, const std::string& shell) {
  const std::string name = app.get_name();
  return "# " + shell + " completion of " + name + ", printed by \"" + name + " --print-document " +
         shell + "\".\n";
}

// ---- bash ---------------------------------------------------------------------------------------

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

class BashWriter {
 public:
  BashWriter(const CLI::App& app, const KeyCompletions& keys) : app_(app), keys_(keys) {}

  std::string write() {
    const std::string name = app_.get_name();
    std::string function = '_' + name;
    std::ranges::replace(function, '-', '_');
    out_ = "# bash completion of " + name + ", printed by \"" + name +
           " --print-document bash\".\n" + function + std::string(kStart);
    write_command();
    if (asks_program(app_))
      out_ +=
          "  local -a run=()\n  for ((i = 1; i < ${#words[@]}; ++i)); do\n"
          "    [[ ${words[i]} != --run-dir ]] || run=(--run-dir \"${words[i + 1]-}\")\n  done\n";
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
    if (asks_program(app_)) write_positionals();
    out_ += "    *)\n      " + std::string(kNoFiles) +
            "\n      [[ $word != -* ]] || candidates=$options\n      ;;\n  esac\n";
  }

  std::string ask(const std::string& what) const {
    return "candidates=$(command " + app_.get_name() + " \"${run[@]}\" " + kCandidatesOption + ' ' +
           what + " 2>/dev/null)";
  }

  // The first positional argument of a command, of words that the program knows.
  void write_positionals() {
    for (const CLI::App* const command : commands_of(app_)) {
      const auto positionals = visible_options(*command, true);
      const std::string what =
          positionals.empty() ? "" : candidates_of(*command, *positionals.front());
      if (what.empty()) continue;
      out_ += "    " + command->get_name() + ":*)\n      " + std::string(kNoFiles) +
              "\n      if [[ $word == -* ]]; then candidates=$options; else " + ask(what) +
              "; fi\n      ;;\n";
    }
  }

  // `command`: a pattern. The options of a program can follow any command.
  void write_values_of(const CLI::App& app, const std::string& command) {
    for (const CLI::Option* const option : visible_options(app, false)) {
      if (!takes_value(*option)) continue;
      Words patterns;
      for (const std::string& name : names_of(*option)) patterns.push_back(command + ':' + name);
      out_ += "    " + join(patterns, " | ") + ')';
      if (const std::string what = candidates_of(app, *option); asks_program(app_) && !what.empty())
        out_ += "\n      " + std::string(kNoFiles) + "\n      " + ask(what) + "\n      ;;\n";
      else if (argument_name(*option) == "KEY=VALUE" && !keys_.empty())
        write_settings();
      else if (is_path(*option))
        out_ += " return ;;\n";
      else
        out_ += "\n      " + std::string(kNoFiles) + "\n      candidates='" +
                join(allowed_words(*option), " ") + "'\n      ;;\n";
    }
  }

  void write_settings() {
    const auto keys_by_words = group_by_words(keys_);
    out_ += "\n      case ${word#\"$option=\"} in\n";
    for (const auto& [words, keys] : keys_by_words)
      out_ += "        " + join(with_suffix(keys, "=*"), " | \\\n          ") + ")\n          " +
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

// ---- zsh ----------------------------------------------------------------------------------------

class ZshWriter {
 public:
  ZshWriter(const CLI::App& app, const KeyCompletions& keys)
      : app_(app), keys_(keys), function_(function_name(app)) {}

  std::string write() {
    out_ = "#compdef " + app_.get_name() + '\n' + first_line(app_, "zsh");
    if (!keys_.empty()) write_settings();
    out_ += function_ + "() {\n";
    const std::string options = specifications(app_, false);
    if (commands_of(app_).empty())
      out_ += "  _arguments -S" + options + specifications(app_, true) + "\n";
    else
      write_commands(options);
    out_ += "}\n" + function_ + " \"$@\"\n";
    return std::move(out_);
  }

 private:
  // In single quotes; `special`: characters that _arguments or _describe would interpret.
  static std::string quote(std::string text, std::string_view special) {
    for (const char c : special) text = replace_all(text, c, std::string("\\") + c);
    return '\'' + replace_all(text, '\'', "'\\''") + '\'';
  }

  std::string action_of(const CLI::App& command, const CLI::Option& option) const {
    if (is_setting(option, keys_)) return function_ + "_settings";
    if (argument_name(option) == "DIR") return "_files -/";
    if (is_path(option)) return "_files";
    if (const std::string what = candidates_of(command, option);
        asks_program(app_) && !what.empty())
      return "{compadd -- ${(f)\"$(command " + app_.get_name() +
             " ${opt_args[--run-dir]:+--run-dir=$opt_args[--run-dir]} " + kCandidatesOption + ' ' +
             what + " 2>/dev/null)\"}}";
    const Words words = allowed_words(option);
    return words.empty() ? " " : '(' + join(words, " ") + ')';
  }

  std::string specifications(const CLI::App& app, bool is_positional) const {
    std::string list;
    for (const CLI::Option* const option : visible_options(app, is_positional)) {
      const std::string argument = ':' + argument_name(*option) + ':' + action_of(app, *option);
      const std::string repeats = option->get_items_expected_max() > 1 ? "*" : "";
      if (is_positional) {
        list += " \\\n    " + quote(repeats + argument, "");
        continue;
      }
      for (const std::string& name : names_of(*option)) {
        std::string text = option->get_description();
        for (const char c : std::string_view("\\[]:"))
          text = replace_all(text, c, std::string("\\") + c);
        const bool has_value = takes_value(*option);
        list += " \\\n    " + quote((is_setting(*option, keys_) ? "*" : "") + name +
                                        (has_value && name.starts_with("--") ? "=" : "") + '[' +
                                        text + ']' + (has_value ? argument : ""),
                                    "");
      }
    }
    return list;
  }

  void write_commands(const std::string& options) {
    out_ += "  local curcontext=$curcontext state line\n  local -a commands\n  _arguments -C -S" +
            options +
            " \\\n    '1: :->command' '*:: :->argument'\n  case $state in\n    command)\n      "
            "commands=(\n";
    for (const CLI::App* const command : commands_of(app_))
      out_ += "        " + quote(command->get_name() + ':' + command->get_description(), "") + '\n';
    out_ +=
        "      )\n      _describe command commands\n      ;;\n    argument)\n      case $words[1] "
        "in\n";
    for (const CLI::App* const command : commands_of(app_))
      out_ += "        " + command->get_name() + ") _arguments -S" + options +
              specifications(*command, false) + specifications(*command, true) + " ;;\n";
    out_ += "      esac\n      ;;\n  esac\n";
  }

  void write_settings() {
    out_ += function_ + "_settings() {\n  if ! compset -P '*='; then\n    compadd -S '' --";
    for (const KeyCompletion& key : keys_) out_ += " \\\n      " + key.key + '=';
    out_ += "\n    return\n  fi\n  case ${IPREFIX#--*=} in\n";
    for (const auto& [words, keys] : group_by_words(keys_))
      out_ += "    " + join(with_suffix(keys, "="), " | \\\n      ") + ") compadd -- " + words +
              " ;;\n";
    out_ += "    *) _files ;;\n  esac\n}\n";
  }

  const CLI::App& app_;
  const KeyCompletions& keys_;
  const std::string function_;
  std::string out_;
};

// ---- fish ---------------------------------------------------------------------------------------

class FishWriter {
 public:
  FishWriter(const CLI::App& app, const KeyCompletions& keys) : app_(app), keys_(keys) {}

  std::string write() {
    const std::string start = "complete -c " + app_.get_name();
    out_ = first_line(app_, "fish") + start + " -f\n";
    const std::string names = join(command_names(app_), " ");
    write_options(app_, start);
    for (const CLI::App* const command : commands_of(app_)) {
      out_ += start + " -n 'not __fish_seen_subcommand_from " + names + "' -a " +
              command->get_name() + describe(command->get_description());
      const std::string condition =
          start + " -n '__fish_seen_subcommand_from " + command->get_name() + '\'';
      write_options(*command, condition);
      for (const CLI::Option* const option : visible_options(*command, true)) {
        if (is_path(*option)) out_ += condition + " -F\n";
        if (const std::string what = candidates_of(*command, *option);
            asks_program(app_) && !what.empty())
          out_ += condition + " -a '" + ask(what) + "'\n";
      }
    }
    return std::move(out_);
  }

 private:
  static std::string quote(std::string_view text) {
    return '\'' + replace_all(replace_all(text, '\\', "\\\\"), '\'', "\\'") + '\'';
  }
  static std::string describe(const std::string& text) { return " -d " + quote(text) + '\n'; }

  void write_options(const CLI::App& app, const std::string& start) {
    for (const CLI::Option* const option : visible_options(app, false)) {
      out_ += start;
      for (const std::string& name : names_of(*option))
        out_ += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (const std::string what = candidates_of(app, *option); asks_program(app_) && !what.empty())
        out_ += " -x -a '" + ask(what) + "'";
      else if (takes_value(*option))
        out_ += value_of(*option);
      out_ += describe(option->get_description());
    }
  }

  std::string ask(const std::string& what) const {
    return "(command " + app_.get_name() + " " + kCandidatesOption + " " + what + " 2>/dev/null)";
  }

  std::string value_of(const CLI::Option& option) const {
    if (argument_name(option) == "DIR") return " -x -a '(__fish_complete_directories)'";
    if (is_path(option)) return " -r -F";
    Words words = allowed_words(option);
    if (is_setting(option, keys_)) {
      for (const KeyCompletion& key : keys_) {
        words.push_back(key.key + '=');
        for (const std::string& word : key.words) words.push_back(key.key + '=' + word);
      }
    }
    return words.empty() ? " -x" : " -x -a " + quote(join(words, " "));
  }

  const CLI::App& app_;
  const KeyCompletions& keys_;
  std::string out_;
};

}  // namespace

std::string bash_completion(const CLI::App& app, const KeyCompletions& keys) {
  return BashWriter(app, keys).write();
}

std::string zsh_completion(const CLI::App& app, const KeyCompletions& keys) {
  return ZshWriter(app, keys).write();
}

std::string fish_completion(const CLI::App& app, const KeyCompletions& keys) {
  return FishWriter(app, keys).write();
}

}  // namespace stoker
