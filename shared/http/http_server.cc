#include "shared/http/http_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include "shared/base/log.h"
#include "shared/base/serial_executor.h"
#include "shared/http/peer_user.h"

namespace stoker::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using beast::http::field;
using beast::http::verb;
using HttpStatus = beast::http::status;
using boost::system::error_code;
using Protocol = asio::generic::stream_protocol;
using Socket = Protocol::socket;
using Request = beast::http::request<beast::http::empty_body>;
using Response = beast::http::response<beast::http::string_body>;

using Reply = std::variant<HttpAnswer, ReadAnswer, EventStream>;

constexpr std::string_view kEventStream = "text/event-stream";

// "localhost", "127.0.0.1:9000", "[::1]:9000". An address cannot be that of another site.
bool is_loopback_host(std::string_view host) {
  const size_t bracket = host.rfind(']');
  const size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket))
    host = host.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return beast::iequals(host, "localhost") || config::is_loopback_address(std::string(host));
}

std::string to_text(const config::HttpListen& listen, uint16_t port) {
  const bool is_v6 = listen.address.find(':') != std::string::npos;
  return (is_v6 ? "[" + listen.address + "]" : listen.address) + ":" + std::to_string(port);
}

// False: there was an exception.
bool run_or_log(const std::function<void()>& body) {
  const Status ran = catch_exceptions([&]() -> Status {
    body();
    return {};
  });
  if (!ran.ok()) log_error("http answer failed", {{"error", ran.message()}});
  return ran.ok();
}

HttpAnswer too_many_bytes() { return {.code = 503, .body = "too many answers are being sent\n"}; }

template <typename Message>
void add_headers(Message& response, std::string_view content_type,
                 std::string_view security_policy) {
  response.set(field::content_type, content_type);
  response.set(field::cache_control, "no-store");
  response.set("X-Content-Type-Options", "nosniff");
  response.set("Content-Security-Policy", security_policy);
  response.set("Cross-Origin-Resource-Policy", "same-origin");
  response.set("Referrer-Policy", "no-referrer");
}

}  // namespace

// ---- One connection

class HttpServer::Impl {
 public:
  Impl(asio::io_context& io, Clock& clock, config::HttpListen listen, HttpSite site,
       HttpLimits limits)
      : listen_(std::move(listen)),
        site_(std::move(site)),
        limits_(limits),
        clock_(clock),
        io_(io),
        acceptor_(io),
        pause_(io),
        event_timer_(io) {}
  Status start(UniqueFd unix_socket);
  void stop();
  uint16_t port() const { return port_; }

 private:
  class Connection;
  Status listen_tcp();
  void accept();
  void on_accept(const error_code& error, Socket socket);
  enum class Among { kConnections, kEventStreams };
  bool make_room(Among among, const Connection& newcomer);
  void drop(const std::shared_ptr<Connection>& connection);
  void on_accept_error(const error_code& error);
  Reply reply(const Request& request) const;
  void read_answer(std::shared_ptr<Connection> connection, ReadAnswer read, bool is_head,
                   bool keep_alive);
  void read_later(std::function<void()> read) { (void)files_.post(std::move(read)); }
  bool begin_events(const std::shared_ptr<Connection>& connection, const std::string& topic);
  void wait_for_events();
  void read_events();
  void send_events(const std::string& topic, const std::string& text);

  const config::HttpListen listen_;
  const HttpSite site_;
  const HttpLimits limits_;
  Clock& clock_;
  asio::io_context& io_;
  asio::basic_socket_acceptor<Protocol> acceptor_;
  asio::steady_timer pause_;
  uint16_t port_ = 0;
  asio::steady_timer event_timer_;
  size_t answer_bytes_ = 0;    // of answers with files that are being written
  size_t reading_events_ = 0;  // topics that the file thread has not answered
  bool has_event_timer_ = false;
  std::vector<std::shared_ptr<Connection>> connections_;
  std::optional<std::chrono::nanoseconds> maybe_last_warning_;
  // Handlers that run after this object is destroyed check this flag.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  // At most one function waits for each connection and topic. The last member: its thread ends before
  // what its functions use. An exception costs one answer, not those after it.
  SerialExecutor<std::function<void()>> files_{
      "http files", std::numeric_limits<size_t>::max(),
      [](const std::function<void()>& read, const std::stop_token&) { (void)run_or_log(read); }};
};

class HttpServer::Impl::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Impl& server, Socket socket)
      : server_(server),
        socket_(std::move(socket)),
        user_(user_of_peer(socket_.native_handle())),
        timer_(socket_.get_executor()) {}

  // What a connection is doing, in the order in which they are closed when there are too many.
  enum class Phase { kIdle, kIncompleteRequest, kEvents, kAnswer };

  // The next request. Its time starts with the connection, then with its first byte.
  void read() {
    parser_.emplace();
    parser_->header_limit(server_.limits_.header_bytes);
    parser_->body_limit(0);
    begin(Phase::kIdle);
    if (buffer_.size() > 0 || !has_answered_) return read_request();
    arm(server_.limits_.idle_time, true);
    socket_.async_wait(Socket::wait_read, [self = shared_from_this()](const error_code& error) {
      if (self->is_closed_) return;
      if (error) return self->end();
      self->read_request();
    });
  }
  // One attempt to say why, and the end.
  void reject_now(std::string_view status_line) {
    const std::string text = "HTTP/1.1 " + std::string(status_line) +
                             "\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    (void)::send(socket_.native_handle(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    close();
  }
  std::optional<uid_t> user() const { return user_; }  // null: unknown, as if it were one user
  Phase phase() const {
    return phase_ == Phase::kIdle && has_request_bytes() ? Phase::kIncompleteRequest : phase_;
  }
  asio::steady_timer::time_point since() const { return since_; }  // of the phase
  void close() {
    if (std::exchange(is_closed_, true)) return;
    uncount();
    timer_.cancel();
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  void begin(Phase phase) {
    phase_ = phase;
    since_ = asio::steady_timer::clock_type::now();
  }
  void read_request() {
    arm(server_.limits_.header_time, true);
    beast::http::async_read_header(
        socket_, buffer_, *parser_,
        [self = shared_from_this()](const error_code& error, size_t) { self->on_read(error); });
  }
  bool has_request_bytes() const { return buffer_.size() > 0 || parser_->got_some(); }
  void on_read(const error_code& failure) {
    using beast::http::error;
    if (is_closed_) return;
    if (failure == error::header_limit || failure == error::buffer_overflow)
      return reject(HttpStatus::request_header_fields_too_large, "the header is too large");
    // A body would be read as the next request.
    if (failure == error::body_limit || (!failure && !parser_->is_done()))
      return reject(HttpStatus::payload_too_large, "a request has no body");
    const bool is_invalid = failure.category() == make_error_code(error::bad_method).category();
    if (is_invalid && failure != error::end_of_stream && failure != error::partial_message)
      return reject(HttpStatus::bad_request, "invalid request: " + failure.message());
    if (failure) return end();
    const Request& request = parser_->get();
    const bool is_head = request.method() == verb::head;
    Reply reply = server_.reply(request);
    if (auto* const answer = std::get_if<HttpAnswer>(&reply))
      return write(std::move(*answer), is_head, request.keep_alive());
    begin(Phase::kAnswer);
    disarm();
    if (auto* const read = std::get_if<ReadAnswer>(&reply))
      return server_.read_answer(shared_from_this(), std::move(*read), is_head,
                                 request.keep_alive());
    if (is_head) return write({.content_type = kEventStream}, true, false);
    begin(Phase::kEvents);
    topic_ = std::get<EventStream>(reply).topic;
    if (!server_.begin_events(shared_from_this(), *topic_)) {
      topic_.reset();
      return reject(HttpStatus::service_unavailable, "too many event streams");
    }
    begin_stream();
  }
  void reject(HttpStatus code, std::string text) {
    write({.code = static_cast<unsigned>(code), .body = std::move(text) + "\n"}, false, false);
  }

 public:
  // `counted`: it counts in answer_bytes_ until it is written.
  void write(HttpAnswer answer, bool is_head, bool keep_alive, bool counted = false) {
    if (is_closed_) return;
    begin(Phase::kAnswer);
    has_answered_ = true;
    // A client that did something wrong must not hold a connection.
    keep_alive = keep_alive && (answer.code == 200 || answer.code == 503);
    response_.emplace(static_cast<HttpStatus>(answer.code), 11);
    response_->keep_alive(keep_alive);
    add_headers(*response_, answer.content_type, answer.security_policy);
    if (answer.code == 405) response_->set(field::allow, "GET, HEAD");
    if (answer.content_type != kEventStream) response_->content_length(answer.body.size());
    if (!is_head) response_->body() = std::move(answer.body);
    if (counted) server_.answer_bytes_ += counted_bytes_ = response_->body().size();
    arm(server_.limits_.write_time, false);
    serializer_.emplace(*response_);
    const auto on_written = [self = shared_from_this(), keep_alive](const error_code& error,
                                                                    size_t) {
      if (self->is_closed_) return;
      self->uncount();
      if (error || !keep_alive) return self->end();
      self->response_.reset();  // frees the body
      self->read();
    };
    if (is_head)
      beast::http::async_write_header(socket_, *serializer_, on_written);
    else
      beast::http::async_write(socket_, *serializer_, on_written);
  }

  // ---- Events

  const std::optional<std::string>& topic() const { return topic_; }
  void send_events(const std::string& text) {
    if (is_closed_) return;
    if (unsent_.size() + text.size() > server_.limits_.event_bytes) return end();
    unsent_ += text;
    if (sending_.empty()) write_events();
  }

 private:
  // An answer without a length: it ends with the connection. The client sends nothing more.
  void begin_stream() {
    beast::http::response<beast::http::empty_body> header(HttpStatus::ok, 11);
    header.keep_alive(false);
    add_headers(header, kEventStream, HttpAnswer().security_policy);
    std::ostringstream text;
    text << header.base();
    unsent_ = text.str() + "retry: 2000\n\n";
    write_events();
    socket_.async_read_some(asio::buffer(received_),
                            [self = shared_from_this()](const error_code&, size_t) {
                              if (!self->is_closed_) self->end();
                            });
  }
  void write_events() {
    sending_ = std::exchange(unsent_, {});
    arm(server_.limits_.write_time, false);
    asio::async_write(socket_, asio::buffer(sending_),
                      [self = shared_from_this()](const error_code& error, size_t) {
                        if (self->is_closed_) return;
                        if (error) return self->end();
                        self->disarm();
                        self->sending_.clear();
                        if (!self->unsent_.empty()) self->write_events();
                      });
  }
  void uncount() { server_.answer_bytes_ -= std::exchange(counted_bytes_, 0); }

  // `is_reading`: the client gets 408 unless it has sent nothing.
  void arm(std::chrono::milliseconds time, bool is_reading) {
    timer_.expires_after(time);
    timer_.async_wait([self = shared_from_this(), is_reading](const error_code& error) {
      // The timer can have been set again after this handler was queued.
      const bool is_due = self->timer_.expiry() <= asio::steady_timer::clock_type::now();
      if (error || self->is_closed_ || !is_due) return;
      if (is_reading && self->has_request_bytes()) self->reject_now("408 Request Timeout");
      self->end();
    });
  }

  void disarm() { timer_.expires_at(asio::steady_timer::time_point::max()); }

  void end() {
    error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
    close();
    std::erase_if(server_.connections_, [&](const auto& one) { return one.get() == this; });
  }

  Impl& server_;  // not used after close()
  Socket socket_;
  const std::optional<uid_t> user_;
  asio::steady_timer timer_;
  beast::flat_buffer buffer_{server_.limits_.header_bytes + 1024};
  std::optional<beast::http::request_parser<beast::http::empty_body>> parser_;
  std::optional<Response> response_;
  std::optional<beast::http::response_serializer<beast::http::string_body>> serializer_;
  Phase phase_ = Phase::kIdle;
  asio::steady_timer::time_point since_;
  size_t counted_bytes_ = 0;
  std::optional<std::string> topic_;  // set: an event stream
  std::string unsent_, sending_;      // of the event stream
  char received_[1];                  // never used: a stream ends with any byte
  bool has_answered_ = false;
  bool is_closed_ = false;
};

// ---- Start and stop

Status HttpServer::Impl::listen_tcp() {
  const config::HttpListen& listen = listen_;
  const std::string name = to_text(listen, listen.port);
  error_code error;
  const auto address = asio::ip::make_address(listen.address, error);
  const asio::ip::tcp::endpoint endpoint(address, listen.port);
  if (!error) acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (!error) {
    asio::ip::tcp::endpoint bound;
    const Protocol::endpoint local = acceptor_.local_endpoint(error);
    bound.resize(local.size());
    std::memcpy(bound.data(), local.data(), local.size());
    port_ = bound.port();
    return {};
  }
  error_code ignored;
  acceptor_.close(ignored);
  std::string text = name + ": " + error.message();
  // Another process can release the port until the next start.
  if (error == asio::error::address_in_use)
    return Status(StatusCode::kBusy, text + "; choose another port, or 0 for any");
  return Status(
      error == asio::error::access_denied ? StatusCode::kPermission : StatusCode::kInvalidArgument,
      std::move(text));
}

Status HttpServer::Impl::start(UniqueFd unix_socket) {
  if (listen_.unix_path.empty()) {
    STOKER_RETURN_IF_ERROR(listen_tcp());
    log_info("http listening", {{"address", to_text(listen_, port_)}});
  } else {
    error_code error;
    acceptor_.assign(asio::local::stream_protocol(), unix_socket.release(), error);
    if (error) return Status(StatusCode::kInternal, error.message());
    log_info("http listening", {{"address", "unix:" + listen_.unix_path}});
  }
  accept();
  return {};
}

void HttpServer::Impl::stop() {
  *alive_ = false;
  error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
  event_timer_.cancel();
  (void)files_.close();
  for (const auto& connection : std::exchange(connections_, {})) connection->close();
}

// ---- Accepting

void HttpServer::Impl::accept() {
  acceptor_.async_accept([this, alive = alive_](const error_code& error, Socket socket) {
    if (*alive) on_accept(error, std::move(socket));
  });
}

void HttpServer::Impl::on_accept(const error_code& error, Socket socket) {
  if (error) return on_accept_error(error);
  auto connection = std::make_shared<Connection>(*this, std::move(socket));
  if (connections_.size() >= limits_.connections && !make_room(Among::kConnections, *connection)) {
    connection->reject_now("503 Service Unavailable");
  } else {
    connections_.push_back(connection);
    connection->read();
  }
  accept();
}

// Closes one connection, or event stream, of the user who has most of them, the newcomer included. If
// that is the user of the newcomer, only one that waits for a request: false if there is none. So no user
// can take more than an equal share from others, and two users do not close each other's in turn.
bool HttpServer::Impl::make_room(Among among, const Connection& newcomer) {
  const auto counts = [&](const auto& one) {
    return one.get() != &newcomer && (among == Among::kConnections || one->topic().has_value());
  };
  std::map<std::optional<uid_t>, size_t> shares{{newcomer.user(), 1}};
  for (const auto& one : connections_)
    if (counts(one)) ++shares[one->user()];
  const auto most =
      std::ranges::max_element(shares, {}, [](const auto& share) { return share.second; });
  const bool is_own = most->second == shares[newcomer.user()];
  const std::optional<uid_t> user = is_own ? newcomer.user() : most->first;
  const auto is_candidate = [&](const auto& one) {
    if (!counts(one) || one->user() != user) return false;
    return !is_own || one->phase() <= Connection::Phase::kIncompleteRequest;
  };
  std::shared_ptr<Connection> found;
  const auto rank = [](const auto& one) { return std::pair(one->phase(), one->since()); };
  for (const auto& one : connections_)
    if (is_candidate(one) && (!found || rank(one) < rank(found))) found = one;
  if (!found) return false;
  drop(found);
  return true;
}

void HttpServer::Impl::drop(const std::shared_ptr<Connection>& connection) {
  std::erase(connections_, connection);
  if (connection->phase() == Connection::Phase::kIncompleteRequest)
    connection->reject_now("503 Service Unavailable");
  else
    connection->close();
}

void HttpServer::Impl::on_accept_error(const error_code& error) {
  if (error == asio::error::operation_aborted) return;
  constexpr std::chrono::nanoseconds kWarningInterval = std::chrono::minutes(1);
  const auto now = clock_.monotonic();
  if (!maybe_last_warning_ || now - *maybe_last_warning_ >= kWarningInterval) {
    log_warn("http accept failed", {{"error", error.message()}});
    maybe_last_warning_ = now;
  }
  pause_.expires_after(limits_.accept_pause);
  pause_.async_wait([this, alive = alive_](const error_code& cancelled) {
    if (*alive && !cancelled) accept();
  });
}

// ---- Answers

Reply HttpServer::Impl::reply(const Request& request) const {
  const size_t hosts = request.count(field::host);
  if (hosts > 1 || (hosts == 0 && request.version() >= 11))
    return HttpAnswer{.code = 400, .body = "a request has one Host\n"};
  const bool is_tcp = listen_.unix_path.empty();
  if (is_tcp && hosts == 1 && !is_loopback_host(request[field::host]))
    return HttpAnswer{.code = 403,
                      .body = "the host of the request must be localhost or a loopback address\n"};
  if (request.method() != verb::get && request.method() != verb::head)
    return HttpAnswer{.code = 405, .body = "only GET and HEAD\n"};
  const std::string_view target = request.target();
  const size_t mark = target.find('?');
  return site_.answer({.path = target.substr(0, mark),
                       .query = mark == target.npos ? "" : target.substr(mark + 1)});
}

void HttpServer::Impl::read_answer(std::shared_ptr<Connection> connection, ReadAnswer read,
                                   bool is_head, bool keep_alive) {
  if (answer_bytes_ > limits_.answer_bytes)
    return connection->write(too_many_bytes(), is_head, keep_alive);
  read_later([this, alive = alive_, connection = std::move(connection), read = std::move(read),
              is_head, keep_alive]() mutable {
    HttpAnswer answer;
    if (!run_or_log([&] { answer = read(); }))
      answer = {.code = 500, .body = "the answer could not be produced; see the log\n"};
    asio::post(io_, [this, alive, connection = std::move(connection), answer = std::move(answer),
                     is_head, keep_alive]() mutable {
      if (!*alive) return;
      // Again: others may have been written since it was queued.
      if (!is_head && answer_bytes_ > 0 &&
          answer_bytes_ + answer.body.size() > limits_.answer_bytes)
        answer = too_many_bytes();
      connection->write(std::move(answer), is_head, keep_alive, true);
    });
  });
}

bool HttpServer::Impl::begin_events(const std::shared_ptr<Connection>& connection,
                                    const std::string& topic) {
  const auto is_other = [&](const auto& one) {
    return one != connection && one->topic().has_value();
  };
  const auto streams = static_cast<size_t>(std::ranges::count_if(connections_, is_other));
  if (!site_.events || topic.size() > 1024) return false;
  if (streams >= limits_.event_streams && !make_room(Among::kEventStreams, *connection))
    return false;
  if (!std::exchange(has_event_timer_, true)) wait_for_events();
  return true;
}

void HttpServer::Impl::wait_for_events() {
  event_timer_.expires_after(limits_.event_interval);
  event_timer_.async_wait([this, alive = alive_](const error_code& error) {
    if (*alive && !error) read_events();
  });
}

// Each topic once. The next interval begins when the file thread has read all of them.
void HttpServer::Impl::read_events() {
  std::set<std::string> topics;
  for (const auto& one : connections_)
    if (one->topic()) topics.insert(*one->topic());
  if (topics.empty()) {
    has_event_timer_ = false;
    return;
  }
  reading_events_ = topics.size();
  for (const std::string& topic : topics) {
    read_later([this, alive = alive_, topic, read = site_.events(topic)] {
      std::string text;
      (void)run_or_log([&] { text = read(); });
      asio::post(io_, [this, alive, topic, text = std::move(text)] {
        if (!*alive) return;
        send_events(topic, text);
        if (--reading_events_ == 0) wait_for_events();
      });
    });
  }
}

void HttpServer::Impl::send_events(const std::string& topic, const std::string& text) {
  if (text.empty()) return;
  const auto all = connections_;  // a stream that does not read is removed
  for (const auto& one : all)
    if (one->topic() == topic) one->send_events(text);
}

// ---- HttpServer

HttpServer::HttpServer(asio::io_context& io, Clock& clock, config::HttpListen listen, HttpSite site,
                       HttpLimits limits)
    : impl_(std::make_unique<Impl>(io, clock, std::move(listen), std::move(site), limits)) {}
HttpServer::~HttpServer() { stop(); }  // NOLINT(bugprone-exception-escape)
Status HttpServer::start(UniqueFd unix_socket) { return impl_->start(std::move(unix_socket)); }
void HttpServer::stop() { impl_->stop(); }
uint16_t HttpServer::port() const { return impl_->port(); }

std::string decode_path(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size() || digit(text[i + 1]) < 0 || digit(text[i + 2]) < 0) return "";
    out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
    i += 2;
  }
  return out;
}

std::string query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view part = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), part.size() + 1));
    if (!part.starts_with(name) || part.size() <= name.size() || part[name.size()] != '=') continue;
    std::string value(part.substr(name.size() + 1));
    std::ranges::replace(value, '+', ' ');
    return decode_path(value);
  }
  return "";
}

}  // namespace stoker::http
