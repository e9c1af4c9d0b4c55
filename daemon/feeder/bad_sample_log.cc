#include "daemon/feeder/bad_sample_log.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "shared/base/log.h"
#include "shared/ring/ring_layout.h"

namespace stoker::feeder {
namespace {

constexpr uint64_t kLinesInFull = 10;  // after these, one line a second in the log
constexpr auto kLogEvery = std::chrono::seconds(1);
constexpr size_t kMostSeen = 1 << 18;  // more than the slots of a ring hold, but for nonsense
constexpr uint64_t kJudgeFromSamples = 1000;  // a part of fewer says little …
constexpr uint64_t kJudgeFromBad = 10;        // … unless so many are bad

std::string in_words(const ring::BadSample& bad, const dataset::Origin& origin) {
  std::string place = origin.file.empty() ? ""
                                          : " (" + origin.file + " at offset " +
                                                std::to_string(origin.offset) + ")";
  return "sample " + std::to_string(bad.sample) + place + ": " + bad.reason;
}

std::string as_text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

}  // namespace

BadSampleLog::BadSampleLog(const config::FeedConfig& feed, const dataset::Dataset& dataset,
                           uint64_t batch, const BadSamplesBefore& before, BadSampleFile& file,
                           const Clock& clock)
    : feed_(feed), dataset_(dataset), batch_(batch), before_(before), file_(file), clock_(clock) {}

Status BadSampleLog::take(const std::vector<ring::BadSample>& reports,
                          const ring::RingCounters& counters) {
  for (const auto& bad : reports) {
    if (!seen_.emplace(bad.ticket, bad.sample).second) continue;
    if (seen_.size() > kMostSeen) seen_.erase(seen_.begin());
    ++found_;
    // The number comes from another process: it is not trusted to be one of the set's.
    const auto origin =
        bad.sample < dataset_.size() ? dataset_.origin(bad.sample) : dataset::Origin{};
    last_ = in_words(bad, origin);
    log(bad, origin);
    list(bad, origin);
  }
  lost_ = counters.lost_reports;
  forget_used(before_.ticket + counters.consumed);
  log_held_back();
  if (verdict_.ok()) verdict_ = judge(counters);
  return verdict_;
}

// Nobody reports again what was trained on. A step that takes several tickets may still be taken back.
void BadSampleLog::forget_used(uint64_t next_ticket) {
  const uint64_t used = next_ticket - std::min(next_ticket, before_.tickets_a_step);
  seen_.erase(seen_.begin(), seen_.lower_bound({used, 0}));
}

uint64_t BadSampleLog::count_before(uint64_t ticket) const {
  return count() -
         static_cast<uint64_t>(std::distance(seen_.lower_bound({ticket, 0}), seen_.end()));
}

// The ticket comes from another process, too.
uint64_t BadSampleLog::step_of(uint64_t ticket) const {
  if (ticket < before_.ticket) return before_.step;
  const uint64_t known = std::min(ticket, ring::kMaxTicket);
  return before_.step + (known - std::min(known, before_.ticket)) / before_.tickets_a_step + 1;
}

void BadSampleLog::log(const ring::BadSample& bad, const dataset::Origin& origin) {
  if (found_ > kLinesInFull) {
    ++held_back_;
    return;
  }
  last_line_ = clock_.monotonic();
  log_warn("sample read failed", {{"ticket", bad.ticket},
                                  {"sample", bad.sample},
                                  {"path", origin.file},
                                  {"offset", origin.offset},
                                  {"error", bad.reason}});
}

void BadSampleLog::log_held_back() {
  const auto now = clock_.monotonic();
  if (held_back_ == 0 || now - last_line_ < kLogEvery) return;
  log_warn("sample read failures suppressed",
           {{"count", held_back_}, {"total", count()}, {"last", last_}, {"path", file_.path()}});
  held_back_ = 0;
  last_line_ = now;
}

void BadSampleLog::list(const ring::BadSample& bad, const dataset::Origin& origin) {
  file_.add(metrics::Row()
                .add("step", step_of(bad.ticket))
                .add("ticket", bad.ticket)
                .add("sample", bad.sample)
                .add("path", origin.file)
                .add("offset", origin.offset)
                .add("error", code_name(bad.code))
                .add("message", bad.reason));
}

bool BadSampleLog::is_too_much(const Share& share) const {
  if (share.samples < kJudgeFromSamples && share.bad < kJudgeFromBad) return false;
  return static_cast<double>(share.bad) >
         feed_.max_sample_error_rate * static_cast<double>(std::max(share.samples, share.bad));
}

// Over the whole run, so that a run that was interrupted is judged like one that was not. Over this
// start as well: data that was repaired after such an end is not judged by what it was before.
Status BadSampleLog::judge(const ring::RingCounters& counters) const {
  const Share now{found_ + lost_, (counters.published + 1) * batch_};  // with those being read
  const Share all{before_.count + now.bad, before_.ticket * batch_ + now.samples};
  if (now.bad == 0) return {};
  if (feed_.on_sample_error == config::OnSampleError::kFail)
    return Status(Code::kCorrupt, "data.train cannot be read: " + last_ +
                                      "; repair or remove it, or set feed.on_sample_error: skip");
  if (!is_too_much(now) || !is_too_much(all)) return {};
  return Status(Code::kCorrupt,
                "data.train: " + std::to_string(all.bad) + " of " + std::to_string(all.samples) +
                    " samples cannot be read, more than feed.max_sample_error_rate = " +
                    as_text(feed_.max_sample_error_rate) + "; the last: " + last_ +
                    "; all are listed in " + file_.path());
}

}  // namespace stoker::feeder
