// EagerPeer: a Python process that takes the same training step in eager PyTorch, when asked.
//
// Threads:  one at a time.
// Blocking: start() until PyTorch is loaded; run() for as long as the run takes.
// Owner:    the process ends when its standard input closes: with this object, or this program.
// Errors:   start(): kNotFound: the Python cannot be started or does not get ready (it said why on
//           standard error). run(): kClosed: it has ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/unique_fd.h"

namespace stoker::bench {

class EagerPeer {
 public:
  static Result<std::shared_ptr<EagerPeer>> start(const std::vector<std::string>& command);
  ~EagerPeer();
  EagerPeer(const EagerPeer&) = delete;
  EagerPeer& operator=(const EagerPeer&) = delete;

  int64_t parameters() const { return parameters_; }  // of its model
  // Steps a second, after three that are not counted.
  Result<double> run(std::chrono::nanoseconds time);

 private:
  EagerPeer(pid_t pid, UniqueFd socket) : pid_(pid), socket_(std::move(socket)) {}
  Result<double> read_number();

  pid_t pid_;
  UniqueFd socket_;
  int64_t parameters_ = 0;
};

}  // namespace stoker::bench
