#include "shared/base/cli_documents.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>

#include "shared/base/cli_options.h"
#include "shared/base/man_page.h"
#include "shared/base/utf8.h"

namespace stoker {
namespace {

using Options = std::vector<const CLI::Option*>;

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

std::string document(const CLI::App& app, int section, const std::function<KeyCompletions()>& keys,
                     const std::string& what) {
  if (what == "man") return man_page(app, section);
  const auto completion = what == "bash"  ? bash_completion
                          : what == "zsh" ? zsh_completion
                                          : fish_completion;
  return completion(app, keys ? keys() : KeyCompletions());
}

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

void add_document_option(CLI::App& app, int section, std::function<KeyCompletions()> keys) {
  app.add_option_function<std::string>(
         "--print-document",
         [&app, section, keys = std::move(keys)](const std::string& what) {
           throw CLI::CallForVersion(document(app, section, keys, what), 0);
         },
         "Print the man page or the completion for a shell and exit")
      ->check(CLI::IsMember({"man", "bash", "zsh", "fish"}))
      ->group("");
}

}  // namespace stoker
