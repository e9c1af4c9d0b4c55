#include "shared/data/stream/producer_history.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>

namespace stoker::data::stream {
namespace {

struct PartHead {
  uint32_t name_bytes;
  uint32_t bytes;
  uint64_t offset;
};
static_assert(sizeof(PartHead) == 16 && std::is_trivially_copyable_v<PartHead>);

constexpr uint32_t kMaxNameBytes = 256;

uint64_t end_of(const ProducerHistory::Part& part) { return part.at + part.bytes; }

std::vector<std::byte> encode(std::string_view name, uint64_t offset, size_t bytes) {
  const PartHead head{.name_bytes = static_cast<uint32_t>(name.size()),
                      .bytes = static_cast<uint32_t>(bytes),
                      .offset = offset};
  const auto head_bytes = std::as_bytes(std::span(&head, 1));
  const auto name_bytes = std::as_bytes(std::span(name));
  std::vector<std::byte> encoded(head_bytes.begin(), head_bytes.end());
  encoded.insert(encoded.end(), name_bytes.begin(), name_bytes.end());
  return encoded;
}

}  // namespace

std::optional<ProducerHistory::Part> ProducerHistory::part_at(uint64_t at, uint64_t end) const {
  PartHead head;
  if (end - at < sizeof head || !history_.copy(at, std::as_writable_bytes(std::span(&head, 1))))
    return std::nullopt;
  const uint64_t rest = end - at - sizeof head;
  if (head.name_bytes > kMaxNameBytes || head.offset > ByteHistory::kMaxOffset ||
      uint64_t{head.name_bytes} + head.bytes > rest)
    return std::nullopt;
  Part part{.name = std::string(head.name_bytes, '\0'),
            .offset = head.offset,
            .bytes = head.bytes,
            .at = at + sizeof head + head.name_bytes};
  if (!history_.copy(at + sizeof head, std::as_writable_bytes(std::span(part.name))))
    return std::nullopt;
  return part;
}

void ProducerHistory::append(std::string_view name, uint64_t offset,
                             std::span<const std::byte> bytes) const {
  std::vector<std::byte> part = encode(name, offset, bytes.size());
  part.insert(part.end(), bytes.begin(), bytes.end());
  if (part.size() > history_.capacity()) return;
  const ByteHistory::Range held = history_.range();
  uint64_t begin = held.begin;
  while (held.end + part.size() - begin > history_.capacity()) {
    const auto oldest = part_at(begin, held.end);
    begin = oldest ? end_of(*oldest) : held.end;
  }
  history_.discard_before(begin);
  history_.append(part);
}

void ProducerHistory::assign(std::span<const std::byte> parts) const {
  while (parts.size() > history_.capacity()) {
    PartHead head{};
    std::memcpy(&head, parts.data(), std::min(sizeof head, parts.size()));
    const uint64_t bytes = sizeof head + uint64_t{head.name_bytes} + head.bytes;
    parts = parts.subspan(std::min<uint64_t>(bytes, parts.size()));
  }
  history_.assign(0, parts, parts.size());
}

std::vector<std::byte> ProducerHistory::copy_needed(
    const std::function<bool(const Part&)>& is_needed, bool with_ends) const {
  std::vector<std::byte> copy;
  std::map<std::string, uint64_t, std::greater<>> ends;  // kEndOfStream is the last
  const uint64_t end = history_.range().end;
  for (uint64_t at = history_.range().begin; at < end;) {
    const auto part = part_at(at, end);
    if (part && part->bytes == 0) ends[part->name] = part->offset;
    if (part && part->bytes > 0) {  // more was sent
      ends.erase(part->name);
      ends.erase(std::string(kEndOfStream));
    }
    std::vector<std::byte> bytes(part && is_needed(*part) ? part->bytes : 0);
    if (part && history_.copy(part->at, bytes)) {
      if (!bytes.empty()) {
        const auto head = encode(part->name, part->offset, bytes.size());
        copy.insert(copy.end(), head.begin(), head.end());
        copy.insert(copy.end(), bytes.begin(), bytes.end());
      }
      at = end_of(*part);
      continue;
    }
    // Discarded meanwhile, or invalid.
    const uint64_t begin = history_.range().begin;
    if (begin <= at) break;
    at = begin;
  }
  if (!with_ends && !ends.contains(std::string(kEndOfStream))) return copy;
  for (const auto& [name, offset] : ends) {
    const auto head = encode(name, offset, 0);
    copy.insert(copy.end(), head.begin(), head.end());
  }
  return copy;
}

void ProducerHistory::forget_ends() const {
  assign(copy_needed([](const Part& /*part*/) { return true; }));
}

std::map<std::string, std::vector<ProducerHistory::Part>> ProducerHistory::by_name() const {
  std::map<std::string, std::vector<Part>> known;
  const ByteHistory::Range held = history_.range();
  for (uint64_t at = held.begin; at < held.end;) {
    auto part = part_at(at, held.end);
    if (!part) break;
    at = end_of(*part);
    known.erase(std::string(kEndOfStream));  // not the last part
    std::vector<Part>& parts = known[part->name];
    while (!parts.empty() && parts.back().offset >= part->offset) parts.pop_back();
    if (!parts.empty() && parts.back().end() < part->offset) parts.clear();
    if (!parts.empty()) parts.back().bytes = part->offset - parts.back().offset;
    parts.push_back(*std::move(part));
  }
  return known;
}

}  // namespace stoker::data::stream
