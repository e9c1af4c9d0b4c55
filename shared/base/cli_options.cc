#include "shared/base/cli_options.h"

#include <algorithm>
#include <sstream>

#include <CLI/CLI.hpp>

namespace stoker {
namespace {

// "{model,ema}" or "INT in [1 - 1000]"; empty without a check.
std::string check_text(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t colon = type.find(':');
  return colon == std::string::npos ? "" : type.substr(colon + 1);
}

// CLI11 lists the options that exclude this one, where its description should be.
std::string without_conflicts(std::string line) {
  for (const std::string_view word : {" Excludes:", " Needs:"}) {
    const size_t begin = line.find(word);
    if (begin == line.npos) continue;
    size_t end = begin + word.size();
    while (line.compare(end, 3, " --") == 0) end = std::min(line.find(' ', end + 1), line.size());
    line.erase(begin, end - begin);
  }
  return line;
}

// The column in which what follows a name begins, after at least two spaces.
size_t description_column(const std::string& line) {
  const size_t name = std::min(line.find_first_not_of(' '), line.size());
  if (name == 0) return 0;
  const size_t gap = line.find("  ", name);
  const size_t column = gap == line.npos ? name : line.find_first_not_of(' ', gap);
  return column == line.npos ? name : column;
}

std::string wrapped(const std::string& line) {
  constexpr size_t kColumns = 80, kMinText = 24;
  if (line.size() <= kColumns) return line;
  const size_t column = description_column(line);
  const size_t indent = column + kMinText <= kColumns ? column : 4;
  std::string text, current = line.substr(0, column);
  std::istringstream words(line.substr(column));
  bool is_first = true;
  for (std::string word; words >> word; is_first = false) {
    if (!is_first && current.size() + 1 + word.size() > kColumns) {
      text += current + "\n";
      current = std::string(indent, ' ');
      is_first = true;
    }
    current += (is_first ? "" : " ") + word;
  }
  return text + current;
}

}  // namespace

void parse_options(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError&) {
    const Words unknown = app.remaining(true);
    if (std::ranges::any_of(unknown, [](const std::string& word) { return word.starts_with('-'); }))
      throw CLI::ExtrasError(app.get_name(), unknown);
    throw;
  }
}

std::string help_text(const CLI::App& app, const std::string& parent) {
  // A long line without an indent is a part of a paragraph, which is wrapped as a whole.
  constexpr size_t kLong = 60;
  const auto is_prose = [](const std::string& line) {
    return !line.empty() && line.front() != ' ' && !line.starts_with("Usage:");
  };
  std::istringstream lines(app.help(parent));
  std::vector<std::string> paragraphs;
  size_t last = 0;  // length of the line before
  for (std::string line; std::getline(lines, line);) {
    const size_t length = line.size();
    if (last > kLong && is_prose(line) && is_prose(paragraphs.back()))
      paragraphs.back() += " " + line;
    else
      paragraphs.push_back(without_conflicts(line));
    last = length;
  }
  std::string text;
  for (const std::string& paragraph : paragraphs) text += wrapped(paragraph) + "\n";
  return text;
}

std::vector<const CLI::Option*> visible_options(const CLI::App& app, bool is_positional) {
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

// CLI11 adds a description of the check: "N:INT in [1 - 1000]".
std::string argument_name(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.substr(0, type.find(':'));
}

Words allowed_words(const CLI::Option& option) {
  const std::string check = check_text(option);
  Words words;
  if (!check.starts_with('{') || !check.ends_with('}')) return words;
  std::istringstream list(check.substr(1, check.size() - 2));
  for (std::string word; std::getline(list, word, ',');) words.push_back(word);
  return words;
}

std::string allowed_range(const CLI::Option& option) {
  const std::string check = check_text(option);
  const size_t from = check.find(" in ["), middle = check.find(" - ");
  if (from == std::string::npos || middle == std::string::npos || !check.ends_with(']')) return "";
  const size_t first = from + 5;
  return "From " + check.substr(first, middle - first) + " to " +
         check.substr(middle + 3, check.size() - middle - 4);
}

Words names_of(const CLI::Option& option) {
  Words names;
  for (const std::string& name : option.get_snames()) names.push_back('-' + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

}  // namespace stoker
