#include "daemon/train/profile.h"

#include <algorithm>
#include <cstdio>

namespace stoker::train {
namespace {

using std::chrono::nanoseconds;

constexpr int kStepsRow = 0, kHostRow = 1, kDeviceRow = 2;  // rows of the trace, shown as threads

double ms(nanoseconds time) { return std::chrono::duration<double, std::milli>(time).count(); }

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// Microseconds with nanosecond resolution.
std::string us(nanoseconds time) {
  return fixed(std::chrono::duration<double, std::micro>(time).count(), 3);
}

std::string row_name(int row, const std::string& name) {
  return R"({"ph":"M","name":"thread_name","pid":1,"tid":)" + std::to_string(row) +
         R"(,"args":{"name":")" + name + R"("}},)" + "\n" +
         R"({"ph":"M","name":"thread_sort_index","pid":1,"tid":)" + std::to_string(row) +
         R"(,"args":{"sort_index":)" + std::to_string(row) + "}}";
}

std::string complete_event(const std::string& name, int row, nanoseconds begin, nanoseconds end,
                           uint64_t step) {
  return ",\n" + (R"({"ph":"X","cat":"stoker","name":")" + name) + R"(","pid":1,"tid":)" +
         std::to_string(row) + R"(,"ts":)" + us(begin) + R"(,"dur":)" + us(end - begin) +
         R"(,"args":{"step":)" + std::to_string(step) + "}}";
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

std::string times_field(const std::string& prefix, const PhaseTimes& times) {
  return ",\"" + prefix + "median_ms\":" + fixed(times.median(), 6) + ",\"" + prefix +
         "sum_ms\":" + fixed(times.sum(), 6);
}

}  // namespace

std::string to_chrome_trace(const Profile& profile) {
  std::string out =
      "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"program\":\"stokerd\",\"device\":\"" +
      profile.device + "\"},\"traceEvents\":[\n";
  out += R"({"ph":"M","name":"process_name","pid":1,"args":{"name":"stokerd"}},)"
         "\n";
  out += row_name(kStepsRow, "steps") + ",\n" + row_name(kHostRow, "trainer");
  if (has_device_spans(profile)) out += ",\n" + row_name(kDeviceRow, profile.device);
  for (const ProfiledStep& step : profile.steps) {
    out += complete_event("step " + std::to_string(step.step), kStepsRow, step.begin, step.end,
                          step.step);
    for (const PhaseSpan& span : step.spans)
      out += complete_event(std::string(to_string(span.phase)), kHostRow, span.begin, span.end,
                            step.step);
    for (const PhaseSpan& span : step.device_spans)
      out += complete_event(std::string(to_string(span.phase)), kDeviceRow, span.begin, span.end,
                            step.step);
  }
  return out + "\n]}\n";
}

std::string summary_fields(const Profile& profile) {
  const Times host = times_of(profile, &ProfiledStep::spans);
  const Times device = times_of(profile, &ProfiledStep::device_spans);
  PhaseTimes whole;
  for (const ProfiledStep& step : profile.steps)
    whole.ms_of_step.push_back(ms(step.end - step.begin));
  const double total = whole.sum();
  std::string out =
      "\"first_step\":" + std::to_string(profile.steps.empty() ? 0 : profile.steps.front().step) +
      ",\"last_step\":" + std::to_string(profile.steps.empty() ? 0 : profile.steps.back().step) +
      ",\"steps\":" + std::to_string(profile.steps.size()) + ",\"device\":\"" + profile.device +
      "\",\"total_ms\":" + fixed(total, 6) + ",\"median_ms\":" + fixed(whole.median(), 6) +
      ",\"phases\":[";
  for (size_t i = 0; i <= kPhases; ++i) {
    const std::string name = i < kPhases ? std::string(kPhaseNames[i]) : "other";
    out += (i == 0 ? "{\"phase\":\"" : ",{\"phase\":\"") + name + "\"" + times_field("", host[i]) +
           ",\"share\":" + fixed(total > 0 ? host[i].sum() / total : 0, 6);
    if (has_device_spans(profile) && i < kPhases) out += times_field("device_", device[i]);
    out += "}";
  }
  return out + "]";
}

}  // namespace stoker::train
