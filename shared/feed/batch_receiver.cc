#include "shared/feed/batch_receiver.h"

#include <cstring>
#include <utility>

namespace stoker::feed {
namespace {

size_t copied_bytes(const ring::BatchLayout& layout) {
  size_t bytes = 0;
  for (const TensorSpec& spec : layout.sample())
    if (BatchReceiver::is_copied(spec)) bytes += ring::align_tensor(layout.batch() * spec.bytes());
  return bytes;
}

}  // namespace

BatchReceiver::BatchReceiver(BatchShapes shapes, const ring::BatchLayout& ring, uint64_t slots)
    : shapes_(std::move(shapes)),
      slots_(slots),
      slot_bytes_(copied_bytes(ring)),
      memory_(static_cast<std::byte*>(::operator new(slots_* slot_bytes_, kPage))) {}

bool BatchReceiver::is_copied(const TensorSpec& spec) {
  switch (spec.dtype) {
    case DType::kF16:
    case DType::kBF16:
    case DType::kF32:
    case DType::kF64:
      return false;
    case DType::kU8:
      return spec.name != "input";  // an image
    case DType::kU16:
    case DType::kI32:
    case DType::kI64:
    case DType::kBool:
    case DType::kI8:
    case DType::kI16:
      return true;
  }
  return true;
}

ReceivedBatch BatchReceiver::receive(const ring::ReadyBatch& batch) {
  const ring::BatchLayout& layout = shapes_.of(batch.ticket);
  ReceivedBatch received{.ticket = batch.ticket, .layout = layout, .tensors = {}};
  received.tensors.reserve(layout.sample().size());
  // At most `slots` batches are held, and they are released in order.
  std::byte* copy = memory_.get() + received_++ % slots_ * slot_bytes_;
  for (size_t i = 0; i < layout.sample().size(); ++i) {
    std::span<const std::byte> bytes = layout.tensor_bytes(batch.slot, i);
    if (is_copied(layout.sample()[i])) {
      std::memcpy(copy, bytes.data(), bytes.size());
      bytes = {copy, bytes.size()};
      copy += ring::align_tensor(bytes.size());
    }
    received.tensors.push_back(bytes);
  }
  return received;
}

}  // namespace stoker::feed
