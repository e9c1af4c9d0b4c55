#include "shared/feed/request_worker.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <utility>

#include "shared/base/log.h"
#include "shared/config/load_config.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace stoker::feed {
namespace {

using namespace std::chrono_literals;

constexpr int kMaxFailedStarts = 3;
constexpr std::chrono::milliseconds kCheckInterval = 100ms;
constexpr std::chrono::milliseconds kStopInterval = 20ms;  // between calls of should_stop
// A process that waits is killed only if several checks confirm it, because all processes continue
// at the same time after the machine was suspended.
constexpr int kConsecutiveOverdue = 5;
// Between the end of a process's socket and that of the process.
constexpr std::chrono::milliseconds kExitGrace = 1000ms;

// Descriptors of the process.
constexpr int kSocketFd = WorkerProcess::kFirstFd;
constexpr int kMemoryFd = WorkerProcess::kFirstFd + 1;
constexpr int kConfigFd = WorkerProcess::kFirstFd + 2;

// Whether a process that does not answer must be killed, and whether its samples can be the cause.
class ReplyTimer {
 public:
  enum class Verdict { kContinue, kComputing, kWaiting };

  // 0: no limit.
  ReplyTimer(pid_t pid, std::chrono::nanoseconds limit)
      : pid_(pid),
        limit_(limit),
        first_cpu_time_(cpu_time(pid)),
        last_cpu_time_(first_cpu_time_),
        start_(now()),
        next_check_(start_ + kCheckInterval),
        last_growth_(start_) {}

  // May be called at any rate.
  Verdict check() {
    if (limit_.count() == 0 || now() < next_check_) return Verdict::kContinue;
    next_check_ = now() + kCheckInterval;
    const std::chrono::nanoseconds spent = cpu_time(pid_);
    if (spent - first_cpu_time_ >= limit_) return Verdict::kComputing;
    if (spent != last_cpu_time_) {
      last_cpu_time_ = spent;
      last_growth_ = now();
      num_overdue_ = 0;
      return Verdict::kContinue;
    }
    num_overdue_ = is_overdue() ? num_overdue_ + 1 : 0;
    return num_overdue_ >= kConsecutiveOverdue ? Verdict::kWaiting : Verdict::kContinue;
  }

 private:
  // Of a process that got no CPU time since the last check.
  bool is_overdue() const {
    if (now() - start_ < limit_) return false;
    const std::string state = process_state(pid_);
    // ProtectProc=invisible hides the state: it can be waiting for a busy machine.
    if (state.empty()) return now() - last_growth_ >= limit_;
    // A process that is ready to run waits for a busy machine, not for the disk.
    return state != "running";
  }
  static std::chrono::steady_clock::time_point now() { return std::chrono::steady_clock::now(); }

  const pid_t pid_;
  const std::chrono::nanoseconds limit_;
  const std::chrono::nanoseconds first_cpu_time_;
  std::chrono::nanoseconds last_cpu_time_;
  const std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point next_check_;
  std::chrono::steady_clock::time_point last_growth_;  // of last_cpu_time_
  int num_overdue_ = 0;
};

}  // namespace

namespace {

ProcessUse stored_use(const ring::Segment& memory) {
  return reinterpret_cast<SharedHeader*>(memory.bytes().data())->use.load();
}

}  // namespace

void RequestWorker::end() {
  if (!running_) return;
  ProcessUse last = stored_use(running_->memory);
  last.rss_bytes = kNotMeasured;
  ended_use_ = ended_use_ + last;
  running_.reset();
}

ProcessUse RequestWorker::use() const {
  return running_ ? ended_use_ + stored_use(running_->memory) : ended_use_;
}

Result<UniqueFd> make_config_file(const config::Config& config) {
  const std::string content = config::to_yaml(config);
  UniqueFd fd(::memfd_create("stoker-config", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));
  if (!fd.valid() && errno == EINVAL)  // kernels before 6.3
    fd = UniqueFd(::memfd_create("stoker-config", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Status::from_errno(errno, "memfd_create of a configuration");
  STOKER_RETURN_IF_ERROR(default_file_system().write(fd.get(), std::as_bytes(std::span(content)),
                                                     "configuration of a worker process"));
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return Status::from_errno(errno, "seal the configuration of a worker process");
  return fd;
}

// ---- Starting

Status RequestWorker::spawn(uint64_t memory_bytes) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
    return Status::from_errno(errno, "socketpair of a worker process");
  UniqueFd own(pair[0]);
  const UniqueFd childs(pair[1]);
  STOKER_ASSIGN_OR_RETURN(ring::Segment memory, ring::Segment::create(memory_bytes));
  WorkerArguments arguments = service_.arguments;
  arguments.config_path = "/proc/self/fd/" + std::to_string(kConfigFd);
  arguments.dataset = service_.dataset;
  arguments.request_fd = kSocketFd;
  arguments.memory_fd = kMemoryFd;
  arguments.parent = ::getpid();
  STOKER_ASSIGN_OR_RETURN(
      WorkerProcess process,
      WorkerProcess::spawn(service_.feed_program, to_command_line(arguments),
                           std::to_array({childs.get(), memory.fd(), service_.config_fd})));
  running_.emplace(Running{
      .process = std::move(process), .socket = std::move(own), .memory = std::move(memory)});
  return {};
}

Status RequestWorker::prepare(uint64_t memory_bytes) {
  if (running_ && running_->memory.bytes().size() >= memory_bytes) return {};
  end();
  Attempt last;
  for (int attempt = 0; attempt < kMaxFailedStarts; ++attempt) {
    STOKER_RETURN_IF_ERROR(spawn(memory_bytes));
    Attempt ready = wait_for_reply(0);
    if (ready.end == Attempt::End::kAnswered) {
      const auto result = parse_reply(ready.reply, kReadySerial, 0);
      if (result && result->status.ok()) {
        log_debug("worker process started",
                  {{"dataset", service_.dataset}, {"pid", running_->process.pid()}});
        return {};
      }
      if (result) {
        end();
        return result->status.with_context("worker process of data." + service_.dataset);
      }
      ready = end_crashed("sent an invalid reply");
    }
    if (ready.end == Attempt::End::kNotStarted) return std::move(ready.status);
    last = std::move(ready);
  }
  return Status(last.code, "data." + service_.dataset + ": its worker process ended " +
                               std::to_string(kMaxFailedStarts) +
                               " times before it was ready: " + last.cause + "; " + last.hint);
}

// ---- Requests

RequestWorker::Attempt RequestWorker::end_crashed(std::string cause) {
  // Often its socket is closed before the process can be reaped.
  pollfd ended{.fd = running_->process.pidfd(), .events = POLLIN, .revents = 0};
  while (cause.empty() && ::poll(&ended, 1, static_cast<int>(kExitGrace.count())) < 0 &&
         errno == EINTR) {
  }
  const auto end = running_->process.try_reap();
  const bool was_ready = running_->serial != kReadySerial;
  auto& header = *reinterpret_cast<SharedHeader*>(running_->memory.bytes().data());
  const uint64_t call = std::atomic_ref(header.denied_syscall).load();
  this->end();
  if (end && end->is_sandbox_refused() && !was_ready)
    return {.end = Attempt::End::kNotStarted, .status = sandbox_refused()};
  const bool was_killed = !cause.empty();  // or is about to be, by this process
  const WorkerProcess::End known = end && !was_killed ? *end : WorkerProcess::End();
  if (cause.empty()) cause = end ? end->to_string() : "closed its socket";
  if (call != 0)
    cause += " for system call " + std::to_string(call - 1) +
             ", which is denied to workers (feed.sandbox)";
  return {.end = Attempt::End::kCrashed,
          .cause = std::move(cause),
          .code = known.status_code(),
          .hint = known.hint()};
}

RequestWorker::Attempt RequestWorker::receive() {
  Attempt answer;
  ssize_t bytes = 0;
  // MSG_TRUNC: the size of the message, even if it is larger.
  do
    bytes = ::recv(running_->socket.get(), &answer.reply, sizeof answer.reply,
                   MSG_DONTWAIT | MSG_TRUNC);
  while (bytes < 0 && errno == EINTR);
  if (bytes <= 0) return end_crashed("");
  if (static_cast<size_t>(bytes) != sizeof answer.reply || answer.reply.serial != running_->serial)
    return end_crashed("sent an invalid reply");
  return answer;
}

RequestWorker::Attempt RequestWorker::wait_for_reply(uint64_t num_items) {
  const auto limit = std::chrono::nanoseconds(static_cast<int64_t>(
      service_.timeout_seconds.value_or(0) * 1e9 * static_cast<double>(num_items)));
  const std::chrono::milliseconds interval = service_.should_stop ? kStopInterval : kCheckInterval;
  ReplyTimer timer(running_->process.pid(), limit);
  auto verdict = ReplyTimer::Verdict::kContinue;
  while (verdict == ReplyTimer::Verdict::kContinue) {
    std::array<pollfd, 2> events{
        pollfd{.fd = running_->socket.get(), .events = POLLIN, .revents = 0},
        pollfd{.fd = running_->process.pidfd(), .events = POLLIN, .revents = 0}};
    ::poll(events.data(), events.size(), static_cast<int>(interval.count()));
    if (events[0].revents != 0) return receive();
    if (events[1].revents != 0) return end_crashed("");
    if (service_.should_stop && service_.should_stop()) {
      end();
      return {.end = Attempt::End::kNotStarted,
              .status = Status(StatusCode::kCancelled,
                               "data." + service_.dataset + ": its worker process was stopped")};
    }
    verdict = timer.check();
  }
  const bool is_waiting = verdict == ReplyTimer::Verdict::kWaiting;
  std::string state = is_waiting ? process_state(running_->process.pid()) : "computing";
  if (state.empty()) state = "waiting";
  Attempt attempt = end_crashed("timeout, " + state);
  if (is_waiting) attempt.end = Attempt::End::kWaiting;
  return attempt;
}

RequestWorker::Attempt RequestWorker::exchange(std::span<const std::byte> message,
                                               uint64_t num_items) {
  ssize_t sent = 0;
  do
    sent =
        ::send(running_->socket.get(), message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(message.size()) ? wait_for_reply(num_items) : end_crashed("");
}

}  // namespace stoker::feed
