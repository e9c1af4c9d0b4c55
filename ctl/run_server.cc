#include "ctl/run_server.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <list>
#include <optional>
#include <utility>

#include "ctl/live_status.h"
#include "shared/view/page.h"
#include "shared/view/run_view.h"

namespace stoker::ctl {

using http::HttpAnswer;
using http::HttpRequest;

class RunServer::Impl {
 public:
  Impl(boost::asio::io_context& io, Clock& clock, config::HttpListen listen, std::string directory,
       http::HttpLimits limits)
      : clock_(clock),
        directory_(std::move(directory)),
        server_(io, clock, std::move(listen),
                {.answer = [this](const HttpRequest& request) { return answer(request); },
                 .events = [this](const std::string& topic) { return events(topic); }},
                limits) {}
  http::HttpServer& server() { return server_; }

 private:
  using Reply = std::variant<HttpAnswer, http::ReadAnswer, http::EventStream>;

  Reply answer(const HttpRequest& request) {
    const std::string_view path = request.path;
    const std::string name = http::query_value(request.query, "run");
    if (path == "/")
      return HttpAnswer{.content_type = "text/html; charset=utf-8",
                        .body = view::live_page().html,
                        .security_policy = view::live_page().security_policy};
    if (path == "/healthz") return HttpAnswer{.body = "ok\n"};
    if (path == "/v1/events") return http::EventStream{.topic = name};
    if (path == "/v1/runs") return [this] { return json(list()); };
    if (path == "/v1/run") return of_run(name, [](auto& run) { return json(run.overview()); });
    if (path == "/v1/curves")
      return of_run(name,
                    [rows = rows_of(request.query)](auto& run) { return json(run.curves(rows)); });
    constexpr std::string_view kArtifacts = "/v1/artifacts/";
    if (path.starts_with(kArtifacts)) {
      const std::string file = http::decode_path(path.substr(kArtifacts.size()));
      return of_run(name, [file](view::RunView& run) {
        auto artifact = run.read_artifact(file);
        return artifact.ok() ? HttpAnswer{.content_type = artifact->content_type,
                                          .body = std::move(artifact->bytes)}
                             : not_found();
      });
    }
    return not_found();
  }
  http::ReadEvents events(const std::string& name) {
    return [this, name] {
      ShownRun* const run = find_shown(name);
      return run == nullptr ? std::string() : status_event(*run) + run->view.events();
    };
  }

  struct ShownRun {
    view::RunView view;
    LiveStatus status;
    bool has_status = false;  // sent last
  };

  // Empty without a stokerd; null after it has exited.
  static std::string status_event(ShownRun& run) {
    const auto status = run.status.read();
    if (!status && !run.has_status) return "";
    run.has_status = status.has_value();
    return "event: status\ndata: " + status.value_or("null") + "\n\n";
  }

  // "rows=500": of many runs, a picture needs few.
  static size_t rows_of(std::string_view query) {
    const std::string text = http::query_value(query, "rows");
    size_t rows = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rows);
    return error == std::errc() && end == text.data() + text.size() && rows > 0 ? rows : SIZE_MAX;
  }
  static HttpAnswer json(std::string text) {
    return {.content_type = "application/json", .body = std::move(text) + "\n"};
  }
  static HttpAnswer not_found() {
    return {.code = 404, .body = "not found; / is the page of the runs\n"};
  }
  template <typename Read>
  http::ReadAnswer of_run(std::string name, Read read) {
    return [this, name = std::move(name), read = std::move(read)] {
      view::RunView* const run = find(name);
      return run == nullptr ? not_found() : read(*run);
    };
  }

  // ---- In the thread of server_

  std::string list() {
    std::string out;
    for (const view::RunSummary& run : read_summaries(view::find_runs(directory_)))
      out += (out.empty() ? "" : ",") + to_json(run);
    return "[" + out + "]";
  }
  // Only a name that find_runs() returns: it cannot be a path out of the directory. The views of the
  // last runs are stored with what they have read.
  view::RunView* find(const std::string& name) {
    ShownRun* const run = find_shown(name);
    return run == nullptr ? nullptr : &run->view;
  }
  ShownRun* find_shown(const std::string& name) {
    constexpr size_t kMaxViews = 64;  // more than a page compares
    const auto is_named = [&](const auto& run) { return run.view.name() == name; };
    if (const auto known = std::ranges::find_if(views_, is_named); known != views_.end()) {
      views_.splice(views_.begin(), views_, known);
      return &views_.front();
    }
    for (view::FoundRun& run : view::find_runs(directory_)) {
      if (name.empty()) return find_shown(run.name);
      if (run.name != name) continue;
      views_.push_front({.view = view::RunView(run.layout, std::move(run.name)),
                         .status = LiveStatus(clock_, run.layout)});
      if (views_.size() > kMaxViews) views_.pop_back();
      return &views_.front();
    }
    return nullptr;
  }

  Clock& clock_;
  const std::string directory_;
  std::list<ShownRun> views_;  // of the thread of server_; the last used first
  http::HttpServer server_;
};

RunServer::RunServer(boost::asio::io_context& io, Clock& clock, config::HttpListen listen,
                     std::string directory, http::HttpLimits limits)
    : impl_(std::make_unique<Impl>(io, clock, std::move(listen), std::move(directory), limits)) {}
RunServer::~RunServer() = default;
Status RunServer::start() { return impl_->server().start(); }
void RunServer::stop() { impl_->server().stop(); }
uint16_t RunServer::port() const { return impl_->server().port(); }

}  // namespace stoker::ctl
