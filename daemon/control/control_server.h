// ControlServer: answers the control socket. docs/control-protocol.md is its manual.
//
// Threads:  one: the one that runs the io_context (the daemon's main thread). Training answers from
//           its own threads; that is brought over safely, also when the client or this server has
//           gone meanwhile.
// Blocking: never; it takes no lock of the trainer, and reads only the status that the trainer has
//           published.
// Owner:    io, clock and training must outlive it; the caller holds run/LOCK while it lives. It
//           removes its socket.
// Errors:   start(): those of ListeningSocket. Later trouble with a client ends that client only;
//           with accepting, it is logged and tried again.
// Crash:    the socket file stays; the next daemon replaces it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/control/limits.h"
#include "daemon/control/peer.h"
#include "daemon/control/training_control.h"
#include "shared/base/clock.h"
#include "shared/base/status.h"

namespace boost::asio {
class io_context;
}

namespace stoker::control {

struct ServerOptions {
  std::string socket_path;  // control::resolve_socket_path()
  std::string link_path;  // run/control.sock: becomes a link when the socket lies elsewhere; empty
                          // = no link
  std::vector<uid_t> operators;  // resolve_operators()
  std::string build;             // stoker's version, for `hello`
  Limits limits;
  std::function<Result<Peer>(int fd)> peer_of = &peer_of_socket;
};

class ControlServer {
 public:
  ControlServer(boost::asio::io_context& io, Clock& clock, TrainingControl& training,
                ServerOptions options);
  ~ControlServer();  // stop()
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  // Binds and begins to accept. On failure nothing is left behind.
  Status start();
  // Delivers the answers that training has given so far, tells the rest that the daemon ends,
  // closes, removes the socket. May be called again.
  void stop();

  const control::TrainerStatus::Control& counters() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stoker::control
