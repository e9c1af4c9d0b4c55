#include "shared/feed/worker_sandbox.h"

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "shared/base/cgroup.h"
#include "shared/base/log.h"
#include "shared/feed/read_protocol.h"
#include "shared/feed/request_worker.h"
#include "shared/feed/sandboxed_dataset.h"

namespace stoker::feed {
namespace {

// Shared memory of a process: at least this much, for a usual photograph. One with more than
// kMaxKeptBytes ends after its request.
constexpr uint64_t kMinMemoryBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxKeptBytes = uint64_t{32} << 20;
constexpr int kAttempts = 2;
constexpr int kMaxAutoProcesses = 64;
constexpr size_t kMaxTokenizers = 64;

// A power of two, so that files of similar sizes do not need a new process each.
uint64_t memory_for(const RewriteRequest& request) {
  return std::bit_ceil(std::max(shared_bytes(request), kMinMemoryBytes));
}

size_t max_processes_of(const config::FeedConfig& feed) {
  const int automatic = std::min(num_usable_cores(), kMaxAutoProcesses);
  return static_cast<size_t>(std::max(1, feed.num_workers.value_or(automatic)));
}

class SandboxedRewriter final : public data::JpegRewriter {
 public:
  SandboxedRewriter(const config::Config& config, std::string dataset, std::string feed_program)
      : config_(config),
        dataset_(std::move(dataset)),
        max_workers_(max_processes_of(config.feed)),
        feed_program_(std::move(feed_program)) {
    idle_.reserve(max_workers_);
  }

  Result<std::vector<std::byte>> rewrite(std::span<const std::byte> file,
                                         uint64_t max_bytes) override;
  void stop() override {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    changed_.notify_all();
  }

 private:
  // A worker that no other thread uses meanwhile.
  class Lease {
   public:
    Lease(SandboxedRewriter& owner, std::unique_ptr<RequestWorker> worker)
        : owner_(owner), worker_(std::move(worker)) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { owner_.give_back(std::move(worker_)); }
    RequestWorker& worker() const { return *worker_; }

   private:
    SandboxedRewriter& owner_;
    std::unique_ptr<RequestWorker> worker_;
  };
  // What a process made of a file.
  struct Attempt {
    std::vector<std::byte> rewritten = {};
    std::string failure = {};  // why it must be tried again; empty: it need not
    Status status = {};        // there is no process
  };

  Result<std::unique_ptr<RequestWorker>> take();
  Result<std::unique_ptr<RequestWorker>> make_worker();  // requires mutex_
  void give_back(std::unique_ptr<RequestWorker> worker);
  bool is_stopped() const {
    const std::lock_guard lock(mutex_);
    return is_stopped_;
  }
  Status stopped() const {
    return Status(StatusCode::kCancelled, "data." + dataset_ + ": rewriting its files was stopped");
  }
  static Attempt try_rewrite(RequestWorker& worker, std::span<const std::byte> file,
                             uint64_t max_bytes);

  // Constant after construction.
  const config::Config& config_;
  const std::string dataset_;
  const size_t max_workers_;

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // a worker is idle, or is_stopped_
  bool is_stopped_ = false;
  std::string feed_program_;  // empty: not found yet
  UniqueFd config_file_;      // invalid before the first worker
  size_t num_workers_ = 0;
  std::vector<std::unique_ptr<RequestWorker>> idle_;
};

Result<std::unique_ptr<RequestWorker>> SandboxedRewriter::make_worker() {
  if (feed_program_.empty()) {
    STOKER_ASSIGN_OR_RETURN(feed_program_, find_feed_program());
  }
  if (!config_file_.valid()) {
    STOKER_ASSIGN_OR_RETURN(config_file_, make_config_file(config_));
  }
  auto worker = std::make_unique<RequestWorker>(
      RequestWorker::Service{.dataset = dataset_,
                             .feed_program = feed_program_,
                             .arguments = {.operation = Operation::kRewrite},
                             .config_fd = config_file_.get(),
                             .timeout_seconds = config_.feed.worker_timeout_seconds,
                             .should_stop = [this] { return is_stopped(); }});
  ++num_workers_;
  return worker;
}

Result<std::unique_ptr<RequestWorker>> SandboxedRewriter::take() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock,
                [this] { return is_stopped_ || !idle_.empty() || num_workers_ < max_workers_; });
  if (is_stopped_) return stopped();
  if (idle_.empty()) return make_worker();
  std::unique_ptr<RequestWorker> worker = std::move(idle_.back());
  idle_.pop_back();
  return worker;
}

void SandboxedRewriter::give_back(std::unique_ptr<RequestWorker> worker) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(worker));  // within the capacity
  changed_.notify_one();
}

SandboxedRewriter::Attempt SandboxedRewriter::try_rewrite(RequestWorker& worker,
                                                          std::span<const std::byte> file,
                                                          uint64_t max_bytes) {
  RewriteRequest request{.file_bytes = file.size(), .max_bytes = max_bytes};
  const uint64_t memory = memory_for(request);
  if (Status ready = worker.prepare(memory); !ready.ok()) return {.status = std::move(ready)};
  std::ranges::copy(file, locate_rewrite(worker.memory(), request)->file.begin());
  RequestWorker::Attempt answer = worker.request(request, 1);
  Attempt attempt{.failure = answer.cause, .status = std::move(answer.status)};
  if (answer.end != RequestWorker::Attempt::End::kAnswered) return attempt;
  const auto bytes = parse_reply(answer.reply, request);
  if (!bytes) {
    attempt.failure = worker.reject("sent an invalid reply").cause;
  } else if (!bytes->ok()) {
    attempt.failure = bytes->status().message();
    worker.end();  // the memory of a new process is not fragmented
  } else {
    const auto rewritten = locate_rewrite(worker.memory(), request)->rewritten.first(**bytes);
    attempt.rewritten.assign(rewritten.begin(), rewritten.end());
    if (memory > kMaxKeptBytes) worker.end();
  }
  return attempt;
}

Result<std::vector<std::byte>> SandboxedRewriter::rewrite(std::span<const std::byte> file,
                                                          uint64_t max_bytes) {
  STOKER_ASSIGN_OR_RETURN(std::unique_ptr<RequestWorker> worker, take());
  const Lease lease(*this, std::move(worker));
  std::string failure;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Attempt made = try_rewrite(lease.worker(), file, max_bytes);
    if (is_stopped()) return stopped();
    if (!made.status.ok()) return std::move(made.status);
    if (made.failure.empty()) return std::move(made.rewritten);
    failure = std::move(made.failure);
    log_debug("worker process crashed", {{"dataset", dataset_}, {"cause", failure}});
  }
  return Status(StatusCode::kCorrupt, std::move(failure));
}

class SandboxedTokenizer final : public data::TextTokenizer {
 public:
  SandboxedTokenizer(const config::Config& config, std::string dataset, std::string digest,
                     uint64_t text_bytes, std::string feed_program,
                     std::function<bool()> should_stop)
      : config_(config),
        dataset_(std::move(dataset)),
        digest_(std::move(digest)),
        min_memory_(text_bytes == 0 ? 0 : memory_for(request_for(text_bytes))),
        should_stop_(std::move(should_stop)),
        feed_program_(std::move(feed_program)) {}

  Result<Part> tokenize(std::string_view text, bool begins_section, bool ends_text) override;

 private:
  struct Attempt {
    Part part = {};
    std::string failure = {};  // why it must be tried again; empty: it need not
    Status status = {};
  };
  static TokenizeRequest request_for(uint64_t text_bytes) {
    return {.text_bytes = text_bytes, .max_ids = data::max_ids_of(text_bytes)};
  }
  static uint64_t memory_for(const TokenizeRequest& request) {
    return std::bit_ceil(shared_bytes(request));
  }
  Status start();
  Attempt try_tokenize(std::string_view text, TokenizeRequest request);

  const config::Config& config_;
  const std::string dataset_;
  const std::string digest_;
  const uint64_t min_memory_;  // of the process
  const std::function<bool()> should_stop_;
  std::string feed_program_;  // empty: not found yet
  UniqueFd config_file_;      // invalid before the worker
  std::optional<RequestWorker> worker_;
};

Status SandboxedTokenizer::start() {
  if (worker_) return {};
  if (feed_program_.empty()) {
    STOKER_ASSIGN_OR_RETURN(feed_program_, find_feed_program());
  }
  STOKER_ASSIGN_OR_RETURN(config_file_, make_config_file(config_));
  worker_.emplace(RequestWorker::Service{.dataset = dataset_,
                                         .feed_program = feed_program_,
                                         .arguments = {.operation = Operation::kTokenize},
                                         .config_fd = config_file_.get(),
                                         .timeout_seconds = config_.feed.worker_timeout_seconds,
                                         .should_stop = should_stop_});
  return {};
}

SandboxedTokenizer::Attempt SandboxedTokenizer::try_tokenize(std::string_view text,
                                                             TokenizeRequest request) {
  const uint64_t memory = std::max(min_memory_, memory_for(request));
  if (Status ready = worker_->prepare(memory); !ready.ok()) {
    if (data::lacks_memory(ready))
      ready =
          ready.with_context("no memory for a process that encodes text; lower feed.num_workers");
    return {.status = std::move(ready)};
  }
  const auto bytes = std::as_bytes(std::span(text));
  std::ranges::copy(bytes, locate_tokenize(worker_->memory(), request)->text.begin());
  RequestWorker::Attempt answer = worker_->request(request, 1);
  if (answer.end != RequestWorker::Attempt::End::kAnswered)
    return {.failure = std::move(answer.cause), .status = std::move(answer.status)};
  const auto size = parse_reply(answer.reply, request);
  if (!size) return {.failure = worker_->reject("sent an invalid reply").cause};
  if (!size->ok()) {
    if (size->status().code() == StatusCode::kMismatch) return {.status = size->status()};
    worker_->end();  // the memory of a new process is not fragmented
    return {.failure = size->status().message()};
  }
  const auto spans = *locate_tokenize(worker_->memory(), request);
  const TokenizeResult result = *spans.result;  // copied before it is used
  const auto ids = spans.ids.first(**size);
  return {.part = {.ids = {ids.begin(), ids.end()},
                   .bytes = result.bytes,
                   .begins_section = result.begins_section != 0}};
}

Result<data::TextTokenizer::Part> SandboxedTokenizer::tokenize(std::string_view text,
                                                               bool begins_section,
                                                               bool ends_text) {
  STOKER_RETURN_IF_ERROR(start());
  TokenizeRequest request = request_for(text.size());
  request.begins_section = begins_section ? 1 : 0;
  request.ends_text = ends_text ? 1 : 0;
  std::copy_n(digest_.begin(), std::min(digest_.size(), request.digest.size()),
              request.digest.begin());
  std::string failure;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Attempt made = try_tokenize(text, request);
    if (!made.status.ok()) return std::move(made.status);
    if (made.failure.empty()) return std::move(made.part);
    failure = std::move(made.failure);
    log_debug("worker process crashed", {{"dataset", dataset_}, {"cause", failure}});
  }
  return Status(StatusCode::kCorrupt, std::move(failure));
}

}  // namespace

std::unique_ptr<data::TextTokenizer> WorkerSandbox::make_tokenizer(
    const std::string& dataset, const std::string& digest, uint64_t text_bytes,
    std::function<bool()> should_stop) const {
  return std::make_unique<SandboxedTokenizer>(config_, dataset, digest, text_bytes, feed_program_,
                                              std::move(should_stop));
}

// More than the cores would only cost memory.
size_t WorkerSandbox::max_processes() const {
  return std::min(
      {max_processes_of(config_.feed), static_cast<size_t>(num_usable_cores()), kMaxTokenizers});
}

std::unique_ptr<data::JpegRewriter> WorkerSandbox::make_rewriter(const std::string& dataset) const {
  return std::make_unique<SandboxedRewriter>(config_, dataset, feed_program_);
}

Result<std::unique_ptr<data::Dataset>> WorkerSandbox::open_reader(
    const std::string& name, const std::string& index_dir, const data::Dataset& dataset,
    std::function<void()> on_wait) const {
  const auto call = [on_wait = std::move(on_wait)] {
    on_wait();
    return false;
  };
  STOKER_ASSIGN_OR_RETURN(auto reader, SandboxedDataset::open(config_,
                                                              {.dataset = name,
                                                               .index_dir = index_dir,
                                                               .feed_program = feed_program_,
                                                               .should_stop = call},
                                                              dataset));
  return std::unique_ptr<data::Dataset>(std::move(reader));
}

std::unique_ptr<WorkerSandbox> make_sandbox(const config::Config& config,
                                            const std::string& feed_program) {
  if (config.feed.num_processes == 0) return nullptr;
  return std::make_unique<WorkerSandbox>(config, feed_program);
}

}  // namespace stoker::feed
