#include "shared/config/field_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "shared/config/free_map.h"
#include "shared/config/nearest_word.h"

namespace stoker::config {
namespace {

constexpr size_t kMaxItems = 1024;  // of a list

// Reads one field; says what is wrong under the field's full name.
class FieldReader {
 public:
  FieldReader(const Field& field, std::string key, Mistakes& mistakes)
      : field_(field), key_(std::move(key)), mistakes_(mistakes) {}

  void read(const Value& value) {
    std::visit([&](const auto& target) { read_into(value, target); }, field_.target);
  }

 private:
  void wrong(const Value& value, const std::string& what) {
    mistakes_.add(value.place, key_, what);
  }
  // "is 'x', but must be …"
  void wanted(const Value& value, const std::string& what) {
    std::string is;
    switch (value.type) {
      case Value::Type::kScalar:
        is = "is " + quoted(value.text) + (value.in_quotes ? " in quotes" : "");
        break;
      case Value::Type::kList:
        is = "is a list";
        break;
      case Value::Type::kMap:
        is = "is a section";
        break;
      case Value::Type::kNothing:
        is = "has no value";
        break;
    }
    wrong(value, is + "; it must be " + what);
  }

  bool is_word(const Value& value) const {
    return value.type == Value::Type::kScalar && !value.in_quotes;
  }

  void read_into(const Value& value, bool* target) {
    if (is_word(value) && (value.text == "true" || value.text == "false")) {
      *target = value.text == "true";
    } else {
      wanted(value, "true or false");
    }
  }

  std::string range() const {
    const bool has_max = field_.max < std::numeric_limits<double>::max();
    const std::string from = (field_.above_min ? "above "
                              : has_max        ? "from "
                                               : "at least ") +
                             number_text(field_.min);
    return has_max ? from + (field_.above_min ? " and at most " : " to ") + number_text(field_.max)
                   : from;
  }
  static std::string number_text(double number) {
    constexpr double kEndOfWhole =
        18446744073709551616.0;  // 2^64, also where the seed's range ends
    if (number >= kEndOfWhole) return std::to_string(std::numeric_limits<uint64_t>::max());
    if (number == std::floor(number) && number >= 0)
      return std::to_string(static_cast<uint64_t>(number));
    double copy = number;
    return yaml_of(Target(&copy));
  }
  bool in_range(double number) const {
    return number <= field_.max && (field_.above_min ? number > field_.min : number >= field_.min);
  }

  template <typename Number>
  bool read_number(const Value& value, Number& target) {
    constexpr bool kWhole = std::is_integral_v<Number>;
    const bool is_unbounded = field_.min == std::numeric_limits<double>::lowest();
    const std::string what =
        std::string(kWhole ? "a whole number" : "a number") + (is_unbounded ? "" : " " + range());
    Number number{};
    const char* begin = value.text.data();
    const char* const end = begin + value.text.size();
    if (begin != end && *begin == '+') ++begin;
    const auto parsed = std::from_chars(begin, end, number);
    const bool reads = is_word(value) && parsed.ec == std::errc() && parsed.ptr == end &&
                       std::isfinite(static_cast<double>(number));
    if (!reads || (!is_unbounded && !in_range(static_cast<double>(number)))) {
      wanted(value, what);
      return false;
    }
    target = number;
    return true;
  }
  void read_into(const Value& value, int* target) { read_number(value, *target); }
  void read_into(const Value& value, int64_t* target) { read_number(value, *target); }
  void read_into(const Value& value, uint64_t* target) { read_number(value, *target); }
  void read_into(const Value& value, double* target) { read_number(value, *target); }
  void read_into(const Value& value, std::optional<double>* target) {
    double number = 0;
    if (field_.may_be_off && is_word(value) && value.text == "off") {
      target->reset();
    } else if (read_number(value, number)) {
      *target = number;
    }
  }
  void read_into(const Value& value, std::optional<int>* target) {
    int number = 0;
    if (is_word(value) && value.text == "auto") {
      target->reset();
    } else if (read_number(value, number)) {
      *target = number;
    }
  }

  bool read_text(const Value& value, std::string& target) {
    if (value.type != Value::Type::kScalar) {
      wanted(value, "text");
      return false;
    }
    const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
    if (std::ranges::any_of(value.text, is_control)) {
      wrong(value, "is " + quoted(value.text) + "; it must not hold a control character");
      return false;
    }
    target = value.text;
    return true;
  }
  void read_into(const Value& value, std::string* target) {
    if (field_.words.empty()) {
      read_text(value, *target);
    } else if (value.type == Value::Type::kScalar && is_word_of(field_.words, value.text)) {
      *target = value.text;
    } else {
      std::vector<std::string> words;
      for (size_t from = 0; from < field_.words.size();) {
        const size_t space = std::min(field_.words.find(' ', from), field_.words.size());
        words.emplace_back(field_.words.substr(from, space - from));
        from = space + 1;
      }
      wanted_word(value, words);
    }
  }
  void read_into(const Value& value, const Choice& target) {
    const auto found = std::ranges::find(target.words, std::string_view(value.text));
    if (value.type == Value::Type::kScalar && found != target.words.end()) {
      target.set(target.target, static_cast<int>(found - target.words.begin()));
    } else {
      wanted_word(value, {target.words.begin(), target.words.end()});
    }
  }
  void wanted_word(const Value& value, const std::vector<std::string>& words) {
    std::string all;
    for (size_t i = 0; i < words.size(); ++i)
      all += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
    const std::string near =
        value.type == Value::Type::kScalar ? nearest_word(value.text, words) : "";
    wanted(value, all + (near.empty() ? "" : " (did you mean " + quoted(near) + "?)"));
  }

  void read_into(const Value& value, const NumbersOrWord& target) {
    *target.is_word = value.type == Value::Type::kScalar && value.text == target.word;
    if (*target.is_word) {
      target.numbers->clear();
    } else if (value.type == Value::Type::kList) {
      read_into(value, target.numbers);
    } else {
      wanted(value, "a list, such as [1, 2], or the word " + std::string(target.word));
    }
  }
  void read_into(const Value& value, const FreeMap& target) {
    if (value.type != Value::Type::kMap) {
      wanted(value, "a mapping, such as {width: 64}");
    } else {
      *target.json = free_map_of(value, key_, mistakes_);
    }
  }
  void read_into(const Value& value, const Rows& target) {
    if (value.type != Value::Type::kList) {
      target.resize(target.target, 1);
      wanted(value, "a list, such as [{" + names_of(target.fields(target.target, 0)) + "}]");
      target.resize(target.target, 0);
    } else if (value.items.size() > kMaxItems) {
      wrong(value, "has more than " + std::to_string(kMaxItems) + " items");
    } else {
      target.resize(target.target, 0);
      target.resize(target.target, value.items.size());
      for (size_t row = 0; row < value.items.size(); ++row)
        read_row(value.items[row], target.fields(target.target, row),
                 key_ + '[' + std::to_string(row) + ']');
    }
  }
  void read_row(const Value& row, const std::vector<Field>& fields, const std::string& key) {
    if (row.type != Value::Type::kMap) {
      mistakes_.add(row.place, key, "must be of the form {" + names_of(fields) + "}");
      return;
    }
    const Section section{.key = key, .fields = fields};
    // The kind first, where rows have one: it decides which of the others are read.
    const auto kind = std::ranges::find(row.entries, section.kind_field, &Entry::key);
    if (kind != row.entries.end()) read_in_row(*kind, section);
    for (const Entry& entry : row.entries)
      if (entry.key != section.kind_field) read_in_row(entry, section);
    if (mistakes_.touches(key + '.' + std::string(section.kind_field))) return;
    for (const Field& field : fields) {
      const std::string full = key + '.' + std::string(field.name);
      if (field.is_required && section.reads(field) && is_empty(field) && !mistakes_.touches(full))
        mistakes_.add(row.place, full, "is missing");
    }
  }
  void read_in_row(const Entry& entry, const Section& section) {
    const std::string full = section.key + '.' + entry.key;
    const Field* const field = section.find(entry.key);
    if (field == nullptr) {
      mistakes_.add(entry.place, full, "no such key; there are: " + names_of(section.fields));
    } else if (section.reads(*field)) {
      FieldReader(*field, full, mistakes_).read(entry.value);
    } else if (!section.kind().empty()) {
      mistakes_.add(entry.place, full,
                    "is not read by kind " + std::string(section.kind()) + " (only by " +
                        std::string(field->kinds) + "); remove it");
    }
  }
  // Whether it is still what no file can give.
  static bool is_empty(const Field& field) {
    if (const auto* const text = std::get_if<std::string*>(&field.target)) return (*text)->empty();
    const auto* const number = std::get_if<int64_t*>(&field.target);
    return number != nullptr && static_cast<double>(**number) < field.min;
  }
  static std::string names_of(const std::vector<Field>& fields) {
    std::string names;
    for (const Field& field : fields)
      names += (names.empty() ? "" : ", ") + std::string(field.name);
    return names;
  }

  template <typename T>
  void read_into(const Value& value, std::vector<T>* target) {
    if constexpr (std::is_same_v<T, std::string>) {
      if (field_.may_stand_alone && value.type == Value::Type::kScalar) {
        std::string one;
        if (read_text(value, one)) *target = {std::move(one)};
        return;
      }
    }
    const char* const example = std::is_same_v<T, std::string> ? "[a, b]" : "[1, 2]";
    if (value.type != Value::Type::kList) {
      wanted(value, std::string("a list, such as ") + example);
      return;
    }
    if (value.items.size() > kMaxItems) {
      wrong(value, "has more than " + std::to_string(kMaxItems) + " items");
      return;
    }
    std::vector<T> items(value.items.size());
    bool all_read = true;
    for (size_t i = 0; i < items.size(); ++i) {
      if constexpr (std::is_same_v<T, std::string>) {
        all_read = read_text(value.items[i], items[i]) && all_read;
      } else {
        all_read = read_number(value.items[i], items[i]) && all_read;
      }
    }
    if (all_read) *target = std::move(items);
  }

  const Field& field_;
  const std::string key_;
  Mistakes& mistakes_;
};

}  // namespace

void read_field(const Field& field, const std::string& key, const Value& value,
                Mistakes& mistakes) {
  FieldReader(field, key, mistakes).read(value);
}

}  // namespace stoker::config
