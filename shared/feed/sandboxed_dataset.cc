#include "shared/feed/sandboxed_dataset.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "shared/base/log.h"
#include "shared/config/load_config.h"
#include "shared/feed/quarantine_table.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace stoker::feed {
namespace {

using namespace std::chrono_literals;

// Memory for the samples of a request; more only if a single sample needs it.
constexpr uint64_t kMaxRequestBytes = 4ull << 20;
constexpr int kMaxFailedStarts = 3;
constexpr std::chrono::milliseconds kPollInterval = 100ms;
// A process that waits is killed only if several checks confirm it, because all processes continue
// at the same time after the machine was suspended.
constexpr int kConsecutiveOverdue = 5;
// Between the end of a process's socket and that of the process.
constexpr std::chrono::milliseconds kExitGrace = 1000ms;

// Descriptors of the process.
constexpr int kSocketFd = WorkerProcess::kFirstFd;
constexpr int kMemoryFd = WorkerProcess::kFirstFd + 1;
constexpr int kConfigFd = WorkerProcess::kFirstFd + 2;

// A file without a name that no process can modify: a worker must not be able to change the
// settings of its successor.
Result<UniqueFd> make_sealed_file(const std::string& content) {
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

uint64_t max_samples_per_request(const data::Dataset& data) {
  const uint64_t sample = shared_bytes(data.spec(), 1);
  return std::clamp<uint64_t>(kMaxRequestBytes / sample, 1, kMaxSamplesPerRequest);
}

// The padded length of the sequences that fit into `rows` for `count` samples; 0: not sequences.
uint64_t padded_length(const data::DatasetInfo& info, std::span<const std::span<std::byte>> rows,
                       uint64_t count) {
  if (info.max_length == 0 || info.length_tensors.empty()) return 0;
  const size_t tensor = info.length_tensors.front();
  return rows[tensor].size() / count / (info.spec[tensor].bytes() / info.max_length);
}

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
        last_growth_(start_) {}

  Verdict check() {
    if (limit_.count() == 0) return Verdict::kContinue;
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
  std::chrono::steady_clock::time_point last_growth_;  // of last_cpu_time_
  int num_overdue_ = 0;
};

}  // namespace

// ---- Opening

Result<std::unique_ptr<SandboxedDataset>> SandboxedDataset::open(
    const config::Config& config, Location location, std::unique_ptr<data::Dataset> data) {
  if (location.feed_program.empty()) {
    STOKER_ASSIGN_OR_RETURN(location.feed_program, find_feed_program());
  }
  STOKER_ASSIGN_OR_RETURN(UniqueFd settings, make_sealed_file(config::to_yaml(config)));
  std::unique_ptr<SandboxedDataset> dataset(
      new SandboxedDataset(std::move(location), config.feed, std::move(data), std::move(settings)));
  const std::lock_guard lock(dataset->mutex_);
  STOKER_RETURN_IF_ERROR(dataset->start());
  return dataset;
}

SandboxedDataset::SandboxedDataset(Location location, const config::FeedConfig& feed,
                                   std::unique_ptr<data::Dataset> data, UniqueFd config)
    : DatasetDecorator(*data),
      data_(std::move(data)),
      location_(std::move(location)),
      feed_(feed),
      config_(std::move(config)),
      samples_per_request_(max_samples_per_request(*data_)) {}

SandboxedDataset::~SandboxedDataset() = default;

Status SandboxedDataset::spawn() const {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
    return Status::from_errno(errno, "socketpair of a worker process");
  UniqueFd own(pair[0]);
  const UniqueFd childs(pair[1]);
  STOKER_ASSIGN_OR_RETURN(ring::Segment memory,
                          ring::Segment::create(shared_bytes(data_->spec(), samples_per_request_)));
  const std::vector<std::string> arguments{"--config",
                                           "/proc/self/fd/" + std::to_string(kConfigFd),
                                           "--index-dir",
                                           location_.index_dir,
                                           "--dataset",
                                           location_.dataset,
                                           "--dataset-fingerprint",
                                           fingerprint(),
                                           "--request-fd",
                                           std::to_string(kSocketFd),
                                           "--memory-fd",
                                           std::to_string(kMemoryFd),
                                           "--parent-pid",
                                           std::to_string(::getpid())};
  STOKER_ASSIGN_OR_RETURN(
      WorkerProcess process,
      WorkerProcess::spawn(location_.feed_program, arguments,
                           std::to_array({childs.get(), memory.fd(), config_.get()})));
  worker_.emplace(
      Worker{.process = std::move(process), .socket = std::move(own), .memory = std::move(memory)});
  return {};
}

Status SandboxedDataset::start() const {
  std::string cause;
  for (int attempt = 0; attempt < kMaxFailedStarts; ++attempt) {
    STOKER_RETURN_IF_ERROR(spawn());
    Attempt ready = wait_for_reply(0);
    if (ready.end == Attempt::End::kNotStarted) return ready.result.status;
    if (ready.end == Attempt::End::kAnswered) {
      if (!ready.result.status.ok()) {
        worker_.reset();
        return ready.result.status.with_context("worker process of data." + location_.dataset);
      }
      log_debug("worker process started",
                {{"dataset", location_.dataset}, {"pid", worker_->process.pid()}});
      return {};
    }
    cause = std::move(ready.cause);
  }
  return Status(StatusCode::kInternal, "data." + location_.dataset + ": its worker process ended " +
                                           std::to_string(kMaxFailedStarts) +
                                           " times before it had opened the dataset: " + cause +
                                           "; feed.num_processes: 0 helps to find the cause");
}

// ---- Requests

SandboxedDataset::Attempt SandboxedDataset::end_crashed(std::string cause) const {
  // Often its socket is closed before the process can be reaped.
  pollfd ended{.fd = worker_->process.pidfd(), .events = POLLIN, .revents = 0};
  while (cause.empty() && ::poll(&ended, 1, static_cast<int>(kExitGrace.count())) < 0 &&
         errno == EINTR) {
  }
  const auto end = worker_->process.try_reap();
  auto& header = *reinterpret_cast<SharedHeader*>(worker_->memory.bytes().data());
  const uint64_t call = std::atomic_ref(header.denied_syscall).load();
  worker_.reset();
  if (end && end->is_sandbox_refused())
    return {.end = Attempt::End::kNotStarted, .result = {.good = 0, .status = sandbox_refused()}};
  if (cause.empty()) cause = end ? end->to_string() : "closed its socket";
  if (call != 0)
    cause += " for system call " + std::to_string(call - 1) +
             ", which is denied to workers (feed.sandbox)";
  return {.end = Attempt::End::kCrashed, .cause = std::move(cause)};
}

SandboxedDataset::Attempt SandboxedDataset::receive(uint64_t count) const {
  ReadReply reply;
  ssize_t bytes = 0;
  // MSG_TRUNC: the size of the message, even if it is larger.
  do bytes = ::recv(worker_->socket.get(), &reply, sizeof reply, MSG_DONTWAIT | MSG_TRUNC);
  while (bytes < 0 && errno == EINTR);
  if (bytes <= 0) return end_crashed("");
  auto result = static_cast<size_t>(bytes) == sizeof reply
                    ? parse_reply(reply, worker_->serial, count)
                    : std::nullopt;
  if (!result) return end_crashed("sent an invalid reply");
  return {.end = Attempt::End::kAnswered, .result = *std::move(result)};
}

SandboxedDataset::Attempt SandboxedDataset::wait_for_reply(uint64_t count) const {
  // The setting limits the time of one sample. 0, while the dataset is opened: no limit.
  const auto limit = std::chrono::nanoseconds(static_cast<int64_t>(
      feed_.worker_timeout_seconds.value_or(0) * 1e9 * static_cast<double>(count)));
  ReplyTimer timer(worker_->process.pid(), limit);
  auto verdict = ReplyTimer::Verdict::kContinue;
  while (verdict == ReplyTimer::Verdict::kContinue) {
    std::array<pollfd, 2> events{
        pollfd{.fd = worker_->socket.get(), .events = POLLIN, .revents = 0},
        pollfd{.fd = worker_->process.pidfd(), .events = POLLIN, .revents = 0}};
    ::poll(events.data(), events.size(), static_cast<int>(kPollInterval.count()));
    if (events[0].revents != 0) return receive(count);
    if (events[1].revents != 0) return end_crashed("");
    verdict = timer.check();
  }
  const bool is_waiting = verdict == ReplyTimer::Verdict::kWaiting;
  std::string state = is_waiting ? process_state(worker_->process.pid()) : "computing";
  if (state.empty()) state = "waiting";
  Attempt attempt = end_crashed("timeout, " + state);
  if (is_waiting) attempt.end = Attempt::End::kWaiting;
  return attempt;
}

SandboxedDataset::Attempt SandboxedDataset::request(
    std::span<const data::SampleReadRequest> samples,
    std::span<const std::span<std::byte>> rows) const {
  if (!worker_) {
    if (Status started = start(); !started.ok())
      return {.end = Attempt::End::kNotStarted, .result = {.good = 0, .status = started}};
  }
  const uint64_t length = padded_length(info(), rows, samples.size());
  ReadRequest message{.serial = ++worker_->serial, .length = length, .count = samples.size()};
  std::ranges::copy(samples, message.samples.begin());
  ssize_t sent = 0;
  do sent = ::send(worker_->socket.get(), &message, message.bytes(), MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  Attempt attempt = sent == static_cast<ssize_t>(message.bytes()) ? wait_for_reply(samples.size())
                                                                  : end_crashed("");
  if (attempt.end == Attempt::End::kAnswered &&
      !copy_rows(length, samples, attempt.result.good, rows))
    attempt = end_crashed("sent a sequence with another length than when it was indexed");
  if (attempt.end == Attempt::End::kCrashed || attempt.end == Attempt::End::kWaiting)
    log_warn("worker process crashed", {{"dataset", location_.dataset}, {"cause", attempt.cause}});
  return attempt;
}

// Copies the first `good` rows. False: the process sent an impossible length.
bool SandboxedDataset::copy_rows(uint64_t length, std::span<const data::SampleReadRequest> samples,
                                 uint64_t good, std::span<const std::span<std::byte>> rows) const {
  const std::vector<TensorSpec> specs = data_->spec_of_length(length);
  const auto shared = locate_samples(worker_->memory.bytes(), specs, samples.size());
  assert(shared.size() == rows.size());
  for (size_t t = 0; t < specs.size(); ++t) {
    assert(rows[t].size() == samples.size() * specs[t].bytes());
    std::memcpy(rows[t].data(), shared[t].data(), good * specs[t].bytes());
    if (length == 0 || specs[t].name != "length" || specs[t].bytes() != sizeof(uint64_t)) continue;
    for (uint64_t row = 0; row < good; ++row) {
      uint64_t valid_steps = 0;
      std::memcpy(&valid_steps, rows[t].data() + row * sizeof valid_steps, sizeof valid_steps);
      if (valid_steps != data_->length(samples[row].sample)) return false;
    }
  }
  return true;
}

// ---- Reading

Status SandboxedDataset::read(uint64_t sample, const data::RandomKey& random_key,
                              std::span<const std::span<std::byte>> outputs) const {
  const std::lock_guard lock(mutex_);
  return read_alone({.sample = sample, .random_key = random_key}, outputs);
}

data::BatchReadResult SandboxedDataset::read_batch(
    std::span<const data::SampleReadRequest> samples,
    std::span<const std::span<std::byte>> rows) const {
  const std::lock_guard lock(mutex_);
  data::RowOutputs outputs(rows, samples.size());
  for (size_t first = 0; first < samples.size(); first += samples_per_request_) {
    const size_t count = std::min<size_t>(samples_per_request_, samples.size() - first);
    data::BatchReadResult read =
        read_group(samples.subspan(first, count), outputs.of(first, count));
    if (!read.status.ok()) return {.good = first + read.good, .status = std::move(read.status)};
  }
  return {.good = samples.size(), .status = {}};
}

data::BatchReadResult SandboxedDataset::read_group(
    std::span<const data::SampleReadRequest> samples,
    std::span<const std::span<std::byte>> rows) const {
  const bool any_quarantined = std::ranges::any_of(
      samples, [this](const auto& each) { return quarantined_.contains(each.sample); });
  if (samples.size() > 1 && !any_quarantined) {
    Attempt attempt = request(samples, rows);
    if (attempt.end == Attempt::End::kNotStarted ||
        (attempt.end == Attempt::End::kAnswered &&
         attempt.result.status.code() != StatusCode::kOutOfMemory))
      return std::move(attempt.result);
  }
  data::RowOutputs outputs(rows, samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    Status status = read_alone(samples[i], outputs.of(i));
    if (!status.ok()) return {.good = i, .status = std::move(status)};
  }
  return {.good = samples.size(), .status = {}};
}

Status SandboxedDataset::read_alone(const data::SampleReadRequest& sample,
                                    std::span<const std::span<std::byte>> row) const {
  if (quarantined_.contains(sample.sample))
    return Status(StatusCode::kCorrupt, to_string(source(sample.sample)) +
                                            ": quarantined: it crashed its worker process "
                                            "repeatedly");
  std::string cause;
  for (uint64_t crash = 0; crash < kCrashesToQuarantine; ++crash) {
    Attempt attempt = request({&sample, 1}, row);
    switch (attempt.end) {
      case Attempt::End::kNotStarted:
        return std::move(attempt.result.status);
      case Attempt::End::kWaiting:
        return Status(
            StatusCode::kTimedOut,
            to_string(source(sample.sample)) + ": its worker process was killed: " + attempt.cause);
      case Attempt::End::kAnswered:
        if (attempt.result.status.code() != StatusCode::kOutOfMemory)
          return std::move(attempt.result.status);
        return quarantine(sample.sample, attempt.result.status.message());
      case Attempt::End::kCrashed:
        cause = std::move(attempt.cause);
    }
  }
  return quarantine(sample.sample, cause);
}

Status SandboxedDataset::quarantine(uint64_t sample, std::string_view cause) const {
  if (quarantined_.size() >= kMaxQuarantined)
    return Status(StatusCode::kCorrupt,
                  "data." + location_.dataset + ": more than " + std::to_string(kMaxQuarantined) +
                      " samples crash their worker process; check the data and "
                      "feed.worker_memory_limit_mib");
  quarantined_.insert(sample);
  const data::SampleSource origin = source(sample);
  log_warn("sample quarantined", {{"dataset", location_.dataset},
                                  {"sample", sample},
                                  {"path", origin.file},
                                  {"offset", origin.offset},
                                  {"cause", cause}});
  return Status(StatusCode::kCorrupt, to_string(origin) + ": quarantined: " + std::string(cause));
}

bool SandboxedDataset::is_quarantined(uint64_t sample) const {
  const std::lock_guard lock(mutex_);
  return quarantined_.contains(sample);
}

pid_t SandboxedDataset::process_id() const {
  const std::lock_guard lock(mutex_);
  return worker_ ? worker_->process.pid() : -1;
}

}  // namespace stoker::feed
