#include "tests/shared/config/manual_text.h"

#include <regex>
#include <sstream>

namespace stoker::config::test {

std::vector<ManualKey> manual_keys(const std::string& manual) {
  const std::regex key_line("( *)(#?)([a-z_0-9]+):(?: (.*))?");
  std::vector<ManualKey> keys;
  std::string section, set, comment;
  std::istringstream stream(manual);
  for (std::string line; std::getline(stream, line);) {
    std::smatch match;
    if (const size_t text = line.find("# "); text == line.find_first_not_of(' ')) {
      comment += (comment.empty() ? "" : " ") + line.substr(std::min(text + 2, line.size()));
      continue;
    }
    if (std::regex_match(line, match, key_line)) {
      const auto indent = match[1].length();
      if (indent == 0) {
        section = match[3];
      } else if (section == "data" && indent == 2) {
        set = '.' + match[3].str();
      } else {
        keys.push_back({section + (section == "data" ? set : ""), match[3], match[4], comment,
                        match[2].length() > 0});
      }
    }
    comment.clear();
  }
  return keys;
}

std::vector<PageRow> page_rows(const std::string& page) {
  const std::regex row(R"(\| `([A-Za-z_.]+\.[a-z_]+)` \| ([^|]*) \| .* \|)");
  std::vector<PageRow> rows;
  std::istringstream stream(page);
  for (std::string line; std::getline(stream, line);) {
    std::smatch match;
    if (!std::regex_match(line, match, row)) continue;
    std::string value = match[2];
    std::erase(value, '`');
    rows.push_back({match[1], value});
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
