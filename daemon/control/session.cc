#include "daemon/control/session.h"

#include <utility>

#include <boost/asio/buffer.hpp>

#include "shared/control/protocol.h"

namespace stoker::control_server {
namespace {

using boost::system::error_code;
namespace asio = boost::asio;

std::string refusal_line(Code code, std::string message,
                         control::ErrorCode error = control::ErrorCode::kFailed) {
  return control::render_error({.code = error, .why = Status(code, std::move(message))});
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
  note_activity();
  read();
}

// ---- Lines in

void Session::read() {
  if (ended_ || ending_ || input_closed_) return;
  socket_.async_read_some(asio::buffer(chunk_),
                          [self = shared_from_this()](const error_code& error, size_t bytes) {
                            self->on_read(error, bytes);
                          });
}

void Session::on_read(const error_code& error, size_t bytes) {
  if (ended_ || ending_) return;
  if (error) return on_input_closed();
  if (input_.empty()) line_begun_ = std::chrono::steady_clock::now();
  input_.append(chunk_.data(), bytes);
  take_lines();
  arm_timer();
  read();
}

void Session::take_lines() {
  size_t begin = 0;
  while (!ended_ && !ending_) {
    const size_t end = input_.find('\n', begin);
    const size_t length = (end == std::string::npos ? input_.size() : end) - begin;
    if (length > control::kMaxLineBytes) {
      return end_past_limit(refusal_line(
          Code::kInvalidArgument,
          "the line is longer than " + std::to_string(control::kMaxLineBytes) + " bytes",
          control::ErrorCode::kInvalidRequest));
    }
    if (end == std::string::npos) break;
    note_activity();
    events_.on_line(*this, std::string_view(input_).substr(begin, length));
    begin = end + 1;
    line_begun_ = last_activity_;  // the rest came with this read
  }
  if (ended_ || ending_) begin = input_.size();
  input_.erase(0, begin);
}

void Session::on_input_closed() {
  // The peer sends no more; perhaps it still reads, as `echo status | socat` does.
  input_closed_ = true;
  if (!input_.empty()) {
    input_.clear();
    send(refusal_line(Code::kInvalidArgument, "the last line has no newline; nothing was done",
                      control::ErrorCode::kInvalidRequest));
  }
  end_if_done();
  if (!ended_) arm_timer();
}

// ---- Lines out

void Session::send(std::string line) {
  if (ended_ || ending_) return;
  queued_ += line;
  queued_ += '\n';
  if (unsent() > limits_.unsent_bytes) {
    past_limit_ = true;
    return end();  // it does not read, so it cannot be told
  }
  note_activity();
  write();
}

void Session::finish_request(std::string line) {
  --in_flight_;
  send(std::move(line));
  if (!ended_) arm_timer();
}

void Session::end_past_limit(std::string line) {
  if (ended_ || ending_) return;
  past_limit_ = true;
  send(std::move(line));
  if (ended_) return;
  ending_ = true;
  end_if_done();
  if (!ended_) arm_timer();
}

void Session::write() {
  if (write_pending_ || ended_) return;
  if (written_ == writing_.size()) {
    writing_.clear();
    written_ = 0;
    std::swap(writing_, queued_);
  }
  if (writing_.empty()) return;
  write_pending_ = true;
  socket_.async_write_some(asio::buffer(writing_.data() + written_, writing_.size() - written_),
                           [self = shared_from_this()](const error_code& error, size_t bytes) {
                             self->on_written(error, bytes);
                           });
}

void Session::on_written(const error_code& error, size_t bytes) {
  write_pending_ = false;
  if (ended_) return;
  if (error) return end();  // the peer has gone
  written_ += bytes;
  note_activity();
  write();
  end_if_done();
  if (!ended_) arm_timer();
}

// ---- Time

void Session::note_activity() { last_activity_ = std::chrono::steady_clock::now(); }

std::optional<Session::Time> Session::maybe_deadline() const {
  if (ending_) return last_activity_ + limits_.line_time;
  if (!input_.empty()) return line_begun_ + limits_.line_time;
  if (in_flight_ > 0) return std::nullopt;  // it waits for us
  return last_activity_ + limits_.idle_time;
}

void Session::arm_timer() {
  if (ended_) return;
  const auto deadline = maybe_deadline();
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
  const auto deadline = maybe_deadline();
  if (!deadline || std::chrono::steady_clock::now() < *deadline)
    return;  // a newer wait is under way
  if (ending_) return end();
  if (!input_.empty()) {
    return end_past_limit(refusal_line(
        Code::kTimedOut, "the line was not finished within " + seconds_text(limits_.line_time)));
  }
  end_past_limit(
      refusal_line(Code::kTimedOut, "no request for " + seconds_text(limits_.idle_time)));
}

// ---- The end

void Session::end_if_done() {
  if (ended_ || unsent() > 0) return;
  if (ending_ || (input_closed_ && in_flight_ == 0)) end();
}

void Session::end() {
  if (ended_) return;
  ended_ = true;
  error_code ignored;
  timer_.cancel();
  socket_.close(ignored);
  events_.on_ended(*this, past_limit_);
}

void Session::stop(std::string last_line) {
  if (ended_) return;
  if (!ending_) queued_ += last_line + "\n";
  const std::string unsent_text = writing_.substr(written_) + queued_;
  error_code ignored;
  socket_.non_blocking(true, ignored);
  socket_.send(asio::buffer(unsent_text), 0, ignored);
  end();
}

}  // namespace stoker::control_server
