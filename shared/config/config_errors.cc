#include "shared/config/config_errors.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "shared/base/utf8.h"
#include "shared/config/load_config.h"

namespace stoker::config {
namespace {

constexpr size_t kMaxErrors = 50;
constexpr size_t kMaxQuoted = 60;
constexpr size_t kMaxFlag = 120;
constexpr size_t kMaxWordBytes = 64;  // no key is longer; bounds the cost of the edit distance

// The key of a --set option: "train.max_steps" for "train.max_steps=10".
std::string_view key_of_flag(std::string_view flag) { return flag.substr(0, flag.find('=')); }

// Also a key that is misspelt can have a secret value.
std::string shown_flag(const std::string& flag) {
  const std::string_view key = key_of_flag(flag);
  if (key.size() == flag.size() || !(is_secret_key(key) || is_like_secret_key(key))) return flag;
  return std::string(key) + "=" + std::string(kHiddenValue);
}

// Without what follows "got" in an error of a secret setting.
std::string hide_value(std::string_view key, std::string_view message) {
  const size_t value = message.find(", got ");
  if (value == message.npos || !is_secret_key(key)) return std::string(message);
  return std::string(message.substr(0, value)) + ", got a value that is not shown";
}

// Order of reporting: the lines of the file, then the --set options in their order, then errors
// without a location.
auto order_of(const SourceLocation& location) {
  const int group = location.line > 0 ? 0 : location.flag >= 0 ? 1 : 2;
  return std::tuple(group, location.flag, location.line, location.column);
}

}  // namespace

SourceLocation ExplicitKeys::location_of(std::string_view key) const {
  for (;;) {
    if (const auto found = locations_.find(key); found != locations_.end()) return found->second;
    const size_t dot = key.find_last_of(".[");
    if (dot == std::string_view::npos) return {};
    key = key.substr(0, dot);
  }
}

ConfigErrors::ConfigErrors(std::string file, const std::vector<std::string>& flags)
    : file_(std::move(file)), flags_(flags) {}

void ConfigErrors::add(const SourceLocation& location, std::string_view key,
                       std::string_view message, std::string_view marked_key) {
  ++count_;
  keys_.emplace(marked_key);
  if (errors_.size() == kMaxErrors) return;
  std::string line;
  const bool in_flag = location.flag >= 0;
  if (in_flag) {
    line = "--set " + one_line(shown_flag(flags_.at(static_cast<size_t>(location.flag))), kMaxFlag);
  } else {
    line = one_line(file_, 1024);
    if (location.line > 0)
      line += ':' + std::to_string(location.line) + ':' + std::to_string(location.column);
  }
  const bool is_named = in_flag && key == key_of_flag(flags_[static_cast<size_t>(location.flag)]);
  if (!key.empty() && !is_named) line += ": " + one_line(key, kMaxFlag);
  errors_.push_back({location, line + ": " + printable(hide_value(key, message))});
}

bool ConfigErrors::has_error_for(std::string_view key) const {
  for (;;) {
    if (keys_.contains(key)) return true;
    const size_t end = key.find_last_of(".[");
    if (end == std::string_view::npos) return false;
    key = key.substr(0, end);
  }
}

bool ConfigErrors::has_error_in(const std::string& section) const {
  const auto first = keys_.lower_bound(section + '.');
  return has_error_for(section) || (first != keys_.end() && first->starts_with(section + '.'));
}

bool ConfigErrors::names_key_with_error(std::string_view message,
                                        const std::string& section) const {
  constexpr std::string_view kOfKeys = "abcdefghijklmnopqrstuvwxyz0123456789_.";
  while (!message.empty()) {
    message.remove_prefix(std::min(message.find_first_of(kOfKeys), message.size()));
    std::string_view word = message.substr(0, message.find_first_not_of(kOfKeys));
    message.remove_prefix(word.size());
    while (word.ends_with('.')) word.remove_suffix(1);
    const bool is_full = word.find('.') != word.npos;
    if (is_full && has_error_for(word)) return true;
    if (!section.empty() && !word.empty() && has_error_for(section + std::string(word)))
      return true;
  }
  return false;
}

Status ConfigErrors::status() const {
  if (empty()) return {};
  std::vector<Error> sorted = errors_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Error& a, const Error& b) {
    return order_of(a.location) < order_of(b.location);
  });
  std::string text;
  for (const Error& error : sorted) text += (text.empty() ? "" : "\n") + error.line;
  if (count_ > errors_.size())
    text += "\n" + one_line(file_, 1024) + ": and " + std::to_string(count_ - errors_.size()) +
            " more errors; correct these first";
  return Status(StatusCode::kInvalidArgument, text);
}

std::string one_line(std::string_view text, size_t max_bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  while (!text.empty()) {
    if (out.size() >= max_bytes) return out + "…";
    const size_t valid_bytes = utf8_character_bytes(text);
    const std::string_view character = text.substr(0, valid_bytes > 0 ? valid_bytes : 1);
    text.remove_prefix(character.size());
    if (character == "\n") {
      out += "\\n";
    } else if (valid_bytes > 0 && !is_control_character(character)) {
      out += character;
    } else {
      for (const char byte : character) {
        const auto c = static_cast<unsigned char>(byte);
        out += {'\\', 'x', kHex[c >> 4], kHex[c & 15]};
      }
    }
  }
  return out;
}

std::string quoted(std::string_view text) { return "'" + one_line(text, kMaxQuoted) + "'"; }

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last = std::exchange(last, row);
  }
  return last[b.size()];
}

std::string closest_match(std::string_view typed, const std::vector<std::string>& words) {
  if (typed.size() > kMaxWordBytes) return {};
  std::string best;
  size_t best_distance = kMaxWordBytes;
  for (const std::string& word : words) {
    const size_t distance = edit_distance(typed, word);
    const size_t limit = std::max<size_t>(1, std::max(typed.size(), word.size()) / 3);
    if (distance > limit || distance >= best_distance) continue;
    best = word;
    best_distance = distance;
  }
  return best;
}

std::string did_you_mean(std::string_view typed, const std::vector<std::string>& words) {
  const std::string word = closest_match(typed, words);
  return word.empty() ? "" : "; did you mean " + quoted(word) + "?";
}

}  // namespace stoker::config
