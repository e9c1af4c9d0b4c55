#include "daemon/server/session.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <boost/asio/buffer.hpp>

#include "shared/control/protocol.h"

namespace stoker::server {
namespace {

using boost::system::error_code;
namespace asio = boost::asio;

std::string protocol_error_line(StatusCode code, std::string message,
                                control::ErrorCode error = control::ErrorCode::kFailed) {
  return control::render_error({.code = error, .why = Status(code, std::move(message))});
}

// One attempt. Returns the number of bytes sent; the descriptor is sent with the first byte.
size_t send_with_descriptor(int socket, const std::string& bytes, int descriptor,
                            error_code& error) {
  iovec buffer{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &buffer;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return static_cast<size_t>(sent);
  error = error_code(errno, boost::system::system_category());
  return 0;
}

std::string seconds_text(std::chrono::milliseconds time) {
  return std::to_string(static_cast<double>(time.count()) / 1000.0).substr(0, 5) + " s";
}

}  // namespace

Session::Session(Socket socket, const Peer& peer, Role role, const Limits& limits,
                 SessionEvents& events)
    : peer_(peer),
      role_(role),
      limits_(limits),
      events_(events),
      socket_(std::move(socket)),
      timer_(socket_.get_executor()) {}

void Session::start() {
  error_code error;
  socket_.non_blocking(true, error);
  if (error) return end();
  record_activity();
  arm_timer();  // a client that never sends anything is idle too
  read();
}

// ---- Input

void Session::read() {
  if (ended_ || closing_ || input_closed_) return;
  socket_.async_read_some(asio::buffer(chunk_),
                          [self = shared_from_this()](const error_code& error, size_t bytes) {
                            self->on_read(error, bytes);
                          });
}

void Session::on_read(const error_code& error, size_t bytes) {
  if (ended_ || closing_) return;
  if (error) return on_input_closed();
  if (input_.empty()) line_start_ = std::chrono::steady_clock::now();
  input_.append(chunk_.data(), bytes);
  process_lines();
  arm_timer();
  read();
}

void Session::process_lines() {
  size_t begin = 0;
  while (!ended_ && !closing_) {
    const size_t end = input_.find('\n', begin);
    const size_t length = (end == std::string::npos ? input_.size() : end) - begin;
    if (length > control::kMaxLineBytes) {
      return close_with_error(protocol_error_line(
          StatusCode::kInvalidArgument,
          "the line is longer than " + std::to_string(control::kMaxLineBytes) + " bytes",
          control::ErrorCode::kInvalidRequest));
    }
    if (end == std::string::npos) break;
    record_activity();
    events_.on_line(*this, std::string_view(input_).substr(begin, length));
    begin = end + 1;
    line_start_ = last_activity_;  // the remaining bytes arrived with this read
  }
  if (ended_ || closing_) begin = input_.size();
  input_.erase(0, begin);
}

void Session::on_input_closed() {
  // The peer sends no more but can still read, as `echo status | socat` does.
  input_closed_ = true;
  if (!input_.empty()) {
    input_.clear();
    send(protocol_error_line(StatusCode::kInvalidArgument,
                             "the last line has no newline; request ignored",
                             control::ErrorCode::kInvalidRequest));
  }
  end_if_done();
  arm_timer();
  if (ended_) return;
  // Requests in flight keep the connection open. If the peer does not read either, it is gone and
  // must not use up a connection while training is slow to reply.
  socket_.async_wait(Socket::wait_error, [self = shared_from_this()](const error_code& error) {
    if (!error) self->end();
  });
}

// ---- Output

void Session::send(const std::string& line) {
  if (ended_ || closing_) return;
  if (output_.empty()) last_output_ = std::chrono::steady_clock::now();
  output_ += line;
  output_ += '\n';
  record_activity();
  write();
  if (!ended_ && output_.size() > limits_.unsent_bytes) {
    exceeded_limit_ = true;
    end();  // the peer does not read, so it cannot receive an error
  }
}

void Session::notify(const std::string& line) {
  send(line);
  arm_timer();
}

bool Session::send_with(const std::string& line, UniqueFd attachment) {
  if (attachment_.valid()) return false;
  attachment_ = std::move(attachment);
  attachment_at_ = output_.size();
  send(line);
  return true;
}

void Session::finish_request(const std::string& line) {
  --in_flight_;
  send(line);
  end_if_done();
  arm_timer();
}

void Session::close_with_error(std::string line) {
  if (ended_ || closing_) return;
  exceeded_limit_ = true;
  send(line);
  if (ended_) return;
  closing_ = true;
  end_if_done();
  arm_timer();
}

// Writes what the kernel accepts now, and the rest when there is room. No write is pending between
// two handlers, so output_ is always exactly what has not been sent.
void Session::write() {
  error_code error;
  while (!waiting_for_writable_ && !ended_ && !output_.empty()) {
    const size_t sent = write_some(error);
    if (error == asio::error::would_block) return write_when_writable();
    if (error) return end();  // the peer is gone
    output_.erase(0, sent);
    record_activity();
    last_output_ = last_activity_;
  }
}

size_t Session::write_some(error_code& error) {
  if (!attachment_.valid()) return socket_.write_some(asio::buffer(output_), error);
  if (attachment_at_ > 0) {
    const size_t sent = socket_.write_some(asio::buffer(output_.data(), attachment_at_), error);
    attachment_at_ -= sent;
    return sent;
  }
  const size_t sent =
      send_with_descriptor(socket_.native_handle(), output_, attachment_.get(), error);
  if (sent > 0) attachment_.reset();
  return sent;
}

void Session::write_when_writable() {
  waiting_for_writable_ = true;
  socket_.async_wait(Socket::wait_write, [self = shared_from_this()](const error_code& error) {
    self->waiting_for_writable_ = false;
    if (self->ended_) return;
    if (error) return self->end();
    self->write();
    self->end_if_done();
    self->arm_timer();
  });
}

// ---- Timeouts

void Session::record_activity() { last_activity_ = std::chrono::steady_clock::now(); }

std::optional<Session::Time> Session::find_deadline() const {
  if (closing_) return last_activity_ + limits_.line_time;
  if (!input_.empty()) return line_start_ + limits_.line_time;
  if (maybe_subscription_ && !output_.empty()) return last_output_ + limits_.idle_time;
  if (in_flight_ > 0 || maybe_subscription_)
    return std::nullopt;  // the client is waiting for a reply or an event
  return last_activity_ + limits_.idle_time;
}

void Session::arm_timer() {
  if (ended_) return;
  const auto deadline = find_deadline();
  if (!deadline) {
    timer_.cancel();
    return;
  }
  timer_.expires_at(*deadline);
  timer_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error) self->on_timer();
  });
}

void Session::on_timer() {
  if (ended_) return;
  const auto deadline = find_deadline();
  if (!deadline || std::chrono::steady_clock::now() < *deadline) return;  // a newer wait is pending
  if (closing_) return end();
  if (!input_.empty()) {
    return close_with_error(protocol_error_line(
        StatusCode::kTimedOut, "incomplete line after " + seconds_text(limits_.line_time)));
  }
  if (maybe_subscription_) {
    exceeded_limit_ = true;
    return end();  // it does not read
  }
  close_with_error(protocol_error_line(StatusCode::kTimedOut,
                                       "no request for " + seconds_text(limits_.idle_time)));
}

// ---- End of the session

void Session::end_if_done() {
  if (ended_ || !output_.empty()) return;
  if (closing_ || (input_closed_ && in_flight_ == 0 && !maybe_subscription_)) end();
}

void Session::end() {
  if (ended_) return;
  ended_ = true;
  error_code ignored;
  timer_.cancel();
  socket_.close(ignored);
  events_.on_ended(*this, exceeded_limit_);
}

void Session::stop(const std::string& last_line) {
  if (ended_) return;
  if (!closing_) output_ += last_line + "\n";
  error_code ignored;
  write_some(ignored);
  end();
}

}  // namespace stoker::server
