// RunServer: the page of many runs, finished or live, over HTTP (stoker-web). It only reads their
// directories, and asks the stokerd of the run that is shown for its status.
//
//   GET /                                  the page
//   GET /v1/runs                           a summary of each run
//   GET /v1/run?run=NAME, /v1/curves?run=NAME, /v1/artifacts/FILE?run=NAME
//   GET /v1/events?run=NAME                server-sent events
//   GET /healthz
//
// Without `run` they describe the run with the newest activity.
//
// Threads, blocking, errors, limits: as HttpServer. io and clock must outlive this object.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "shared/http/http_server.h"

namespace stoker::ctl {

class RunServer {
 public:
  // `directory`: a run, or a directory with runs at most three levels below it.
  RunServer(boost::asio::io_context& io, Clock& clock, config::HttpListen listen,
            std::string directory, http::HttpLimits limits = {});
  ~RunServer();
  Status start();
  void stop();
  uint16_t port() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stoker::ctl
