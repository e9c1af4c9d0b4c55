#include "daemon/feeder/feeder_program.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>

#include "daemon/feeder/confinement.h"
#include "daemon/feeder/guarded_dataset.h"
#include "daemon/feeder/quarantine_table.h"
#include "shared/base/coordinator.h"
#include "shared/base/log.h"
#include "shared/config/load_config.h"
#include "shared/dataset/dataset.h"
#include "shared/dataset/value_limits.h"
#include "shared/feed/plan_settings.h"
#include "shared/feed/reader_pool.h"
#include "shared/feed/sample_room.h"
#include "shared/ring/shm_ring.h"

namespace stoker::feeder {
namespace {

constexpr auto kGrace = std::chrono::milliseconds(500);  // stokerd waits 900 before it kills

// Nothing when the program is to end with `exit_code` (usage, --help).
std::optional<FeederArguments> maybe_parse(int argc, char** argv, ExitCode& exit_code) {
  FeederArguments arguments;
  CLI::App app(
      "Reads samples into the ring of a stokerd, which starts it. Not meant to be started by "
      "hand.");
  app.add_option("--config", arguments.config_path, "The run's config.yaml")->required();
  app.add_option("--index-dir", arguments.index_dir, "Folder of the dataset index")->required();
  app.add_option("--dataset-fingerprint", arguments.fingerprint, "Fingerprint of the dataset")
      ->required();
  app.add_option("--start-ticket", arguments.plan_ticket, "First ticket of this dataset version");
  app.add_option("--start-epoch", arguments.plan_epoch, "Epoch that starts with that ticket");
  app.add_option("--ring-fd", arguments.ring_fd, "File descriptor of the ring")->required();
  app.add_option("--quarantine-fd", arguments.quarantine_fd,
                 "File descriptor of the quarantine table")
      ->required();
  app.add_option("--worker-index", arguments.reader, "Index of this worker process in that table")
      ->required();
  app.add_option("--num-workers", arguments.readers, "Number of worker processes")
      ->check(CLI::Range(1, 1024));
  app.add_option("--producer-index", arguments.producer, "Index in the ring's producer table")
      ->required();
  app.add_option("--producer-generation", arguments.generation, "Generation of that entry")
      ->required();
  app.add_option("--num-threads", arguments.threads, "Number of worker threads")
      ->check(CLI::Range(1, 1024));
  app.add_option("--parent-pid", arguments.parent, "Process id of the required parent");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? ExitCode::kDone : ExitCode::kUsage;
    return std::nullopt;
  }
  return arguments;
}

Status check_fit(const ring::ShmRing& ring, const dataset::Dataset& dataset,
                 const dataset::SamplePlan& plan) {
  if (ring.layout().sample() == dataset.spec() && ring.layout().batch() == plan.settings().batch)
    return {};
  return Status(Code::kMismatch,
                "the ring was made for samples or a batch other than the configuration's");
}

ConfinementSettings confinement_of(const config::FeedConfig& feed, int threads,
                                   const feed::ReadAheadSettings& ahead,
                                   const dataset::Dataset& dataset) {
  return {.threads = threads,
          .memory_bytes = static_cast<uint64_t>(feed.worker_memory_limit_mib.value_or(0)) << 20,
          .reads_ahead = ahead.most_reads,
          .read_ahead_bytes = ahead.memory_bytes,
          .filter = feed.sandbox,
          .writes_to = dataset.writes_to()};
}

}  // namespace

Status settle_process(int parent) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return Status::from_errno(errno, "PR_SET_PDEATHSIG");
  // Between its start and that call the parent may have died: then nobody would ever end this
  // process.
  if (parent != 0 && ::getppid() != parent)
    return Status(Code::kCancelled, "the parent process has ended");
  // Ctrl-C on a terminal and a service manager's SIGTERM reach every process of the group. stokerd
  // finishes its step with what its readers give, and then closes the ring; that ends them.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE}) ::signal(signal, SIG_IGN);
  return forbid_core_dumps_and_privileges();
}

Status read_for_ring(const FeederArguments& arguments, bool& sandbox_refused) {
  STOKER_ASSIGN_OR_RETURN(const auto config, config::load_config(arguments.config_path, {}));
  STOKER_RETURN_IF_ERROR(init_log({.level = config.log.level, .file = {}}));
  STOKER_ASSIGN_OR_RETURN(
      auto opened,
      dataset::open_indexed("train", config.data, arguments.index_dir, arguments.fingerprint));
  const auto dataset = dataset::within_limits(config, std::move(opened));
  STOKER_ASSIGN_OR_RETURN(const auto ring, ring::ShmRing::attach(UniqueFd(arguments.ring_fd)));
  STOKER_ASSIGN_OR_RETURN(
      const dataset::SamplePlan plan,
      feed::kept_plan(config, *dataset, arguments.index_dir, feed::kNewestTicket,
                      {.ticket = arguments.plan_ticket, .epoch = arguments.plan_epoch}));
  STOKER_RETURN_IF_ERROR(check_fit(*ring, *dataset, plan));
  const ring::ProducerId producer{.index = arguments.producer, .generation = arguments.generation};
  STOKER_ASSIGN_OR_RETURN(const auto quarantine,
                          QuarantineTable::attach(UniqueFd(arguments.quarantine_fd)));
  if (arguments.reader >= quarantine.readers())
    return Status(Code::kMismatch, "--worker-index: the quarantine table has no such entry");
  uint64_t room = feed::room_for_samples(config.feed);
  dataset->keep_samples(room);  // before confine(): that memory is not counted
  const GuardedDataset guarded(*dataset, quarantine, arguments.reader);
  const auto ahead = feed::read_ahead_of(config.feed, arguments.reader, arguments.readers);
  const Status confined = confine(confinement_of(config.feed, arguments.threads, ahead, *dataset),
                                  quarantine.forbidden_call_of(arguments.reader));
  if (confined.code() == Code::kPermission) sandbox_refused = true;
  STOKER_RETURN_IF_ERROR(confined);
  feed::ReaderPool pool(*ring, producer, guarded, plan);
  Coordinator coordinator;
  pool.start(arguments.threads, coordinator, {.number = arguments.reader, .of = arguments.readers},
             ahead);
  const Status status = coordinator.join(kGrace);
  if (!coordinator.all_ended()) {  // a read hangs: the process ends under it
    log_error("worker failed", {{"error", status.to_string()}});
    flush_log();
    ::_exit(static_cast<int>(exit_code_of(status)));
  }
  return status;
}

ExitCode run_feeder(int argc, char** argv) {
  ExitCode exit_code = ExitCode::kDone;
  const auto arguments = maybe_parse(argc, argv, exit_code);
  if (!arguments) return exit_code;
  Status status = settle_process(arguments->parent);
  bool sandbox_refused = false;
  if (status.ok()) status = read_for_ring(*arguments, sandbox_refused);
  if (sandbox_refused)
    log_warn("worker sandbox rejected", {{"reason", status.to_string()}});
  else if (!status.ok())
    log_error("worker failed", {{"error", status.to_string()}});
  flush_log();
  return sandbox_refused ? ExitCode::kSandbox : exit_code_of(status);
}

}  // namespace stoker::feeder
