#include "daemon/server/control_server.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/server/event_feed.h"
#include "daemon/server/file_requests.h"
#include "daemon/server/listening_socket.h"
#include "daemon/server/request_handler.h"
#include "shared/base/glob.h"
#include "shared/base/log.h"

namespace stoker::server {

using boost::system::error_code;
namespace asio = boost::asio;

namespace {

std::string error_line(StatusCode code, std::string message) {
  return control::render_error({.why = Status(code, std::move(message))});
}

// A spare descriptor. When the process has no descriptors left, it is closed so that one client can
// be accepted and rejected with a message.
UniqueFd open_reserve_descriptor() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

// One nonblocking attempt, because the connection is closed immediately afterwards.
void send_and_close(int fd, const std::string& line) {
  const std::string bytes = line + "\n";
  (void)::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

class ControlServer::Impl final : public SessionEvents {
 public:
  Impl(asio::io_context& io, Clock& clock, TrainingControl& training, ServerOptions options)
      : options_(std::move(options)),
        authorizer_(::geteuid(), options_.operators),
        clock_(clock),
        io_(io),
        acceptor_(io),
        pause_(io),
        status_timer_(io),
        replies_(std::make_shared<ReplyQueue>(io)),
        events_(std::make_shared<EventFeed>(
            io, [this](const auto& events, uint64_t dropped) { send_events(events, dropped); })),
        files_(options_.execute_file_request, options_.limits.file_requests),
        handler_(training, clock, options_.limits, options_.build, options_.run, replies_, files_,
                 events_, options_.reload, [this](Session& session) { on_subscribe(session); }) {}

  Status start();
  void stop();
  const control::TrainerStatus::Control& counters() { return handler_.counters(); }

  void on_line(Session& session, std::string_view line) override { handler_.handle(session, line); }
  void on_ended(Session& session, bool exceeded_limit) override;

 private:
  using Socket = Session::Socket;
  void accept();
  void on_accept(const error_code& error, Socket socket);
  void accept_after(std::chrono::milliseconds pause);
  void on_accept_error(const error_code& error);
  void reject_connection();
  Status admit(const Peer& peer);
  void reject_peer(int fd, const Status& why);

  // Subscriptions.
  void on_subscribe(Session& session);
  void send_events(const std::vector<EventFeed::Event>& events, uint64_t dropped);
  void wait_for_status_period();
  void send_status();
  bool has_subscription() const;

  // Constant after construction.
  const ServerOptions options_;
  const Authorizer authorizer_;
  Clock& clock_;

  asio::io_context& io_;
  asio::local::stream_protocol::acceptor acceptor_;
  asio::steady_timer pause_;
  std::optional<ListeningSocket> maybe_socket_;
  bool linked_ = false;
  UniqueFd reserve_descriptor_;
  std::optional<std::chrono::nanoseconds> maybe_last_warning_;
  asio::steady_timer status_timer_;
  bool is_status_timer_running_ = false;
  uint64_t num_status_periods_ = 0;
  const std::shared_ptr<ReplyQueue> replies_;
  const std::shared_ptr<EventFeed> events_;
  FileRequests files_;
  RequestHandler handler_;
  std::vector<std::shared_ptr<Session>> sessions_;
  // Handlers that run after this object is destroyed check this flag.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// ---- Start and stop

Status ControlServer::Impl::start() {
  auto opened = ListeningSocket::open(options_.socket_path);
  if (!opened.ok()) return opened.status();
  maybe_socket_.emplace(*std::move(opened));
  error_code error;
  acceptor_.assign(asio::local::stream_protocol(), maybe_socket_->take_descriptor().release(),
                   error);
  if (error) {
    maybe_socket_.reset();
    return Status(StatusCode::kInternal, "listen on the control socket: " + error.message());
  }
  reserve_descriptor_ = open_reserve_descriptor();
  if (!options_.link_path.empty() && options_.link_path != options_.socket_path) {
    // Without the symlink, stokerctl needs --socket; training is not affected.
    const Status linked = link_socket(options_.link_path, options_.socket_path);
    linked_ = linked.ok();
    if (!linked.ok()) log_warn("control socket symlink failed", {{"error", linked.to_string()}});
  }
  log_info("control socket listening", {{"path", options_.socket_path}});
  accept();
  return {};
}

void ControlServer::Impl::stop() {
  if (!maybe_socket_) return;
  *alive_ = false;
  // The file first: a stokerd that starts now sees either a live socket or none. It would replace a
  // socket on which no process listens, and its own would be removed here.
  maybe_socket_->remove();
  error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
  status_timer_.cancel();
  events_->close();
  replies_->deliver();
  replies_->close();
  for (const auto& session : std::vector(sessions_))
    session->stop(error_line(StatusCode::kClosed, "the daemon is shutting down"));
  if (linked_) unlink_socket(options_.link_path, options_.socket_path);
  maybe_socket_.reset();
}

void ControlServer::Impl::on_ended(Session& session, bool exceeded_limit) {
  auto& counters = handler_.counters();
  if (exceeded_limit) {
    ++counters.connections_dropped;
    log_debug(
        "control client disconnected",
        {{"uid", session.peer().uid}, {"pid", session.peer().pid}, {"reason", "limit exceeded"}});
  }
  std::erase_if(sessions_,
                [&](const auto& open_session) { return open_session.get() == &session; });
  counters.connections = sessions_.size();
  if (!has_subscription()) events_->stop();
}

// ---- Subscriptions

bool ControlServer::Impl::has_subscription() const {
  return std::ranges::any_of(
      sessions_, [](const auto& session) { return session->maybe_subscription() != nullptr; });
}

void ControlServer::Impl::on_subscribe(Session& session) {
  const control::Subscribe* const subscription = session.maybe_subscription();
  if (subscription == nullptr) return;
  events_->start();
  if (subscription->status_seconds == 0) return;
  if (!std::exchange(is_status_timer_running_, true)) wait_for_status_period();
}

// A session can end while it is sent a line, so both iterate over a copy.
void ControlServer::Impl::send_events(const std::vector<EventFeed::Event>& events,
                                      uint64_t dropped) {
  for (const auto& session : std::vector(sessions_)) {
    const control::Subscribe* const subscription = session->maybe_subscription();
    if (subscription == nullptr || subscription->events.empty()) continue;
    const NameGlob pattern(subscription->events);
    for (const EventFeed::Event& event : events)
      if (pattern.matches(event.name))
        session->notify(control::render_notification(
            "event", session->role() == Role::kOperate ? event.json : event.reader_json));
    if (dropped > 0)
      session->notify(control::render_notification("events_dropped",
                                                   "{\"count\":" + std::to_string(dropped) + "}"));
  }
}

void ControlServer::Impl::wait_for_status_period() {
  status_timer_.expires_after(options_.limits.status_period);
  status_timer_.async_wait([this, alive = alive_](const error_code& error) {
    if (*alive && !error) send_status();
  });
}

void ControlServer::Impl::send_status() {
  ++num_status_periods_;
  std::string line;
  bool is_wanted = false;
  for (const auto& session : std::vector(sessions_)) {
    const control::Subscribe* const subscription = session->maybe_subscription();
    if (subscription == nullptr || subscription->status_seconds == 0) continue;
    is_wanted = true;
    if (num_status_periods_ % subscription->status_seconds != 0) continue;
    if (line.empty()) line = control::render_notification("status", handler_.status_json());
    session->notify(line);
  }
  is_status_timer_running_ = is_wanted;
  if (is_wanted) wait_for_status_period();
}

// ---- Accepting

void ControlServer::Impl::accept() {
  acceptor_.async_accept([this, alive = alive_](const error_code& error, Socket socket) {
    if (*alive) on_accept(error, std::move(socket));
  });
}

void ControlServer::Impl::accept_after(std::chrono::milliseconds pause) {
  pause_.expires_after(pause);
  pause_.async_wait([this, alive = alive_](const error_code& error) {
    if (*alive && !error) accept();
  });
}

void ControlServer::Impl::on_accept(const error_code& error, Socket socket) {
  if (error) return on_accept_error(error);
  const auto peer = options_.peer_of(socket.native_handle());
  const Status admitted = peer.ok() ? admit(*peer) : peer.status();
  if (!admitted.ok()) {
    reject_peer(socket.native_handle(), admitted);
    return accept_after(options_.limits.rejection_pause);
  }
  auto& counters = handler_.counters();
  ++counters.connections_accepted;
  const auto session = std::make_shared<Session>(
      std::move(socket), *peer, authorizer_.role_of(peer->uid), options_.limits, *this);
  sessions_.push_back(session);
  counters.connections = sessions_.size();
  session->start();
  accept();
}

Status ControlServer::Impl::admit(const Peer& peer) {
  const Limits& limits = options_.limits;
  const bool privileged = authorizer_.is_owner_or_root(peer.uid);
  const size_t limit =
      privileged ? limits.connections : limits.connections - limits.reserved_connections;
  if (sessions_.size() >= limit)
    return Status(StatusCode::kBusy, std::to_string(sessions_.size()) +
                                         " clients are connected, the maximum; try again later");
  const auto read_only = std::ranges::count(sessions_, Role::kRead,
                                            [](const auto& session) { return session->role(); });
  if (authorizer_.role_of(peer.uid) == Role::kRead &&
      static_cast<size_t>(read_only) >= limits.read_only_connections) {
    return Status(StatusCode::kBusy, std::to_string(read_only) +
                                         " clients with read-only access are connected, the "
                                         "maximum; try again later");
  }
  const auto same_user =
      std::count_if(sessions_.begin(), sessions_.end(),
                    [&](const auto& session) { return session->peer().uid == peer.uid; });
  if (!privileged && static_cast<size_t>(same_user) >= limits.connections_per_uid) {
    return Status(StatusCode::kBusy, "uid " + std::to_string(peer.uid) + " has " +
                                         std::to_string(same_user) +
                                         " connections, the maximum; close one");
  }
  if (!handler_.admit_connection(peer.uid))
    return Status(StatusCode::kBusy, "too many requests and connections of uid " +
                                         std::to_string(peer.uid) + "; retry after one second");
  return {};
}

void ControlServer::Impl::reject_peer(int fd, const Status& why) {
  ++handler_.counters().connections_rejected;
  send_and_close(fd, error_line(why.code(), why.message()));
}

void ControlServer::Impl::on_accept_error(const error_code& error) {
  if (error == asio::error::operation_aborted) return;
  constexpr std::chrono::nanoseconds kWarningInterval = std::chrono::minutes(1);
  const auto now = clock_.monotonic();
  if (!maybe_last_warning_ || now - *maybe_last_warning_ >= kWarningInterval) {
    log_warn("control accept failed", {{"error", error.message()}});
    maybe_last_warning_ = now;
  }
  if (error == asio::error::no_descriptors) reject_connection();
  accept_after(options_.limits.accept_pause);
}

void ControlServer::Impl::reject_connection() {
  reserve_descriptor_.reset();
  {
    const UniqueFd client(
        ::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client.valid())
      reject_peer(client.get(), Status(StatusCode::kBusy,
                                       "the daemon has no file descriptors left; try again later"));
  }
  // If another open took the descriptor, the next client waits without a message.
  reserve_descriptor_ = open_reserve_descriptor();
}

// ---- ControlServer

ControlServer::ControlServer(asio::io_context& io, Clock& clock, TrainingControl& training,
                             ServerOptions options)
    : impl_(std::make_unique<Impl>(io, clock, training, std::move(options))) {}
// stop() throws only when out of memory; terminating the program is then correct.
ControlServer::~ControlServer() { stop(); }  // NOLINT(bugprone-exception-escape)
Status ControlServer::start() { return impl_->start(); }
void ControlServer::stop() { impl_->stop(); }
const control::TrainerStatus::Control& ControlServer::counters() const { return impl_->counters(); }

}  // namespace stoker::server
