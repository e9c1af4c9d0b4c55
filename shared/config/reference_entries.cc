#include "shared/config/reference_entries.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "shared/base/number_format.h"
#include "shared/base/utf8.h"
#include "shared/config/epochs.h"

namespace stoker::config {
namespace {

// ---- text of values -----------------------------------------------------------------------------

std::string number_text(double number) {
  constexpr double kTwoTo64 = 18446744073709551616.0;  // exclusive upper bound of uint64_t
  if (number >= kTwoTo64) return std::to_string(std::numeric_limits<uint64_t>::max());
  constexpr double kMaxDigits = 1e9;
  if (number == std::floor(number) && std::abs(number) <= kMaxDigits)
    return std::to_string(static_cast<int64_t>(number));
  std::string digits = format_shortest(number);
  if (const size_t plus = digits.find('+'); plus != std::string::npos) digits.erase(plus, 1);
  return digits;
}

std::string range_of(const Field& field) {
  const bool has_min = field.min != std::numeric_limits<double>::lowest();
  const bool has_max = field.max != std::numeric_limits<double>::max();
  std::string text;
  if (has_min)
    text = (field.exclusive_min ? " above "
            : has_max           ? " from "
                                : " of at least ") +
           number_text(field.min);
  if (has_max) text += (field.exclusive_min ? ", at most " : " to ") + number_text(field.max);
  return text;
}

template <typename T>
struct Inner {
  using type = T;
  static constexpr bool kIsList = false, kIsOptional = false;
};
template <typename T>
struct Inner<std::optional<T>> {
  using type = T;
  static constexpr bool kIsList = false, kIsOptional = true;
};
template <typename T>
struct Inner<std::vector<T>> {
  using type = T;
  static constexpr bool kIsList = true, kIsOptional = false;
};

template <typename T>
std::string value_in_words(const Field& field, bool is_plural) {
  const std::string plural = is_plural ? "s" : "";
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, std::string>) return "text" + plural;
  if constexpr (std::is_same_v<T, DeviceConfig>) return "auto, cpu, cuda, cuda:N";
  return (std::is_integral_v<T> ? "integer" : "number") + plural + range_of(field);
}

std::string words_of(std::span<const std::string_view> words) {
  return join({words.begin(), words.end()}, ", ");
}

std::string values_of(const Field& field) {
  std::string text = std::visit(
      [&](const auto& target) -> std::string {
        using T = std::decay_t<decltype(target)>;
        if constexpr (std::is_pointer_v<T>) {
          using Kind = Inner<std::remove_pointer_t<T>>;
          std::string one = value_in_words<typename Kind::type>(field, Kind::kIsList);
          if (Kind::kIsList)
            return (field.accepts_scalar
                        ? value_in_words<typename Kind::type>(field, false) + ", or list of them"
                        : "list of " + one);
          if (Kind::kIsOptional)
            one += ", or " + (field.null_word.empty() ? "null" : std::string(field.null_word));
          return one;
        } else if constexpr (std::is_same_v<T, EnumField>) {
          return words_of(target.words) + (target.accepts_null ? ", or null" : "");
        } else if constexpr (std::is_same_v<T, NumbersOrKeyword>) {
          return "list of numbers" + range_of(field) + ", or " + std::string(target.keyword);
        } else if constexpr (std::is_same_v<T, MappingField>) {
          return target.is_optional ? "mapping, or null" : "mapping";
        } else if constexpr (std::is_same_v<T, ListField>) {
          return "list of mappings";
        } else if constexpr (std::is_same_v<T, TaggedListField>) {
          return "list of " + words_of(target.names);
        } else if constexpr (std::is_same_v<T, TaggedMapField>) {
          return "mapping of patterns to " + words_of(target.values.names);
        } else if constexpr (std::is_same_v<T, SharesField>) {
          return "mapping of names to numbers" + range_of(field);
        } else {
          return "mapping";
        }
      },
      field.target);
  if (field.accepts_epochs)
    text += is_list_of_steps(field) ? ", or {epochs: list of numbers}" : ", or {epochs: number}";
  if (field.accepts_null) text += ", or null";
  return text;
}

std::vector<std::string> value_words(const Field& field) {
  if (std::holds_alternative<bool*>(field.target)) return {"true", "false"};
  const auto* const choice = std::get_if<EnumField>(&field.target);
  if (choice == nullptr) return {};
  std::vector<std::string> words(choice->words.begin(), choice->words.end());
  if (field.accepts_null) words.emplace_back("null");
  return words;
}

// ---- entries -------------------------------------------------------------------------------------

// `is_expanded`: describe the choices of a tagged list. False inside such a list, because layers
// contain layers.
ReferenceEntry entry_of(const Field& field, bool is_expanded);

std::vector<ReferenceEntry> entries_of(const std::vector<Field>& fields, bool is_expanded) {
  std::vector<ReferenceEntry> entries;
  for (const Field& field : fields) entries.push_back(entry_of(field, is_expanded));
  return entries;
}

void describe(const MappingField& mapping, ReferenceEntry& entry) {
  entry.nesting = Nesting::kKeys;
  const bool was_set = mapping.is_set(mapping.target);
  if (!was_set) mapping.reset(mapping.target, true);
  entry.nested = entries_of(mapping.fields(mapping.target), true);
  if (!was_set) mapping.reset(mapping.target, false);
}

void describe(const ListField& list, ReferenceEntry& entry) {
  entry.nesting = Nesting::kItem;
  const size_t size = list.size(list.target);
  list.resize(list.target, size + 1);
  entry.nested = entries_of(list.fields(list.target, size), true);
  list.resize(list.target, size);
}

void describe(const TaggedListField& list, Nesting nesting, ReferenceEntry& entry) {
  entry.nesting = nesting;
  for (size_t i = 0; i < list.names.size(); ++i) {
    list.clear(list.target);
    list.add(list.target, i);
    ReferenceEntry choice{.name = std::string(list.names[i])};
    choice.nested = entries_of(list.fields(list.target, 0), false);
    entry.nested.push_back(std::move(choice));
  }
  list.clear(list.target);
}

ReferenceEntry entry_of(const Field& field, bool is_expanded) {
  ReferenceEntry entry{.name = std::string(field.name),
                       .help = std::string(field.help),
                       .details = std::string(field.details),
                       .values = values_of(field),
                       .words = value_words(field),
                       .default_value = field_value(field),
                       .example = std::string(field.example),
                       .is_required = field.is_required,
                       .on_resume = field.on_resume};
  if (const auto* const mapping = std::get_if<MappingField>(&field.target)) {
    describe(*mapping, entry);
  } else if (const auto* const list = std::get_if<ListField>(&field.target)) {
    describe(*list, entry);
  } else if (const auto* const tagged = std::get_if<TaggedListField>(&field.target);
             tagged != nullptr && is_expanded) {
    describe(*tagged, Nesting::kChoices, entry);
  } else if (const auto* const map = std::get_if<TaggedMapField>(&field.target)) {
    describe(map->values, Nesting::kValues, entry);
  }
  return entry;
}

bool have_same_text(const ReferenceEntry& a, const ReferenceEntry& b) {
  return a.name == b.name && a.help == b.help && a.details == b.details && a.values == b.values &&
         a.default_value == b.default_value && a.is_required == b.is_required &&
         std::ranges::equal(a.nested, b.nested, have_same_text);
}

// The index after the last entry with this name; nullopt if there is none.
std::optional<size_t> position_after(const std::vector<ReferenceEntry>& entries,
                                     const std::string& name) {
  const auto last =
      std::ranges::find(entries.rbegin(), entries.rend(), name, &ReferenceEntry::name);
  if (last == entries.rend()) return std::nullopt;
  return static_cast<size_t>(entries.rend() - last);
}

// Adds the entries of one variant. Existing entries get the name of the variant. New entries are
// inserted after the variant's previous key, or if there is none, after its next existing key.
void merge(std::vector<ReferenceEntry> added, const std::string& variant,
           std::vector<ReferenceEntry>& entries) {
  size_t position = entries.size();
  for (size_t i = added.size(); i-- > 0;)
    position = position_after(entries, added[i].name).value_or(position);
  for (ReferenceEntry& entry : added) {
    auto found = std::ranges::find_if(
        entries, [&](const ReferenceEntry& known) { return have_same_text(known, entry); });
    position = position_after(entries, entry.name).value_or(position);
    if (found == entries.end()) {
      found = entries.insert(entries.begin() + static_cast<ptrdiff_t>(position), std::move(entry));
      ++position;
    }
    found->variants.push_back(variant);
  }
}

}  // namespace

std::string field_value(const Field& field) {
  return std::visit(
      [&](const auto& target) -> std::string {
        using T = std::decay_t<decltype(target)>;
        if constexpr (requires { target->has_value(); }) {
          if (!target->has_value())
            return field.null_word.empty() ? "null" : std::string(field.null_word);
        } else if constexpr (requires { target->empty(); }) {
          if (target->empty() && field.accepts_null) return "null";
        } else if constexpr (std::is_same_v<T, NumbersOrKeyword>) {
          if (!*target.is_keyword && target.numbers->empty() && field.accepts_null) return "null";
        }
        return to_yaml(field.target);
      },
      field.target);
}

std::vector<ReferenceEntry> reference_entries(const Config& config, const std::string& section) {
  Config home = config;
  const Variants variants = find_section(home, section).variants;
  const std::vector<std::string> names(variants.names.begin(), variants.names.end());
  if (names.empty()) {
    std::vector<ReferenceEntry> entries = entries_of(find_section(home, section).fields, true);
    for (ReferenceEntry& entry : entries) entry.is_selected = true;
    return entries;
  }
  std::vector<size_t> order{variants.selected};
  for (size_t i = 0; i < names.size(); ++i)
    if (i != variants.selected) order.push_back(i);
  std::vector<ReferenceEntry> entries;
  for (const size_t i : order) {
    Config other;  // every other setting has its default
    for (const auto& [name, dataset] : config.data) other.data[name] = {};
    find_section(other, section).variants.select(i);
    merge(entries_of(find_section(other, section).fields, true), names[i], entries);
  }
  for (ReferenceEntry& entry : entries) {
    entry.is_selected = entry.variants.front() == names[variants.selected];
    const auto place = [&](const std::string& name) { return std::ranges::find(names, name); };
    std::ranges::sort(entry.variants, {}, place);
    for (const std::string& name : names)
      if (std::ranges::count(entry.variants, name) == 0) entry.exceptions.push_back(name);
    if (entry.exceptions.empty()) entry.variants.clear();
  }
  return entries;
}

std::vector<std::string> selectable_names(const Variants& variants) {
  const size_t count = std::min(variants.names.size(), variants.first_key);
  return {variants.names.begin(), variants.names.begin() + static_cast<ptrdiff_t>(count)};
}

std::string sentences(const std::string& help, const std::string& details) {
  std::string text = help;
  if (!text.empty() && text.back() != '.') text += '.';
  if (!details.empty()) text.append(" ").append(details);
  return text;
}

}  // namespace stoker::config
