#include "tests/shared/config/manual_text.h"

#include <algorithm>
#include <sstream>
#include <string_view>

namespace stoker::config::test {
namespace {

bool is_name(std::string_view text) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !text.empty() && std::ranges::all_of(text, is_allowed);
}

// Parses "  #key: value"; the name is empty if the line is not a key.
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

// The names in "Only: a, b." of a comment.
std::vector<std::string> names_after(const std::string& comment, const std::string& word) {
  std::vector<std::string> names;
  const size_t at = comment.find(word);
  if (at == std::string::npos) return names;
  const size_t from = at + word.size();
  std::istringstream stream(comment.substr(from, comment.find('.', from) - from));
  for (std::string name; stream >> name;) {
    std::erase(name, ',');
    names.push_back(name);
  }
  return names;
}

}  // namespace

bool ManualKey::belongs_to(const std::string& variant) const {
  if (!only.empty()) return std::ranges::count(only, variant) > 0;
  return std::ranges::count(except, variant) == 0;
}

std::vector<ManualKey> manual_keys(const std::string& manual) {
  std::vector<ManualKey> keys;
  std::string section, dataset, comment;
  ManualKey parent;
  std::istringstream stream(manual);
  for (std::string line; std::getline(stream, line);) {
    const size_t start = std::min(line.find_first_not_of(' '), line.size());
    if (line.compare(start, 2, "# ") == 0) {
      comment += (comment.empty() ? "" : " ") + line.substr(start + 2);
      continue;
    }
    const KeyLine found = key_line(line);
    const bool in_data = section == "data";
    if (found.name.empty()) {
    } else if (found.indent == 0) {
      section = found.name;
    } else if (in_data && found.indent == 2) {
      dataset = '.' + found.name;
    } else {
      // Arguments of a transform can also be required.
      const std::string own = comment.substr(
          0, std::min({comment.find("Items of the list,"), comment.find("Keys of an item:"),
                       comment.find("Values of the mapping,")}));
      ManualKey key{.section = section + (in_data ? dataset : ""),
                    .parent = {},
                    .name = found.name,
                    .value = found.value,
                    .comment = comment,
                    .is_commented_out = found.is_commented_out,
                    .is_required = own.find("Required.") != std::string::npos,
                    .is_mapping = found.value.empty() || found.value == " # null",
                    .only = names_after(comment, "Only: "),
                    .except = names_after(comment, "Not: ")};
      if (key.is_mapping) key.value = found.value.empty() ? "{}" : "null";
      if (comment.find("Instead of format.") != std::string::npos) key.only = {found.name};
      if (found.indent == (in_data ? 6u : 4u)) {
        key.parent = parent.name;
        key.only = parent.only;
        key.except = parent.except;
      } else {
        parent = key;
      }
      keys.push_back(key);
    }
    comment.clear();
  }
  return keys;
}

std::vector<std::string> page_keys(const std::string& page) {
  std::vector<std::string> keys;
  std::string section;
  std::istringstream stream(page);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("### ")) section = line.substr(4);
    if (!line.starts_with("| `") || section.empty()) continue;
    keys.push_back(section + '.' + line.substr(3, line.find('`', 3) - 3));
  }
  return keys;
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

std::string generated_part(const std::string& page, const std::string& part) {
  const std::string start = "<!-- generated: " + part + " -->\n",
                    end = "<!-- end of generated " + part + " -->";
  const size_t from = page.find(start), to = page.find(end);
  if (from == std::string::npos || to == std::string::npos) return {};
  return page.substr(from + start.size(), to - from - start.size());
}

}  // namespace stoker::config::test
