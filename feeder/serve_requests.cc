#include "feeder/serve_requests.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "shared/base/resource_use.h"
#include "shared/feed/read_protocol.h"
#include "shared/feed/shared_use.h"

namespace stoker::feeder {
namespace {

// write() and read() instead of send() and recv(), which the sandbox denies.
Status send_reply(uint64_t serial, const data::BatchReadResult& result, int socket_fd) {
  const feed::ReadReply reply = feed::make_reply(serial, result);
  ssize_t sent = 0;
  do sent = ::write(socket_fd, &reply, sizeof reply);
  while (sent < 0 && errno == EINTR);
  if (sent < 0 && errno == EPIPE) return Status(StatusCode::kClosed, "the parent has ended");
  return sent < 0 ? Status::from_errno(errno, "reply to a read request") : Status();
}

bool is_valid(const feed::ReadRequest& request, size_t bytes, const data::Dataset& dataset) {
  if (bytes < offsetof(feed::ReadRequest, samples) || request.count == 0 ||
      request.count > feed::kMaxSamplesPerRequest || bytes != request.bytes() ||
      request.length > dataset.max_length() || (request.length == 0) != (dataset.max_length() == 0))
    return false;
  if (request.describes > 0 && (request.count != 1 || dataset.info().maybe_files == nullptr))
    return false;
  for (uint64_t i = 0; i < request.count; ++i)
    if (request.samples[i].sample >= dataset.size()) return false;
  return true;
}

data::BatchReadResult describe(const data::Dataset& dataset,
                               const data::SampleReadRequest& sample) {
  std::string text =
      dataset.info().maybe_files->describe_transforms(sample.sample, sample.random_key);
  return {.good = 1, .status = Status(StatusCode::kOk, std::move(text))};
}

Status incompatible() {
  return Status(StatusCode::kMismatch,
                "a request is not compatible with this stoker-feed; install the same version as "
                "the program that started it");
}

// The process has a memory limit (sandbox.h) and continues.
data::BatchReadResult needs_too_much_memory() {
  return {.good = 0,
          .status = Status(StatusCode::kOutOfMemory,
                           "needs more memory than feed.worker_memory_limit_mib permits")};
}

// `answer` gets each request and the size of its message; nothing: it is incompatible. `memory` gets what
// this process uses.
template <typename Request, typename Answer>
Status serve(int socket_fd, std::span<std::byte> memory, Answer answer) {
  feed::SharedUse& use = reinterpret_cast<feed::SharedHeader*>(memory.data())->use;
  std::chrono::steady_clock::time_point next_use;
  STOKER_RETURN_IF_ERROR(send_reply(feed::kReadySerial, {}, socket_fd));
  Request request;
  while (true) {
    const ssize_t bytes = ::read(socket_fd, &request, sizeof request);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno != ECONNRESET) return Status::from_errno(errno, "read request");
    if (bytes <= 0) return {};  // the parent has no more requests
    std::optional<data::BatchReadResult> result;
    try {
      result = answer(request, static_cast<size_t>(bytes));
    } catch (const std::bad_alloc&) {
      result = needs_too_much_memory();
    }
    if (!result) return incompatible();
    if (const auto now = std::chrono::steady_clock::now(); now >= next_use) {
      use.store(measure_process());
      next_use = now + feed::kUseInterval;
    }
    STOKER_RETURN_IF_ERROR(send_reply(request.serial, *result, socket_fd));
  }
}

}  // namespace

void reject_requests(const Status& error, int socket_fd) {
  // If it cannot be sent, the exit code of the process remains.
  (void)send_reply(feed::kReadySerial, {.good = 0, .status = error}, socket_fd);
}

Status serve_samples(const data::Dataset& dataset, int socket_fd, std::span<std::byte> memory) {
  using Answer = std::optional<data::BatchReadResult>;
  return serve<feed::ReadRequest>(
      socket_fd, memory, [&](const feed::ReadRequest& request, size_t bytes) -> Answer {
        if (!is_valid(request, bytes, dataset)) return {};
        if (request.describes > 0) return describe(dataset, request.samples.front());
        const auto rows =
            feed::locate_samples(memory, dataset.spec_of_length(request.length), request.count);
        if (rows.empty()) return {};
        return dataset.read_batch(std::span(request.samples).first(request.count), rows);
      });
}

Status serve_rewrites(const Rewrite& rewrite, int socket_fd, std::span<std::byte> memory) {
  using Answer = std::optional<data::BatchReadResult>;
  return serve<feed::RewriteRequest>(
      socket_fd, memory, [&](const feed::RewriteRequest& request, size_t bytes) -> Answer {
        const auto spans = feed::locate_rewrite(memory, request);
        if (bytes != request.bytes() || !spans) return {};
        const auto rewritten = rewrite(spans->file);
        if (!rewritten || rewritten->size() > spans->rewritten.size())
          return data::BatchReadResult{};
        if (!rewritten->empty())
          std::memcpy(spans->rewritten.data(), rewritten->data(), rewritten->size());
        return data::BatchReadResult{.good = rewritten->size(), .status = {}};
      });
}

namespace {

data::BatchReadResult encode(tokenizer::TextEncoder& encoder, const feed::TokenizeRequest& request,
                             const feed::TokenizeSpans& spans) {
  if (std::string_view(request.digest.data(), request.digest.size()) !=
      encoder.tokenizer().digest())
    return {.good = 0,
            .status = Status(StatusCode::kMismatch, "the tokenizer's file has changed; restart")};
  // A copy: the other process can write to the memory.
  const std::string text(reinterpret_cast<const char*>(spans.text.data()), spans.text.size());
  std::vector<int32_t> ids;
  const auto encoded = encoder.encode_part(
      text, {.begins_section = request.begins_section != 0, .ends_text = request.ends_text != 0},
      ids);
  if (!encoded) return {.good = 0, .status = encoded.status()};
  if (ids.size() > spans.ids.size())
    return {.good = 0, .status = Status(StatusCode::kInternal, "more tokens than expected")};
  std::ranges::copy(ids, spans.ids.begin());
  *spans.result = {.bytes = encoded->bytes, .begins_section = encoded->begins_section ? 1u : 0u};
  return {.good = ids.size(), .status = {}};
}

}  // namespace

Status serve_tokens(std::shared_ptr<const tokenizer::Tokenizer> tokenizer, int socket_fd,
                    std::span<std::byte> memory) {
  using Answer = std::optional<data::BatchReadResult>;
  tokenizer::TextEncoder encoder(std::move(tokenizer));
  return serve<feed::TokenizeRequest>(
      socket_fd, memory, [&](const feed::TokenizeRequest& request, size_t bytes) -> Answer {
        const auto spans = feed::locate_tokenize(memory, request);
        if (bytes != request.bytes() || !spans) return {};
        return encode(encoder, request, *spans);
      });
}

}  // namespace stoker::feeder
