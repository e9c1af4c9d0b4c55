#include "daemon/feeder/bad_sample_log.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdio>

#include <boost/json.hpp>

#include "shared/base/file.h"
#include "shared/base/log.h"

namespace stoker::feeder {
namespace {

constexpr uint64_t kLinesInFull = 10;  // after these, one line a second in the log
constexpr auto kLogEvery = std::chrono::seconds(1);
constexpr size_t kRemembered = 1 << 16;       // reports known again after a reader's death
constexpr uint64_t kMostLines = 1'000'000;    // of bad_samples.jsonl and process
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
                           uint64_t batch, std::string path, const Clock& clock)
    : feed_(feed), dataset_(dataset), batch_(batch), path_(std::move(path)), clock_(clock) {}

Status BadSampleLog::take(const std::vector<ring::BadSample>& reports,
                          const ring::RingCounters& counters) {
  for (const auto& bad : reports) {
    if (!seen_.emplace(bad.ticket, bad.sample).second) continue;
    if (seen_.size() > kRemembered) seen_.erase(seen_.begin());
    ++count_;
    // The number comes from another process: it is not trusted to be one of the set's.
    const auto origin =
        bad.sample < dataset_.size() ? dataset_.origin(bad.sample) : dataset::Origin{};
    last_ = in_words(bad, origin);
    log(bad, origin);
    append(bad, origin);
  }
  log_held_back();
  return judge(counters);
}

void BadSampleLog::log(const ring::BadSample& bad, const dataset::Origin& origin) {
  if (count_ > kLinesInFull) {
    ++held_back_;
    return;
  }
  last_line_ = clock_.monotonic();
  log_warn("sample cannot be read", {{"ticket", bad.ticket},
                                     {"sample", bad.sample},
                                     {"file", origin.file},
                                     {"offset", origin.offset},
                                     {"reason", bad.reason}});
}

void BadSampleLog::log_held_back() {
  const auto now = clock_.monotonic();
  if (held_back_ == 0 || now - last_line_ < kLogEvery) return;
  log_warn("more samples cannot be read",
           {{"count", held_back_}, {"in_all", count_}, {"last", last_}, {"list", path_}});
  held_back_ = 0;
  last_line_ = now;
}

void BadSampleLog::append(const ring::BadSample& bad, const dataset::Origin& origin) {
  if (path_.empty() || file_failed_ || ++lines_ > kMostLines) return;
  const auto fail = [this](const Status& status) {
    file_failed_ = true;
    log_error("list of bad samples cannot be written", {{"error", status.to_string()}});
  };
  if (!file_.valid()) {
    auto opened = real_files().open(path_, O_WRONLY | O_CREAT | O_APPEND);
    if (!opened.ok()) return fail(opened.status());
    file_ = *std::move(opened);
  }
  const boost::json::object line{{"ticket", bad.ticket},         {"sample", bad.sample},
                                 {"file", origin.file},          {"offset", origin.offset},
                                 {"error", code_name(bad.code)}, {"reason", bad.reason}};
  const std::string text = boost::json::serialize(line) + "\n";
  if (const Status status = real_files().write(file_.get(), std::as_bytes(std::span(text)), path_);
      !status.ok())
    fail(status);
}

Status BadSampleLog::judge(const ring::RingCounters& counters) const {
  const uint64_t bad = count_ + counters.lost_reports;
  if (bad == 0) return {};
  if (feed_.on_bad_sample == config::OnBadSample::kStop)
    return Status(Code::kCorrupt, "data.train cannot be read: " + last_ +
                                      "; repair or remove it, or set feed.on_bad_sample: skip");
  const uint64_t samples = (counters.published + 1) * batch_;  // with those being read now
  if (samples < kJudgeFromSamples && bad < kJudgeFromBad) return {};
  const double part = static_cast<double>(bad) / static_cast<double>(std::max(samples, bad));
  if (part <= feed_.bad_sample_limit) return {};
  return Status(Code::kCorrupt, "data.train: " + std::to_string(bad) + " of " +
                                    std::to_string(samples) +
                                    " samples cannot be read, more than feed.bad_sample_limit = " +
                                    as_text(feed_.bad_sample_limit) + "; the last: " + last_ +
                                    "; all are listed in " + path_);
}

}  // namespace stoker::feeder
