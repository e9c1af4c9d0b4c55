#include "feeder/serve_samples.h"

#include <unistd.h>

#include <cerrno>
#include <new>

#include "shared/feed/read_protocol.h"

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
  for (uint64_t i = 0; i < request.count; ++i)
    if (request.samples[i].sample >= dataset.size()) return false;
  return true;
}

data::BatchReadResult read_samples(const data::Dataset& dataset, const feed::ReadRequest& request,
                                   std::span<const std::span<std::byte>> rows) {
  try {
    return dataset.read_batch(std::span(request.samples).first(request.count), rows);
  } catch (const std::bad_alloc&) {  // the process has a memory limit (sandbox.h) and continues
    return {.good = 0,
            .status = Status(StatusCode::kOutOfMemory,
                             "needs more memory than feed.worker_memory_limit_mib permits")};
  }
}

}  // namespace

void reject_requests(const Status& error, int socket_fd) {
  // If it cannot be sent, the exit code of the process remains.
  (void)send_reply(feed::kReadySerial, {.good = 0, .status = error}, socket_fd);
}

Status serve_samples(const data::Dataset& dataset, int socket_fd, std::span<std::byte> memory) {
  STOKER_RETURN_IF_ERROR(send_reply(feed::kReadySerial, {}, socket_fd));
  feed::ReadRequest request;
  while (true) {
    const ssize_t bytes = ::read(socket_fd, &request, sizeof request);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0 && errno != ECONNRESET) return Status::from_errno(errno, "read request");
    if (bytes <= 0) return {};  // the parent needs no more samples
    const bool valid = is_valid(request, static_cast<size_t>(bytes), dataset);
    const auto rows =
        valid ? feed::locate_samples(memory, dataset.spec_of_length(request.length), request.count)
              : std::vector<std::span<std::byte>>();
    if (rows.empty())
      return Status(StatusCode::kMismatch,
                    "a read request is not compatible with this stoker-feed; install the same "
                    "version as stoker-eval");
    STOKER_RETURN_IF_ERROR(
        send_reply(request.serial, read_samples(dataset, request, rows), socket_fd));
  }
}

}  // namespace stoker::feeder
