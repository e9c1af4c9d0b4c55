#include "daemon/monitoring/monitoring_server.h"

#include <utility>

#include "daemon/monitoring/metrics_text.h"
#include "shared/view/page.h"
#include "shared/view/run_view.h"

namespace stoker::monitoring {

using control::TrainerState;
using http::HttpAnswer;
using http::HttpRequest;

class MonitoringServer::Impl {
 public:
  Impl(boost::asio::io_context& io, Clock& clock, MonitoringOptions options)
      : options_(std::move(options)),
        view_(run::RunLayout(options_.run_dir)),
        server_(io, clock, options_.listen,
                {.answer = [this](const HttpRequest& request) { return answer(request.path); },
                 .events = [this](const std::string&) { return events(); }},
                options_.limits) {}
  http::HttpServer& server() { return server_; }

 private:
  using Reply = std::variant<HttpAnswer, http::ReadAnswer, http::EventStream>;

  Reply answer(std::string_view path) {
    if (path == "/metrics")
      return HttpAnswer{.content_type = kMetricsContentType,
                        .body = to_metrics_text(options_.status(), options_.version)};
    if (path == "/v1/status") return json(to_json(options_.status()));
    if (path == "/healthz") return HttpAnswer{.body = "ok\n"};
    if (path == "/readyz") return readiness();
    if (path == "/v1/events") return http::EventStream{};
    if (path == "/")
      return HttpAnswer{.content_type = "text/html; charset=utf-8",
                        .body = view::live_page().html,
                        .security_policy = view::live_page().security_policy};
    if (path == "/v1/runs")
      return read_json([this, status = options_.status()] {
        view::RunSummary summary = view_.summary();
        add_status(summary, status);
        return "[" + to_json(summary) + "]";
      });
    if (path == "/v1/run") return read_json([this] { return view_.overview(); });
    if (path == "/v1/curves") return read_json([this] { return view_.curves(); });
    constexpr std::string_view kArtifacts = "/v1/artifacts/";
    if (path.starts_with(kArtifacts))
      return [this, name = http::decode_path(path.substr(kArtifacts.size()))] {
        auto artifact = view_.read_artifact(name);
        if (!artifact.ok()) return HttpAnswer{.code = 404, .body = "not found\n"};
        return HttpAnswer{.content_type = artifact->content_type,
                          .body = std::move(artifact->bytes)};
      };
    return HttpAnswer{.code = 404, .body = "not found; / lists what there is\n"};
  }
  HttpAnswer readiness() const {
    const control::TrainerStatus status = options_.status();
    const TrainerState state = status.state;
    const bool is_ready = state != TrainerState::kStarting && state != TrainerState::kStopping;
    std::string body(to_string(state));
    if (!status.waiting_for.empty()) body += ": waiting for " + status.waiting_for;
    return {.code = is_ready ? 200u : 503u, .body = body + "\n"};
  }
  http::ReadEvents events() {
    return [this, status = to_json(options_.status())] {
      return "event: status\ndata: " + status + "\n\n" + view_.events();
    };
  }
  static HttpAnswer json(std::string text) {
    return {.content_type = "application/json", .body = std::move(text) + "\n"};
  }
  static http::ReadAnswer read_json(std::function<std::string()> read) {
    return [read = std::move(read)] { return json(read()); };
  }

  const MonitoringOptions options_;
  view::RunView view_;  // used by the thread of server_
  http::HttpServer server_;
};

MonitoringServer::MonitoringServer(boost::asio::io_context& io, Clock& clock,
                                   MonitoringOptions options)
    : impl_(std::make_unique<Impl>(io, clock, std::move(options))) {}
MonitoringServer::~MonitoringServer() = default;
Status MonitoringServer::start(UniqueFd unix_socket) {
  return impl_->server().start(std::move(unix_socket)).with_context("http.listen");
}
void MonitoringServer::stop() { impl_->server().stop(); }
uint16_t MonitoringServer::port() const { return impl_->server().port(); }

}  // namespace stoker::monitoring
