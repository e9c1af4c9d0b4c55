// stoker-config-reference: prints one of the documents generated from the settings.
#include <cstdio>
#include <string_view>

#include "shared/config/reference.h"

int main(int argc, char** argv) {
  const std::string_view what = argc == 2 ? argv[1] : "";
  std::string text;
  if (what == "manual") text = stoker::config::manual_yaml();
  if (what == "markdown") text = stoker::config::reference_markdown();
  if (what == "schema") text = stoker::config::json_schema();
  if (what == "man") text = stoker::config::man_page();
  if (text.empty()) {
    std::fputs("Usage: stoker-config-reference manual|markdown|schema|man\n", stderr);
    return 64;
  }
  return std::fputs(text.c_str(), stdout) < 0 ? 74 : 0;
}
