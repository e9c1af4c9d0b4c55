#include "shared/ring/producer_table.h"

#include <algorithm>
#include <cstring>

namespace stoker::ring {
namespace {

enum class RowState : uint64_t { kFree = 0, kAlive = 1, kRetired = 2 };

uint64_t word_of(uint32_t generation, RowState state) {
  return uint64_t{generation} << 32 | static_cast<uint64_t>(state);
}

}  // namespace

ProducerRecord* ProducerTable::find_row(ProducerId producer) {
  return producer.index < rows_.size() ? &rows_[producer.index] : nullptr;
}

Result<ProducerId> ProducerTable::add(std::string_view name) {
  for (uint32_t index = 0; index < rows_.size(); ++index) {
    ProducerRecord& row = rows_[index];
    const std::atomic_ref word(row.word);
    uint64_t seen = word.load();
    const auto generation = static_cast<uint32_t>(seen >> 32);
    if (seen != word_of(generation, RowState::kFree) || generation >= kMaxGeneration) continue;
    // Retired first: nobody may claim under the name before the row is written.
    if (!word.compare_exchange_strong(seen, word_of(generation + 1, RowState::kRetired))) continue;
    std::atomic_ref(row.pid).store(0);
    std::atomic_ref(row.waiting).store(0);
    std::atomic_ref(row.samples).store(0);
    std::atomic_ref(row.polls).store(0);
    std::memset(row.name, 0, sizeof(row.name));
    std::memcpy(row.name, name.data(), std::min(name.size(), sizeof(row.name) - 1));
    word.store(word_of(generation + 1, RowState::kAlive));
    return ProducerId{.index = index, .generation = generation + 1};
  }
  return Status(StatusCode::kBusy,
                "the ring's producer table is full (" + std::to_string(rows_.size()) + " rows)");
}

bool ProducerTable::alive(ProducerId producer) const {
  if (producer.index >= rows_.size()) return false;
  const std::atomic_ref word(rows_[producer.index].word);
  return word.load() == word_of(producer.generation, RowState::kAlive);
}

bool ProducerTable::remove(ProducerId producer, uint32_t& waiting) {
  ProducerRecord* row = find_row(producer);
  if (row == nullptr) return false;
  uint64_t expected = word_of(producer.generation, RowState::kAlive);
  if (!std::atomic_ref(row->word).compare_exchange_strong(
          expected, word_of(producer.generation, RowState::kRetired)))
    return false;
  waiting = std::atomic_ref(row->waiting).exchange(0);
  return true;
}

void ProducerTable::free_row(ProducerId producer) {
  if (ProducerRecord* row = find_row(producer))
    std::atomic_ref(row->word).store(word_of(producer.generation, RowState::kFree));
}

}  // namespace stoker::ring
