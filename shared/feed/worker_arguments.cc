#include "shared/feed/worker_arguments.h"

#include <type_traits>

namespace stoker::feed {

std::vector<std::string> to_command_line(const WorkerArguments& arguments) {
  std::vector<std::string> words;
  for_each_argument([&](const char* option, auto member, const char*) {
    const auto& value = arguments.*member;
    using Value = std::remove_cvref_t<decltype(value)>;
    const auto add = [&](const std::string& text) { words.insert(words.end(), {option, text}); };
    if constexpr (std::is_same_v<Value, std::string>) {
      if (!value.empty()) add(value);
    } else if constexpr (std::is_same_v<Value, std::vector<uid_t>>) {
      for (const uid_t user : value) add(std::to_string(user));
    } else if constexpr (std::is_same_v<Value, Operation>) {
      add(kOperationNames[static_cast<int>(value)]);
    } else if (!std::is_same_v<Value, int> || value != static_cast<Value>(-1)) {
      add(std::to_string(value));
    }
  });
  return words;
}

}  // namespace stoker::feed
