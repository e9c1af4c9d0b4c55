#include "shared/feed/quarantine_table.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <functional>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "shared/base/utf8.h"

namespace stoker::feed {
namespace {

constexpr uint64_t kMagic = 0x4e4152415551'0005;  // "QUARAN", version 5
constexpr uint64_t kHeaderWords = 8;
// Whole cache lines, to avoid false sharing between threads. A nonzero first word marks the entry
// as taken.
constexpr uint64_t kWordsPerMark = QuarantineTable::kMaxSamplesPerMark;
// Code, number of bytes and text.
constexpr uint64_t kWordsPerFailure = 128;
constexpr uint64_t kWordsPerUse = sizeof(SharedUse) / sizeof(uint64_t);
constexpr uint64_t kMaxFailureBytes = (kWordsPerFailure - 2) * sizeof(uint64_t);
constexpr uint32_t kMaxWorkers = 1 << 10;
constexpr uint32_t kMaxThreads = 1 << 12;

// Words of the header. The first three are written once, before any process starts.
enum HeaderWord : uint64_t {
  kMagicWord,
  kWorkersWord,
  kThreadsWord,
  kSuspectsWord,
  kQuarantineWord
};

uint64_t words_of(uint64_t workers, uint64_t threads) {
  return kHeaderWords + workers * threads * kWordsPerMark + workers + workers * kWordsPerFailure +
         workers * kWordsPerUse + kMaxSuspects + kMaxQuarantined;
}

std::span<uint64_t> all_words(const ring::Segment& segment) {
  const auto bytes = segment.bytes();
  return {reinterpret_cast<uint64_t*>(bytes.data()), bytes.size() / sizeof(uint64_t)};
}

}  // namespace

// ---- Opening

Result<QuarantineTable> QuarantineTable::create(uint32_t workers, uint32_t threads) {
  assert(workers >= 1 && workers <= kMaxWorkers && threads >= 1 && threads <= kMaxThreads);
  STOKER_ASSIGN_OR_RETURN(ring::Segment segment,
                          ring::Segment::create(words_of(workers, threads) * sizeof(uint64_t)));
  const auto words = all_words(segment);
  words[kMagicWord] = kMagic;
  words[kWorkersWord] = workers;
  words[kThreadsWord] = threads;
  return QuarantineTable(std::move(segment), workers, threads);
}

Result<QuarantineTable> QuarantineTable::attach(UniqueFd fd) {
  STOKER_ASSIGN_OR_RETURN(ring::Segment segment, ring::Segment::attach(std::move(fd)));
  const auto words = all_words(segment);
  const auto mismatch = [] {
    return Status(StatusCode::kMismatch,
                  "the quarantine table is not compatible with this stoker-feed; "
                  "install the same version as stokerd");
  };
  if (words.size() < kHeaderWords || words[kMagicWord] != kMagic) return mismatch();
  const uint64_t workers = words[kWorkersWord];
  const uint64_t threads = words[kThreadsWord];
  if (workers == 0 || workers > kMaxWorkers || threads == 0 || threads > kMaxThreads ||
      words.size() < words_of(workers, threads))
    return mismatch();
  return QuarantineTable(std::move(segment), static_cast<uint32_t>(workers),
                         static_cast<uint32_t>(threads));
}

QuarantineTable::QuarantineTable(ring::Segment segment, uint32_t workers, uint32_t threads)
    : segment_(std::move(segment)), workers_(workers), threads_(threads) {
  const auto words = all_words(segment_);
  marks_ = words.subspan(kHeaderWords, uint64_t{workers} * threads * kWordsPerMark);
  denied_syscalls_ = words.subspan(kHeaderWords + marks_.size(), workers);
  const auto after_calls = words.subspan(kHeaderWords + marks_.size() + workers);
  failures_ = after_calls.first(uint64_t{workers} * kWordsPerFailure);
  const auto uses = after_calls.subspan(failures_.size(), uint64_t{workers} * kWordsPerUse);
  uses_ = {reinterpret_cast<SharedUse*>(uses.data()), workers};
  const auto sets = after_calls.subspan(failures_.size() + uses.size());
  suspects_ = {.count = &words[kSuspectsWord], .entries = sets.first(kMaxSuspects)};
  quarantine_ = {.count = &words[kQuarantineWord],
                 .entries = sets.subspan(kMaxSuspects, kMaxQuarantined)};
}

// ---- Marks

std::span<uint64_t> QuarantineTable::marks(uint32_t worker) const {
  assert(worker < workers_);
  const uint64_t words = uint64_t{threads_} * kWordsPerMark;
  return marks_.subspan(worker * words, words);
}

QuarantineTable::Mark::Mark(const QuarantineTable& table, uint32_t worker, uint64_t sample) {
  const auto words = table.marks(worker);
  // The search starts at a per-thread position. With as many marks as threads, one is always free.
  const uint64_t first = std::hash<std::thread::id>()(std::this_thread::get_id()) % table.threads_;
  for (uint64_t i = 0; i < table.threads_ && maybe_words_ == nullptr; ++i) {
    uint64_t& word = words[(first + i) % table.threads_ * kWordsPerMark];
    uint64_t none = 0;
    if (std::atomic_ref(word).compare_exchange_strong(none, sample + 1)) maybe_words_ = &word;
  }
}

// Release is sufficient: stokerd reads the mark only after this process has exited, when its writes
// are visible.
void QuarantineTable::Mark::add(uint64_t sample) {
  assert(samples_ < kMaxSamplesPerMark);
  if (maybe_words_ != nullptr)
    std::atomic_ref(maybe_words_[samples_]).store(sample + 1, std::memory_order_release);
  ++samples_;
}

QuarantineTable::Mark::~Mark() {
  if (maybe_words_ == nullptr) return;
  while (--samples_ > 0)
    std::atomic_ref(maybe_words_[samples_]).store(0, std::memory_order_release);
  std::atomic_ref(*maybe_words_).store(0);
}

std::vector<uint64_t> QuarantineTable::drain_marks(uint32_t worker) const {
  std::vector<uint64_t> samples;
  const auto words = marks(worker);
  for (uint64_t& each : words)
    if (const uint64_t word = std::atomic_ref(each).exchange(0)) samples.push_back(word - 1);
  return samples;
}

// ---- Denied system calls

uint64_t& QuarantineTable::denied_syscall_slot(uint32_t worker) const {
  assert(worker < workers_);
  return denied_syscalls_[worker];
}

std::optional<uint64_t> QuarantineTable::take_denied_syscall(uint32_t worker) const {
  const uint64_t word = std::atomic_ref(denied_syscall_slot(worker)).exchange(0);
  return word == 0 ? std::nullopt : std::optional(word - 1);
}

SharedUse& QuarantineTable::use(uint32_t worker) const {
  assert(worker < workers_);
  return uses_[worker];
}

// ---- Failures

void QuarantineTable::set_failure(uint32_t worker, const Status& failure) const {
  assert(worker < workers_);
  const auto words = failures_.subspan(worker * kWordsPerFailure, kWordsPerFailure);
  const std::string_view text = std::string_view(failure.message()).substr(0, kMaxFailureBytes);
  std::memcpy(&words[2], text.data(), text.size());
  words[1] = text.size();
  std::atomic_ref(words[0]).store(static_cast<uint64_t>(failure.code()));
}

// The process has exited, but others of the same user can write to the table.
Status QuarantineTable::take_failure(uint32_t worker) const {
  assert(worker < workers_);
  const auto words = failures_.subspan(worker * kWordsPerFailure, kWordsPerFailure);
  const uint64_t code = std::atomic_ref(words[0]).exchange(0);
  if (code == static_cast<uint64_t>(StatusCode::kOk)) return {};
  std::string text(std::min(std::atomic_ref(words[1]).load(), kMaxFailureBytes), '\0');
  std::memcpy(text.data(), &words[2], text.size());
  // Of these, and of no others, a worker can say that they end the run.
  for (const StatusCode known :
       {StatusCode::kCorrupt, StatusCode::kInvalidArgument, StatusCode::kMismatch,
        StatusCode::kNotFound, StatusCode::kPermission, StatusCode::kIoError, StatusCode::kNoSpace,
        StatusCode::kOutOfMemory, StatusCode::kBusy, StatusCode::kTimedOut})
    if (code == static_cast<uint64_t>(known)) return Status(known, printable(text));
  return Status(StatusCode::kInternal, printable(text));
}

// ---- Sets

bool QuarantineTable::SampleSet::contains(uint64_t sample) const {
  if (std::atomic_ref(*count).load() == 0) return false;
  return std::any_of(entries.begin(), entries.end(), [sample](uint64_t& entry) {
    return std::atomic_ref(entry).load(std::memory_order_relaxed) == sample + 1;
  });
}

bool QuarantineTable::SampleSet::add(uint64_t sample) const {
  if (contains(sample)) return true;
  for (uint64_t& entry : entries) {
    uint64_t none = 0;
    if (!std::atomic_ref(entry).compare_exchange_strong(none, sample + 1)) continue;
    std::atomic_ref(*count).fetch_add(1);
    return true;
  }
  return false;
}

void QuarantineTable::SampleSet::remove(uint64_t sample) const {
  for (uint64_t& entry : entries) {
    uint64_t expected = sample + 1;
    if (std::atomic_ref(entry).compare_exchange_strong(expected, 0))
      std::atomic_ref(*count).fetch_sub(1);
  }
}

Status CrashTrackingDataset::read(uint64_t sample, const data::RandomKey& random_key,
                                  std::span<const std::span<std::byte>> outputs) const {
  if (table_.quarantined(sample))
    return Status(StatusCode::kCorrupt, "quarantined: it crashed its worker process repeatedly");
  if (!maybe_worker_) return inner().read(sample, random_key, outputs);
  try {
    return read_marked(sample, random_key, outputs);
  } catch (const std::bad_alloc&) {  // the process has a memory limit (sandbox.h) and continues
    return Status(StatusCode::kOutOfMemory,
                  "needs more memory than feed.worker_memory_limit_mib permits");
  }
}

data::BatchReadResult CrashTrackingDataset::read_batch(
    std::span<const data::SampleReadRequest> samples,
    std::span<const std::span<std::byte>> rows) const {
  if (table_.has_entries() || samples.size() > QuarantineTable::kMaxSamplesPerMark)
    return Dataset::read_batch(samples, rows);  // one by one
  if (!maybe_worker_) return inner().read_batch(samples, rows);
  try {
    const std::shared_lock with_others(reading_);
    QuarantineTable::Mark mark(table_, *maybe_worker_, samples.front().sample);
    for (const data::SampleReadRequest& each : samples.subspan(1)) mark.add(each.sample);
    return inner().read_batch(samples, rows);
  } catch (const std::bad_alloc&) {
    return Dataset::read_batch(samples, rows);  // finds the sample that exceeds the limit
  }
}

Status CrashTrackingDataset::read_marked(uint64_t sample, const data::RandomKey& random_key,
                                         std::span<const std::span<std::byte>> outputs) const {
  if (!table_.suspected(sample)) {
    const std::shared_lock with_others(reading_);
    const QuarantineTable::Mark mark(table_, *maybe_worker_, sample);
    return inner().read(sample, random_key, outputs);
  }
  Status status;
  {
    const std::unique_lock alone(reading_);
    const QuarantineTable::Mark mark(table_, *maybe_worker_, sample);
    status = inner().read(sample, random_key, outputs);
  }
  table_.clear_suspect(sample);  // regardless of the status: reading it did not crash the process
  return status;
}

}  // namespace stoker::feed
