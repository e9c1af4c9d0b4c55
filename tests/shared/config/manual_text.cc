#include "tests/shared/config/manual_text.h"

#include <algorithm>
#include <sstream>

namespace stoker::config::test {
namespace {

bool is_name(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !text.empty() && std::ranges::all_of(text, fits);
}

// "  #key: value"; no name where the line is none.
struct KeyLine {
  size_t indent = 0;
  bool is_commented_out = false;
  std::string name;
  std::string value;
};
KeyLine key_line(std::string_view line) {
  KeyLine key;
  key.indent = std::min(line.find_first_not_of(' '), line.size());
  line.remove_prefix(key.indent);
  key.is_commented_out = line.starts_with('#');
  if (key.is_commented_out) line.remove_prefix(1);
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_name(line.substr(0, colon))) return {};
  key.name = line.substr(0, colon);
  key.value = line.substr(std::min(colon + 2, line.size()));
  return key;
}

}  // namespace

std::vector<ManualKey> manual_keys(const std::string& manual) {
  std::vector<ManualKey> keys;
  std::string section, set, comment;
  std::istringstream stream(manual);
  for (std::string line; std::getline(stream, line);) {
    const size_t start = std::min(line.find_first_not_of(' '), line.size());
    if (line.compare(start, 2, "# ") == 0) {
      comment += (comment.empty() ? "" : " ") + line.substr(start + 2);
      continue;
    }
    if (const KeyLine key = key_line(line); !key.name.empty()) {
      if (key.indent == 0) {
        section = key.name;
      } else if (section == "data" && key.indent == 2) {
        set = '.' + key.name;
      } else {
        keys.push_back({section + (section == "data" ? set : ""), key.name, key.value, comment,
                        key.is_commented_out});
      }
    }
    comment.clear();
  }
  return keys;
}

std::vector<PageRow> page_rows(const std::string& page) {
  const std::string bar = " | ";
  std::vector<PageRow> rows;
  std::istringstream stream(page);
  for (std::string line; std::getline(stream, line);) {
    const size_t first = line.find(bar);
    const size_t second = first == std::string::npos ? first : line.find(bar, first + bar.size());
    if (!line.starts_with("| `") || second == std::string::npos) continue;
    std::string key = line.substr(2, first - 2);
    std::string value = line.substr(first + bar.size(), second - first - bar.size());
    std::erase(key, '`');
    std::erase(value, '`');
    rows.push_back({key, value});
  }
  return rows;
}

std::vector<std::string> page_blocks(const std::string& page, const std::string& language) {
  std::vector<std::string> blocks;
  std::istringstream stream(page);
  bool is_inside = false, is_wanted = false;
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("```")) {
      is_inside = !is_inside;
      is_wanted = is_inside && line == "```" + language;
      if (is_wanted) blocks.emplace_back();
    } else if (is_wanted) {
      blocks.back() += line + '\n';
    }
  }
  return blocks;
}

}  // namespace stoker::config::test
