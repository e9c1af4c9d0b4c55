// FileRequests: executes requests about files of the run directory one after another, so that no
// disk blocks the io_context thread.
//
// Threads:  owns one, on which requests are executed and replies are called; post() from any thread.
// Blocking: the destructor, until the request that is being executed has ended. The others get
//           kClosed.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "shared/base/serial_executor.h"
#include "shared/base/status.h"
#include "shared/control/command.h"

namespace stoker::server {

class FileRequests {
 public:
  // `stop`: the reply is not needed any more.
  using Execute =
      std::function<Result<std::string>(const control::FileRequest&, const std::stop_token& stop)>;
  using Done = std::function<void(Result<std::string>)>;

  // `capacity`: of requests that wait. Without `execute` every request gets kPermission.
  FileRequests(Execute execute, size_t capacity);
  ~FileRequests();
  FileRequests(const FileRequests&) = delete;
  FileRequests& operator=(const FileRequests&) = delete;

  // `done` is called exactly once; before post() returns with kBusy: too many wait.
  void post(control::FileRequest request, Done done);

 private:
  struct Waiting {
    control::FileRequest request;
    Done done;
  };
  Result<std::string> execute(const control::FileRequest& request,
                              const std::stop_token& stop) const;

  const Execute execute_;
  const size_t capacity_;
  std::optional<SerialExecutor<Waiting>> executor_;  // uses execute_; nullopt: there is none
};

}  // namespace stoker::server
