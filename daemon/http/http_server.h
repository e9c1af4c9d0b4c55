// HttpServer: read-only HTTP for monitoring (http.listen).
//
//   GET /metrics     Prometheus' text format
//   GET /healthz     200 while the event loop of stokerd runs
//   GET /readyz      200 while the run trains or is paused, otherwise 503 with the state
//   GET /v1/status   the JSON object of `stokerctl status --json`
//   GET /            this list
//
// GET and HEAD only, without a body. Over TCP, `Host` must be a loopback name: a page of another
// site that a browser of this host shows cannot read the answers, even if its name resolves to this
// host. No cross-origin access, no cookies, nothing that changes the run.
//
// Threads:   one, which runs the io_context (the daemon's main thread).
// Blocking:  only start() with a Unix socket, as server::ListeningSocket::open().
// Ownership: io, clock and the functions of the options must outlive this object.
// Errors:    start(): kInvalidArgument, kAlreadyExists, kPermission, kIoError with address and
//            suggested fix. A later error of a client ends only its connection.
// Limits:    HttpLimits; a client that exceeds one gets 408, 413, 431 or 503 and is disconnected.
// Crash:     a Unix socket's file remains; the next daemon replaces it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/config/http_listen.h"
#include "shared/control/trainer_status.h"

namespace boost::asio {
class io_context;
}

namespace stoker::http {

struct HttpLimits {
  size_t connections = 64;
  uint32_t header_bytes = 8 << 10;
  std::chrono::milliseconds header_time{10'000};  // to send a request; also between two
  std::chrono::milliseconds write_time{10'000};   // to read an answer
  std::chrono::milliseconds accept_pause{100};    // after accept failed for lack of descriptors
};

struct HttpOptions {
  config::HttpListen listen;
  std::string version;
  std::function<control::TrainerStatus()> status;
  HttpLimits limits;
};

class HttpServer {
 public:
  HttpServer(boost::asio::io_context& io, Clock& clock, HttpOptions options);
  ~HttpServer();  // stop()
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // On failure it leaves nothing behind. `unix_socket`: of options.listen.unix_path, listening.
  Status start(UniqueFd unix_socket = {});
  // Closes the connections. Idempotent.
  void stop();

  uint16_t port() const;  // of TCP

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stoker::http
