// ManPage: writes a manual page for man(1) in troff.
//
// Threads: one instance per thread.
#pragma once

#include <string>
#include <string_view>

namespace stoker {

class ManPage {
 public:
  // `summary`: the line that apropos shows, without the name.
  ManPage(std::string_view name, int section, std::string_view summary);

  void add_section(std::string_view title);
  void add_subsection(std::string_view title);
  void add_paragraph(std::string_view text);
  void add_command(std::string_view line);  // in bold, on its own line
  void add_item(std::string_view term, std::string_view text);

  // With SEE ALSO at the end.
  std::string text() const;

 private:
  const std::string page_;  // "stokerd(8)"
  std::string out_;
};

}  // namespace stoker
