#include "daemon/train/stream_tensors.h"

#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace stoker::train {
namespace {

constexpr const char* kNextSource = "stream.next_source";
constexpr const char* kSources = "stream.sources";
constexpr const char* kNames = "stream.names";
constexpr const char* kQueue = "stream.queue";
constexpr const char* kFinished = "stream.finished";
constexpr const char* kGenerator = "stream.generator";
constexpr const char* kHistory = "stream.history";
constexpr const char* kHistoryRange = "stream.history_range";
constexpr size_t kSourceValues = 5;
constexpr size_t kElementValues = 3;
constexpr size_t kFinishedValues = 3;
constexpr size_t kGeneratorValues = 3;
constexpr size_t kMaxStateBytes = size_t{1} << 30;    // of one tensor
constexpr size_t kMaxHistoryBytes = size_t{1} << 32;  // as stream.save_elements_mib

Status corrupt(const std::string& tensor) {
  return Status(StatusCode::kCorrupt, "trainer_state.safetensors: " + tensor + " is invalid");
}

void add_values(writer::Snapshot& snapshot, const char* name, std::vector<int64_t> shape,
                const std::vector<uint64_t>& values) {
  const auto out =
      snapshot.add(writer::Part::kTrainerState,
                   TensorSpec{.name = name, .dtype = DType::kI64, .shape = std::move(shape)});
  std::memcpy(out.data(), values.data(), out.size());
}

// The values of a tensor of rows, empty if it is missing.
Result<std::vector<uint64_t>> read_values(const checkpoint::TensorSource& file, const char* name,
                                          size_t row_values) {
  const TensorSpec* const found = file.find(name);
  std::vector<uint64_t> values;
  if (found == nullptr) return values;
  const auto row = static_cast<int64_t>(row_values);
  if (found->dtype != DType::kI64 || found->bytes() > kMaxStateBytes ||
      found->elements() % row != 0)
    return corrupt(name);
  values.resize(static_cast<size_t>(found->elements()));
  STOKER_RETURN_IF_ERROR(file.read(name, std::as_writable_bytes(std::span(values))));
  return values;
}

Result<std::vector<std::string>> read_names(const checkpoint::TensorSource& file) {
  const TensorSpec* const found = file.find(kNames);
  std::vector<std::string> names;
  if (found == nullptr) return names;
  if (found->dtype != DType::kU8 || found->bytes() > kMaxStateBytes) return corrupt(kNames);
  std::string text(found->bytes(), '\0');
  STOKER_RETURN_IF_ERROR(file.read(kNames, std::as_writable_bytes(std::span(text))));
  for (size_t end; (end = text.find('\0')) != std::string::npos; text.erase(0, end + 1))
    names.push_back(text.substr(0, end));
  if (!text.empty()) return corrupt(kNames);
  return names;
}

}  // namespace

void add_stream(writer::Snapshot& snapshot, const feed::StreamState& state) {
  add_values(snapshot, kNextSource, {}, {state.next_source});
  std::vector<uint64_t> values;
  std::string names;
  for (const feed::StreamState::Source& source : state.sources) {
    values.insert(values.end(), {source.number, source.next.offset, source.next.record,
                                 source.identity, source.ended ? uint64_t{1} : uint64_t{0}});
    names += source.name;
    names += '\0';
  }
  if (!state.sources.empty()) {
    const auto count = static_cast<int64_t>(state.sources.size());
    add_values(snapshot, kSources, {count, static_cast<int64_t>(kSourceValues)}, values);
    const auto out = snapshot.add(
        writer::Part::kTrainerState,
        TensorSpec{
            .name = kNames, .dtype = DType::kU8, .shape = {static_cast<int64_t>(names.size())}});
    std::memcpy(out.data(), names.data(), out.size());
  }
  values.clear();
  for (const feed::StreamState::Element& element : state.elements)
    values.insert(values.end(), {element.source, element.at.offset, element.at.record});
  if (!state.elements.empty())
    add_values(snapshot, kQueue,
               {static_cast<int64_t>(state.elements.size()), static_cast<int64_t>(kElementValues)},
               values);
  values.clear();
  for (const feed::StreamState::Finished& input : state.finished)
    values.insert(values.end(), {input.number, input.name_hash, input.identity});
  if (!state.finished.empty())
    add_values(snapshot, kFinished,
               {static_cast<int64_t>(state.finished.size()), static_cast<int64_t>(kFinishedValues)},
               values);
  if (state.generator)
    add_values(snapshot, kGenerator, {static_cast<int64_t>(kGeneratorValues)},
               {state.generator->key, state.generator->stream, state.generator->draws});
}

Result<std::optional<feed::StreamState>> read_stream(const checkpoint::TensorSource& file) {
  STOKER_ASSIGN_OR_RETURN(const auto next, read_values(file, kNextSource, 1));
  if (next.empty()) return std::optional<feed::StreamState>();
  STOKER_ASSIGN_OR_RETURN(const auto sources, read_values(file, kSources, kSourceValues));
  STOKER_ASSIGN_OR_RETURN(const auto names, read_names(file));
  STOKER_ASSIGN_OR_RETURN(const auto elements, read_values(file, kQueue, kElementValues));
  STOKER_ASSIGN_OR_RETURN(const auto finished, read_values(file, kFinished, kFinishedValues));
  STOKER_ASSIGN_OR_RETURN(const auto generator, read_values(file, kGenerator, kGeneratorValues));
  if (names.size() != sources.size() / kSourceValues) return corrupt(kNames);
  feed::StreamState state;
  state.next_source = next.front();
  for (size_t i = 0; i < names.size(); ++i) {
    const uint64_t* const row = sources.data() + i * kSourceValues;
    state.sources.push_back({.number = row[0],
                             .name = names[i],
                             .next = {.offset = row[1], .record = row[2]},
                             .identity = row[3],
                             .ended = row[4] != 0});
  }
  for (size_t i = 0; i < elements.size(); i += kElementValues)
    state.elements.push_back(
        {.source = elements[i], .at = {.offset = elements[i + 1], .record = elements[i + 2]}});
  for (size_t i = 0; i < finished.size(); i += kFinishedValues)
    state.finished.push_back(
        {.number = finished[i], .name_hash = finished[i + 1], .identity = finished[i + 2]});
  if (generator.size() == kGeneratorValues)
    state.generator =
        queue::GeneratorState{.key = generator[0], .stream = generator[1], .draws = generator[2]};
  // The numbers are checked as those of a worker process.
  auto checked = feed::decode_state(feed::encode_state(state));
  if (!checked.ok()) return checked.status().with_context("trainer_state.safetensors");
  return std::optional(*std::move(checked));
}

void add_history(writer::Snapshot& snapshot, const feed::StreamHistory& history) {
  add_values(snapshot, kHistoryRange, {2}, {history.begin, history.complete});
  if (history.bytes.empty()) return;
  const auto out = snapshot.add(writer::Part::kTrainerState,
                                TensorSpec{.name = kHistory,
                                           .dtype = DType::kU8,
                                           .shape = {static_cast<int64_t>(history.bytes.size())}});
  std::memcpy(out.data(), history.bytes.data(), out.size());
}

Result<std::optional<feed::StreamHistory>> read_history(const checkpoint::TensorSource& file) {
  STOKER_ASSIGN_OR_RETURN(const auto range, read_values(file, kHistoryRange, 2));
  if (range.empty()) return std::optional<feed::StreamHistory>();
  feed::StreamHistory history{.begin = range[0], .complete = range[1]};
  if (const TensorSpec* const found = file.find(kHistory)) {
    if (found->dtype != DType::kU8 || found->bytes() > kMaxHistoryBytes) return corrupt(kHistory);
    history.bytes.resize(found->bytes());
    STOKER_RETURN_IF_ERROR(file.read(kHistory, history.bytes));
  }
  const bool is_valid =
      history.begin <= history.complete && history.complete - history.begin <= history.bytes.size();
  if (range.size() != 2 || !is_valid) return corrupt(kHistoryRange);
  return std::optional(std::move(history));
}

}  // namespace stoker::train
