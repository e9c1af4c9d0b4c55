// Session: one client's connection: lines in, lines out, and every bound on them.
//
// Threads:  the io_context's only.
// Blocking: never.
// Owner:    the server holds it until it has ended; its own handlers keep it alive meanwhile.
//           limits and handler must outlive it until end() or stop().
// Errors:   none come out. Past a limit the peer gets one error line where it can still take one,
//           then the end.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/control/limits.h"
#include "daemon/control/peer.h"

namespace stoker::control {

class Session;

// What a session tells the server.
class SessionEvents {
 public:
  virtual ~SessionEvents() = default;
  // One line without its newline; answered by send(), now or later.
  virtual void on_line(Session& session, std::string_view line) = 0;
  // It is closed. `past_limit`: because it went past a limit.
  virtual void on_ended(Session& session, bool past_limit) = 0;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  using Socket = boost::asio::local::stream_protocol::socket;

  Session(Socket socket, const Peer& peer, Role role, const Limits& limits, SessionEvents& events);
  void start();

  const Peer& peer() const { return peer_; }
  Role role() const { return role_; }
  size_t in_flight() const { return in_flight_; }

  void send(const std::string& line);  // nothing happens when the session has ended
  // With a file descriptor that goes with the line's first byte. False: the one before it is still
  // on its way, and nothing was sent.
  bool send_with(const std::string& line, UniqueFd attachment);
  Result<UniqueFd> open_peer_pidfd() { return pidfd_of_peer(socket_.native_handle(), peer_); }
  void begin_request() { ++in_flight_; }
  void finish_request(const std::string& line);  // the reply to one that was begun
  // The last line that this client gets; then the end. `line` is an error that says why.
  void end_past_limit(std::string line);
  // At once, from the server: what is unsent is tried once more, without waiting.
  void stop(const std::string& last_line);

 private:
  using Time = std::chrono::steady_clock::time_point;
  void read();
  void on_read(const boost::system::error_code& error, size_t bytes);
  void process_lines();
  void on_input_closed();
  void write();
  size_t write_some(boost::system::error_code& error);
  void write_when_there_is_room();
  void record_activity();
  std::optional<Time> find_deadline() const;
  void arm_timer();
  void on_timer();
  void end_if_done();
  void end();

  // Constant after construction.
  const Peer peer_;
  const Role role_;
  const Limits& limits_;
  SessionEvents& events_;

  Socket socket_;
  boost::asio::steady_timer timer_;
  std::array<char, 4096> chunk_;
  std::string input_;         // begun lines
  std::string output_;        // what the kernel has not taken yet
  UniqueFd attachment_;       // goes with …
  size_t attachment_at_ = 0;  // … this byte of output_
  size_t in_flight_ = 0;
  Time line_begun_;     // valid while input_ is not empty
  Time last_activity_;  // a line came, a reply was made, or the peer took some of one
  bool write_waits_ = false;
  bool input_closed_ = false;
  bool ending_ = false;  // the last line is queued, nothing more is read
  bool past_limit_ = false;
  bool ended_ = false;
};

}  // namespace stoker::control
