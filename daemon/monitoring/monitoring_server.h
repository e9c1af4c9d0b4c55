// MonitoringServer: what stokerd serves over HTTP (http.listen).
//
//   GET /                     a page that shows the run; no external resources
//   GET /metrics              Prometheus' text format
//   GET /healthz              200 while the event loop of stokerd runs
//   GET /readyz               503 with the state while the run starts or stops, otherwise 200
//   GET /v1/status            the JSON object of `stokerctl status --json`
//   GET /v1/events            server-sent events: status, new records, log lines
//   GET /v1/runs, /v1/run, /v1/curves, /v1/artifacts/NAME   what the page shows (shared/view)
//
// Threads, blocking, errors, limits: as HttpServer. io, clock and `status` must outlive this object.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "shared/control/trainer_status.h"
#include "shared/http/http_server.h"

namespace stoker::monitoring {

struct MonitoringOptions {
  config::HttpListen listen;
  std::string version;
  std::string run_dir;
  std::function<control::TrainerStatus()> status;  // in the thread of the io_context
  http::HttpLimits limits;
};

class MonitoringServer {
 public:
  MonitoringServer(boost::asio::io_context& io, Clock& clock, MonitoringOptions options);
  ~MonitoringServer();
  // As HttpServer.
  Status start(UniqueFd unix_socket = {});
  void stop();
  uint16_t port() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stoker::monitoring
