// cli_options: parsing of a program's CLI::App, and what the documents of a program need of its options.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace stoker {

using Words = std::vector<std::string>;

// CLI::App::parse(), except that an unknown option is reported before a required one that is missing,
// which it can be meant to be. Throws CLI::ParseError.
void parse_options(CLI::App& app, int argc, const char* const* argv);

// What --help prints, in 80 columns; `parent`: the program of a command.
std::string help_text(const CLI::App& app, const std::string& parent = {});

// Options in the order of --help, without the hidden ones; a command shares --help with the program.
std::vector<const CLI::Option*> visible_options(const CLI::App& app, bool is_positional);

std::vector<const CLI::App*> commands_of(const CLI::App& app);
Words command_names(const CLI::App& app);

bool takes_value(const CLI::Option& option);
// The name of the argument: "FILE".
std::string argument_name(const CLI::Option& option);
// The words of CLI::IsMember.
Words allowed_words(const CLI::Option& option);
// "From 1 to 1000", of CLI::Range.
std::string allowed_range(const CLI::Option& option);
// "-f" and "--follow".
Words names_of(const CLI::Option& option);

}  // namespace stoker
