#include "shared/ring/report_area.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace stoker::ring {
namespace {

using namespace std::chrono_literals;
constexpr auto kLongestWait = 1s;  // for room; reports are taken about ten times a second
constexpr auto kLookEvery = 1ms;
constexpr uint64_t kFreeWord = 0;
constexpr uint64_t kPhaseMask = 0xf;

uint64_t word_of(uint64_t value, ReportPhase phase) {
  return value << 4 | static_cast<uint64_t>(phase);
}
bool has_phase(uint64_t word, ReportPhase phase) {
  return (word & kPhaseMask) == static_cast<uint64_t>(phase);
}

// At most kReasonBytes, without cutting a UTF-8 character in two.
size_t length_kept(const std::string& reason) {
  if (reason.size() <= kReasonBytes) return reason.size();
  size_t length = kReasonBytes;
  while (length > 0 && (static_cast<unsigned char>(reason[length]) & 0xc0) == 0x80) --length;
  return length;
}

void write_fields(ReportRecord& entry, const BadSample& bad) {
  entry.ticket = bad.ticket;
  entry.sample = bad.sample;
  entry.code = static_cast<uint32_t>(bad.code);
  entry.length = static_cast<uint32_t>(length_kept(bad.reason));
  std::memcpy(entry.reason, bad.reason.data(), entry.length);
}

BadSample read_fields(const ReportRecord& entry) {
  BadSample bad{.ticket = entry.ticket, .sample = entry.sample};
  // The writer may be a broken process: nothing it says is used unchecked.
  const bool known = entry.code >= 1 && entry.code <= static_cast<uint32_t>(Code::kInternal);
  bad.code = known ? static_cast<Code>(entry.code) : Code::kCorrupt;
  bad.reason.assign(entry.reason, std::min<size_t>(entry.length, kReasonBytes));
  return bad;
}

}  // namespace

void ReportArea::report(const BadSample& bad) {
  std::atomic_ref(header_.bad_samples).fetch_add(1, std::memory_order_relaxed);
  const auto give_up = std::chrono::steady_clock::now() + kLongestWait;
  while (!try_report(bad)) {
    if (std::atomic_ref(header_.closed).load() != 0) return;  // nobody is going to use the batch
    if (is_taken_.load(std::memory_order_relaxed) && std::chrono::steady_clock::now() < give_up) {
      std::this_thread::sleep_for(kLookEvery);
      continue;
    }
    is_taken_.store(false, std::memory_order_relaxed);
    std::atomic_ref(header_.lost_reports).fetch_add(1, std::memory_order_relaxed);
    return;
  }
  is_taken_.store(true, std::memory_order_relaxed);
}

bool ReportArea::try_report(const BadSample& bad) {
  const uint64_t writing = word_of(bad.ticket, ReportPhase::kWriting);
  for (auto& entry : entries_) {
    const std::atomic_ref word(entry.word);
    uint64_t expected = kFreeWord;
    if (word.load(std::memory_order_relaxed) != kFreeWord ||
        !word.compare_exchange_strong(expected, writing, std::memory_order_acquire))
      continue;
    write_fields(entry, bad);
    const uint64_t sequence =
        std::atomic_ref(header_.next_report).fetch_add(1, std::memory_order_relaxed);
    expected =
        writing;  // not so when the ticket was taken away meanwhile: then its next owner reports
    word.compare_exchange_strong(expected, word_of(sequence, ReportPhase::kComplete),
                                 std::memory_order_release);
    return true;
  }
  return false;
}

std::vector<BadSample> ReportArea::take() {
  std::vector<std::pair<uint64_t, BadSample>> found;
  for (auto& entry : entries_) {
    const std::atomic_ref word(entry.word);
    const uint64_t seen = word.load(std::memory_order_acquire);
    if (!has_phase(seen, ReportPhase::kComplete)) continue;
    found.emplace_back(seen, read_fields(entry));
    word.store(kFreeWord, std::memory_order_release);
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<BadSample> reports;
  reports.reserve(found.size());
  for (auto& [sequence, bad] : found) reports.push_back(std::move(bad));
  return reports;
}

void ReportArea::clear_unfinished(uint64_t ticket) {
  for (auto& entry : entries_) {
    uint64_t expected = word_of(ticket, ReportPhase::kWriting);
    std::atomic_ref(entry.word)
        .compare_exchange_strong(expected, kFreeWord, std::memory_order_acq_rel);
  }
}

}  // namespace stoker::ring
