#include "shared/ring/error_report_queue.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace stoker::ring {
namespace {

using namespace std::chrono_literals;
constexpr auto kMaxWait = 1s;  // for room; reports are taken about ten times a second
constexpr auto kPollInterval = 1ms;
constexpr uint64_t kFreeWord = 0;
constexpr uint64_t kPhaseMask = 0xf;

uint64_t word_of(uint64_t value, ReportPhase phase) {
  return value << 4 | static_cast<uint64_t>(phase);
}
bool has_phase(uint64_t word, ReportPhase phase) {
  return (word & kPhaseMask) == static_cast<uint64_t>(phase);
}

// At most kReasonBytes, without cutting a UTF-8 character in two.
size_t truncated_length(const std::string& reason) {
  if (reason.size() <= kReasonBytes) return reason.size();
  size_t length = kReasonBytes;
  while (length > 0 && (static_cast<unsigned char>(reason[length]) & 0xc0) == 0x80) --length;
  return length;
}

void write_fields(ReportRecord& entry, const SampleError& error) {
  entry.ticket = error.ticket;
  entry.sample = error.sample;
  entry.code = static_cast<uint32_t>(error.code);
  entry.length = static_cast<uint32_t>(truncated_length(error.reason));
  std::memcpy(entry.reason, error.reason.data(), entry.length);
}

SampleError read_fields(const ReportRecord& entry) {
  SampleError error{.ticket = entry.ticket, .sample = entry.sample};
  // The writer may be a broken process: nothing it says is used unchecked.
  const bool known = entry.code >= 1 && entry.code <= static_cast<uint32_t>(StatusCode::kInternal);
  error.code = known ? static_cast<StatusCode>(entry.code) : StatusCode::kCorrupt;
  error.reason.assign(entry.reason, std::min<size_t>(entry.length, kReasonBytes));
  return error;
}

}  // namespace

void ErrorReportQueue::report(const SampleError& error) {
  std::atomic_ref(header_.sample_errors).fetch_add(1, std::memory_order_relaxed);
  const auto give_up = std::chrono::steady_clock::now() + kMaxWait;
  while (!try_report(error)) {
    if (std::atomic_ref(header_.closed).load() != 0) return;  // nobody is going to use the batch
    if (is_drained_.load(std::memory_order_relaxed) && std::chrono::steady_clock::now() < give_up) {
      std::this_thread::sleep_for(kPollInterval);
      continue;
    }
    is_drained_.store(false, std::memory_order_relaxed);
    std::atomic_ref(header_.lost_reports).fetch_add(1, std::memory_order_relaxed);
    return;
  }
  is_drained_.store(true, std::memory_order_relaxed);
}

bool ErrorReportQueue::try_report(const SampleError& error) {
  const uint64_t writing = word_of(error.ticket, ReportPhase::kWriting);
  for (auto& entry : entries_) {
    const std::atomic_ref word(entry.word);
    uint64_t expected = kFreeWord;
    if (word.load(std::memory_order_relaxed) != kFreeWord ||
        !word.compare_exchange_strong(expected, writing, std::memory_order_acquire))
      continue;
    write_fields(entry, error);
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

std::vector<SampleError> ErrorReportQueue::drain() {
  std::vector<std::pair<uint64_t, SampleError>> found;
  for (auto& entry : entries_) {
    const std::atomic_ref word(entry.word);
    const uint64_t seen = word.load(std::memory_order_acquire);
    if (!has_phase(seen, ReportPhase::kComplete)) continue;
    found.emplace_back(seen, read_fields(entry));
    word.store(kFreeWord, std::memory_order_release);
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<SampleError> reports;
  reports.reserve(found.size());
  for (auto& [sequence, error] : found) reports.push_back(std::move(error));
  return reports;
}

void ErrorReportQueue::clear_unfinished(uint64_t ticket) {
  for (auto& entry : entries_) {
    uint64_t expected = word_of(ticket, ReportPhase::kWriting);
    std::atomic_ref(entry.word)
        .compare_exchange_strong(expected, kFreeWord, std::memory_order_acq_rel);
  }
}

}  // namespace stoker::ring
