// ControlServer: serves the control socket; docs/control-protocol.md specifies the protocol.
//
// Threads:   one, which runs the io_context (the daemon's main thread), and a separate one for
//            files. Training replies from its own threads, and events arrive on any. These are passed
//            on safely, even if the client or this server is already gone.
// Blocking:  only start(), as ListeningSocket::open(). It acquires no lock of the trainer and reads
//            only the published status.
// Ownership: io, clock and training must outlive this object. The caller holds run/LOCK during its
//            lifetime. It removes its socket.
// Errors:    start(): those of ListeningSocket. A later error of a client ends only that client's
//            session; accept errors are logged and retried.
// Crash:     the socket file remains; the next daemon replaces it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/server/file_requests.h"
#include "daemon/server/limits.h"
#include "daemon/server/peer.h"
#include "daemon/server/training_control.h"
#include "shared/base/clock.h"
#include "shared/base/status.h"
#include "shared/control/command.h"
#include "shared/control/hello_reply.h"

namespace boost::asio {
class io_context;
}

namespace stoker::server {

struct ServerOptions {
  std::string socket_path;  // control::resolve_socket_path()
  // run/control.sock: becomes a symlink if the socket is elsewhere; empty = no symlink.
  std::string link_path;
  std::vector<uid_t> operators;  // resolve_operators()
  std::string build;             // stoker's version, for `hello`
  control::RunIdentity run;      // for `hello` and `status`
  Limits limits;
  // Executes requests about files of the run directory, on one thread of the server; null: none.
  FileRequests::Execute execute_file_request;
  // Reads the configuration file again; with `dry_run` only returns what would change, a JSON object.
  // On the io_context thread; null: it cannot.
  std::function<Result<std::string>(bool dry_run)> reload;
  std::function<Result<Peer>(int fd)> peer_of = &peer_of_socket;
};

class ControlServer {
 public:
  ControlServer(boost::asio::io_context& io, Clock& clock, TrainingControl& training,
                ServerOptions options);
  ~ControlServer();  // stop()
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  // Binds and starts to accept. On failure it leaves nothing behind.
  Status start();
  // Delivers the replies received so far, sends all other pending requests an error that the daemon
  // is stopping, closes the connections and removes the socket. Idempotent.
  void stop();

  const control::TrainerStatus::Control& counters() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stoker::server
