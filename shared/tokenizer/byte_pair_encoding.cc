#include "shared/tokenizer/byte_pair_encoding.h"

#include <algorithm>

namespace stoker::tokenizer {
namespace {

constexpr size_t kMaxCachedPieceBytes = 64;
constexpr size_t kMaxCachedPieces = 1 << 16;

}  // namespace

bool BytePairEncoding::add_merge(int32_t left, int32_t right, uint32_t rank, int32_t result) {
  return merges_.emplace(pair(left, right), Merge{.rank = rank, .id = result}).second;
}

const BytePairEncoding::Merge* BytePairEncoding::find_merge(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BytePairEncoding::encode(std::string_view piece, Memory& memory,
                              std::vector<int32_t>& ids) const {
  if (piece.empty()) return;
  if (piece.size() == 1) return ids.push_back(byte_ids_[static_cast<unsigned char>(piece[0])]);
  if (!whole_pieces_.empty()) {
    const auto whole = whole_pieces_.find(piece);
    if (whole != whole_pieces_.end()) return ids.push_back(whole->second);
  }
  if (piece.size() > kMaxCachedPieceBytes) return merge_bytes(piece, memory, ids);
  const auto cached = memory.cache_.find(piece);
  if (cached != memory.cache_.end()) {
    const auto first = memory.ids_.begin() + cached->second.first;
    ids.insert(ids.end(), first, first + cached->second.count);
    return;
  }
  const size_t first = ids.size();
  merge_bytes(piece, memory, ids);
  if (memory.cache_.size() == kMaxCachedPieces) {
    memory.cache_.clear();
    memory.ids_.clear();
  }
  memory.cache_.emplace(std::string(piece),
                        Memory::CachedIds{.first = static_cast<uint32_t>(memory.ids_.size()),
                                          .count = static_cast<uint32_t>(ids.size() - first)});
  memory.ids_.insert(memory.ids_.end(), ids.begin() + static_cast<std::ptrdiff_t>(first),
                     ids.end());
}

void BytePairEncoding::merge_bytes(std::string_view piece, Memory& memory,
                                   std::vector<int32_t>& ids) const {
  using Candidate = Memory::Candidate;
  const auto is_later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  std::vector<Memory::Symbol>& symbols = memory.symbols_;
  std::vector<Candidate>& heap = memory.heap_;
  const auto size = static_cast<int32_t>(piece.size());
  symbols.clear();
  heap.clear();
  for (int32_t i = 0; i < size; ++i)
    symbols.push_back({.id = byte_ids_[static_cast<unsigned char>(piece[static_cast<size_t>(i)])],
                       .previous = i - 1,
                       .next = i + 1 < size ? i + 1 : -1});
  const auto add = [&](int32_t at) {
    const Memory::Symbol& left = symbols[static_cast<size_t>(at)];
    if (left.next < 0) return false;
    const Merge* const merge = find_merge(left.id, symbols[static_cast<size_t>(left.next)].id);
    if (merge == nullptr) return false;
    heap.push_back({.rank = merge->rank, .at = at, .id = merge->id});
    return true;
  };
  for (int32_t i = 0; i < size; ++i) add(i);
  std::ranges::make_heap(heap, is_later);
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, is_later);
    const Candidate top = heap.back();
    heap.pop_back();
    Memory::Symbol& left = symbols[static_cast<size_t>(top.at)];
    if (left.is_merged || left.next < 0) continue;
    Memory::Symbol& right = symbols[static_cast<size_t>(left.next)];
    // The symbols have changed since, unless they still merge to this token.
    const Merge* const merge = find_merge(left.id, right.id);
    if (merge == nullptr || merge->id != top.id) continue;
    left.id = top.id;
    left.next = right.next;
    right.is_merged = true;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = top.at;
    if (add(top.at)) std::ranges::push_heap(heap, is_later);
    if (left.previous >= 0 && add(left.previous)) std::ranges::push_heap(heap, is_later);
  }
  for (int32_t at = 0; at >= 0; at = symbols[static_cast<size_t>(at)].next)
    ids.push_back(symbols[static_cast<size_t>(at)].id);
}

}  // namespace stoker::tokenizer
