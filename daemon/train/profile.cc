#include "daemon/train/profile.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <boost/json.hpp>

namespace stoker::train {
namespace {

namespace json = boost::json;
using std::chrono::nanoseconds;

constexpr int kStepsRow = 0, kHostRow = 1, kDeviceRow = 2;  // rows of the trace, shown as threads

double ms(nanoseconds time) { return std::chrono::duration<double, std::milli>(time).count(); }

// Nanoseconds are the resolution of the clock; more digits would only make the files longer.
double to_nearest(double value, double parts) { return std::round(value * parts) / parts; }

// Microseconds with nanosecond resolution.
double us(nanoseconds time) {
  return to_nearest(std::chrono::duration<double, std::micro>(time).count(), 1e3);
}

json::object metadata(const char* name, int row, json::object args) {
  return {{"ph", "M"}, {"name", name}, {"pid", 1}, {"tid", row}, {"args", std::move(args)}};
}

void add_row(json::array& events, int row, const std::string& name) {
  events.push_back(metadata("thread_name", row, {{"name", name}}));
  events.push_back(metadata("thread_sort_index", row, {{"sort_index", row}}));
}

void add_event(json::array& events, std::string_view name, int row, nanoseconds begin,
               nanoseconds end, uint64_t step) {
  events.push_back(json::object{{"ph", "X"},
                                {"cat", "stoker"},
                                {"name", name},
                                {"pid", 1},
                                {"tid", row},
                                {"ts", us(begin)},
                                {"dur", us(end - begin)},
                                {"args", json::object{{"step", step}}}});
}

// The time of one phase in each step. The last entry of Times is the time outside of all phases.
struct PhaseTimes {
  std::vector<double> ms_of_step;
  double sum() const {
    double sum = 0;
    for (const double one : ms_of_step) sum += one;
    return sum;
  }
  double median() const {
    if (ms_of_step.empty()) return 0;
    std::vector<double> sorted = ms_of_step;
    std::sort(sorted.begin(), sorted.end());
    const size_t half = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }
};

using Times = std::vector<PhaseTimes>;

Times times_of(const Profile& profile, std::vector<PhaseSpan> ProfiledStep::*spans) {
  Times times(kPhases + 1);
  for (const ProfiledStep& step : profile.steps) {
    std::vector<double> sums(kPhases, 0.0);
    double in_phases = 0;
    for (const PhaseSpan& span : step.*spans) {
      sums[static_cast<size_t>(span.phase)] += ms(span.end - span.begin);
      in_phases += ms(span.end - span.begin);
    }
    for (size_t i = 0; i < kPhases; ++i) times[i].ms_of_step.push_back(sums[i]);
    times[kPhases].ms_of_step.push_back(std::max(0.0, ms(step.end - step.begin) - in_phases));
  }
  return times;
}

bool has_device_spans(const Profile& profile) {
  return std::any_of(profile.steps.begin(), profile.steps.end(),
                     [](const ProfiledStep& step) { return !step.device_spans.empty(); });
}

void add_times(json::object& fields, const std::string& prefix, const PhaseTimes& times) {
  fields[prefix + "median_ms"] = to_nearest(times.median(), 1e6);
  fields[prefix + "sum_ms"] = to_nearest(times.sum(), 1e6);
}

}  // namespace

std::string to_chrome_trace(const Profile& profile) {
  json::array events;
  events.push_back(json::object{{"ph", "M"},
                                {"name", "process_name"},
                                {"pid", 1},
                                {"args", json::object{{"name", "stokerd"}}}});
  add_row(events, kStepsRow, "steps");
  add_row(events, kHostRow, "trainer");
  if (has_device_spans(profile)) add_row(events, kDeviceRow, profile.device);
  for (const ProfiledStep& step : profile.steps) {
    add_event(events, "step " + std::to_string(step.step), kStepsRow, step.begin, step.end,
              step.step);
    for (const PhaseSpan& span : step.spans)
      add_event(events, to_string(span.phase), kHostRow, span.begin, span.end, step.step);
    for (const PhaseSpan& span : step.device_spans)
      add_event(events, to_string(span.phase), kDeviceRow, span.begin, span.end, step.step);
  }
  return json::serialize(json::object{
             {"displayTimeUnit", "ms"},
             {"otherData", json::object{{"program", "stokerd"}, {"device", profile.device}}},
             {"traceEvents", std::move(events)}}) +
         "\n";
}

json::object summarize(const Profile& profile) {
  const Times host = times_of(profile, &ProfiledStep::spans);
  const Times device = times_of(profile, &ProfiledStep::device_spans);
  PhaseTimes whole;
  for (const ProfiledStep& step : profile.steps)
    whole.ms_of_step.push_back(ms(step.end - step.begin));
  const double total = whole.sum();
  json::array phases;
  for (size_t i = 0; i <= kPhases; ++i) {
    json::object phase{{"phase", i < kPhases ? std::string_view(kPhaseNames[i]) : "other"}};
    add_times(phase, "", host[i]);
    phase["share"] = to_nearest(total > 0 ? host[i].sum() / total : 0, 1e6);
    if (has_device_spans(profile) && i < kPhases) add_times(phase, "device_", device[i]);
    phases.push_back(std::move(phase));
  }
  const bool is_empty = profile.steps.empty();
  return {{"first_step", is_empty ? 0 : profile.steps.front().step},
          {"last_step", is_empty ? 0 : profile.steps.back().step},
          {"steps", profile.steps.size()},
          {"device", profile.device},
          {"total_ms", to_nearest(total, 1e6)},
          {"median_ms", to_nearest(whole.median(), 1e6)},
          {"phases", std::move(phases)}};
}

}  // namespace stoker::train
