// HttpServer: read-only HTTP/1.1 on a loopback address or a Unix socket (http.listen).
//
// GET and HEAD only, without a body. Over TCP, `Host` must be a loopback name: a page of another
// site that a browser of this host shows cannot read the answers, even if its name resolves to this
// host. No cross-origin access, no cookies, nothing that changes the run.
//
// The HttpSite decides what there is. An answer that needs files is produced in the server's own
// thread, so that a slow disk delays only such answers. An event stream (text/event-stream) stays
// open; all streams of a topic get the same events, once per interval.
//
// Threads:   one, which runs the io_context, and a separate one for answers that read files.
// Blocking:  never, except the destructor: it waits for the answer that is being read.
// Ownership: io, clock and the functions of the site must outlive this object.
// Errors:    start(): kBusy if the port is in use, kPermission, kInvalidArgument; each has the
//            address. A later error of a client ends only its connection. If a function of the
//            site throws in the server's own thread, the error is logged; the client gets 500 or, in
//            a stream, no events.
// Limits:    HttpLimits; a client that exceeds one gets 408, 413, 431 or 503. It is disconnected,
//            except after 503 for answer_bytes.
//            If all connections or event streams are in use, one of the user who has most of them is
//            closed, the longest idle first: a user cannot keep others from connecting.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "shared/base/clock.h"
#include "shared/base/file.h"
#include "shared/base/status.h"
#include "shared/config/http_listen.h"

namespace boost::asio {
class io_context;
}

namespace stoker::http {

struct HttpLimits {
  size_t connections = 64;
  size_t event_streams = 16;  // of these
  // Of all answers with files that are being written, unless there is only one; others get 503.
  size_t answer_bytes = 32 << 20;
  size_t event_bytes = 1 << 20;  // that a stream has not read; then it is closed
  uint32_t header_bytes = 8 << 10;
  std::chrono::milliseconds header_time{10'000};  // to send a request, from its first byte
  std::chrono::milliseconds idle_time{120'000};   // from an answer to the next request
  std::chrono::milliseconds write_time{10'000};   // to read an answer
  std::chrono::milliseconds accept_pause{100};    // after accept failed for lack of descriptors
  std::chrono::milliseconds event_interval{1000};
};

struct HttpRequest {
  std::string_view path;
  std::string_view query;  // after the '?', as it was sent
};

struct HttpAnswer {
  unsigned code = 200;
  std::string_view content_type = "text/plain; charset=utf-8";
  std::string body = {};
  std::string_view security_policy = "default-src 'none'; frame-ancestors 'none'";
};

struct EventStream {
  std::string topic;
};

using ReadAnswer = std::function<HttpAnswer()>;  // in the server's own thread
using ReadEvents = std::function<std::string()>;

struct HttpSite {
  // In the thread of the io_context.
  std::function<std::variant<HttpAnswer, ReadAnswer, EventStream>(const HttpRequest&)> answer;
  // Returns a function that returns the events since its last call for this topic, each as
  // "event: NAME\ndata: TEXT\n\n". Called only while the topic has a stream.
  std::function<ReadEvents(const std::string& topic)> events = {};
};

class HttpServer {
 public:
  HttpServer(boost::asio::io_context& io, Clock& clock, config::HttpListen listen, HttpSite site,
             HttpLimits limits = {});
  ~HttpServer();  // stop()
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // On failure it leaves nothing behind. `unix_socket`: of listen.unix_path, listening.
  Status start(UniqueFd unix_socket = {});
  // Closes the connections. Idempotent.
  void stop();

  uint16_t port() const;  // of TCP

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The value of a parameter in a query ("run=a&x=1"), with %XX and '+' decoded; empty if it is
// missing or not valid.
std::string query_value(std::string_view query, std::string_view name);
// %XX decoded; empty if it is not valid.
std::string decode_path(std::string_view text);

}  // namespace stoker::http
