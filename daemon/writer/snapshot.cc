#include "daemon/writer/snapshot.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace stoker::writer {
namespace {

// Page-aligned because memory is locked per page.
constexpr std::align_val_t kPageAlignment{4096};
constexpr size_t kPageBytes = static_cast<size_t>(kPageAlignment);
constexpr size_t kMinBlockBytes = 1 << 20;
constexpr size_t kMaxBlocks = 3;  // that begin() keeps

}  // namespace

Snapshot::~Snapshot() {
  for (Block& block : blocks_) release(block);
}

void Snapshot::release(Block& block) const {
  if (pinned_allocator_.poison) pinned_allocator_.poison(block.memory, block.capacity);
  if (block.is_pinned) pinned_allocator_.unpin(block.memory);
  ::operator delete(block.memory, kPageAlignment);
  block = {};
}

Snapshot::Block Snapshot::allocate(size_t bytes) const {
  Block block{.capacity = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes};
  block.memory = static_cast<std::byte*>(::operator new(block.capacity, kPageAlignment));
  block.is_pinned = pinned_allocator_.pin && pinned_allocator_.pin(block.memory, block.capacity);
  return block;
}

void Snapshot::reserve(uint64_t bytes) {
  if (!blocks_.empty() && blocks_.front().capacity >= bytes) return;
  entries_.clear();
  used_ = 0;
  current_ = 0;
  for (Block& block : blocks_) release(block);
  blocks_.clear();
  if (bytes > 0) blocks_.push_back(allocate(bytes));
}

void Snapshot::begin() {
  entries_.clear();
  set_shard(0, 0, {});
  // What did not fit before, as the growing history of a stream, has further blocks. Too small
  // ones are dropped; the first, with the parameters, is never allocated and pinned again.
  while (blocks_.size() > kMaxBlocks) {
    release(blocks_[1]);
    blocks_.erase(blocks_.begin() + 1);
  }
  current_ = 0;
  used_ = 0;
  if (pinned_allocator_.poison)
    for (const Block& block : blocks_) pinned_allocator_.poison(block.memory, block.capacity);
}

std::span<std::byte> Snapshot::add(Part part, TensorSpec spec) {
  const size_t bytes = spec.bytes();
  while (current_ < blocks_.size() && blocks_[current_].capacity - used_ < bytes) {
    ++current_;
    used_ = 0;
  }
  if (current_ == blocks_.size())
    blocks_.push_back(allocate(std::max<size_t>(2 * bytes, kMinBlockBytes)));
  std::byte* const memory = blocks_[current_].memory + used_;
  used_ = std::min<size_t>(used_ + aligned(bytes), blocks_[current_].capacity);
  entries_.push_back({part, std::move(spec), memory});
  return {memory, bytes};
}

checkpoint::CheckpointContent Snapshot::content() const {
  checkpoint::CheckpointContent content{.manifest = manifest_};
  content.num_shards = num_shards_;
  content.optim_bytes = optim_bytes_;
  content.ranges = ranges_;
  const auto views_for = [&content](Part part) -> checkpoint::TensorViews& {
    switch (part) {
      case Part::kModel:
        return content.model;
      case Part::kOptimizer:
        return content.optim;
      case Part::kTrainerState:
        return content.state;
      case Part::kEma:
        return content.ema;
    }
    std::abort();
  };
  for (const Entry& entry : entries_)
    views_for(entry.part).push_back({entry.spec, {entry.memory, entry.spec.bytes()}});
  return content;
}

uint64_t Snapshot::bytes() const {
  uint64_t sum = 0;
  for (const Entry& entry : entries_) sum += entry.spec.bytes();
  return sum;
}

}  // namespace stoker::writer
