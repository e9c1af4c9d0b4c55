// cli_documents: man page and bash completion of a program, generated from the options of its
// CLI::App, so that each option is described only once.
//
// Threads: pure functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace stoker {

// A key of `--set KEY=VALUE`.
struct KeyCompletion {
  std::string key;
  std::vector<std::string> words;  // the values, if they are words
};
using KeyCompletions = std::vector<KeyCompletion>;

// The page in section `section` of the manual: description, options, commands and footer. In the
// footer, an unindented line that ends with a colon starts a section of indented lines "COMMAND  what
// it does"; "Exit codes: " starts the section on these.
std::string man_page(const CLI::App& app, int section);

// A file for bash-completion's folder: options, commands, words of an option's CLI::IsMember, and
// `keys` for --set.
std::string bash_completion(const CLI::App& app, const KeyCompletions& keys);

// Adds `--print-document man|completion`, which prints one of these and exits. The installation runs
// it; --help does not list it. The document is the text of a CLI::CallForVersion, like the answer to
// --version.
void add_document_option(CLI::App& app, int section, std::function<KeyCompletions()> keys = {});

}  // namespace stoker
