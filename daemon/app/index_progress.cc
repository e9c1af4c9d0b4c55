#include "daemon/app/index_progress.h"

#include <algorithm>
#include <cmath>

#include "shared/base/clock.h"
#include "shared/base/readable_format.h"

namespace stoker::app {

std::string IndexProgress::add(const std::string& dataset, uint64_t count, std::string_view what,
                               double fraction, std::chrono::nanoseconds now) {
  std::string task = dataset + '\n' + std::string(what);
  if (task != task_ || count < first_count_) {
    task_ = std::move(task);
    started_ = now;
    first_count_ = count;
    first_fraction_ = fraction;
  }
  // Of a fraction of a second, the rate says nothing.
  constexpr double kMinSeconds = 1;
  const double seconds = seconds_between(started_, now);
  const bool is_long = seconds >= kMinSeconds;
  per_second_ = is_long ? static_cast<double>(count - first_count_) / seconds : 0;
  const double done = fraction - first_fraction_;
  eta_seconds_ = is_long && first_fraction_ >= 0 && done > 0 ? seconds * (1 - fraction) / done : 0;
  std::string text = "data." + dataset + ": " + format_count(count) + ' ' + std::string(what);
  if (per_second_ > 0 && what != "seconds waited for another process that indexes it")
    text += ", " + format_rate(per_second_) + "/s";
  if (fraction >= 0)
    text += ", " + std::to_string(static_cast<int>(100 * std::min(fraction, 1.0))) + " %";
  if (eta_seconds_ > 0) text += ", " + format_estimate(eta_seconds_) + " left";
  return text;
}

}  // namespace stoker::app
