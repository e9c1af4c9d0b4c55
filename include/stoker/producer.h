// Fills batches of a running stokerd (`feed.producers: external` or `both`) from a program of your
// own, through the ring: shared memory in which a ticket is both the number of a batch and the
// permission to fill one, so that a slow trainer slows down its producers.
//
//   #include <stoker/producer.h>
//
//   auto producer = stoker::producer::attach("runs/demo");
//   if (!producer) return fail(producer.error().message);
//   auto input = producer->tensor<float>("input", {3, 32, 32});
//   auto label = producer->tensor<std::int64_t>("label", {});
//   if (!input || !label) …
//   while (auto batch = producer->claim(std::chrono::hours(1))) {
//     for (std::uint64_t row = 0; row < batch->size(); ++row) {
//       read_sample(batch->row(*input, row), batch->row(*label, row)[0]);
//       batch->add_completed_samples(1);
//     }
//     if (!batch->publish()) …  // stokerd has taken the ticket away
//   }
//   // The error of the last claim() says whether the data has ended or another attach() is needed.
//
// Needs Boost.Interprocess (headers), C++20 (with libc++: version 20) and Linux on x86-64 or aarch64
// (for which it was only compiled); nothing else of stoker. A complete program:
// docs/examples/ring_producer.cc. The protocol that it follows: docs/ring-layout.md,
// docs/control-protocol.md#attach.
//
// Threads:   every method of Producer may be called from any thread; a Batch is used by one thread
//            at a time, and several can be filled at the same time.
// Blocking:  attach() and claim() wait at most `timeout`; report_sample_error() at most one second,
//            while the queue of reports is full. Nothing else waits.
// Ownership: Producer and Batch share the mapping, which ends with the last of them. A Batch that
//            is not published returns its ticket when it is destroyed.
// Processes: the attached process is the producer. A forked child must attach itself: claim() fails
//            there, and a Batch inherited from its parent publishes and returns nothing.
// Errors:    values (Result), because most are expected in a producer's loop: a timeout, the end
//            of the data, a stokerd that exits. Each has a code to branch on and one line: where,
//            what is wrong, what to do. Exceptions are thrown only for errors of the calling
//            program: std::out_of_range for a row beyond the batch, std::logic_error for a batch
//            that was published or a tensor of another ring, std::bad_variant_access for the value
//            of a failed Result; and std::bad_alloc.
// Trust:     the daemon and every other producer can write to the ring. The constant part is copied
//            and checked before it is used; no later value in it leads to an access outside of the
//            mapping.
// Crash:     when the process exits for any reason, stokerd gives its tickets to other producers. If
//            stokerd crashes, claim() returns kClosed.
// Format:    ring version 2.
#pragma once

#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "stoker/producer.h supports Linux on x86-64 and aarch64"
#endif

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>

namespace stoker::producer {

inline constexpr std::uint32_t kRingVersion = 2;

// ---- Errors

enum class ErrorCode {
  kTimedOut,         // no ticket or no reply in time; try again
  kEnded,            // every ticket of the run is filled; exit
  kClosed,           // stokerd stops, has exited, or has opened another ring: attach again, or exit
  kDetached,         // stokerd has removed this producer, which made no progress; attach again
  kBusy,             // stokerd starts, or a limit is reached; try again later
  kUnreachable,      // no stokerd listens there, or the connection failed
  kRejected,         // stokerd, or a check of it, forbids to attach; the message has the reason
  kMismatch,         // not a ring, or one of another version
  kInvalidArgument,  // no such tensor, another element type or shape, or a forked process
};

struct Error {
  ErrorCode code;
  std::string message;
};

// A value or an Error. Access to the one that it does not have throws std::bad_variant_access.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : content_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return content_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& operator*() & { return std::get<0>(content_); }
  const T& operator*() const& { return std::get<0>(content_); }
  T&& operator*() && { return std::get<0>(std::move(content_)); }
  T* operator->() { return &std::get<0>(content_); }
  const T* operator->() const { return &std::get<0>(content_); }
  const Error& error() const { return std::get<1>(content_); }

 private:
  std::variant<T, Error> content_;
};

// ---- Tensors

// As in the tensor table of the ring.
enum class DType : std::uint32_t {
  kU8 = 1,
  kU16 = 2,
  kI32 = 3,
  kI64 = 4,
  kF16 = 5,
  kBF16 = 6,
  kF32 = 7,
  kF64 = 8,
  kBool = 9,
  kI8 = 10,
  kI16 = 11,
};

inline std::string_view to_string(DType dtype) {
  constexpr std::array<std::string_view, 12> kNames = {"?",    "U8",  "U16", "I32",  "I64", "F16",
                                                       "BF16", "F32", "F64", "BOOL", "I8",  "I16"};
  const auto number = static_cast<std::size_t>(dtype);
  return kNames[number < kNames.size() ? number : 0];
}

struct TensorInfo {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<std::int64_t> shape;  // of one sample, outermost first; empty for a scalar
  std::size_t row_bytes = 0;        // of one sample
  std::size_t offset = 0;           // of row 0 in a slot
};

// Code of a sample that could not be read (docs/ring-layout.md, Error report queue).
enum class SampleError : std::uint32_t { kNotFound = 2, kCorrupt = 7, kIoError = 9 };

namespace internal {

// ---- Layout of the segment: docs/ring-layout.md

static_assert(std::endian::native == std::endian::little, "the ring's format is little-endian");
static_assert(sizeof(std::size_t) == 8, "a ring can exceed 4 GiB");
static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic_ref<std::uint32_t>::is_always_lock_free);

inline constexpr std::uint64_t kMagic = 0x474e49524b4f5453;  // "STOKRING"
inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::size_t kPayloadAlignment = 4096;
inline constexpr std::uint32_t kMaxTensors = 64;
inline constexpr std::uint32_t kMaxRank = 8;
inline constexpr std::size_t kMaxNameBytes = 31;
inline constexpr std::uint64_t kMaxSlots = 1 << 16;
inline constexpr std::uint64_t kMaxSegmentBytes = std::uint64_t{1} << 46;
inline constexpr std::uint64_t kMaxTicket = std::uint64_t{1} << 60;
inline constexpr std::uint32_t kProducers = 64;
inline constexpr std::uint32_t kMaxGeneration = (1u << 20) - 1;
inline constexpr std::uint32_t kReports = 256;
inline constexpr std::size_t kReasonBytes = 200;

struct EventWords {
  std::uint32_t epoch;
  std::uint32_t waiters;
};

struct RingHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t segment_bytes;
  std::uint64_t slots;
  std::uint64_t batch;
  std::uint64_t slot_bytes;
  std::uint64_t slot_stride;
  std::uint64_t first_ticket;
  std::uint64_t end_ticket;
  std::uint32_t tensors;
  std::uint32_t producers;
  std::uint32_t reports;
  std::uint32_t reserved0;
  std::uint64_t tensor_table;
  std::uint64_t slot_table;
  std::uint64_t producer_table;
  std::uint64_t report_table;
  std::uint64_t payload;
  // Up to here constant. All of the following are atomic, in separate cache lines.
  std::uint64_t next_ticket;
  std::uint64_t pad0[7];
  EventWords slot_freed;
  std::uint64_t pad1[7];
  EventWords batch_ready;
  std::uint64_t pad2[7];
  std::uint32_t closed;
  std::uint32_t pad3[15];
  std::uint64_t requeued;
  std::uint64_t sample_errors;
  std::uint64_t lost_reports;
  std::uint64_t next_report;
  std::uint64_t pad4[4];
};

struct TensorRecord {
  char name[kMaxNameBytes + 1];
  std::uint32_t dtype;
  std::uint32_t rank;
  std::int64_t shape[kMaxRank];
  std::uint64_t offset;
  std::uint64_t row_bytes;
  std::uint64_t reserved;
};

struct SlotRecord {
  std::uint64_t word;
  std::uint64_t reserved[7];
};

struct ProducerRecord {
  std::uint64_t word;
  std::int32_t pid;
  std::uint32_t waiting;
  char name[24];
  std::uint64_t polls;
  std::uint64_t published;
  std::uint64_t samples;
};

struct ReportRecord {
  std::uint64_t word;
  std::uint64_t ticket;
  std::uint64_t sample;
  std::uint32_t code;
  std::uint32_t length;
  char reason[kReasonBytes];
  std::uint64_t reserved[3];
};

static_assert(sizeof(RingHeader) == 448 && sizeof(TensorRecord) == 128 &&
              sizeof(SlotRecord) == 64 && sizeof(ProducerRecord) == 64 &&
              sizeof(ReportRecord) == 256);
static_assert(offsetof(RingHeader, next_ticket) == 128 && offsetof(RingHeader, slot_freed) == 192 &&
              offsetof(RingHeader, batch_ready) == 256 && offsetof(RingHeader, closed) == 320 &&
              offsetof(RingHeader, requeued) == 384);

enum class Phase : std::uint64_t { kFree = 1, kClaimed = 2, kReady = 3, kInUse = 4, kRequeued = 5 };
enum class RowState : std::uint64_t { kFree = 0, kAlive = 1, kRetired = 2 };
enum class ReportPhase : std::uint64_t { kFree = 0, kWriting = 1, kComplete = 2 };

struct ProducerId {
  std::uint32_t index = 0;  // row of the producer table
  std::uint32_t generation = 0;
};

constexpr std::uint64_t slot_word(Phase phase, std::uint64_t turn, ProducerId owner = {}) {
  return turn << 32 | std::uint64_t{owner.generation} << 12 | std::uint64_t{owner.index} << 4 |
         static_cast<std::uint64_t>(phase);
}
constexpr std::uint64_t row_word(std::uint32_t generation, RowState state) {
  return std::uint64_t{generation} << 32 | static_cast<std::uint64_t>(state);
}
constexpr std::uint64_t report_word(std::uint64_t value, ReportPhase phase) {
  return value << 4 | static_cast<std::uint64_t>(phase);
}

// Sequentially consistent, unless the caller gives another order.
template <typename Word>
std::atomic_ref<Word> atomic(Word& word) {
  return std::atomic_ref<Word>(word);
}

// What is constant in a ring, copied and checked.
struct Layout {
  std::uint64_t slots = 0;
  std::uint64_t batch = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t slot_stride = 0;
  std::uint64_t end_ticket = 0;
  std::uint64_t slot_table = 0;
  std::uint64_t producer_table = 0;
  std::uint64_t report_table = 0;
  std::uint64_t payload = 0;
  std::vector<TensorInfo> tensors;
};

constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

inline std::string number(std::uint64_t value) { return std::to_string(value); }
// "OPERATION: text of errno"
inline std::string errno_text(std::string_view operation, int error) {
  return std::string(operation) + ": " + std::generic_category().message(error);
}
inline Error not_a_ring(std::string_view where, const std::string& reason) {
  return {ErrorCode::kMismatch, std::string(where) + ": not a ring of version " +
                                    number(kRingVersion) + ": " + reason +
                                    "; attach to the control socket of a running stokerd"};
}
inline Error other_version(std::string_view where, std::uint64_t version) {
  return {ErrorCode::kMismatch,
          std::string(where) + ": the ring has version " + number(version) +
              ", stoker/producer.h of this program has version " + number(kRingVersion) +
              "; recompile it with the header that is installed with that stokerd"};
}

inline std::size_t element_bytes(DType dtype) {
  switch (dtype) {
    case DType::kU8:
    case DType::kI8:
    case DType::kBool:
      return 1;
    case DType::kU16:
    case DType::kI16:
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI32:
    case DType::kF32:
      return 4;
    case DType::kI64:
    case DType::kF64:
      return 8;
  }
  return 0;
}

// Whether elements of this type are stored as T. There is no standard type for F16 and BF16: their
// bits are a std::uint16_t. std::byte gives the bytes of any type.
template <typename T>
constexpr bool stores(DType dtype) {
  if (std::is_same_v<T, std::byte>) return true;
  switch (dtype) {
    case DType::kU8:
      return std::is_same_v<T, std::uint8_t>;
    case DType::kI8:
      return std::is_same_v<T, std::int8_t>;
    case DType::kBool:
      return std::is_same_v<T, bool>;
    case DType::kU16:
    case DType::kF16:
    case DType::kBF16:
      return std::is_same_v<T, std::uint16_t>;
    case DType::kI16:
      return std::is_same_v<T, std::int16_t>;
    case DType::kI32:
      return std::is_same_v<T, std::int32_t>;
    case DType::kI64:
      return std::is_same_v<T, std::int64_t>;
    case DType::kF32:
      return std::is_same_v<T, float>;
    case DType::kF64:
      return std::is_same_v<T, double>;
  }
  return false;
}

// "[3, 32, 32]"
inline std::string format_shape(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

// ---- Checks of the segment

// The tensor of a record whose rows start at `offset`; advances `offset` to the end of its rows.
inline Result<TensorInfo> read_tensor(const TensorRecord& record, std::uint64_t batch,
                                      std::uint64_t& offset, std::string_view where) {
  const std::size_t length = ::strnlen(record.name, sizeof record.name);
  if (length < 1 || length > kMaxNameBytes) return not_a_ring(where, "name of a tensor");
  TensorInfo info{.name = std::string(record.name, length),
                  .dtype = static_cast<DType>(record.dtype),
                  .shape = {},
                  .row_bytes = element_bytes(static_cast<DType>(record.dtype)),
                  .offset = offset};
  const auto wrong = [&](const std::string& what) {
    return not_a_ring(where, what + " of tensor '" + info.name + "'");
  };
  if (info.row_bytes == 0) return wrong("element type " + number(record.dtype));
  if (record.rank > kMaxRank) return wrong(number(record.rank) + " dimensions");
  std::uint64_t row_bytes = info.row_bytes;
  for (std::uint32_t i = 0; i < record.rank; ++i) {
    const std::int64_t size = record.shape[i];
    if (size < 1 || __builtin_mul_overflow(row_bytes, static_cast<std::uint64_t>(size), &row_bytes))
      return wrong("shape");
    info.shape.push_back(size);
  }
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(row_bytes, batch, &bytes) || bytes > kMaxSegmentBytes ||
      offset > kMaxSegmentBytes)
    return wrong("size");
  // Nothing else in it: no bytes behind the name, no unused sizes.
  TensorRecord expected{};
  std::memcpy(expected.name, info.name.data(), length);
  expected.dtype = record.dtype;
  expected.rank = record.rank;
  std::copy(info.shape.begin(), info.shape.end(), expected.shape);
  expected.offset = offset;
  expected.row_bytes = row_bytes;
  if (std::memcmp(&record, &expected, sizeof record) != 0) return wrong("position");
  info.row_bytes = row_bytes;
  offset = align_up(offset + bytes, kCacheLine);
  return info;
}

// Computes every position again from the numbers of slots, rows and tensors, so that no offset in
// the segment is trusted.
inline Result<Layout> read_layout(std::span<std::byte> segment, std::string_view where) {
  RingHeader header;
  if (segment.size() < sizeof header) return not_a_ring(where, number(segment.size()) + " bytes");
  auto& shared = *reinterpret_cast<RingHeader*>(segment.data());
  // Acquire: all constant fields were stored before it.
  if (atomic(shared.magic).load(std::memory_order_acquire) != kMagic)
    return not_a_ring(where, "it does not start with STOKRING");
  std::memcpy(&header, segment.data(), sizeof header);
  if (header.version != kRingVersion) return other_version(where, header.version);
  if (header.segment_bytes != segment.size())
    return not_a_ring(where,
                      number(segment.size()) + " bytes instead of " + number(header.segment_bytes));
  if (header.tensors < 1 || header.tensors > kMaxTensors)
    return not_a_ring(where, number(header.tensors) + " tensors");
  if (header.slots < 1 || header.slots > kMaxSlots)
    return not_a_ring(where, number(header.slots) + " slots");
  if (header.batch < 1) return not_a_ring(where, "batches without rows");
  if (header.first_ticket >= kMaxTicket || header.end_ticket > kMaxTicket)
    return not_a_ring(where, "number of a ticket");

  Layout layout{.slots = header.slots,
                .batch = header.batch,
                .slot_bytes = 0,
                .slot_stride = 0,
                .end_ticket = header.end_ticket,
                .slot_table = sizeof(RingHeader) + header.tensors * sizeof(TensorRecord),
                .producer_table = 0,
                .report_table = 0,
                .payload = 0,
                .tensors = {}};
  layout.producer_table = layout.slot_table + layout.slots * sizeof(SlotRecord);
  layout.report_table = layout.producer_table + kProducers * sizeof(ProducerRecord);
  layout.payload =
      align_up(layout.report_table + kReports * sizeof(ReportRecord), kPayloadAlignment);
  if (layout.payload > segment.size()) return not_a_ring(where, "the tables exceed its size");
  for (std::uint32_t i = 0; i < header.tensors; ++i) {
    TensorRecord record;
    std::memcpy(&record, segment.data() + sizeof(RingHeader) + i * sizeof record, sizeof record);
    auto info = read_tensor(record, layout.batch, layout.slot_bytes, where);
    if (!info) return info.error();
    layout.tensors.push_back(*std::move(info));
  }
  layout.slot_stride = align_up(layout.slot_bytes, kCacheLine);
  // Neither product nor sum overflows: at most 64 tensors of at most kMaxSegmentBytes.
  if (layout.slot_stride > kMaxSegmentBytes / layout.slots ||
      align_up(layout.payload + layout.slots * layout.slot_stride, kPayloadAlignment) !=
          segment.size())
    return not_a_ring(where, "the slots do not match its size");
  if (header.header_bytes != sizeof(RingHeader) || header.producers != kProducers ||
      header.reports != kReports || header.reserved0 != 0 ||
      header.tensor_table != sizeof(RingHeader) || header.slot_table != layout.slot_table ||
      header.producer_table != layout.producer_table ||
      header.report_table != layout.report_table || header.payload != layout.payload ||
      header.slot_bytes != layout.slot_bytes || header.slot_stride != layout.slot_stride)
    return not_a_ring(where, "positions of the tables");
  return layout;
}

// ---- Descriptors and the control socket

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_;
};

using Clock = std::chrono::steady_clock;

// `timeout` from now, however long.
inline Clock::time_point deadline_after(std::chrono::nanoseconds timeout) {
  const auto now = Clock::now();
  return now + std::min<std::chrono::nanoseconds>(timeout, Clock::time_point::max() - now);
}

// Reads the few members of the daemon's replies that are used. Rejects what is not JSON, deeper
// than 32 levels or not the expected type; no input leads to an access outside of the text.
class JsonReader {
 public:
  // The text of a member of an object; nullopt if it has none.
  static std::optional<std::string_view> member(std::string_view object, std::string_view name) {
    JsonReader reader(object);
    if (!reader.take('{')) return std::nullopt;
    do {
      const auto key = reader.read_string();
      if (!key || !reader.take(':')) return std::nullopt;
      reader.skip_blanks();
      const std::size_t start = reader.at_;
      if (!reader.skip_value(0)) return std::nullopt;
      if (*key == name) return object.substr(start, reader.at_ - start);
    } while (reader.take(','));
    return std::nullopt;
  }
  template <typename Number>
  static std::optional<Number> number(std::optional<std::string_view> text) {
    Number value = 0;
    if (!text) return std::nullopt;
    const char* const end = text->data() + text->size();
    const auto parsed = std::from_chars(text->data(), end, value);
    if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
    return value;
  }
  static std::optional<std::string> string(std::optional<std::string_view> text) {
    if (!text) return std::nullopt;
    return JsonReader(*text).read_string();
  }

 private:
  static constexpr int kMaxDepth = 32;

  explicit JsonReader(std::string_view text) : text_(text) {}

  void skip_blanks() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) ++at_;
  }
  bool take(char expected) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != expected) return false;
    ++at_;
    return true;
  }
  // Control characters, also escaped ones, become blanks, so that a message remains one line;
  // other characters above 0x7f that are escaped become '?'.
  std::optional<std::string> read_string() {
    if (!take('"')) return std::nullopt;
    std::string value;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '"') return value;
      const auto decoded = c == '\\' ? read_escape() : std::optional<char>(c);
      if (!decoded) return std::nullopt;
      const auto code = static_cast<unsigned char>(*decoded);
      value += code < 0x20 || code == 0x7f ? ' ' : *decoded;
    }
    return std::nullopt;
  }
  std::optional<char> read_escape() {
    if (at_ >= text_.size()) return std::nullopt;
    const char c = text_[at_++];
    if (c == '"' || c == '\\' || c == '/') return c;
    if (std::string_view("bfnrt").find(c) != std::string_view::npos) return ' ';
    if (c != 'u' || text_.size() - at_ < 4) return std::nullopt;
    unsigned code = 0;
    const char* const end = text_.data() + at_ + 4;
    const auto parsed = std::from_chars(text_.data() + at_, end, code, 16);
    if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
    at_ += 4;
    return code < 0x80 ? static_cast<char>(code) : '?';
  }
  bool skip_value(int depth) {
    skip_blanks();
    if (at_ >= text_.size() || depth > kMaxDepth) return false;
    const char c = text_[at_];
    if (c == '"') return read_string().has_value();
    if (c == '{' || c == '[') return skip_container(c == '{', depth);
    const std::size_t start = at_;
    while (at_ < text_.size() && std::string_view("+-.").find(text_[at_]) != text_.npos) ++at_;
    while (at_ < text_.size() && is_literal(text_[at_])) ++at_;
    return at_ > start;
  }
  bool skip_container(bool is_object, int depth) {
    const char end = is_object ? '}' : ']';
    ++at_;
    if (take(end)) return true;
    do {
      if (is_object && !(read_string() && take(':'))) return false;
      if (!skip_value(depth + 1)) return false;
    } while (take(','));
    return take(end);
  }
  static bool is_literal(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '+' || c == '-';
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

// A connection to the control socket of stokerd.
class Connection {
 public:
  // `path`: a run directory or a socket.
  static Result<Connection> open(const std::string& path, Clock::time_point deadline) {
    Connection connection;
    struct stat found {};
    if (::stat(path.c_str(), &found) != 0)
      return unreachable(errno_text(path, errno) +
                         "; give the directory or the control socket of an active run");
    connection.is_run_dir_ = S_ISDIR(found.st_mode);
    connection.run_dir_id_ = number(found.st_dev) + ":" + number(found.st_ino);
    connection.path_ = connection.is_run_dir_ ? path + "/control.sock" : path;
    if (auto failed = connection.connect(deadline)) return *failed;
    if (auto failed = connection.check_peer()) return *failed;
    if (connection.is_run_dir_)
      if (auto failed = connection.check_run(deadline)) return *failed;
    return connection;
  }

  // The result of the request, and the descriptor that came with the reply.
  struct Reply {
    std::string result;
    Fd descriptor;
  };
  Result<Reply> request(std::string_view method, Clock::time_point deadline) {
    const std::string line = R"({"id":1,"method":")" + std::string(method) + "\"}\n";
    const ssize_t sent = ::send(socket_.get(), line.data(), line.size(), MSG_NOSIGNAL);
    // A daemon that rejects the connection writes the reason before it closes.
    const int send_error = sent == static_cast<ssize_t>(line.size()) ? 0 : sent < 0 ? errno : EPIPE;
    Reply reply;
    auto text = read_line(reply.descriptor, deadline);
    if (!text) return send_error == 0 ? text.error() : unreachable(errno_text(path_, send_error));
    if (const auto failure = JsonReader::member(*text, "error")) return rejected(*failure);
    const auto result = JsonReader::member(*text, "result");
    if (!result)
      return unreachable(path_ + ": the reply to '" + std::string(method) +
                         "' is not of the control protocol; is another program listening?");
    reply.result = *result;
    return reply;
  }

  const std::string& path() const { return path_; }
  Fd take_process() { return std::move(process_); }  // pidfd of the daemon; invalid if unknown

 private:
  static constexpr std::size_t kMaxReplyBytes = 1 << 20;

  static Error unreachable(std::string message) {
    return {ErrorCode::kUnreachable, std::move(message)};
  }
  Error rejected(std::string_view error) const {
    const auto data = JsonReader::member(error, "data");
    const auto kind =
        data ? JsonReader::string(JsonReader::member(*data, "kind")) : std::optional<std::string>();
    const auto message = JsonReader::string(JsonReader::member(error, "message"));
    const ErrorCode code = kind == "busy"        ? ErrorCode::kBusy
                           : kind == "closed"    ? ErrorCode::kClosed
                           : kind == "timed out" ? ErrorCode::kTimedOut
                                                 : ErrorCode::kRejected;
    return {code, path_ + ": " + message.value_or("rejected without a message")};
  }

  std::optional<Error> connect(Clock::time_point deadline) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::string name = path_;
    Fd directory;
    if (name.size() >= sizeof address.sun_path) {  // reached through a descriptor of its directory
      const std::size_t slash = name.rfind('/');
      directory = Fd(::open(slash == 0 ? "/" : name.substr(0, slash).c_str(),
                            O_PATH | O_DIRECTORY | O_CLOEXEC));
      if (slash == name.npos || !directory.valid())
        return unreachable(errno_text(path_, ENAMETOOLONG) + "; use a relative path");
      name = "/proc/self/fd/" + std::to_string(directory.get()) + name.substr(slash);
      if (name.size() >= sizeof address.sun_path)
        return unreachable(errno_text(path_, ENAMETOOLONG) + "; use a shorter control.socket");
    }
    std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
    socket_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket_.valid()) return unreachable(errno_text("create a socket", errno));
    // Also limits connect(), which waits while the daemon's backlog is full.
    const auto remaining =
        std::chrono::duration_cast<std::chrono::microseconds>(std::clamp<std::chrono::nanoseconds>(
            deadline - Clock::now(), std::chrono::milliseconds(1), std::chrono::hours(1)));
    const timeval limit{.tv_sec = remaining.count() / 1'000'000,
                        .tv_usec = remaining.count() % 1'000'000};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    int result = 0;
    do {
      result =
          ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    } while (result != 0 && errno == EINTR);
    if (result == 0) return std::nullopt;
    const int error = errno;
    if (error == EAGAIN)
      return Error{ErrorCode::kTimedOut, path_ + ": too many clients are waiting; try again"};
    return unreachable(errno_text(path_, error) + "; is stokerd running?");
  }

  // Another user who can listen there would receive the samples.
  std::optional<Error> check_peer() {
    ucred peer{};
    socklen_t length = sizeof peer;
    struct stat directory {};
    const std::size_t slash = path_.rfind('/');
    const std::string parent = slash == path_.npos ? "." : path_.substr(0, slash + 1);
    if (::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 ||
        ::stat(parent.c_str(), &directory) != 0)
      return unreachable(errno_text(path_, errno) + ", of the listening process");
    const uid_t self = ::geteuid();
    if (self != 0 && peer.uid != 0 && peer.uid != self && peer.uid != directory.st_uid)
      return Error{ErrorCode::kRejected,
                   path_ + ": the listening process belongs to uid " + number(peer.uid) +
                       ", not to root, this user or the owner of its directory; no data is sent"};
    // 0: in another PID namespace. Linux before 5.3 has no pidfd.
    if (peer.pid > 0) process_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
    return std::nullopt;
  }

  // The symlink of a crashed run can point to a socket that another run uses now.
  std::optional<Error> check_run(Clock::time_point deadline) {
    auto reply = request("hello", deadline);
    if (!reply) return reply.error();
    const auto id = JsonReader::string(JsonReader::member(reply->result, "run_dir_id"));
    if (id == run_dir_id_) return std::nullopt;
    return Error{ErrorCode::kRejected,
                 path_ + ": belongs to the stokerd of another run, " +
                     JsonReader::string(JsonReader::member(reply->result, "run_dir"))
                         .value_or("which it does not name") +
                     "; start the run, or give the socket to attach to that one"};
  }

  // One line, without its newline. A descriptor that comes with it is stored in `descriptor`.
  Result<std::string> read_line(Fd& descriptor, Clock::time_point deadline) {
    std::string line;
    while (line.find('\n') == line.npos) {
      if (line.size() > kMaxReplyBytes)
        return unreachable(path_ + ": a reply of more than 1 MiB; is another program listening?");
      const auto remaining =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
      pollfd readable{.fd = socket_.get(), .events = POLLIN, .revents = 0};
      const int ready =
          remaining <= 0 ? 0
                         : ::poll(&readable, 1,
                                  static_cast<int>(std::min<std::int64_t>(remaining, 1'000'000)));
      if (ready < 0 && errno != EINTR) return unreachable(errno_text(path_, errno));
      if (ready <= 0 && Clock::now() >= deadline)
        return Error{ErrorCode::kTimedOut, path_ + ": stokerd did not reply in time; try again"};
      if (ready <= 0) continue;
      if (auto failed = receive(line, descriptor)) return *failed;
    }
    line.erase(line.find('\n'));
    return line;
  }
  std::optional<Error> receive(std::string& line, Fd& descriptor) {
    std::array<char, 16384> bytes;
    // Room for several, so that no descriptor is lost to a truncated message.
    alignas(cmsghdr) std::array<char, CMSG_SPACE(8 * sizeof(int))> control;
    iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t count = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
    if (count < 0) return unreachable(errno_text(path_, errno));
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t length = header->cmsg_len - CMSG_LEN(0);
      for (std::size_t at = 0; at + sizeof(int) <= length; at += sizeof(int)) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + at, sizeof fd);
        descriptor = Fd(fd);  // the last one; others are closed
      }
    }
    if (count == 0) return unreachable(path_ + ": stokerd closed the connection; try again");
    line.append(bytes.data(), static_cast<std::size_t>(count));
    return std::nullopt;
  }

  std::string path_;
  std::string run_dir_id_;
  bool is_run_dir_ = false;
  Fd socket_;
  Fd process_;
};

// ---- The ring

// The interface that mapped_region requires of a descriptor.
struct Mappable {
  int fd;
  boost::interprocess::mapping_handle_t get_mapping_handle() const {
    boost::interprocess::mapping_handle_t handle{};
    handle.handle = fd;
    return handle;
  }
};

inline Result<boost::interprocess::mapped_region> map_segment(const Fd& fd,
                                                              std::string_view where) {
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0)
    return not_a_ring(where, "the reply has no descriptor");
  // Without the seals another process could shrink it: SIGBUS.
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (!S_ISREG(info.st_mode) || seals < 0 || (seals & kNeeded) != kNeeded)
    return not_a_ring(where, "its memory is not sealed");
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  if (bytes < sizeof(RingHeader)) return not_a_ring(where, number(bytes) + " bytes");
  try {
    return boost::interprocess::mapped_region(Mappable{fd.get()}, boost::interprocess::read_write,
                                              0, bytes);
  } catch (const boost::interprocess::interprocess_exception& error) {
    return Error{ErrorCode::kMismatch, std::string(where) + ": map " + number(bytes) +
                                           " bytes: " + error.what() +
                                           "; is the address space limited (ulimit -v)?"};
  }
}

// The mapped segment and this process's row in it. Operations: docs/ring-layout.md.
//
// Threads:  any.
// Blocking: wait_for_slot() at most `timeout` and 100 ms; report() at most one second.
class Ring {
 public:
  Ring(boost::interprocess::mapped_region region, Layout layout, ProducerId id, Fd daemon)
      : region_(std::move(region)),
        layout_(std::make_shared<const Layout>(std::move(layout))),
        id_(id),
        process_(::getpid()),
        daemon_(std::move(daemon)),
        header_(*static_cast<RingHeader*>(region_.get_address())),
        row_(table<ProducerRecord>(layout_->producer_table)[id.index]) {}

  const std::shared_ptr<const Layout>& layout() const { return layout_; }

  // A claimed ticket, an error, or nullopt: none is available now.
  std::optional<Result<std::uint64_t>> poll_ticket() {
    if (atomic(header_.closed).load() != 0)
      return Error{ErrorCode::kClosed, "the ring is closed: stokerd stops or opens another one"};
    if (!is_alive()) return detached();
    atomic(row_.polls).fetch_add(1, std::memory_order_relaxed);
    const std::uint64_t next = atomic(header_.next_ticket).load();
    if (next > kMaxTicket) return std::nullopt;  // overwritten, which stokerd reports
    const std::uint64_t limit = std::min(next + layout_->slots, layout_->end_ticket);
    bool is_filled = limit == layout_->end_ticket;
    for (std::uint64_t ticket = next; ticket < limit; ++ticket) {
      const auto word = word_of(ticket);
      std::uint64_t seen = word.load();
      while (seen == slot_word(Phase::kFree, turn_of(ticket)) ||
             seen == slot_word(Phase::kRequeued, turn_of(ticket))) {
        if (!word.compare_exchange_strong(seen, claimed_word(ticket))) continue;
        // Either stokerd, which removed this producer, saw the claim, or this sees the removal.
        if (is_alive()) return ticket;
        abandon(ticket);
        return detached();
      }
      is_filled = is_filled && seen == slot_word(Phase::kReady, turn_of(ticket));
    }
    if (is_filled) return Error{ErrorCode::kEnded, "end of data: all batches are filled"};
    return std::nullopt;
  }

  // Polls after it has counted itself as a waiter; sleeps only if that finds nothing.
  std::optional<Result<std::uint64_t>> wait_for_slot(std::chrono::nanoseconds timeout) {
    // In this order, so that a kill in between leaves the count of the event too high, which is
    // harmless, and not too low.
    atomic(header_.slot_freed.waiters).fetch_add(1);
    const std::uint32_t epoch = atomic(header_.slot_freed.epoch).load();
    atomic(row_.waiting).fetch_add(1);
    auto found = poll_ticket();
    if (!found) {
      const auto limit = std::clamp<std::chrono::nanoseconds>(timeout, std::chrono::nanoseconds(1),
                                                              std::chrono::milliseconds(100));
      const timespec relative{.tv_sec = 0, .tv_nsec = limit.count()};
      // Not FUTEX_WAIT_PRIVATE, which std::atomic::wait uses: the wake comes from another process.
      ::syscall(SYS_futex, &header_.slot_freed.epoch, FUTEX_WAIT, epoch, &relative, nullptr, 0);
    }
    atomic(row_.waiting).fetch_sub(1);
    atomic(header_.slot_freed.waiters).fetch_sub(1);
    return found;
  }

  bool publish(std::uint64_t ticket) {
    if (!is_attached_process()) return false;
    std::uint64_t expected = claimed_word(ticket);
    // The consumer that sees the word also sees the bytes of the slot.
    if (!word_of(ticket).compare_exchange_strong(expected,
                                                 slot_word(Phase::kReady, turn_of(ticket))))
      return false;
    atomic(row_.published).fetch_add(1, std::memory_order_relaxed);
    // Both sequentially consistent: either this sees that the consumer waits for the ticket, or the
    // consumer sees the batch before it sleeps.
    if (ticket == atomic(header_.next_ticket).load()) notify(header_.batch_ready);
    return true;
  }

  void abandon(std::uint64_t ticket) {
    if (!is_attached_process()) return;
    std::uint64_t expected = claimed_word(ticket);
    if (word_of(ticket).compare_exchange_strong(expected,
                                                slot_word(Phase::kRequeued, turn_of(ticket))))
      notify(header_.slot_freed);
  }

  bool is_claimed(std::uint64_t ticket) const {
    return word_of(ticket).load() == claimed_word(ticket);
  }
  void add_completed_samples(std::uint64_t count) {
    atomic(row_.samples).fetch_add(count, std::memory_order_relaxed);
  }

  void report(std::uint64_t ticket, std::uint64_t sample, SampleError code,
              std::string_view reason) {
    constexpr auto kMaxWait = std::chrono::seconds(1);
    atomic(header_.sample_errors).fetch_add(1, std::memory_order_relaxed);
    const auto deadline = Clock::now() + kMaxWait;
    while (!try_report(ticket, sample, code, reason)) {
      if (atomic(header_.closed).load() != 0) return;
      if (is_drained_.load(std::memory_order_relaxed) && Clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      is_drained_.store(false, std::memory_order_relaxed);
      // Release: who sees it also sees the addition to sample_errors.
      atomic(header_.lost_reports).fetch_add(1, std::memory_order_release);
      return;
    }
    is_drained_.store(true, std::memory_order_relaxed);
  }

  std::byte* slot_of(std::uint64_t ticket) {
    return static_cast<std::byte*>(region_.get_address()) + layout_->payload +
           ticket % layout_->slots * layout_->slot_stride;
  }
  bool is_attached_process() const { return ::getpid() == process_; }
  bool has_daemon_exited() const {
    pollfd exited{.fd = daemon_.get(), .events = POLLIN, .revents = 0};
    return daemon_.valid() && ::poll(&exited, 1, 0) == 1;
  }

 private:
  template <typename Record>
  Record* table(std::uint64_t offset) const {
    return reinterpret_cast<Record*>(static_cast<std::byte*>(region_.get_address()) + offset);
  }
  static Error detached() {
    return {ErrorCode::kDetached,
            "stokerd has removed this producer, which made no progress with its tickets; attach "
            "again"};
  }
  bool is_alive() const {
    return atomic(row_.word).load() == row_word(id_.generation, RowState::kAlive);
  }
  std::uint64_t turn_of(std::uint64_t ticket) const {
    return ticket / layout_->slots % (std::uint64_t{1} << 32);
  }
  std::uint64_t claimed_word(std::uint64_t ticket) const {
    return slot_word(Phase::kClaimed, turn_of(ticket), id_);
  }
  std::atomic_ref<std::uint64_t> word_of(std::uint64_t ticket) const {
    return atomic(table<SlotRecord>(layout_->slot_table)[ticket % layout_->slots].word);
  }
  static void notify(EventWords& event) {
    atomic(event.epoch).fetch_add(1);
    if (atomic(event.waiters).load() > 0)
      ::syscall(SYS_futex, &event.epoch, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  // False if the queue is full.
  bool try_report(std::uint64_t ticket, std::uint64_t sample, SampleError code,
                  std::string_view reason) {
    const std::uint64_t writing = report_word(ticket, ReportPhase::kWriting);
    auto* const reports = table<ReportRecord>(layout_->report_table);
    for (std::size_t i = 0; i < kReports; ++i) {
      ReportRecord& report = reports[i];
      std::uint64_t expected = report_word(0, ReportPhase::kFree);
      if (atomic(report.word).load(std::memory_order_relaxed) != expected ||
          !atomic(report.word)
               .compare_exchange_strong(expected, writing, std::memory_order_acquire,
                                        std::memory_order_relaxed))
        continue;
      report.ticket = ticket;
      report.sample = sample;
      report.code = static_cast<std::uint32_t>(code);
      report.length = static_cast<std::uint32_t>(truncated_length(reason));
      std::memcpy(report.reason, reason.data(), truncated_length(reason));
      const std::uint64_t sequence =
          atomic(header_.next_report).fetch_add(1, std::memory_order_relaxed);
      expected = writing;  // fails if the ticket was taken away: its next owner reports
      atomic(report.word)
          .compare_exchange_strong(expected, report_word(sequence, ReportPhase::kComplete),
                                   std::memory_order_release, std::memory_order_relaxed);
      return true;
    }
    return false;
  }
  // At most kReasonBytes, without a partial UTF-8 character.
  static std::size_t truncated_length(std::string_view reason) {
    if (reason.size() <= kReasonBytes) return reason.size();
    std::size_t length = kReasonBytes;
    while (length > 0 && (static_cast<unsigned char>(reason[length]) & 0xc0) == 0x80) --length;
    return length;
  }

  // Constant after construction.
  const boost::interprocess::mapped_region region_;
  const std::shared_ptr<const Layout> layout_;
  const ProducerId id_;
  const pid_t process_;
  const Fd daemon_;

  // In the segment; atomic.
  RingHeader& header_;
  ProducerRecord& row_;

  // Whether the last report found space. Written by all reporting threads; a hint without order.
  std::atomic<bool> is_drained_{true};
};

}  // namespace internal

// ---- Public interface

// A tensor of the ring, whose elements are stored as T. Of Producer::tensor(); for batches of that
// Producer.
template <typename T>
class Tensor {
 public:
  const TensorInfo& info() const { return *info_; }

 private:
  friend class Producer;
  friend class Batch;
  Tensor(std::shared_ptr<const internal::Layout> layout, const TensorInfo& info)
      : layout_(std::move(layout)), info_(&info) {}

  std::shared_ptr<const internal::Layout> layout_;
  const TensorInfo* info_;  // in *layout_
};

// A claimed ticket and its slot. Fill all rows of all tensors, then publish(). Hold it only as long
// as that takes: the trainer needs the batches in order, and stokerd kills a producer (or detaches
// it, if it may not kill it) that completes no sample for Producer::worker_timeout().
class Batch {
 public:
  Batch(Batch&&) noexcept = default;
  Batch& operator=(Batch&& other) noexcept {
    std::swap(ring_, other.ring_);
    std::swap(ticket_, other.ticket_);
    return *this;
  }
  ~Batch() { abandon(); }

  std::uint64_t ticket() const { return ticket_; }
  std::uint64_t size() const { return ring().layout()->batch; }  // number of rows

  // The elements of one row, to be written; valid until publish() or abandon().
  template <typename T>
  std::span<T> row(const Tensor<T>& tensor, std::uint64_t row) {
    if (row >= size())
      throw std::out_of_range("row " + std::to_string(row) + " of a batch of " +
                              std::to_string(size()));
    return elements(tensor, row, 1);
  }
  // Those of all rows, which are contiguous.
  template <typename T>
  std::span<T> rows(const Tensor<T>& tensor) {
    return elements(tensor, 0, size());
  }

  // The heartbeat: call it for each row, or for a few together.
  void add_completed_samples(std::uint64_t count) { ring().add_completed_samples(count); }
  // For the log and limits of stokerd. The row still must be filled, with another sample. `reason`
  // is truncated to 200 bytes.
  void report_sample_error(std::uint64_t sample, SampleError code, std::string_view reason) {
    ring().report(ticket_, sample, code, reason);
  }
  // False if stokerd has taken the ticket away: do not write to the rows any more. Check it after a
  // pause; publish() decides.
  bool is_claimed() const { return ring_ != nullptr && ring_->is_claimed(ticket_); }

  // Passes the batch to the trainer. False if stokerd has taken the ticket away: another producer
  // fills it, so a sample that exists only once must be stored in the next batch. Either way this
  // object is empty afterwards.
  [[nodiscard]] bool publish() {
    const auto ring = std::exchange(ring_, nullptr);
    return ring != nullptr && ring->publish(ticket_);
  }
  // Returns the ticket, for any producer to claim.
  void abandon() {
    if (const auto ring = std::exchange(ring_, nullptr)) ring->abandon(ticket_);
  }

 private:
  friend class Producer;
  Batch(std::shared_ptr<internal::Ring> ring, std::uint64_t ticket)
      : ring_(std::move(ring)), ticket_(ticket) {}

  internal::Ring& ring() const {
    if (ring_ == nullptr) throw std::logic_error("the batch was published, abandoned or moved");
    return *ring_;
  }
  template <typename T>
  std::span<T> elements(const Tensor<T>& tensor, std::uint64_t row, std::uint64_t count) {
    if (tensor.layout_ != ring().layout())
      throw std::logic_error("tensor '" + tensor.info_->name +
                             "' is of another ring; call tensor() again after attach()");
    const std::size_t bytes = tensor.info_->row_bytes;
    std::byte* const start = ring().slot_of(ticket_) + tensor.info_->offset + row * bytes;
    return {reinterpret_cast<T*>(start), count * bytes / sizeof(T)};
  }

  std::shared_ptr<internal::Ring> ring_;  // null: empty
  std::uint64_t ticket_;
};

// A process that is attached to a ring. Copies are the same producer.
class Producer {
 public:
  // The tensors of a batch, all of which must be filled.
  const std::vector<TensorInfo>& tensors() const { return ring_->layout()->tensors; }
  // kInvalidArgument: no such tensor, not stored as T, or not of this shape of one sample.
  template <typename T>
  Result<Tensor<T>> tensor(std::string_view name) const {
    for (const TensorInfo& info : tensors()) {
      if (info.name != name) continue;
      if (internal::stores<T>(info.dtype)) return Tensor<T>(ring_->layout(), info);
      return wrong_tensor(info, "is not stored as the requested type");
    }
    std::string names;
    for (const TensorInfo& info : tensors()) names += (names.empty() ? "" : ", ") + info.name;
    return Error{ErrorCode::kInvalidArgument, "the ring has no tensor '" + std::string(name) +
                                                  "', only " + names +
                                                  "; configure data.train of the run accordingly"};
  }
  template <typename T>
  Result<Tensor<T>> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const {
    auto found = tensor<T>(name);
    if (found && found->info().shape != shape)
      return wrong_tensor(found->info(), "has not the shape " + internal::format_shape(shape));
    return found;
  }

  std::uint64_t batch_size() const { return ring_->layout()->batch; }
  // feed.worker_timeout_seconds; 0: none.
  std::chrono::nanoseconds worker_timeout() const { return worker_timeout_; }

  // Claims the lowest available ticket. Wait with a short timeout if something else can end the
  // program; a signal does not end the wait. kTimedOut, kEnded, kClosed, kDetached,
  // kInvalidArgument (in a forked process).
  Result<Batch> claim(std::chrono::nanoseconds timeout) {
    if (!ring_->is_attached_process())
      return Error{ErrorCode::kInvalidArgument,
                   "this process was forked from the producer; attach again in it"};
    const auto deadline = internal::deadline_after(timeout);
    auto found = ring_->poll_ticket();
    while (!found) {
      if (ring_->has_daemon_exited())
        return Error{ErrorCode::kClosed, "stokerd has exited; attach again when it is restarted"};
      const auto now = internal::Clock::now();
      if (now >= deadline) return Error{ErrorCode::kTimedOut, "no free slot; try again"};
      found = ring_->wait_for_slot(deadline - now);
      if (!found) found = ring_->poll_ticket();
    }
    if (!*found) return found->error();
    return Batch(ring_, **found);
  }

 private:
  friend Result<Producer> attach(const std::string&, std::chrono::nanoseconds);
  Producer(std::shared_ptr<internal::Ring> ring, std::chrono::nanoseconds worker_timeout)
      : ring_(std::move(ring)), worker_timeout_(worker_timeout) {}

  static Error wrong_tensor(const TensorInfo& info, const std::string& problem) {
    return {ErrorCode::kInvalidArgument, "tensor '" + info.name + "' of the ring, " +
                                             std::string(to_string(info.dtype)) + " " +
                                             internal::format_shape(info.shape) + ", " + problem +
                                             "; change data.train of the run or this program"};
  }

  // Shared, so that a batch stays valid when its producer is replaced after another attach().
  std::shared_ptr<internal::Ring> ring_;
  std::chrono::nanoseconds worker_timeout_;
};

// Attaches this process to the run in a run directory, or to the one that listens on a control
// socket. With a run directory it also checks that the socket is that run's. The process remains a
// producer until it exits, also without a Producer. kTimedOut, kBusy, kClosed, kUnreachable,
// kRejected, kMismatch.
inline Result<Producer> attach(const std::string& run_dir_or_socket,
                               std::chrono::nanoseconds timeout = std::chrono::seconds(10)) {
  using internal::JsonReader;
  const auto deadline = internal::deadline_after(timeout);
  auto connection = internal::Connection::open(run_dir_or_socket, deadline);
  if (!connection) return connection.error();
  const std::string& where = connection->path();
  auto reply = connection->request("attach", deadline);
  if (!reply) return reply.error();
  const auto member = [&](std::string_view name) {
    return JsonReader::number<std::uint64_t>(JsonReader::member(reply->result, name));
  };
  const auto format = member("format"), index = member("producer"),
             generation = member("generation");
  if (format && *format != kRingVersion) return internal::other_version(where, *format);
  if (!index || !generation || *index >= internal::kProducers || *generation < 1 ||
      *generation > internal::kMaxGeneration)
    return internal::not_a_ring(where, "the reply to 'attach' identifies no producer");
  auto region = internal::map_segment(reply->descriptor, where);
  if (!region) return region.error();
  auto layout = internal::read_layout(
      {static_cast<std::byte*>(region->get_address()), region->get_size()}, where);
  if (!layout) return layout.error();
  const auto seconds =
      JsonReader::number<double>(JsonReader::member(reply->result, "timeout_seconds")).value_or(0);
  constexpr double kMaxSeconds = 1e9;
  return Producer(
      std::make_shared<internal::Ring>(
          *std::move(region), *std::move(layout),
          internal::ProducerId{static_cast<std::uint32_t>(*index),
                               static_cast<std::uint32_t>(*generation)},
          connection->take_process()),
      std::chrono::nanoseconds(
          seconds > 0 ? static_cast<std::int64_t>(std::min(seconds, kMaxSeconds) * 1e9) : 0));
}

}  // namespace stoker::producer
