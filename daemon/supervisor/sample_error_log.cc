#include "daemon/supervisor/sample_error_log.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "shared/base/log.h"
#include "shared/ring/ring_layout.h"

namespace stoker::supervisor {
namespace {

constexpr uint64_t kLinesInFull = 10;  // after these, one line a second in the log
constexpr auto kLogEvery = std::chrono::seconds(1);
constexpr size_t kMaxSeen = 1 << 18;    // more than the slots of a ring hold, but for nonsense
constexpr uint64_t kMinSamples = 1000;  // a part of fewer says little …
constexpr uint64_t kMinErrors = 10;     // … unless so many are bad

std::string to_message(const ring::SampleError& error, const dataset::SampleSource& source) {
  std::string location = source.file.empty() ? ""
                                             : " (" + source.file + " at offset " +
                                                   std::to_string(source.offset) + ")";
  return "sample " + std::to_string(error.sample) + location + ": " + error.reason;
}

std::string format_rate(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

}  // namespace

SampleErrorLog::SampleErrorLog(const config::FeedConfig& feed, const dataset::Dataset& dataset,
                               uint64_t batch, const SampleErrorHistory& before,
                               SampleErrorFile& file, const Clock& clock)
    : feed_(feed), dataset_(dataset), batch_(batch), before_(before), file_(file), clock_(clock) {}

Status SampleErrorLog::add_reports(const std::vector<ring::SampleError>& reports,
                                   const ring::RingCounters& counters) {
  for (const auto& error : reports) {
    if (!seen_.emplace(error.ticket, error.sample).second) continue;
    if (seen_.size() > kMaxSeen) seen_.erase(seen_.begin());
    ++found_;
    // The number comes from another process: it is not trusted to be one of the set's.
    const auto source =
        error.sample < dataset_.size() ? dataset_.source(error.sample) : dataset::SampleSource{};
    last_ = to_message(error, source);
    log(error, source);
    list(error, source);
  }
  lost_ = counters.lost_reports;
  forget_used(before_.ticket + counters.consumed);
  log_suppressed();
  if (limit_status_.ok()) limit_status_ = check_error_rate(counters);
  return limit_status_;
}

// Nobody reports again what was trained on. A step that takes several tickets may still be taken back.
void SampleErrorLog::forget_used(uint64_t next_ticket) {
  const uint64_t used = next_ticket - std::min(next_ticket, before_.tickets_a_step);
  seen_.erase(seen_.begin(), seen_.lower_bound({used, 0}));
}

uint64_t SampleErrorLog::count_before(uint64_t ticket) const {
  return count() -
         static_cast<uint64_t>(std::distance(seen_.lower_bound({ticket, 0}), seen_.end()));
}

// The ticket comes from another process, too.
uint64_t SampleErrorLog::step_at(uint64_t ticket) const {
  if (ticket < before_.ticket) return before_.step;
  const uint64_t known = std::min(ticket, ring::kMaxTicket);
  return before_.step + (known - std::min(known, before_.ticket)) / before_.tickets_a_step + 1;
}

void SampleErrorLog::log(const ring::SampleError& error, const dataset::SampleSource& source) {
  if (found_ > kLinesInFull) {
    ++suppressed_;
    return;
  }
  last_line_ = clock_.monotonic();
  log_warn("sample read failed", {{"ticket", error.ticket},
                                  {"sample", error.sample},
                                  {"path", source.file},
                                  {"offset", source.offset},
                                  {"error", error.reason}});
}

void SampleErrorLog::log_suppressed() {
  const auto now = clock_.monotonic();
  if (suppressed_ == 0 || now - last_line_ < kLogEvery) return;
  log_warn("sample read failures suppressed",
           {{"count", suppressed_}, {"total", count()}, {"last", last_}, {"path", file_.path()}});
  suppressed_ = 0;
  last_line_ = now;
}

void SampleErrorLog::list(const ring::SampleError& error, const dataset::SampleSource& source) {
  file_.add(metrics::MetricsRecord()
                .add("step", step_at(error.ticket))
                .add("ticket", error.ticket)
                .add("sample", error.sample)
                .add("path", source.file)
                .add("offset", source.offset)
                .add("error", to_string(error.code))
                .add("message", error.reason));
}

bool SampleErrorLog::exceeds_limit(const ErrorRate& share) const {
  if (share.samples < kMinSamples && share.errors < kMinErrors) return false;
  return static_cast<double>(share.errors) >
         feed_.max_sample_error_rate * static_cast<double>(std::max(share.samples, share.errors));
}

// Over the whole run, so that a run that was interrupted is judged like one that was not. Over this
// start as well: data that was repaired after such an end is not judged by what it was before.
Status SampleErrorLog::check_error_rate(const ring::RingCounters& counters) const {
  const ErrorRate now{found_ + lost_, (counters.published + 1) * batch_};  // with those being read
  const ErrorRate all{before_.count + now.errors, before_.ticket * batch_ + now.samples};
  if (now.errors == 0) return {};
  if (feed_.on_sample_error == config::OnSampleError::kFail)
    return Status(StatusCode::kCorrupt,
                  "data.train cannot be read: " + last_ +
                      "; repair or remove it, or set feed.on_sample_error: skip");
  if (!exceeds_limit(now) || !exceeds_limit(all)) return {};
  return Status(StatusCode::kCorrupt,
                "data.train: " + std::to_string(all.errors) + " of " + std::to_string(all.samples) +
                    " samples cannot be read, more than feed.max_sample_error_rate = " +
                    format_rate(feed_.max_sample_error_rate) + "; the last: " + last_ +
                    "; all are listed in " + file_.path());
}

}  // namespace stoker::supervisor
