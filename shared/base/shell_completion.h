// shell_completion: completion of the command line of a program, generated from the options of its
// CLI::App: options, commands, words of an option's CLI::IsMember, and the keys of `--set`.
//
// Threads: pure functions.
#pragma once

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

// A hidden option of a program that has it: prints words for an argument of its present command line, one per line.
// "steps" (STEP, FROM, TO), "metrics" (--metric), "keys" (KEY of get), "live-keys" (KEY of others).
inline constexpr const char* kCandidatesOption = "--print-candidates";

// Each is a file for the folder that the shell searches.
std::string bash_completion(const CLI::App& app, const KeyCompletions& keys);
std::string zsh_completion(const CLI::App& app, const KeyCompletions& keys);
std::string fish_completion(const CLI::App& app, const KeyCompletions& keys);

}  // namespace stoker
