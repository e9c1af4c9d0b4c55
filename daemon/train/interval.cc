#include "daemon/train/interval.h"

namespace stoker::train {
namespace {

using std::chrono::nanoseconds;

double ms(nanoseconds time) { return std::chrono::duration<double, std::milli>(time).count(); }

}  // namespace

void Interval::add_to(metrics::TrainMetrics& metrics, nanoseconds now, uint64_t batch) const {
  const double busy_ms = ms(now - started - paused);
  const auto count = static_cast<double>(steps);
  metrics.samples_per_second = busy_ms > 0 ? 1e3 * count * static_cast<double>(batch) / busy_ms : 0;
  metrics.step_time_ms = busy_ms / count;
  metrics.data_wait_ms = ms(waited) / count;
  metrics.checkpoint_stall_ms = ms(stalled);
}

}  // namespace stoker::train
