#include "daemon/http/http_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include "daemon/http/metrics_text.h"
#include "shared/base/log.h"

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

constexpr std::string_view kText = "text/plain; charset=utf-8";
constexpr std::string_view kIndex =
    "stoker\n\n"
    "/metrics    for Prometheus\n"
    "/v1/status  JSON\n"
    "/healthz    200 while stokerd serves\n"
    "/readyz     200 while the run trains\n";

struct Answer {
  HttpStatus code = HttpStatus::ok;
  std::string_view content_type = kText;
  std::string body;
};

// "localhost", "127.0.0.1:9000", "[::1]:9000". A missing Host is one of HTTP/1.0.
bool is_loopback_host(std::string_view host) {
  const size_t bracket = host.rfind(']');
  const size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket))
    host = host.substr(0, colon);
  return beast::iequals(host, "localhost") || host == "127.0.0.1" || host == "[::1]";
}

}  // namespace

// ---- One connection

class HttpServer::Impl {
 public:
  Impl(asio::io_context& io, Clock& clock, HttpOptions options)
      : options_(std::move(options)), clock_(clock), io_(io), acceptor_(io), pause_(io) {}
  Status start(UniqueFd unix_socket);
  void stop();
  uint16_t port() const { return port_; }

 private:
  class Connection;
  Status listen_tcp();
  void accept();
  void on_accept(const error_code& error, Socket socket);
  void on_accept_error(const error_code& error);
  Answer answer(const Request& request) const;
  Answer answer_path(std::string_view path) const;

  const HttpOptions options_;
  Clock& clock_;
  asio::io_context& io_;
  asio::basic_socket_acceptor<Protocol> acceptor_;
  asio::steady_timer pause_;
  uint16_t port_ = 0;
  std::vector<std::shared_ptr<Connection>> connections_;
  std::optional<std::chrono::nanoseconds> maybe_last_warning_;
  // Handlers that run after this object is destroyed check this flag.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

class HttpServer::Impl::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Impl& server, Socket socket)
      : server_(server), socket_(std::move(socket)), timer_(socket_.get_executor()) {}

  void read() {
    parser_.emplace();
    parser_->header_limit(server_.options_.limits.header_bytes);
    parser_->body_limit(0);
    arm(server_.options_.limits.header_time, true);
    beast::http::async_read_header(
        socket_, buffer_, *parser_,
        [self = shared_from_this()](const error_code& error, size_t) { self->on_read(error); });
  }
  // One attempt to say why, and the end.
  void reject_now(std::string_view status_line) {
    const std::string text = "HTTP/1.1 " + std::string(status_line) +
                             "\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    (void)::send(socket_.native_handle(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    close();
  }
  void close() {
    if (std::exchange(is_closed_, true)) return;
    timer_.cancel();
    error_code ignored;
    socket_.close(ignored);
  }

 private:
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
    write(server_.answer(request), request.method() == verb::head, request.keep_alive());
  }
  void reject(HttpStatus code, std::string text) {
    write({.code = code, .body = std::move(text) + "\n"}, false, false);
  }

  void write(Answer answer, bool is_head, bool keep_alive) {
    response_.emplace(answer.code, 11);
    response_->keep_alive(keep_alive);
    response_->set(field::content_type, answer.content_type);
    response_->set(field::cache_control, "no-store");
    response_->set("X-Content-Type-Options", "nosniff");
    response_->set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'");
    response_->set("Cross-Origin-Resource-Policy", "same-origin");
    response_->set("Referrer-Policy", "no-referrer");
    if (answer.code == HttpStatus::method_not_allowed) response_->set(field::allow, "GET, HEAD");
    response_->content_length(answer.body.size());
    if (!is_head) response_->body() = std::move(answer.body);
    arm(server_.options_.limits.write_time, false);
    serializer_.emplace(*response_);
    const auto on_written = [self = shared_from_this(), keep_alive](const error_code& error,
                                                                    size_t) {
      if (self->is_closed_) return;
      if (error || !keep_alive) return self->end();
      self->read();
    };
    if (is_head)
      beast::http::async_write_header(socket_, *serializer_, on_written);
    else
      beast::http::async_write(socket_, *serializer_, on_written);
  }

  // `is_reading`: the client gets 408 unless it has sent nothing.
  void arm(std::chrono::milliseconds time, bool is_reading) {
    timer_.expires_after(time);
    timer_.async_wait([self = shared_from_this(), is_reading](const error_code& error) {
      if (error || self->is_closed_) return;
      if (is_reading && self->buffer_.size() > 0) self->reject_now("408 Request Timeout");
      self->end();
    });
  }

  void end() {
    error_code ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
    close();
    std::erase_if(server_.connections_, [&](const auto& one) { return one.get() == this; });
  }

  Impl& server_;  // not used after close()
  Socket socket_;
  asio::steady_timer timer_;
  beast::flat_buffer buffer_{server_.options_.limits.header_bytes + 1024};
  std::optional<beast::http::request_parser<beast::http::empty_body>> parser_;
  std::optional<Response> response_;
  std::optional<beast::http::response_serializer<beast::http::string_body>> serializer_;
  bool is_closed_ = false;
};

// ---- Start and stop

Status HttpServer::Impl::listen_tcp() {
  const config::HttpListen& listen = options_.listen;
  const std::string name = listen.address + ":" + std::to_string(listen.port);
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
  const StatusCode code =
      error == asio::error::access_denied ? StatusCode::kPermission : StatusCode::kInvalidArgument;
  return Status(code, "http.listen: " + name + ": " + error.message() +
                          "; choose another port, or 0 for any");
}

Status HttpServer::Impl::start(UniqueFd unix_socket) {
  if (options_.listen.unix_path.empty()) {
    STOKER_RETURN_IF_ERROR(listen_tcp());
    log_info("http listening",
             {{"address", options_.listen.address + ":" + std::to_string(port_)}});
  } else {
    error_code error;
    acceptor_.assign(asio::local::stream_protocol(), unix_socket.release(), error);
    if (error) return Status(StatusCode::kInternal, "http.listen: " + error.message());
    log_info("http listening", {{"address", "unix:" + options_.listen.unix_path}});
  }
  accept();
  return {};
}

void HttpServer::Impl::stop() {
  *alive_ = false;
  error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
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
  const bool is_full = connections_.size() >= options_.limits.connections;
  auto connection = std::make_shared<Connection>(*this, std::move(socket));
  if (is_full) {
    connection->reject_now("503 Service Unavailable");
  } else {
    connections_.push_back(connection);
    connection->read();
  }
  accept();
}

void HttpServer::Impl::on_accept_error(const error_code& error) {
  if (error == asio::error::operation_aborted) return;
  constexpr std::chrono::nanoseconds kWarningInterval = std::chrono::minutes(1);
  const auto now = clock_.monotonic();
  if (!maybe_last_warning_ || now - *maybe_last_warning_ >= kWarningInterval) {
    log_warn("http accept failed", {{"error", error.message()}});
    maybe_last_warning_ = now;
  }
  pause_.expires_after(options_.limits.accept_pause);
  pause_.async_wait([this, alive = alive_](const error_code& cancelled) {
    if (*alive && !cancelled) accept();
  });
}

// ---- Answers

Answer HttpServer::Impl::answer(const Request& request) const {
  const bool is_tcp = options_.listen.unix_path.empty();
  const auto host = request.find(field::host);
  if (is_tcp && host != request.end() && !is_loopback_host(host->value()))
    return {.code = HttpStatus::forbidden,
            .body = "the host of the request must be localhost or a loopback address\n"};
  if (request.method() != verb::get && request.method() != verb::head)
    return {.code = HttpStatus::method_not_allowed, .body = "only GET and HEAD\n"};
  std::string_view path = request.target();
  return answer_path(path.substr(0, path.find('?')));
}

Answer HttpServer::Impl::answer_path(std::string_view path) const {
  if (path == "/metrics")
    return {.content_type = kMetricsContentType,
            .body = to_metrics_text(options_.status(), options_.version)};
  if (path == "/v1/status")
    return {.content_type = "application/json", .body = to_json(options_.status()) + "\n"};
  if (path == "/healthz") return {.body = "ok\n"};
  if (path == "/readyz") {
    using control::TrainerState;
    const TrainerState state = options_.status().state;
    const bool is_ready = state != TrainerState::kStarting && state != TrainerState::kStopping;
    return {.code = is_ready ? HttpStatus::ok : HttpStatus::service_unavailable,
            .body = std::string(to_string(state)) + "\n"};
  }
  if (path == "/") return {.body = std::string(kIndex)};
  return {.code = HttpStatus::not_found, .body = "not found; / lists what there is\n"};
}

// ---- HttpServer

HttpServer::HttpServer(asio::io_context& io, Clock& clock, HttpOptions options)
    : impl_(std::make_unique<Impl>(io, clock, std::move(options))) {}
HttpServer::~HttpServer() { stop(); }  // NOLINT(bugprone-exception-escape)
Status HttpServer::start(UniqueFd unix_socket) { return impl_->start(std::move(unix_socket)); }
void HttpServer::stop() { impl_->stop(); }
uint16_t HttpServer::port() const { return impl_->port(); }

}  // namespace stoker::http
