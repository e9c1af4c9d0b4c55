#include "feeder/worker_main.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "feeder/sandbox.h"
#include "feeder/serve_requests.h"
#include "feeder/stream_worker.h"
#include "shared/base/coordinator.h"
#include "shared/base/log.h"
#include "shared/base/resource_use.h"
#include "shared/config/load_config.h"
#include "shared/data/dataset.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/data/record/label_range_check.h"
#include "shared/feed/make_sample_plan.h"
#include "shared/feed/quarantine_table.h"
#include "shared/feed/read_protocol.h"
#include "shared/feed/worker_pool.h"
#include "shared/image/add_restart_markers.h"
#include "shared/ring/segment.h"
#include "shared/ring/shm_ring.h"
#include "shared/tokenizer/tokenizer.h"

namespace stoker::feeder {
namespace {

constexpr auto kGrace = std::chrono::milliseconds(500);  // stokerd kills the process after 900

// Empty if the program should end with `exit_code` (usage error, --help).
std::optional<feed::WorkerArguments> parse_arguments(int argc, char** argv, ExitCode& exit_code) {
  feed::WorkerArguments arguments;
  CLI::App app(
      "Reads samples into the ring of the stokerd that starts it, or reads samples, rewrites "
      "images or encodes text that its parent requests. Not intended to be started by hand.");
  std::map<std::string, feed::Operation> operations;
  for (const char* const name : feed::kOperationNames)
    operations.emplace(name, static_cast<feed::Operation>(operations.size()));
  feed::for_each_argument([&](const char* option, auto member, const char* description) {
    auto* const added = app.add_option(option, arguments.*member, description);
    if constexpr (std::is_same_v<decltype(member), feed::Operation feed::WorkerArguments::*>)
      added->transform(CLI::Transformer(operations));
  });
  try {
    app.parse(argc, argv);
    // Descriptors and files that are missing fail where they are used.
    if (arguments.config_path.empty()) throw CLI::RequiredError("--config");
    if (arguments.threads < 1 || arguments.threads > 1024)
      throw CLI::ValidationError("--num-threads", "must be from 1 to 1024");
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? ExitCode::kSuccess : ExitCode::kUsage;
    return std::nullopt;
  }
  return arguments;
}

Status check_fit(const ring::ShmRing& ring, const data::Dataset& dataset,
                 const data::order::SamplePlan& plan) {
  if (ring.layout().sample() == dataset.spec() && ring.layout().batch() == plan.options().batch)
    return {};
  return Status(StatusCode::kMismatch,
                "the ring has another sample layout or batch size than the configuration");
}

SandboxOptions make_sandbox_options(const config::FeedConfig& feed, int threads,
                                    const feed::ReadAheadOptions& ahead,
                                    std::vector<int> writable_fds) {
  return {.threads = threads,
          .memory_bytes = static_cast<uint64_t>(feed.worker_memory_limit_mib.value_or(0)) << 20,
          .reads_ahead = ahead.max_reads,
          .read_ahead_bytes = ahead.memory_bytes,
          .filter = feed.sandbox,
          .writable_fds = std::move(writable_fds)};
}

}  // namespace

Status initialize_process(int parent) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return Status::from_errno(errno, "PR_SET_PDEATHSIG");
  // If the parent exited before the prctl() call, no signal will ever end this process.
  if (parent != 0 && ::getppid() != parent)
    return Status(StatusCode::kCancelled, "the parent process has exited");
  // Ctrl-C in a terminal and SIGTERM from a service manager reach every process of the group.
  // stokerd finishes its step with the batches of its workers and then closes the ring, which ends
  // them; stoker-eval finishes its batch.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE}) ::signal(signal, SIG_IGN);
  return disable_core_dumps_and_privileges();
}

namespace {

void report_failure(const Status& status, const feed::WorkerArguments& arguments,
                    const feed::QuarantineTable& quarantine) {
  if (!is_normal_end(status)) quarantine.set_failure(arguments.worker, status);
}

// A worker with a ring. Whatever it fails with, stokerd can read in the quarantine table.
Status run_ring_worker(const feed::WorkerArguments& arguments, bool& sandbox_refused) {
  STOKER_ASSIGN_OR_RETURN(const auto quarantine,
                          feed::QuarantineTable::attach(UniqueFd(arguments.quarantine_fd)));
  if (arguments.worker >= quarantine.workers())
    return Status(StatusCode::kMismatch, "--worker-index: the quarantine table has no such entry");
  const auto run = arguments.stream_fd >= 0 ? run_stream_worker : run_worker;
  const Status status =
      catch_exceptions([&] { return run(arguments, quarantine, sandbox_refused); });
  if (!sandbox_refused) report_failure(status, arguments, quarantine);
  return status;
}

}  // namespace

void exit_without_join(const Status& status, const feed::WorkerArguments& arguments,
                       const feed::QuarantineTable& quarantine) {
  report_failure(status, arguments, quarantine);
  log_error("worker failed", {{"error", status.to_string()}});
  flush_log();
  ::_exit(static_cast<int>(exit_code_for(status)));
}

Status run_worker(const feed::WorkerArguments& arguments, const feed::QuarantineTable& quarantine,
                  bool& sandbox_refused) {
  STOKER_ASSIGN_OR_RETURN(const auto config, config::load_config(arguments.config_path, {}));
  STOKER_RETURN_IF_ERROR(init_log({.level = config.log.level, .format = config.log.format}));
  // The memory of the sample cache is taken before enter_sandbox(), which does not count it.
  STOKER_ASSIGN_OR_RETURN(
      auto opened,
      data::pipeline::open_indexed("train", config.data, arguments.index_dir, arguments.fingerprint,
                                   feed::sample_cache_budget(config.feed)));
  const auto dataset = data::record::with_range_check(config, std::move(opened));
  const ring::TicketShare share{
      .tickets_per_step = static_cast<uint64_t>(config.train.gradient_accumulation_steps),
      .rank = arguments.rank,
      .world_size = arguments.world_size};
  STOKER_ASSIGN_OR_RETURN(const auto ring,
                          ring::ShmRing::attach(UniqueFd(arguments.ring_fd), share));
  STOKER_ASSIGN_OR_RETURN(
      const data::order::SamplePlan plan,
      feed::load_sample_plan(config, *dataset, arguments.index_dir, feed::kLatestTicket,
                             {.ticket = arguments.plan_ticket, .epoch = arguments.plan_epoch}));
  STOKER_RETURN_IF_ERROR(check_fit(*ring, *dataset, plan));
  const ring::ProducerId producer{.index = arguments.producer, .generation = arguments.generation};
  const feed::CrashTrackingDataset guarded(*dataset, quarantine, arguments.worker);
  const auto ahead =
      feed::make_read_ahead_options(config.feed, arguments.worker, arguments.workers);
  const Status sandboxed = enter_sandbox(
      make_sandbox_options(config.feed, arguments.threads, ahead, dataset->writable_fds()),
      quarantine.denied_syscall_slot(arguments.worker));
  if (sandboxed.code() == StatusCode::kPermission) sandbox_refused = true;
  STOKER_RETURN_IF_ERROR(sandboxed);
  feed::WorkerPool pool(*ring, producer, guarded, plan);
  Coordinator coordinator;
  pool.start(arguments.threads, coordinator, {.number = arguments.worker, .of = arguments.workers},
             ahead);
  const auto store_use = [&] { quarantine.use(arguments.worker).store(measure_process()); };
  coordinator.repeat_until_end(feed::kUseInterval, store_use);
  const Status status = coordinator.join(kGrace);
  store_use();
  if (!coordinator.all_joined()) exit_without_join(status, arguments, quarantine);
  return status;
}

namespace {

// The soft limit of stoker-eval (eval.memory_limit_mib) is inherited; this process has its own
// (feed.worker_memory_limit_mib).
Status restore_memory_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_DATA, &limit) != 0) return Status::from_errno(errno, "RLIMIT_DATA");
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_DATA, &limit) != 0) return Status::from_errno(errno, "RLIMIT_DATA");
  return {};
}

Result<std::shared_ptr<const tokenizer::Tokenizer>> read_tokenizer(const config::Config& config,
                                                                   const std::string& dataset) {
  const auto found = config.data.find(dataset);
  const config::TokenizerConfig* const tokenizer =
      found == config.data.end() ? nullptr : found->second.text_tokenizer();
  if (tokenizer == nullptr)
    return Status(StatusCode::kMismatch, "data." + dataset + ": has no tokenizer");
  return tokenizer::Tokenizer::read(tokenizer->path);
}

// The same as run_worker() up to its first sample or file.
Status serve_requests(const feed::WorkerArguments& arguments, bool& is_ready,
                      bool& sandbox_refused) {
  STOKER_RETURN_IF_ERROR(restore_memory_limit());
  STOKER_ASSIGN_OR_RETURN(const auto config, config::load_config(arguments.config_path, {}));
  STOKER_RETURN_IF_ERROR(init_log({.level = config.log.level, .format = config.log.format}));
  STOKER_ASSIGN_OR_RETURN(const auto memory, ring::Segment::attach(UniqueFd(arguments.memory_fd)));
  if (memory.bytes().size() < sizeof(feed::SharedHeader))
    return Status(StatusCode::kMismatch, "--memory-fd: too small");
  std::unique_ptr<data::Dataset> maybe_dataset;
  if (arguments.operation == feed::Operation::kRead) {
    STOKER_ASSIGN_OR_RETURN(
        maybe_dataset, data::pipeline::open_indexed(arguments.dataset, config.data,
                                                    arguments.index_dir, arguments.fingerprint));
  }
  std::shared_ptr<const tokenizer::Tokenizer> maybe_tokenizer;
  if (arguments.operation == feed::Operation::kTokenize) {
    STOKER_ASSIGN_OR_RETURN(maybe_tokenizer, read_tokenizer(config, arguments.dataset));
  }
  SandboxOptions sandbox = make_sandbox_options(
      config.feed, 1, {}, maybe_dataset ? maybe_dataset->writable_fds() : std::vector<int>());
  sandbox.reply_fd = arguments.request_fd;
  auto& header = *reinterpret_cast<feed::SharedHeader*>(memory.bytes().data());
  const Status sandboxed = enter_sandbox(sandbox, header.denied_syscall);
  if (sandboxed.code() == StatusCode::kPermission) sandbox_refused = true;
  STOKER_RETURN_IF_ERROR(sandboxed);
  is_ready = true;
  if (maybe_dataset) return serve_samples(*maybe_dataset, arguments.request_fd, memory.bytes());
  if (maybe_tokenizer)
    return serve_tokens(std::move(maybe_tokenizer), arguments.request_fd, memory.bytes());
  const auto rewrite = [](std::span<const std::byte> file) {
    return image::add_restart_markers(file, image::kRewritingLimits);
  };
  return serve_rewrites(rewrite, arguments.request_fd, memory.bytes());
}

}  // namespace

Status run_request_worker(const feed::WorkerArguments& arguments, bool& sandbox_refused) {
  bool is_ready = false;
  const Status status =
      catch_exceptions([&] { return serve_requests(arguments, is_ready, sandbox_refused); });
  if (status.ok() || is_ready || sandbox_refused) return status;
  reject_requests(status, arguments.request_fd);
  return {};  // the parent reports it
}

ExitCode worker_main(int argc, char** argv) {
  ExitCode exit_code = ExitCode::kSuccess;
  const auto arguments = parse_arguments(argc, argv, exit_code);
  if (!arguments) return exit_code;
  (void)measure_process();  // opens its files
  Status status = initialize_process(arguments->parent);
  bool sandbox_refused = false;
  const auto run = arguments->request_fd >= 0 ? run_request_worker : run_ring_worker;
  if (status.ok()) status = catch_exceptions([&] { return run(*arguments, sandbox_refused); });
  if (sandbox_refused)
    log_warn("worker sandbox rejected", {{"reason", status.to_string()}});
  else if (!status.ok())
    log_error("worker failed", {{"error", status.to_string()}});
  flush_log();
  return sandbox_refused ? ExitCode::kSandbox : exit_code_for(status);
}

}  // namespace stoker::feeder
