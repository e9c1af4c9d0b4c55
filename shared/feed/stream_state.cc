#include "shared/feed/stream_state.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "shared/data/stream/producer_history.h"

namespace stoker::feed {
namespace {

// The records of the format: StateRecord, then for each source a SourceRecord and its name, padded
// with zeros to words, then an ElementRecord for each element and a FinishedRecord for each input that
// is finished.
constexpr uint64_t kStateMagic = 0x5441'5453'4d52'0001;  // "STREAMST", version 1
constexpr uint64_t kMaxOffset = data::stream::ByteHistory::kMaxOffset;
constexpr uint64_t kMaxNameBytes = 4096;
static_assert(std::endian::native == std::endian::little);

struct StateRecord {
  uint64_t magic;
  uint64_t next_source;
  uint64_t sources;
  uint64_t elements;
  uint64_t finished;
  uint64_t has_generator;  // 0 or 1
  queue::GeneratorState generator;
};
static_assert(sizeof(StateRecord) == 72 && std::is_trivially_copyable_v<StateRecord>);

struct SourceRecord {
  uint64_t number;
  uint64_t offset;
  uint64_t record;
  uint64_t identity;
  uint32_t ended;  // 0 or 1
  uint32_t name_bytes;
};
static_assert(sizeof(SourceRecord) == 40 && std::is_trivially_copyable_v<SourceRecord>);

struct ElementRecord {
  uint64_t source;
  uint64_t offset;
  uint64_t record;
};
static_assert(sizeof(ElementRecord) == 24 && std::is_trivially_copyable_v<ElementRecord>);

using FinishedRecord = StreamState::Finished;
static_assert(sizeof(FinishedRecord) == 24 && std::is_trivially_copyable_v<FinishedRecord>);

constexpr size_t padded_to_word(size_t bytes) { return (bytes + 7) / 8 * 8; }

template <typename Record>
void append_record(std::vector<std::byte>& bytes, const Record& record) {
  const auto part = std::as_bytes(std::span(&record, 1));
  bytes.insert(bytes.end(), part.begin(), part.end());
}

Status no_state(const std::string& what) {
  return Status(StatusCode::kCorrupt, "the state of the stream is invalid: " + what);
}

// Reads records from the front.
class StateReader {
 public:
  explicit StateReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <typename Record>
  Result<Record> next() {
    STOKER_ASSIGN_OR_RETURN(const auto bytes, take(sizeof(Record)));
    Record record;
    std::memcpy(&record, bytes.data(), sizeof record);
    return record;
  }
  Result<std::span<const std::byte>> take(size_t count) {
    if (count > rest_.size()) return no_state("it is too short");
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  size_t left() const { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
};

Result<StreamState::Source> read_source(StateReader& reader) {
  STOKER_ASSIGN_OR_RETURN(const auto record, reader.next<SourceRecord>());
  if (record.name_bytes == 0 || record.name_bytes > kMaxNameBytes || record.ended > 1 ||
      record.offset > kMaxOffset || record.record > kMaxOffset)
    return no_state("input " + std::to_string(record.number));
  STOKER_ASSIGN_OR_RETURN(const auto name, reader.take(padded_to_word(record.name_bytes)));
  return StreamState::Source{
      .number = record.number,
      .name = std::string(reinterpret_cast<const char*>(name.data()), record.name_bytes),
      .next = {.offset = record.offset, .record = record.record},
      .identity = record.identity,
      .ended = record.ended == 1};
}

Status read_sources(StateReader& reader, uint64_t count, StreamState& state) {
  if (count > reader.left() / sizeof(SourceRecord)) return no_state("it is too short");
  for (uint64_t i = 0; i < count; ++i) {
    STOKER_ASSIGN_OR_RETURN(StreamState::Source source, read_source(reader));
    const bool is_ascending = state.sources.empty() || state.sources.back().number < source.number;
    if (!is_ascending || source.number >= state.next_source)
      return no_state("the number of input " + std::to_string(source.number));
    state.sources.push_back(std::move(source));
  }
  return {};
}

Status read_elements(StateReader& reader, uint64_t count, StreamState& state) {
  if (count > reader.left() / sizeof(ElementRecord)) return no_state("it is too short");
  for (uint64_t i = 0; i < count; ++i) {
    STOKER_ASSIGN_OR_RETURN(const auto record, reader.next<ElementRecord>());
    const bool is_known =
        std::ranges::binary_search(state.sources, record.source, {}, &StreamState::Source::number);
    if (!is_known || record.offset > kMaxOffset || record.record > kMaxOffset)
      return no_state("element " + std::to_string(i));
    state.elements.push_back(
        {.source = record.source, .at = {.offset = record.offset, .record = record.record}});
  }
  return {};
}

Status read_finished(StateReader& reader, uint64_t count, StreamState& state) {
  if (count != reader.left() / sizeof(FinishedRecord)) return no_state("its size is wrong");
  for (uint64_t i = 0; i < count; ++i) {
    STOKER_ASSIGN_OR_RETURN(const auto record, reader.next<FinishedRecord>());
    if (record.number >= state.next_source)
      return no_state("the number of input " + std::to_string(record.number));
    state.finished.push_back(record);
  }
  return {};
}

using Taken = data::stream::SpoolFolder::Taken;

// The identity of the last input with each name.
class LastOfName {
 public:
  void add(uint64_t name_hash, uint64_t number, uint64_t identity, bool is_finished) {
    const auto [entry, is_new] = last_.try_emplace(name_hash);
    if (is_new || entry->second.number < number)
      entry->second = {.number = number, .identity = identity, .is_finished = is_finished};
  }
  Taken taken(bool only_finished) const {
    Taken taken;
    for (const auto& [name_hash, last] : last_)
      if (last.is_finished || !only_finished) taken.emplace(name_hash, last.identity);
    return taken;
  }

 private:
  struct Last {
    uint64_t number = 0;
    uint64_t identity = 0;
    bool is_finished = false;
  };
  std::unordered_map<uint64_t, Last> last_;
};

LastOfName last_of_names(const StreamState& state) {
  LastOfName last;
  for (const StreamState::Finished& input : state.finished)
    last.add(input.name_hash, input.number, input.identity, true);
  for (const StreamState::Source& input : state.sources)
    last.add(data::stream::hash_of_name(input.name), input.number, input.identity, false);
  return last;
}

}  // namespace

Taken taken_files(const StreamState& state) { return last_of_names(state).taken(false); }

Taken finished_files(const StreamState& state) { return last_of_names(state).taken(true); }

bool is_valid_range(const StreamHistory& history, uint64_t bytes) {
  return history.begin <= kMaxOffset && bytes <= kMaxOffset &&
         history.complete <= history.begin + bytes;
}

std::optional<uint64_t> first_needed(const StreamState& state) {
  if (!state.has_started()) return 0;
  if (state.sources.size() != 1) return std::nullopt;
  uint64_t first = state.sources.front().next.offset;
  for (const StreamState::Element& element : state.elements)
    first = std::min(first, element.at.offset);
  return first;
}

StreamHistory copy_history(const data::stream::ByteHistory& history, uint64_t first) {
  const auto range = history.range();
  StreamHistory copy{.begin = std::clamp(first, range.begin, range.end),
                     .complete = range.complete};
  copy.bytes.resize(range.end - copy.begin);
  if (history.copy(copy.begin, copy.bytes)) return copy;
  // The first of them were replaced meanwhile.
  const uint64_t begin = std::clamp(history.range().begin, copy.begin, range.end);
  copy.bytes.erase(copy.bytes.begin(),
                   copy.bytes.begin() + static_cast<std::ptrdiff_t>(begin - copy.begin));
  copy.begin = begin;
  return copy;
}

std::optional<StreamHistory> copy_producer_history(const StreamState& state,
                                                   const data::stream::ByteHistory& history,
                                                   bool is_last) {
  std::unordered_map<std::string, uint64_t> first;  // offsets of the first required bytes
  std::unordered_map<uint64_t, uint64_t*> first_of_source;
  for (const StreamState::Source& source : state.sources)
    first_of_source[source.number] =
        &first.insert_or_assign(source.name, source.next.offset).first->second;
  for (const StreamState::Element& element : state.elements) {
    uint64_t& offset = *first_of_source.at(element.source);
    offset = std::min(offset, element.at.offset);
  }
  StreamHistory copy;
  const auto is_needed = [&first](const auto& part) {
    const auto offset = first.find(part.name);
    return offset == first.end() || part.end() > offset->second;
  };
  copy.bytes = data::stream::ProducerHistory(history).copy_needed(is_needed, is_last);
  copy.complete = copy.bytes.size();
  copy.is_last = is_last;
  return copy;
}

std::vector<std::byte> encode_state(const StreamState& state) {
  std::vector<std::byte> bytes;
  bytes.reserve(sizeof(StateRecord) + state.elements.size() * sizeof(ElementRecord) +
                state.finished.size() * sizeof(FinishedRecord));
  append_record(bytes, StateRecord{.magic = kStateMagic,
                                   .next_source = state.next_source,
                                   .sources = state.sources.size(),
                                   .elements = state.elements.size(),
                                   .finished = state.finished.size(),
                                   .has_generator = state.generator.has_value(),
                                   .generator = state.generator.value_or(queue::GeneratorState())});
  for (const StreamState::Source& source : state.sources) {
    append_record(bytes, SourceRecord{.number = source.number,
                                      .offset = source.next.offset,
                                      .record = source.next.record,
                                      .identity = source.identity,
                                      .ended = source.ended,
                                      .name_bytes = static_cast<uint32_t>(source.name.size())});
    const auto name = std::as_bytes(std::span(source.name));
    bytes.insert(bytes.end(), name.begin(), name.end());
    bytes.resize(padded_to_word(bytes.size()));
  }
  for (const StreamState::Element& element : state.elements)
    append_record(bytes, ElementRecord{.source = element.source,
                                       .offset = element.at.offset,
                                       .record = element.at.record});
  const auto finished = std::as_bytes(std::span(state.finished));
  bytes.insert(bytes.end(), finished.begin(), finished.end());
  return bytes;
}

Result<StreamState> decode_state(std::span<const std::byte> bytes) {
  StateReader reader(bytes);
  STOKER_ASSIGN_OR_RETURN(const auto head, reader.next<StateRecord>());
  if (head.magic != kStateMagic) return no_state("it is of another version");
  if (head.has_generator > 1) return no_state("its generator");
  StreamState state;
  state.next_source = head.next_source;
  if (head.has_generator == 1) state.generator = head.generator;
  STOKER_RETURN_IF_ERROR(read_sources(reader, head.sources, state));
  STOKER_RETURN_IF_ERROR(read_elements(reader, head.elements, state));
  STOKER_RETURN_IF_ERROR(read_finished(reader, head.finished, state));
  if (reader.left() != 0) return no_state("its size is wrong");
  return state;
}

}  // namespace stoker::feed
