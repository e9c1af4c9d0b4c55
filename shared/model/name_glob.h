// NameGlob: a pattern of tensors' names, as model.freeze, model.pretrained.key_mapping and
// optimizer.param_groups have them: * stands for anything, dots included, ? for one character,
// [01a-f] for one of several, [!01] for one of all others.
//
// Threads: immutable after construction.
#pragma once

#include <bitset>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stoker::model {

class NameGlob {
 public:
  explicit NameGlob(std::string_view pattern);

  bool matches(std::string_view name) const { return match_parts(name).has_value(); }
  // What each * stands for, the earlier ones for as little as possible. nullopt: no match.
  std::optional<std::vector<std::string>> match_parts(std::string_view name) const;

 private:
  struct Unit {
    bool is_star = false;
    std::bitset<256> bytes;  // else: one of these
  };
  std::vector<Unit> units_;
};

// `text` with its stars replaced by `parts`, one after another; a star too many stands for nothing.
std::string expand_wildcards(std::string_view text, const std::vector<std::string>& parts);

}  // namespace stoker::model
