#include "shared/ring/segment_header.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace stoker::ring {
namespace {

constexpr uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

Status invalid(const std::string& what) {
  return Status(StatusCode::kMismatch, "not a ring of this version of stoker: " + what);
}

Status check_tensor(const TensorSpec& spec) {
  const std::string where = "ring: tensor '" + spec.name + "': ";
  if (spec.name.empty() || spec.name.size() > kMaxNameBytes ||
      spec.name.find('\0') != std::string::npos)
    return Status(StatusCode::kInvalidArgument,
                  where + "the name must have 1 to " + std::to_string(kMaxNameBytes) + " bytes");
  if (spec.shape.size() > kMaxRank)
    return Status(StatusCode::kInvalidArgument,
                  where + "more than " + std::to_string(kMaxRank) + " dimensions");
  for (const int64_t extent : spec.shape)
    if (extent < 1)
      return Status(StatusCode::kInvalidArgument, where + "dimension of " + std::to_string(extent));
  return {};
}

Status check_request(const BatchLayout& layout, const RingOptions& options) {
  if (options.slots < 1 || options.slots > kMaxSlots)
    return Status(StatusCode::kInvalidArgument, "ring: " + std::to_string(options.slots) +
                                                    " slots; must be 1 to " +
                                                    std::to_string(kMaxSlots));
  if (options.first_ticket >= kMaxTicket)
    return Status(StatusCode::kInvalidArgument,
                  "ring: first ticket " + std::to_string(options.first_ticket) + " is too large");
  if (!options.share.is_valid())
    return Status(StatusCode::kInvalidArgument,
                  "ring: rank " + std::to_string(options.share.rank) + " of " +
                      std::to_string(options.share.world_size) + " cannot share steps of " +
                      std::to_string(options.share.tickets_per_step) + " micro-batches");
  if (layout.batch() < 1)
    return Status(StatusCode::kInvalidArgument, "ring: a batch must have at least one sample");
  if (layout.sample().empty() || layout.sample().size() > kMaxTensors)
    return Status(StatusCode::kInvalidArgument, "ring: " + std::to_string(layout.sample().size()) +
                                                    " tensors per sample; must be 1 to " +
                                                    std::to_string(kMaxTensors));
  for (const auto& spec : layout.sample()) STOKER_RETURN_IF_ERROR(check_tensor(spec));
  return {};
}

Result<TensorSpec> read_tensor(const TensorRecord& record) {
  const auto dtype = static_cast<DType>(record.dtype);
  if (record.dtype < static_cast<uint32_t>(DType::kU8) ||
      record.dtype > static_cast<uint32_t>(DType::kI16))
    return invalid("element type " + std::to_string(record.dtype));
  if (record.rank > kMaxRank) return invalid(std::to_string(record.rank) + " dimensions");
  TensorSpec spec{.name = std::string(record.name, ::strnlen(record.name, sizeof(record.name))),
                  .dtype = dtype,
                  .shape = {record.shape, record.shape + record.rank}};
  if (const Status status = check_tensor(spec); !status.ok()) return invalid(status.message());
  return spec;
}

std::vector<TensorRecord> describe_tensors(const BatchLayout& layout) {
  std::vector<TensorRecord> records(layout.sample().size());
  for (size_t i = 0; i < records.size(); ++i) {
    const TensorSpec& spec = layout.sample()[i];
    std::memcpy(records[i].name, spec.name.data(), spec.name.size());
    records[i].dtype = static_cast<uint32_t>(spec.dtype);
    records[i].rank = static_cast<uint32_t>(spec.shape.size());
    std::copy(spec.shape.begin(), spec.shape.end(), records[i].shape);
    records[i].offset = layout.offset(i);
    records[i].row_bytes = spec.bytes();
  }
  return records;
}

// The constant part of a header ends at the first atomic field.
constexpr size_t kConstantBytes = offsetof(RingHeader, next_ticket);

}  // namespace

Result<RingHeader> make_header(const BatchLayout& layout, const RingOptions& options) {
  STOKER_RETURN_IF_ERROR(check_request(layout, options));
  RingHeader header{};
  header.magic = kMagic;
  header.version = kVersion;
  header.header_bytes = sizeof(RingHeader);
  header.slots = options.slots;
  header.batch = layout.batch();
  header.slot_bytes = layout.slot_bytes();
  header.first_ticket = options.first_ticket;
  header.end_ticket = std::min(options.end_ticket, kMaxTicket);
  header.tensors = static_cast<uint32_t>(layout.sample().size());
  header.producers = kMaxProducers;
  header.reports = kReports;
  header.tensor_table = sizeof(RingHeader);
  header.slot_table = header.tensor_table + header.tensors * sizeof(TensorRecord);
  header.producer_table = header.slot_table + header.slots * sizeof(SlotRecord);
  header.report_table = header.producer_table + header.producers * sizeof(ProducerRecord);
  header.payload =
      align_up(header.report_table + header.reports * sizeof(ReportRecord), kPayloadAlignment);
  if (layout.slot_bytes() > kMaxSegmentBytes / options.slots)
    return Status(StatusCode::kNoSpace, "ring: " + std::to_string(options.slots) + " slots of " +
                                            std::to_string(layout.batch()) +
                                            " samples exceed the maximum size of a ring; lower "
                                            "feed.prefetch_batches or train.micro_batch_size");
  header.slot_stride = align_up(header.slot_bytes, kCacheLine);
  header.segment_bytes =
      align_up(header.payload + header.slots * header.slot_stride, kPayloadAlignment);
  return header;
}

void initialize_segment(std::span<std::byte> segment, const RingHeader& header,
                        const BatchLayout& layout, uint64_t allocated) {
  const auto tensors = describe_tensors(layout);
  std::memcpy(segment.data() + header.tensor_table, tensors.data(),
              tensors.size() * sizeof(TensorRecord));
  auto* slots = reinterpret_cast<SlotRecord*>(segment.data() + header.slot_table);
  for (uint64_t i = 0; i < header.slots; ++i) {
    const uint64_t ticket = header.first_ticket + i;
    const auto turn = static_cast<uint32_t>(ticket / header.slots);
    slots[ticket % header.slots].word = encode(
        i < allocated ? SlotState{.phase = Phase::kFree, .turn = turn} : unallocated_state(turn));
  }
  RingHeader initial = header;
  initial.magic = 0;
  initial.next_ticket = header.first_ticket;
  std::memcpy(segment.data(), &initial, sizeof(initial));
  std::atomic_ref(reinterpret_cast<RingHeader*>(segment.data())->magic)
      .store(header.magic, std::memory_order_release);
}

Result<SegmentView> read_layout(std::span<const std::byte> segment) {
  RingHeader header{};
  if (segment.size() < sizeof(header))
    return invalid(std::to_string(segment.size()) + " bytes are too few for a header");
  std::memcpy(&header, segment.data(), sizeof(header));
  if (header.magic != kMagic) return invalid("it does not start with STOKRING");
  if (header.version != kVersion)
    return invalid("format version " + std::to_string(header.version));
  if (header.tensors < 1 || header.tensors > kMaxTensors) return invalid("number of tensors");
  if (header.segment_bytes != segment.size()) return invalid("size of the segment");
  const size_t table_bytes = header.tensors * sizeof(TensorRecord);
  if (header.tensor_table != sizeof(RingHeader) ||
      segment.size() - sizeof(RingHeader) < table_bytes)
    return invalid("tensor table");
  std::vector<TensorRecord> records(header.tensors);
  std::memcpy(records.data(), segment.data() + sizeof(RingHeader), table_bytes);
  std::vector<TensorSpec> specs;
  for (const auto& record : records) {
    STOKER_ASSIGN_OR_RETURN(TensorSpec spec, read_tensor(record));
    specs.push_back(std::move(spec));
  }
  // The strictest check is the simplest: the same geometry must yield an identical header and
  // table.
  BatchLayout layout(std::move(specs), header.batch);
  const auto expected = make_header(layout, {.slots = header.slots,
                                             .first_ticket = header.first_ticket,
                                             .end_ticket = header.end_ticket});
  if (!expected.ok()) return invalid(expected.status().message());
  if (std::memcmp(&header, &*expected, kConstantBytes) != 0)
    return invalid("positions of the tables");
  if (std::memcmp(records.data(), describe_tensors(layout).data(), table_bytes) != 0)
    return invalid("positions of the tensors");
  return SegmentView{header, std::move(layout)};
}

}  // namespace stoker::ring
