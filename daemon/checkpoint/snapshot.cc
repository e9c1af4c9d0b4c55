#include "daemon/checkpoint/snapshot.h"

#include <new>

namespace stoker::writer {
namespace {
constexpr std::align_val_t kAlignment{64};  // of a cache line, for the copy's wide instructions
}

void Snapshot::FreeAligned::operator()(std::byte* memory) const {
  ::operator delete(memory, kAlignment);
}

void Snapshot::begin() { entries_.clear(); }

std::span<std::byte> Snapshot::add(Part part, TensorSpec spec) {
  const size_t bytes = spec.bytes();
  const size_t index = entries_.size();
  entries_.push_back({part, std::move(spec)});
  if (buffers_.size() == index) buffers_.emplace_back();
  Buffer& buffer = buffers_[index];
  if (buffer.capacity < bytes) {
    buffer.memory.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
    buffer.capacity = bytes;
  }
  return {buffer.memory.get(), bytes};
}

checkpoint::CheckpointContent Snapshot::content() const {
  checkpoint::CheckpointContent content{.manifest = manifest_};
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    checkpoint::TensorViews& views = entry.part == Part::kModel   ? content.model
                                     : entry.part == Part::kOptim ? content.optim
                                                                  : content.state;
    views.push_back({entry.spec, {buffers_[i].memory.get(), entry.spec.bytes()}});
  }
  return content;
}

uint64_t Snapshot::bytes() const {
  uint64_t sum = 0;
  for (const Entry& entry : entries_) sum += entry.spec.bytes();
  return sum;
}

}  // namespace stoker::writer
