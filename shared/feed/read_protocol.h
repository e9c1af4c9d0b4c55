// read_protocol: the messages between a program and a stoker-feed that reads samples on request
// (sandboxed_dataset.h and feeder/serve_samples.h).
//
// Two channels connect them. A SOCK_SEQPACKET pair carries one ReadRequest per ReadReply; the first
// reply, kReadySerial, comes without a request, when the dataset is open. Shared memory
// (ring/segment.h) holds SharedHeader and then the samples of the last request, in
// the layout of a ring slot.
//
// Neither side trusts the other's sizes. Both processes are of the same build.
//
// Threads: values and pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "shared/base/tensor_spec.h"
#include "shared/data/dataset.h"

namespace stoker::feed {

inline constexpr uint64_t kMaxSamplesPerRequest = 128;
inline constexpr uint64_t kReadySerial = 0;

struct ReadRequest {
  uint64_t serial = 0;  // from 1
  uint64_t length = 0;  // padded length of variable-length sequences; 0: spec() of the dataset
  uint64_t count = 0;   // from 1 to kMaxSamplesPerRequest
  std::array<data::SampleReadRequest, kMaxSamplesPerRequest> samples = {};

  // The message ends after `count` samples.
  size_t bytes() const { return offsetof(ReadRequest, samples) + count * sizeof(samples[0]); }
};

struct ReadReply {
  static constexpr size_t kMaxTextBytes = 1000;

  uint64_t serial = 0;  // of the request
  uint64_t good = 0;    // samples read; the next one has failed unless `code` is kOk
  uint32_t code = 0;    // StatusCode
  uint32_t text_bytes = 0;
  std::array<char, kMaxTextBytes> text = {};  // message of the status
};

ReadReply make_reply(uint64_t serial, const data::BatchReadResult& result);
// nullopt: not a reply to this request for `count` samples. Control characters of the text and
// bytes that are not UTF-8 are replaced.
std::optional<data::BatchReadResult> parse_reply(const ReadReply& reply, uint64_t serial,
                                                 uint64_t count);

struct SharedHeader {
  uint64_t denied_syscall = 0;  // as QuarantineTable::denied_syscall_slot()
  std::array<uint64_t, 7> reserved = {};
};
static_assert(sizeof(SharedHeader) == 64);

// Size of the shared memory for `count` samples.
uint64_t shared_bytes(const std::vector<TensorSpec>& specs, uint64_t count);
// One span per tensor, with its rows of `count` samples. Empty if they do not fit.
std::vector<std::span<std::byte>> locate_samples(std::span<std::byte> memory,
                                                 const std::vector<TensorSpec>& specs,
                                                 uint64_t count);

}  // namespace stoker::feed
