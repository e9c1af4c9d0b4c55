#include "shared/feed/stream_state_table.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "shared/base/utf8.h"

namespace stoker::feed {
namespace {

using data::stream::ByteHistory;

constexpr uint64_t kTableMagic = 0x5453'4d41'4552'0005;  // "REAMST", version 5
constexpr uint64_t kHistoryHeaderBytes = ByteHistory::kHeaderBytes;
// For the names of the inputs that are read, and 40,000 files of a spool folder that were read. More
// are needed if most files have one record or two.
constexpr uint64_t kBytesForInputs = uint64_t{1} << 20;
constexpr uint64_t kBytesPerElement = 64;
constexpr uint64_t kMaxTableSlots = 1 << 16;

// In front of the encoded state.
struct EntryHead {
  uint64_t key;    // ticket + 1; of the initial state 1; 0: none
  uint64_t bytes;  // of the state
};
static_assert(sizeof(EntryHead) == 16 && std::is_trivially_copyable_v<EntryHead>);

std::string reason_of_size(const StreamState& state) {
  if (state.finished.size() > state.elements.size())
    return std::to_string(state.finished.size()) +
           " files of the spool folder were read since the last checkpoint, which archives them; "
           "save checkpoints more often, or put more records into a file";
  return "its files have few records; decrease stream.capacity";
}

// A line: name, queue, operation, state, start of the operation, ID.
void append_thread(std::string& text, const ThreadInfo& thread) {
  for (const std::string* const part : {&thread.name, &thread.queue, &thread.operation})
    text += printable(*part) + '\t';
  text += std::to_string(static_cast<int>(thread.state)) + '\t' +
          std::to_string(thread.since.count()) + '\t' + std::to_string(thread.tid) + '\n';
}

std::optional<ThreadInfo> read_thread(std::string_view line) {
  std::array<std::string_view, 6> parts;
  for (std::string_view& part : parts) {
    part = line.substr(0, line.find('\t'));
    line.remove_prefix(std::min(line.size(), part.size() + 1));
  }
  const auto number = [](std::string_view text, auto& value) {
    return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc();
  };
  ThreadInfo thread{.name = printable(parts[0]),
                    .is_queue_thread = true,
                    .queue = printable(parts[1]),
                    .operation = printable(parts[2])};
  int state = 0;
  int64_t since = 0;
  if (!number(parts[3], state) || state < 0 || state >= kThreadStates || !number(parts[4], since) ||
      !number(parts[5], thread.tid))
    return std::nullopt;
  thread.state = static_cast<ThreadState>(state);
  thread.since = std::chrono::nanoseconds(since);
  return thread;
}

}  // namespace

// A text that is replaced while the other process reads it. All words are atomic.
template <size_t kMaxBytes>
struct StreamStateTable::Report {
  void set(std::string_view text);
  // False if the writer replaces it all the time.
  bool get(std::string& text) const;

  uint64_t version;  // odd while it is being replaced
  uint64_t bytes;
  std::array<uint64_t, kMaxBytes / sizeof(uint64_t)> words;
};

// Written once, before the worker starts, except `end`, `is_receiving` and the reports.
struct StreamStateTable::Header {
  uint64_t magic;
  uint64_t slots;
  uint64_t entry_bytes;
  uint64_t history_bytes;
  uint64_t end;           // atomic; ticket + 1, 0: the stream has not ended
  uint64_t is_receiving;  // atomic
  Report<1024> waits_for;
  Report<16384> threads;
};

template <size_t kMaxBytes>
void StreamStateTable::Report<kMaxBytes>::set(std::string_view text) {
  text = text.substr(0, kMaxBytes);
  const std::atomic_ref number(version);
  number.fetch_add(1, std::memory_order_acq_rel);
  std::atomic_ref(bytes).store(text.size(), std::memory_order_release);
  for (size_t i = 0; i * sizeof(uint64_t) < text.size(); ++i) {
    const std::string_view part = text.substr(i * sizeof(uint64_t), sizeof(uint64_t));
    uint64_t word = 0;
    std::memcpy(&word, part.data(), part.size());
    std::atomic_ref(words[i]).store(word, std::memory_order_release);
  }
  number.fetch_add(1, std::memory_order_release);
}

template <size_t kMaxBytes>
bool StreamStateTable::Report<kMaxBytes>::get(std::string& text) const {
  constexpr int kAttempts = 100;
  auto& self = const_cast<Report&>(*this);  // atomic_ref of C++20 needs mutable objects
  const std::atomic_ref number(self.version);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const uint64_t before = number.load(std::memory_order_acquire);
    const uint64_t size =
        std::min<uint64_t>(std::atomic_ref(self.bytes).load(std::memory_order_acquire), kMaxBytes);
    text.assign((size + sizeof(uint64_t) - 1) / sizeof(uint64_t) * sizeof(uint64_t), '\0');
    for (size_t i = 0; i * sizeof(uint64_t) < size; ++i) {
      const uint64_t word = std::atomic_ref(self.words[i]).load(std::memory_order_acquire);
      std::memcpy(text.data() + i * sizeof word, &word, sizeof word);
    }
    text.resize(size);
    if (before % 2 == 0 && number.load(std::memory_order_acquire) == before) return true;
  }
  return false;
}

StreamStateTable::Header& StreamStateTable::header() const {
  return *reinterpret_cast<Header*>(segment_.bytes().data());
}

std::span<std::byte> StreamStateTable::entry(uint64_t index) const {
  return segment_.bytes().subspan(sizeof(Header) + index * entry_bytes_, entry_bytes_);
}

Result<StreamStateTable> StreamStateTable::create(uint64_t slots, uint64_t capacity,
                                                  uint64_t history_bytes) {
  const uint64_t entry_bytes = sizeof(EntryHead) + kBytesForInputs + capacity * kBytesPerElement;
  const uint64_t history = history_bytes == 0 ? 0 : kHistoryHeaderBytes + history_bytes;
  STOKER_ASSIGN_OR_RETURN(
      ring::Segment segment,
      ring::Segment::create(sizeof(Header) + (slots + 1) * entry_bytes + history));
  StreamStateTable table(std::move(segment));
  Header& header = table.header();  // zeroed
  header.magic = kTableMagic;
  header.slots = table.slots_ = slots;
  header.entry_bytes = table.entry_bytes_ = entry_bytes;
  header.history_bytes = table.history_bytes_ = history_bytes;
  return table;
}

Result<StreamStateTable> StreamStateTable::attach(UniqueFd fd) {
  STOKER_ASSIGN_OR_RETURN(ring::Segment segment, ring::Segment::attach(std::move(fd)));
  const size_t bytes = segment.bytes().size();
  StreamStateTable table(std::move(segment));
  const auto mismatch = [] {
    return Status(StatusCode::kMismatch,
                  "the table of stream states is not compatible with this stoker-feed; install the "
                  "same version as stokerd");
  };
  if (bytes < sizeof(Header)) return mismatch();
  const Header& header = table.header();
  if (header.magic != kTableMagic || header.slots == 0 || header.slots > kMaxTableSlots ||
      header.entry_bytes < sizeof(EntryHead) || header.entry_bytes > bytes ||
      header.entry_bytes % sizeof(uint64_t) != 0)
    return mismatch();
  const uint64_t entries = sizeof(Header) + (header.slots + 1) * header.entry_bytes;
  const bool has_history = header.history_bytes > 0;
  if (entries > bytes || header.history_bytes > bytes ||
      header.history_bytes % sizeof(uint64_t) != 0 ||
      (has_history && kHistoryHeaderBytes + header.history_bytes > bytes - entries))
    return mismatch();
  table.slots_ = header.slots;
  table.entry_bytes_ = header.entry_bytes;
  table.history_bytes_ = header.history_bytes;
  return table;
}

std::optional<ByteHistory> StreamStateTable::maybe_history() const {
  if (history_bytes_ == 0) return std::nullopt;
  return ByteHistory(segment_.bytes().subspan(sizeof(Header) + (slots_ + 1) * entry_bytes_,
                                              kHistoryHeaderBytes + history_bytes_));
}

Status StreamStateTable::write(uint64_t index, uint64_t key, const StreamState& state) const {
  const std::vector<std::byte> encoded = encode_state(state);
  const std::span<std::byte> target = entry(index);
  if (encoded.size() > target.size() - sizeof(EntryHead))
    return Status(StatusCode::kNoSpace, "the state of the stream has " +
                                            std::to_string(encoded.size()) + " bytes, more than " +
                                            std::to_string(target.size() - sizeof(EntryHead)) +
                                            ": " + reason_of_size(state));
  const EntryHead head{.key = key, .bytes = encoded.size()};
  std::memcpy(target.data(), &head, sizeof head);
  std::memcpy(target.data() + sizeof head, encoded.data(), encoded.size());
  return {};
}

Result<StreamState> StreamStateTable::read(uint64_t index, uint64_t key) const {
  const std::span<std::byte> source = entry(index);
  EntryHead head;
  std::memcpy(&head, source.data(), sizeof head);
  if (head.key != key || head.bytes > source.size() - sizeof head)
    return Status(StatusCode::kCorrupt,
                  "a batch has no state of the stream: a worker overwrote the table");
  const auto shared = source.subspan(sizeof head, head.bytes);
  return decode_state(std::vector<std::byte>(shared.begin(), shared.end()));
}

Status StreamStateTable::record(uint64_t ticket, const StreamState& after) const {
  return write(ticket % slots_, ticket + 1, after);
}

Result<StreamState> StreamStateTable::read(uint64_t ticket) const {
  return read(ticket % slots_, ticket + 1);
}

void StreamStateTable::end_at(uint64_t ticket) const {
  std::atomic_ref(header().end).store(ticket + 1);
}

std::optional<uint64_t> StreamStateTable::end_ticket() const {
  const uint64_t end = std::atomic_ref(header().end).load();
  return end == 0 ? std::nullopt : std::optional(end - 1);
}

void StreamStateTable::set_receiving(bool is_receiving) const {
  std::atomic_ref(header().is_receiving).store(is_receiving ? 1 : 0);
}

bool StreamStateTable::is_receiving() const {
  return std::atomic_ref(header().is_receiving).load() != 0;
}

void StreamStateTable::set_waits_for(std::string_view source) const {
  header().waits_for.set(source);
}

std::string StreamStateTable::waits_for() const {
  std::string source;
  return header().waits_for.get(source) ? printable(source) : "";
}

void StreamStateTable::set_threads(const ThreadList& list) const {
  std::string text;
  for (const ThreadInfo& thread : list.threads)
    if (!thread.queue.empty()) append_thread(text, thread);
  header().threads.set(text);
}

ThreadList StreamStateTable::threads() const {
  ThreadList list;
  std::string text;
  if (!header().threads.get(text)) return list;
  std::string_view rest = text;
  // Without the end of the last one, the text was too long for it.
  for (size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
    const auto thread = read_thread(rest.substr(0, end));
    if (thread && list.threads.size() < kMaxThreads) list.threads.push_back(*thread);
  }
  return list;
}

Status StreamStateTable::set_initial(const std::optional<StreamState>& state) const {
  std::atomic_ref(header().end).store(0);
  set_waits_for("");
  set_threads({});
  set_receiving(false);
  if (state) return write(slots_, 1, *state);
  const EntryHead none{.key = 0, .bytes = 0};
  std::memcpy(entry(slots_).data(), &none, sizeof none);
  return {};
}

Result<std::optional<StreamState>> StreamStateTable::initial() const {
  EntryHead head;
  std::memcpy(&head, entry(slots_).data(), sizeof head);
  if (head.key == 0) return std::optional<StreamState>();
  STOKER_ASSIGN_OR_RETURN(StreamState state, read(slots_, 1));
  return std::optional(std::move(state));
}

}  // namespace stoker::feed
