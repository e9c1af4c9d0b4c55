#include "daemon/writer/snapshot.h"

#include <cstdlib>
#include <new>

namespace stoker::writer {
namespace {

// Page-aligned because memory is locked per page.
constexpr std::align_val_t kAlignment{4096};
constexpr size_t kPageBytes = static_cast<size_t>(kAlignment);
constexpr size_t kMinPinnedBytes = 64 << 10;  // smaller copies are not worth the cost of pinning

}  // namespace

Snapshot::~Snapshot() {
  for (Buffer& buffer : buffers_) release(buffer);
}

void Snapshot::release(Buffer& buffer) {
  if (buffer.is_pinned) pinned_allocator_.unpin(buffer.memory);
  ::operator delete(buffer.memory, kAlignment);
  buffer = {};
}

void Snapshot::resize(Buffer& buffer, size_t bytes) {
  release(buffer);
  const size_t capacity = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  buffer.memory = static_cast<std::byte*>(::operator new(capacity, kAlignment));
  buffer.capacity = capacity;
  buffer.is_pinned = pinned_allocator_.pin && capacity >= kMinPinnedBytes &&
                     pinned_allocator_.pin(buffer.memory, capacity);
}

void Snapshot::begin() { entries_.clear(); }

std::span<std::byte> Snapshot::add(Part part, TensorSpec spec) {
  const size_t bytes = spec.bytes();
  const size_t index = entries_.size();
  entries_.push_back({part, std::move(spec)});
  if (buffers_.size() == index) buffers_.emplace_back();
  Buffer& buffer = buffers_[index];
  if (buffer.capacity < bytes) resize(buffer, bytes);
  return {buffer.memory, bytes};
}

checkpoint::CheckpointContent Snapshot::content() const {
  checkpoint::CheckpointContent content{.manifest = manifest_};
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
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    views_for(entry.part).push_back({entry.spec, {buffers_[i].memory, entry.spec.bytes()}});
  }
  return content;
}

uint64_t Snapshot::bytes() const {
  uint64_t sum = 0;
  for (const Entry& entry : entries_) sum += entry.spec.bytes();
  return sum;
}

}  // namespace stoker::writer
