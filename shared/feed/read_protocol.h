// read_protocol: the messages between a program and a stoker-feed that answers its requests
// (request_worker.h and feeder/serve_requests.h): it reads samples of a dataset, rewrites JPEG files
// or encodes text.
//
// Two channels connect them. A SOCK_SEQPACKET pair carries one ReadRequest, RewriteRequest or
// TokenizeRequest per ReadReply; the first reply, kReadySerial, comes without a request, when the
// process is ready. Shared memory (ring/segment.h) holds SharedHeader and then the samples of the
// last request, in the layout of a ring slot, or the file and then its rewritten bytes, or
// TokenizeResult, the tokens and the text.
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
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/data/dataset.h"
#include "shared/feed/shared_use.h"

namespace stoker::feed {

inline constexpr uint64_t kMaxSamplesPerRequest = 128;
inline constexpr uint64_t kReadySerial = 0;

struct ReadRequest {
  uint64_t serial = 0;  // from 1
  uint64_t length = 0;  // padded length of variable-length sequences; 0: spec() of the dataset
  uint64_t count = 0;   // from 1 to kMaxSamplesPerRequest
  // 1: the samples are not read; the text of the reply is SampleFiles::describe_transforms() of the
  // first one.
  uint64_t describes = 0;
  std::array<data::SampleReadRequest, kMaxSamplesPerRequest> samples = {};

  // The message ends after `count` samples.
  size_t bytes() const { return offsetof(ReadRequest, samples) + count * sizeof(samples[0]); }
};

// Asks for the file with restart markers.
struct RewriteRequest {
  uint64_t serial = 0;
  uint64_t file_bytes = 0;
  uint64_t max_bytes = 0;  // of the result

  size_t bytes() const { return sizeof *this; }
};

// Asks for the tokens of a part of a text (tokenizer::TextEncoder::encode_part).
struct TokenizeRequest {
  uint64_t serial = 0;
  uint64_t text_bytes = 0;
  uint64_t max_ids = 0;
  uint64_t begins_section = 0;
  uint64_t ends_text = 0;
  std::array<char, 64> digest = {};  // of the tokenizer

  size_t bytes() const { return sizeof *this; }
};
struct TokenizeResult {
  uint64_t bytes = 0;           // of the text that the tokens stand for
  uint64_t begins_section = 0;  // of the next part
};

struct ReadReply {
  static constexpr size_t kMaxTextBytes = 1000;

  uint64_t serial = 0;  // of the request
  // Samples read; the next one has failed unless `code` is kOk. Or bytes of the rewritten file; 0:
  // it is not worth it or not possible. Or the number of tokens.
  uint64_t good = 0;
  uint32_t code = 0;  // StatusCode
  uint32_t text_bytes = 0;
  std::array<char, kMaxTextBytes> text = {};  // message of the status, or a description
};

ReadReply make_reply(uint64_t serial, const data::BatchReadResult& result);
// The text of a valid reply; control characters and bytes that are not UTF-8 are replaced.
std::string to_string(const ReadReply& reply);
// nullopt: not a reply to this request for `count` samples. The message is to_string().
std::optional<data::BatchReadResult> parse_reply(const ReadReply& reply, uint64_t serial,
                                                 uint64_t count);

// The bytes of the rewritten file, at most request.max_bytes, or the error.
std::optional<Result<uint64_t>> parse_reply(const ReadReply& reply, const RewriteRequest& request);
// The number of tokens, at most request.max_ids, or the error.
std::optional<Result<uint64_t>> parse_reply(const ReadReply& reply, const TokenizeRequest& request);

struct SharedHeader {
  uint64_t denied_syscall = 0;  // as QuarantineTable::denied_syscall_slot()
  SharedUse use;
  std::array<uint64_t, 3> reserved = {};
};
static_assert(sizeof(SharedHeader) == 64);

// Size of the shared memory for `count` samples.
uint64_t shared_bytes(const std::vector<TensorSpec>& specs, uint64_t count);
// One span per tensor, with its rows of `count` samples. Empty if they do not fit.
std::vector<std::span<std::byte>> locate_samples(std::span<std::byte> memory,
                                                 const std::vector<TensorSpec>& specs,
                                                 uint64_t count);

uint64_t shared_bytes(const RewriteRequest& request);
struct RewriteSpans {
  std::span<std::byte> file;
  std::span<std::byte> rewritten;  // request.max_bytes
};
// nullopt if they do not fit.
std::optional<RewriteSpans> locate_rewrite(std::span<std::byte> memory,
                                           const RewriteRequest& request);

uint64_t shared_bytes(const TokenizeRequest& request);
struct TokenizeSpans {
  TokenizeResult* result = nullptr;
  std::span<int32_t> ids;  // request.max_ids
  std::span<std::byte> text;
};
// nullopt if they do not fit.
std::optional<TokenizeSpans> locate_tokenize(std::span<std::byte> memory,
                                             const TokenizeRequest& request);

}  // namespace stoker::feed
