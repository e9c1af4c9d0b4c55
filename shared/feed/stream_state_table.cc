#include "shared/feed/stream_state_table.h"

#include <atomic>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace stoker::feed {
namespace {

constexpr uint64_t kTableMagic = 0x5453'4d41'4552'0001;  // "REAMST", version 1
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
  return "its files have few records; decrease data.train.stream.capacity";
}

}  // namespace

// Written once, before the worker starts, except `end`.
struct StreamStateTable::Header {
  uint64_t magic;
  uint64_t slots;
  uint64_t entry_bytes;
  uint64_t end;  // atomic; ticket + 1, 0: the stream has not ended
};

StreamStateTable::Header& StreamStateTable::header() const {
  return *reinterpret_cast<Header*>(segment_.bytes().data());
}

std::span<std::byte> StreamStateTable::entry(uint64_t index) const {
  return segment_.bytes().subspan(sizeof(Header) + index * entry_bytes_, entry_bytes_);
}

Result<StreamStateTable> StreamStateTable::create(uint64_t slots, uint64_t capacity) {
  const uint64_t entry_bytes = sizeof(EntryHead) + kBytesForInputs + capacity * kBytesPerElement;
  STOKER_ASSIGN_OR_RETURN(ring::Segment segment,
                          ring::Segment::create(sizeof(Header) + (slots + 1) * entry_bytes));
  StreamStateTable table(std::move(segment), slots, entry_bytes);
  table.header() = {.magic = kTableMagic, .slots = slots, .entry_bytes = entry_bytes, .end = 0};
  return table;
}

Result<StreamStateTable> StreamStateTable::attach(UniqueFd fd) {
  STOKER_ASSIGN_OR_RETURN(ring::Segment segment, ring::Segment::attach(std::move(fd)));
  const size_t bytes = segment.bytes().size();
  StreamStateTable table(std::move(segment), 0, 0);
  const auto mismatch = [] {
    return Status(StatusCode::kMismatch,
                  "the table of stream states is not compatible with this stoker-feed; install the "
                  "same version as stokerd");
  };
  if (bytes < sizeof(Header)) return mismatch();
  const Header header = table.header();
  if (header.magic != kTableMagic || header.slots == 0 || header.slots > kMaxTableSlots ||
      header.entry_bytes < sizeof(EntryHead) || header.entry_bytes > bytes ||
      sizeof(Header) + (header.slots + 1) * header.entry_bytes > bytes)
    return mismatch();
  table.slots_ = header.slots;
  table.entry_bytes_ = header.entry_bytes;
  return table;
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

Status StreamStateTable::set_initial(const std::optional<StreamState>& state) const {
  std::atomic_ref(header().end).store(0);
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
