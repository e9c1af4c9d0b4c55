#include "ctl/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>

namespace stoker::ctl {
namespace {

constexpr int kDefaultColumns = 80;

bool is_utf8(std::string locale) {
  std::transform(locale.begin(), locale.end(), locale.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
}

}  // namespace

TextStyle detect_style(bool is_terminal, int columns,
                       const std::function<const char*(const char*)>& environment) {
  const auto text = [&environment](const char* name) {
    const char* value = environment(name);
    return std::string(value != nullptr ? value : "");
  };
  TextStyle style;
  style.columns = is_terminal && columns > 0 ? columns : kDefaultColumns;
  style.live = is_terminal && text("TERM") != "dumb";
  style.color = style.live && text("NO_COLOR").empty();
  // The first of these that is set decides, as in setlocale().
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string locale = text(name);
    if (locale.empty()) continue;
    style.unicode = is_utf8(locale);
    break;
  }
  return style;
}

TextStyle standard_output_style() {
  winsize size{};
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  const bool known = is_terminal && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  return detect_style(is_terminal, known ? size.ws_col : 0,
                      [](const char* name) { return std::getenv(name); });
}

}  // namespace stoker::ctl
