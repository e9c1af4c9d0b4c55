// NameGlob: glob pattern for tensor names, used by model.freeze, model.pretrained.key_mapping and
// optimizer.param_groups. * matches any text including dots, ? one character, [01a-f] one of a set,
// [!01] one character outside the set.
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
  // Returns the text that each * matches; earlier stars match as little as possible. nullopt: no
  // match.
  std::optional<std::vector<std::string>> match_parts(std::string_view name) const;

 private:
  struct Unit {
    bool is_star = false;
    std::bitset<256> bytes;  // otherwise: one of these
  };
  std::vector<Unit> units_;
};

// Replaces the stars in `text` with `parts`, in order; surplus stars become empty.
std::string expand_wildcards(std::string_view text, const std::vector<std::string>& parts);

}  // namespace stoker::model
