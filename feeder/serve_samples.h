// serve_samples: answers the read requests of the program that started this process
// (shared/feed/read_protocol.h).
//
// Threads:  one.
// Blocking: until the other end closes the socket.
// Errors:   kMismatch: a request that no program of this build sends; kIoError, kClosed: the
//           socket. Errors of samples are replies.
#pragma once

#include <cstddef>
#include <span>

#include "shared/base/status.h"
#include "shared/data/dataset.h"

namespace stoker::feeder {

// Reports that the dataset is open and serves its samples in `memory`.
Status serve_samples(const data::Dataset& dataset, int socket_fd, std::span<std::byte> memory);
// Instead, if the dataset cannot be opened: sends `error`.
void reject_requests(const Status& error, int socket_fd);

}  // namespace stoker::feeder
