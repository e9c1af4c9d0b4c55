// manual_text: the settings shown in config/stoker.yaml with their comments, including those that
// are commented out; also the table rows and code blocks of docs/configuration.md.
#pragma once

#include <string>
#include <vector>

namespace stoker::config::test {

// A key with the comment lines above it:
//   "  # Decay rates.", "  # Only: adam, adamw." above "  betas: [0.9, 0.95]" or "  #betas: …".
struct ManualKey {
  std::string section;  // "optimizer", "data.train"
  std::string parent;   // "cache" for "cache.type"; empty: a key of the section
  std::string name;     // "betas"
  std::string value;    // "[0.9, 0.95]"; "{}" or "null" for a mapping
  std::string comment;
  bool is_commented_out = false;
  bool is_required = false;
  bool is_mapping = false;
  std::vector<std::string> only, except;  // variants, from the comment of the key or its mapping

  std::string key() const { return parent.empty() ? name : parent + '.' + name; }
  std::string full_name() const { return section + '.' + key(); }
  bool belongs_to(const std::string& variant) const;
};
std::vector<ManualKey> manual_keys(const std::string& manual);

// The keys of table rows: "| `betas` | … |" below "### optimizer" is "optimizer.betas".
std::vector<std::string> page_keys(const std::string& page);

// The lines of each block between "```yaml" (or another language) and "```".
std::vector<std::string> page_blocks(const std::string& page, const std::string& language);

// The text between the two comments that mark a generated part.
std::string generated_part(const std::string& page, const std::string& part);

}  // namespace stoker::config::test
