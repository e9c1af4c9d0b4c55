// Session: the connection of one client, with line input, line output and all limits on them.
//
// Threads:   the io_context thread only.
// Blocking:  never.
// Ownership: the server holds the session until it has ended, and its handlers keep it alive until
//            they have run. limits and events must outlive it until end() or stop().
// Errors:    none are returned. When a limit is exceeded, the peer gets one error line if it can
//            still receive one, and the session ends.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/server/limits.h"
#include "daemon/server/peer.h"
#include "shared/control/command.h"

namespace stoker::server {

class Session;

// Callbacks of a session to the server.
class SessionEvents {
 public:
  virtual ~SessionEvents() = default;
  // One line without its newline; the reply is sent with send(), now or later.
  virtual void on_line(Session& session, std::string_view line) = 0;
  // The session is closed. `exceeded_limit`: because it exceeded a limit.
  virtual void on_ended(Session& session, bool exceeded_limit) = 0;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  using Socket = boost::asio::local::stream_protocol::socket;

  Session(Socket socket, const Peer& peer, Role role, const Limits& limits, SessionEvents& events);
  void start();

  const Peer& peer() const { return peer_; }
  Role role() const { return role_; }
  size_t in_flight() const { return in_flight_; }

  void send(const std::string& line);  // no effect after the session has ended
  // A line without a request, to a client that is subscribed.
  void notify(const std::string& line);
  // From now on the client need not send requests.
  void subscribe(control::Subscribe subscription) { maybe_subscription_ = std::move(subscription); }
  const control::Subscribe* maybe_subscription() const {
    return maybe_subscription_ && !closing_ ? &*maybe_subscription_ : nullptr;
  }
  // Sends a line with a file descriptor attached to its first byte. False: the previous descriptor
  // has not been sent yet, and nothing was queued.
  bool send_with(const std::string& line, UniqueFd attachment);
  Result<UniqueFd> open_peer_pidfd() const { return pidfd_of_peer(peer_); }
  void begin_request() { ++in_flight_; }
  void finish_request(const std::string& line);  // the reply to a request of begin_request()
  // Sends the last line of this session, an error that gives the reason, and then ends it.
  void close_with_error(std::string line);
  // Ends the session immediately, after one nonblocking attempt to send unsent output.
  void stop(const std::string& last_line);

 private:
  using Time = std::chrono::steady_clock::time_point;
  void read();
  void on_read(const boost::system::error_code& error, size_t bytes);
  void process_lines();
  void on_input_closed();
  void write();
  size_t write_some(boost::system::error_code& error);
  void write_when_writable();
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
  std::string input_;         // incomplete line
  std::string output_;        // not accepted by the kernel yet
  UniqueFd attachment_;       // sent with …
  size_t attachment_at_ = 0;  // … this byte of output_
  size_t in_flight_ = 0;
  Time line_start_;     // start time; valid while input_ is not empty
  Time last_activity_;  // last input line, reply, or output accepted by the peer
  Time last_output_;    // accepted by the peer, or the first that is not
  std::optional<control::Subscribe> maybe_subscription_;
  bool waiting_for_writable_ = false;
  bool input_closed_ = false;
  bool closing_ = false;  // the last line is queued, and input is ignored
  bool exceeded_limit_ = false;
  bool ended_ = false;
};

}  // namespace stoker::server
