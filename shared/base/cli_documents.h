// cli_documents: man page and bash completion of a program, generated from the options of its
// CLI::App, so that each option is described only once.
//
// Threads: pure functions.
#pragma once

#include <functional>
#include <string>

#include "shared/base/shell_completion.h"

namespace CLI {
class App;
}

namespace stoker {

// The page in section `section` of the manual: description, options, commands and footer. In the
// footer, an unindented line that ends with a colon starts a section of indented lines "COMMAND  what
// it does"; "Exit codes: " starts the section on these.
std::string man_page(const CLI::App& app, int section);

// Adds `--print-document man|bash|zsh|fish`, which prints one of these and exits. The installation runs
// it; --help does not list it. The document is the text of a CLI::CallForVersion, like the answer to
// --version.
void add_document_option(CLI::App& app, int section, std::function<KeyCompletions()> keys = {});

}  // namespace stoker
