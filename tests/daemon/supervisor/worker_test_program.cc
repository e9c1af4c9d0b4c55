// A test program with the command line of stoker-feed. The name of its configuration file selects a
// fault:
//   crash       ends by SIGABRT immediately
//   exits_78    exits immediately with code 78
//   fails       exits immediately with code 65, and reports its error
//   sandbox_refused  exits like a process that is not permitted to install its seccomp filter
//   stuck       stops itself while it holds a ticket
//   bad         reports a sample error for every sample of each ticket
//   killed      is killed by each of crashing_samples()
//   spins       never finishes the first of crashing_samples()
//   crashes     ends by SIGSEGV while it reads that sample
//   forbidden_call  makes a denied system call while it reads that sample
//   exhausts_memory  exceeds its memory limit while it reads that sample
//   stuck_once  as stuck, but only the first process of a worker
//   waits_once  waits forever in a read of that sample, only the first process of a worker
// Any other name reads the synthetic dataset of the fixture.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include "feeder/sandbox.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/feed/quarantine_table.h"
#include "shared/feed/worker_pool.h"
#include "tests/daemon/supervisor/feed_fixture.h"
#include "tests/support/crashes.h"

namespace stoker::supervisor {
namespace {

// Runs `fault` when one of `samples` is read.
class CrashingDataset final : public data::Dataset {
 public:
  using Fault = std::function<void()>;
  CrashingDataset(const data::Dataset& data, std::set<uint64_t> crashing_set, Fault fault)
      : data_(data), samples_(std::move(crashing_set)), fault_(std::move(fault)) {}
  const data::DatasetInfo& info() const override { return data_.info(); }
  data::SampleSource source(uint64_t sample) const override { return data_.source(sample); }
  Status read(uint64_t sample, const data::RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    if (samples_.contains(sample)) fault_();
    return data_.read(sample, random_key, outputs);
  }

 private:
  const data::Dataset& data_;
  const std::set<uint64_t> samples_;
  const Fault fault_;
};

void block_forever() {
  while (true) std::this_thread::sleep_for(1h);  // check_tests: a worker that hangs
}

struct FaultMode {
  CrashingDataset::Fault fault;
  size_t samples = 1;  // number of crashing_samples() that trigger it; the first is that of (3, 5)
};

FaultMode fault_mode(const std::string& mode_name, ring::ProducerId id) {
  if (mode_name == "killed") return {[] { ::raise(SIGKILL); }, 2};
  if (mode_name == "crashes") return {test::write_invalid_address};
  if (mode_name == "spins") return {test::loop_forever};
  if (mode_name == "waits_once" && id.generation == 1) return {block_forever};
  if (mode_name == "forbidden_call") return {[] { (void)::socket(AF_INET, SOCK_STREAM, 0); }};
  if (mode_name == "exhausts_memory") return {test::allocate_too_much};
  return {[] {}, 0};
}

int run_faulty_producer(const std::string& mode_name, ring::ShmRing& ring, ring::ProducerId id) {
  while (true) {
    const auto claim = ring.claim(id, kTestTimeout);
    if (!claim.ok()) return 0;
    if (mode_name == "stuck") ::raise(SIGSTOP);
    for (uint64_t row = 0; row < kBatch; ++row)
      ring.report_sample_error({.ticket = claim->ticket,
                                .sample = claim->ticket * kBatch + row,
                                .code = StatusCode::kCorrupt,
                                .reason = "made \"bad\""});
    ring.publish(id, *claim);
  }
}

int run(std::map<std::string, std::string>& arguments) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string mode_name = std::filesystem::path(arguments["--config"]).filename();
  if (mode_name == "crash") {
    const rlimit no_core{};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::abort();
  }
  if (mode_name == "oom_killed") ::raise(SIGKILL);
  if (mode_name == "exits_78") return 78;
  if (mode_name == "fails") {
    const auto reports =
        feed::QuarantineTable::attach(UniqueFd(std::stoi(arguments["--quarantine-fd"])));
    if (!reports.ok()) return 70;
    reports->set_failure(static_cast<uint32_t>(std::stoul(arguments["--worker-index"])),
                         Status(StatusCode::kCorrupt, "a.csv: line 7: \x1b[2J"));
    return 65;
  }
  if (mode_name == "sandbox_refused") return static_cast<int>(ExitCode::kSandbox);
  auto ring = ring::ShmRing::attach(UniqueFd(std::stoi(arguments["--ring-fd"])));
  if (!ring.ok()) return 70;
  const ring::ProducerId id{
      .index = static_cast<uint32_t>(std::stoul(arguments["--producer-index"])),
      .generation = static_cast<uint32_t>(std::stoul(arguments["--producer-generation"]))};
  if (mode_name == "stuck_once" && id.generation == 1) {
    const auto claim = (*ring)->claim(id, kTestTimeout);
    ::raise(SIGSTOP);
    if (claim.ok()) (*ring)->abandon(id, *claim);
  }
  if (mode_name == "stuck" || mode_name == "bad") return run_faulty_producer(mode_name, **ring, id);
  const auto data = data::pipeline::open_indexed(
      "train", synthetic_config(), arguments["--index-dir"], arguments["--dataset-fingerprint"]);
  if (!data.ok()) return 78;
  const auto plan = plan_for(**data);
  const auto table =
      feed::QuarantineTable::attach(UniqueFd(std::stoi(arguments["--quarantine-fd"])));
  if (!table.ok()) return 70;
  const FaultMode mode = fault_mode(mode_name, id);
  std::set<uint64_t> crashing_set{plan.at(3, 5).sample};
  if (mode.samples == 2) crashing_set = crashing_samples(plan);
  if (mode.samples == 0) crashing_set.clear();
  const CrashingDataset crashing(**data, crashing_set, mode.fault);
  const auto worker = static_cast<uint32_t>(std::stoul(arguments["--worker-index"]));
  const feed::CrashTrackingDataset guarded(crashing, *table, worker);
  const feeder::SandboxOptions options{.threads = std::stoi(arguments["--num-threads"]),
                                       .memory_bytes = 256 << 20};
  if (!feeder::disable_core_dumps_and_privileges().ok() ||
      !feeder::enter_sandbox(options, table->denied_syscall_slot(worker)).ok())
    return 70;
  feed::WorkerPool pool(**ring, id, guarded, plan);
  Coordinator coordinator;
  pool.start(std::stoi(arguments["--num-threads"]), coordinator);
  return coordinator.join(kTestTimeout).ok() ? 0 : 70;
}

}  // namespace
}  // namespace stoker::supervisor

int main(int argc, char** argv) {
  std::map<std::string, std::string> arguments;
  for (int i = 1; i + 1 < argc; i += 2) arguments[argv[i]] = argv[i + 1];
  return stoker::supervisor::run(arguments);
}
