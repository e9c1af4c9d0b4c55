// ManualText: the settings that config/stoker.yaml shows, also those that are commented out, each with its
// comment; and the table rows and blocks of docs/configuration.md.
#pragma once

#include <string>
#include <vector>

namespace stoker::config::test {

// "  # What it is." above "  lr: 3.0e-4", or above "  #momentum: 0.9".
struct ManualKey {
  std::string section;  // "optimizer", "data.train"
  std::string name;     // "lr"
  std::string value;    // "3.0e-4"
  std::string comment;  // "What it is."
  bool is_commented_out = false;

  std::string full_name() const { return section + '.' + name; }
};
std::vector<ManualKey> manual_keys(const std::string& manual);

// "| `optimizer.lr` | `3.0e-4` | What it is. |"
struct PageRow {
  std::string key;
  std::string value;  // without the back quotes
};
std::vector<PageRow> page_rows(const std::string& page);

// The lines between "```yaml" (or another language) and "```", of each such block.
std::vector<std::string> page_blocks(const std::string& page, const std::string& language);

}  // namespace stoker::config::test
