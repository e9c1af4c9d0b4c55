#include "shared/feed/read_protocol.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "shared/base/utf8.h"
#include "shared/ring/batch_layout.h"

namespace stoker::feed {
namespace {

static_assert(std::is_trivially_copyable_v<ReadRequest>);
static_assert(std::is_trivially_copyable_v<RewriteRequest>);
static_assert(std::is_trivially_copyable_v<TokenizeRequest>);
static_assert(std::is_trivially_copyable_v<ReadReply>);

}  // namespace

ReadReply make_reply(uint64_t serial, const data::BatchReadResult& result) {
  const std::string& message = result.status.message();
  ReadReply reply{
      .serial = serial,
      .good = result.good,
      .code = static_cast<uint32_t>(result.status.code()),
      .text_bytes = static_cast<uint32_t>(std::min(message.size(), ReadReply::kMaxTextBytes))};
  std::copy_n(message.data(), reply.text_bytes, reply.text.data());
  return reply;
}

std::string to_string(const ReadReply& reply) {
  // It can end within a character.
  std::string text = valid_utf8({reply.text.data(), reply.text_bytes});
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
  return text;
}

std::optional<data::BatchReadResult> parse_reply(const ReadReply& reply, uint64_t serial,
                                                 uint64_t count) {
  const bool is_ok = reply.code == static_cast<uint32_t>(StatusCode::kOk);
  // For the parent, these two mean that a run was stopped or has ended.
  if (reply.code == static_cast<uint32_t>(StatusCode::kCancelled) ||
      reply.code == static_cast<uint32_t>(StatusCode::kClosed))
    return std::nullopt;
  if (reply.serial != serial || reply.text_bytes > ReadReply::kMaxTextBytes ||
      reply.code > static_cast<uint32_t>(StatusCode::kInternal) ||
      (is_ok ? reply.good != count : reply.good > 0 && reply.good >= count))
    return std::nullopt;
  if (is_ok) return data::BatchReadResult{.good = count, .status = {}};
  return data::BatchReadResult{
      .good = reply.good, .status = Status(static_cast<StatusCode>(reply.code), to_string(reply))};
}

namespace {

std::optional<Result<uint64_t>> parse_size_reply(const ReadReply& reply, uint64_t serial,
                                                 uint64_t max_size) {
  const bool is_ok = reply.code == static_cast<uint32_t>(StatusCode::kOk);
  if (is_ok && reply.good > max_size) return std::nullopt;
  auto result = parse_reply(reply, serial, is_ok ? reply.good : 0);
  if (!result) return std::nullopt;
  if (!result->status.ok()) return Result<uint64_t>(std::move(result->status));
  return Result<uint64_t>(result->good);
}

}  // namespace

std::optional<Result<uint64_t>> parse_reply(const ReadReply& reply, const RewriteRequest& request) {
  return parse_size_reply(reply, request.serial, request.max_bytes);
}

std::optional<Result<uint64_t>> parse_reply(const ReadReply& reply,
                                            const TokenizeRequest& request) {
  return parse_size_reply(reply, request.serial, request.max_ids);
}

uint64_t shared_bytes(const std::vector<TensorSpec>& specs, uint64_t count) {
  return sizeof(SharedHeader) + ring::BatchLayout(specs, count).slot_bytes();
}

std::vector<std::span<std::byte>> locate_samples(std::span<std::byte> memory,
                                                 const std::vector<TensorSpec>& specs,
                                                 uint64_t count) {
  const ring::BatchLayout layout(specs, count);
  if (memory.size() < sizeof(SharedHeader) ||
      layout.slot_bytes() > memory.size() - sizeof(SharedHeader))
    return {};
  const std::span<std::byte> slot = memory.subspan(sizeof(SharedHeader));
  std::vector<std::span<std::byte>> rows;
  for (size_t tensor = 0; tensor < specs.size(); ++tensor)
    rows.push_back(layout.rows(slot, tensor, 0, count));
  return rows;
}

uint64_t shared_bytes(const RewriteRequest& request) {
  return sizeof(SharedHeader) + request.file_bytes + request.max_bytes;
}

std::optional<RewriteSpans> locate_rewrite(std::span<std::byte> memory,
                                           const RewriteRequest& request) {
  if (memory.size() < sizeof(SharedHeader)) return std::nullopt;
  const std::span<std::byte> rest = memory.subspan(sizeof(SharedHeader));
  if (request.file_bytes > rest.size() || request.max_bytes > rest.size() - request.file_bytes)
    return std::nullopt;
  return RewriteSpans{.file = rest.first(request.file_bytes),
                      .rewritten = rest.subspan(request.file_bytes, request.max_bytes)};
}

uint64_t shared_bytes(const TokenizeRequest& request) {
  return sizeof(SharedHeader) + sizeof(TokenizeResult) + request.max_ids * sizeof(int32_t) +
         request.text_bytes;
}

std::optional<TokenizeSpans> locate_tokenize(std::span<std::byte> memory,
                                             const TokenizeRequest& request) {
  constexpr size_t kHead = sizeof(SharedHeader) + sizeof(TokenizeResult);
  if (memory.size() < kHead) return std::nullopt;
  const std::span<std::byte> rest = memory.subspan(kHead);
  if (request.max_ids > rest.size() / sizeof(int32_t) ||
      request.text_bytes > rest.size() - request.max_ids * sizeof(int32_t))
    return std::nullopt;
  return TokenizeSpans{
      .result = reinterpret_cast<TokenizeResult*>(memory.data() + sizeof(SharedHeader)),
      .ids = {reinterpret_cast<int32_t*>(rest.data()), request.max_ids},
      .text = rest.subspan(request.max_ids * sizeof(int32_t), request.text_bytes)};
}

}  // namespace stoker::feed
