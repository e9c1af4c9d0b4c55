#include "shared/config/key_suggestion.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "shared/config/config_errors.h"
#include "shared/config/key_synonyms.h"
#include "shared/config/reference.h"

namespace stoker::config {
namespace {

constexpr size_t kMaxSuggestions = 3;

class Suggester {
 public:
  Suggester(const Entry& entry, const std::string& section, const std::vector<std::string>& names,
            const Variants* maybe_variants)
      : entry_(entry), section_(section), names_(names), variants_(maybe_variants) {}

  KeySuggestion suggest() const {
    if (const KeySynonym* const synonym = find_key_synonym(entry_.key))
      if (KeySuggestion found = of_synonym(*synonym); !found.text.empty()) return found;
    // A value that is no section is that of a setting: `seed: 1` is not a misspelt `feed`.
    const bool is_setting = is_file() && entry_.value.type != Value::Type::kMap;
    if (is_setting)
      if (std::vector<std::string> keys = keys_elsewhere(); !keys.empty())
        return meant(std::move(keys), "");
    if (const std::string near = closest_match(entry_.key, names_); !near.empty())
      return {{full_name(near)}, did_you_mean(entry_.key, names_)};
    if (is_variant_name(entry_.value))
      return meant({full_name(std::string(variants_->discriminator))}, "");
    if (std::vector<std::string> keys = keys_elsewhere(); !keys.empty())
      return meant(std::move(keys), "");
    if (const KeySynonym* const synonym = closest_key_synonym(entry_.key))
      if (KeySuggestion found = of_synonym(*synonym); !found.text.empty()) return found;
    return {{}, all_names()};
  }

 private:
  bool is_file() const { return section_.empty(); }
  bool is_dataset() const {
    return section_.starts_with("data.") && section_.find_first_of(".[", 5) == section_.npos;
  }
  // A mapping or the item of a list within a section.
  bool is_nested() const { return section_.find_first_of(".[") != section_.npos && !is_dataset(); }

  std::string full_name(const std::string& name) const {
    return is_file() ? name : section_ + '.' + name;
  }
  bool is_own(const std::string& key) const {
    return is_file() ? key.find('.') == key.npos : key.starts_with(section_ + '.');
  }
  // "data.val", or "data.train" outside of a dataset.
  std::string dataset() const {
    if (!section_.starts_with("data.")) return "data.train";
    return section_.substr(0, section_.find_first_of(".[", 5));
  }

  bool is_variant_name(const Value& value) const {
    return variants_ != nullptr && value.type == Value::Type::kScalar &&
           std::ranges::count(variants_->names, std::string_view(value.text)) > 0;
  }

  KeySuggestion of_synonym(const KeySynonym& synonym) const {
    std::vector<std::string> own, others;
    for (std::string key : synonym.all_keys()) {
      if (key.starts_with("data.NAME")) key.replace(0, 9, dataset());
      // The value of a mapping is that of the section.
      if (is_file() && entry_.value.type == Value::Type::kMap && key.ends_with(".name"))
        key.erase(key.size() - 5);
      if (is_own(key))
        own.push_back(key);
      else if (is_file() || (!is_nested() && key.find('.') != key.npos))
        others.push_back(key);
    }
    if (!own.empty()) return meant(own, synonym.remark);
    if (!others.empty()) return meant(others, synonym.remark);
    if (synonym.keys.empty()) return {{}, "; " + std::string(synonym.remark)};
    return {};
  }

  static KeySuggestion meant(std::vector<std::string> keys, std::string_view remark) {
    std::vector<std::string> words;
    for (const std::string& key : keys) words.push_back(quoted(key));
    std::string text = "; did you mean " + join_words(words, " or ");
    if (!remark.empty()) text.append(" (").append(remark).append(")");
    return {std::move(keys), text + "?"};
  }

  // The keys of other sections with this name; the outermost if there are several.
  std::vector<std::string> keys_elsewhere() const {
    if (is_nested()) return {};
    static const KeyCompletions all = key_completions();
    std::vector<std::string> found;
    std::ptrdiff_t least_depth = std::numeric_limits<std::ptrdiff_t>::max();
    for (const KeyCompletion& each : all) {
      if (!each.key.ends_with('.' + entry_.key) || each.key.starts_with("data.val.")) continue;
      std::string key = each.key;
      const bool is_of_dataset = key.starts_with("data.train.");
      if (is_of_dataset) key.replace(0, 10, dataset());
      const std::ptrdiff_t depth = std::ranges::count(key, '.') - (is_of_dataset ? 1 : 0);
      if (depth > least_depth) continue;
      if (depth < least_depth) found.clear();
      least_depth = depth;
      found.push_back(std::move(key));
    }
    if (found.size() > kMaxSuggestions) found.clear();
    return found;
  }

  std::string all_names() const {
    if (names_.empty()) return "; it has no keys, remove this one";
    return (is_file() ? "; the sections are " : "; the keys of " + section_ + " are ") +
           join_words(names_, " and ");
  }

  const Entry& entry_;
  const std::string& section_;
  const std::vector<std::string>& names_;
  const Variants* const variants_;
};

}  // namespace

KeySuggestion suggest_key(const Entry& entry, const std::string& section,
                          const std::vector<std::string>& names, const Variants* maybe_variants) {
  return Suggester(entry, section, names, maybe_variants).suggest();
}

}  // namespace stoker::config
