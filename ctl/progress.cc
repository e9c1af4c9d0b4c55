#include "ctl/progress.h"

#include <algorithm>
#include <utility>

#include "ctl/number_format.h"

namespace stoker::ctl {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 500ms;  // shorter work needs no line
constexpr auto kInterval = 100ms;
constexpr const char kClearLine[] = "\r\x1b[K";

}  // namespace

Progress::Progress(const Console& console, Clock& clock, std::string what, uint64_t bytes)
    : console_(console),
      clock_(clock),
      what_(std::move(what)),
      bytes_(bytes),
      began_(clock.monotonic()) {}

Progress::~Progress() {
  if (is_drawn_) console_.out << kClearLine << std::flush;
}

void Progress::add(uint64_t bytes) {
  done_ += bytes;
  if (!console_.style.live) return;
  const std::chrono::nanoseconds now = clock_.monotonic();
  if (now - began_ < kPatience || (is_drawn_ && now - drawn_ < kInterval)) return;
  draw(now);
}

void Progress::draw(std::chrono::nanoseconds now) {
  const double seconds = std::chrono::duration<double>(now - began_).count();
  const auto rate = static_cast<uint64_t>(static_cast<double>(done_) / seconds);
  std::string text = what_ + ": ";
  if (bytes_ > 0) {
    const double part = std::min(1.0, static_cast<double>(done_) / static_cast<double>(bytes_));
    text += std::to_string(static_cast<int>(100 * part)) + " % of " + format_bytes(bytes_);
  } else {
    text += format_bytes(done_);
  }
  text += ", " + format_bytes(rate) + "/s";
  console_.out << kClearLine << text << std::flush;
  drawn_ = now;
  is_drawn_ = true;
}

}  // namespace stoker::ctl
