// serve_samples, serve_rewrites, serve_tokens: answer the requests of the program that started this process
// (shared/feed/read_protocol.h).
//
// Threads:  one.
// Blocking: until the other end closes the socket.
// Errors:   kMismatch: a request that no program of this build sends; kIoError, kClosed: the
//           socket. Errors of samples and files are replies.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/tokenizer/tokenizer.h"

namespace stoker::feeder {

// Reports that the dataset is open and serves its samples in `memory`.
Status serve_samples(const data::Dataset& dataset, int socket_fd, std::span<std::byte> memory);

using Rewrite = std::function<std::optional<std::vector<std::byte>>(std::span<const std::byte>)>;
// Reports that the process is ready and rewrites JPEG files in `memory`.
Status serve_rewrites(const Rewrite& rewrite, int socket_fd, std::span<std::byte> memory);

// Reports that the process is ready and encodes texts in `memory`.
Status serve_tokens(std::shared_ptr<const tokenizer::Tokenizer> tokenizer, int socket_fd,
                    std::span<std::byte> memory);

// Instead, if the dataset cannot be opened: sends `error`.
void reject_requests(const Status& error, int socket_fd);

}  // namespace stoker::feeder
