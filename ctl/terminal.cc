#include "ctl/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <utility>

#include "shared/base/readable_format.h"

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
  // The first nonempty variable decides, as in setlocale().
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

namespace {

using namespace std::chrono_literals;

constexpr auto kProgressDelay = 500ms;  // shorter operations show no progress
constexpr auto kInterval = 100ms;

}  // namespace

Progress::Progress(const Console& console, Clock& clock, std::string label, uint64_t bytes)
    : console_(console),
      clock_(clock),
      label_(std::move(label)),
      bytes_(bytes),
      start_time_(clock.monotonic()) {}

Progress::~Progress() {
  if (is_drawn_) console_.out << kClearLine << std::flush;
}

void Progress::add(uint64_t bytes) {
  done_ += bytes;
  if (!console_.style.live) return;
  const std::chrono::nanoseconds now = clock_.monotonic();
  if (now - start_time_ < kProgressDelay || (is_drawn_ && now - last_drawn_ < kInterval)) return;
  draw(now);
}

void Progress::draw(std::chrono::nanoseconds now) {
  const double seconds = std::chrono::duration<double>(now - start_time_).count();
  const auto rate = static_cast<uint64_t>(static_cast<double>(done_) / seconds);
  std::string text = label_ + ": ";
  if (bytes_ > 0) {
    const double fraction = std::min(1.0, static_cast<double>(done_) / static_cast<double>(bytes_));
    text += std::to_string(static_cast<int>(100 * fraction)) + " % of " + format_bytes(bytes_);
  } else {
    text += format_bytes(done_);
  }
  text += ", " + format_bytes(rate) + "/s";
  console_.out << kClearLine << text << std::flush;
  last_drawn_ = now;
  is_drawn_ = true;
}

}  // namespace stoker::ctl
