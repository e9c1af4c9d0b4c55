// A test program with the command line of stoker-feed. The name of its configuration file selects a
// fault:
//   crash       ends by SIGABRT immediately
//   refuse      exits immediately with code 78
//   unconfined  exits like a process that is not permitted to install its seccomp filter
//   stuck       stops itself while it holds a ticket
//   bad         reports a sample error for every sample of each ticket
//   deadly      is killed by each of deadly_samples()
//   spins       never finishes the first of deadly_samples()
//   crashes     ends by SIGSEGV while it reads that sample
//   intruder    makes a denied system call while it reads that sample
//   hungry      exceeds its memory limit while it reads that sample
//   stuck_once  as stuck, but only the first process of a worker
//   waits_once  waits forever in a read of that sample, only the first process of a worker
// Any other name reads the synthetic dataset of the fixture.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>

#include "feeder/sandbox.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/feed/quarantine_table.h"
#include "shared/feed/worker_pool.h"
#include "tests/daemon/supervisor/feed_fixture.h"

namespace stoker::supervisor {
namespace {

// Runs `deed` when one of the `deadly` samples is read.
class DeadlyDataset final : public data::Dataset {
 public:
  using Deed = std::function<void()>;
  DeadlyDataset(const data::Dataset& data, std::set<uint64_t> deadly, Deed deed)
      : data_(data), deadly_(std::move(deadly)), deed_(std::move(deed)) {}
  const data::DatasetInfo& info() const override { return data_.info(); }
  data::SampleSource source(uint64_t sample) const override { return data_.source(sample); }
  Status read(uint64_t sample, const data::RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    if (deadly_.contains(sample)) deed_();
    return data_.read(sample, random_key, outputs);
  }

 private:
  const data::Dataset& data_;
  const std::set<uint64_t> deadly_;
  const Deed deed_;
};

void spin() {
  std::atomic<uint64_t> turns{0};
  while (true) ++turns;
}

// Like a decoder with an invalid write.
void crash() {
  void* page = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *static_cast<volatile char*>(page) = 1;
}

void wait_for_ever() {
  while (true) std::this_thread::sleep_for(1h);
}

void eat() {
  const std::vector<char> meal(4ull << 30, 1);
  if (meal.back() != 1) std::abort();
}

struct Misdeed {
  DeadlyDataset::Deed deed;
  size_t samples = 1;  // number of deadly_samples() that trigger it; the first is that of (3, 5)
};

Misdeed misdeed_of(const std::string& how, ring::ProducerId id) {
  if (how == "deadly") return {[] { ::raise(SIGKILL); }, 2};
  if (how == "crashes") return {crash};
  if (how == "spins") return {spin};
  if (how == "waits_once" && id.generation == 1) return {wait_for_ever};
  if (how == "intruder") return {[] { (void)::socket(AF_INET, SOCK_STREAM, 0); }};
  if (how == "hungry") return {eat};
  return {[] {}, 0};
}

int misbehave(const std::string& how, ring::ShmRing& ring, ring::ProducerId id) {
  while (true) {
    const auto claim = ring.claim(id, kLong);
    if (!claim.ok()) return 0;
    if (how == "stuck") ::raise(SIGSTOP);
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
  const std::string how = std::filesystem::path(arguments["--config"]).filename();
  if (how == "crash") {
    const rlimit no_core{};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::abort();
  }
  if (how == "refuse") return 78;
  if (how == "unconfined") return static_cast<int>(ExitCode::kSandbox);
  auto ring = ring::ShmRing::attach(UniqueFd(std::stoi(arguments["--ring-fd"])));
  if (!ring.ok()) return 70;
  const ring::ProducerId id{
      .index = static_cast<uint32_t>(std::stoul(arguments["--producer-index"])),
      .generation = static_cast<uint32_t>(std::stoul(arguments["--producer-generation"]))};
  if (how == "stuck_once" && id.generation == 1) {
    const auto claim = (*ring)->claim(id, kLong);
    ::raise(SIGSTOP);
    if (claim.ok()) (*ring)->abandon(id, *claim);
  }
  if (how == "stuck" || how == "bad") return misbehave(how, **ring, id);
  const auto data = data::pipeline::open_indexed(
      "train", synthetic_config(), arguments["--index-dir"], arguments["--dataset-fingerprint"]);
  if (!data.ok()) return 78;
  const auto plan = plan_for(**data);
  const auto table =
      feed::QuarantineTable::attach(UniqueFd(std::stoi(arguments["--quarantine-fd"])));
  if (!table.ok()) return 70;
  const Misdeed misdeed = misdeed_of(how, id);
  std::set<uint64_t> deadly{plan.at(3, 5).sample};
  if (misdeed.samples == 2) deadly = deadly_samples(plan);
  if (misdeed.samples == 0) deadly.clear();
  const DeadlyDataset wicked(**data, deadly, misdeed.deed);
  const auto worker = static_cast<uint32_t>(std::stoul(arguments["--worker-index"]));
  const feed::CrashTrackingDataset guarded(wicked, *table, worker);
  const feeder::SandboxOptions options{.threads = std::stoi(arguments["--num-threads"]),
                                       .memory_bytes = 256 << 20};
  if (!feeder::disable_core_dumps_and_privileges().ok() ||
      !feeder::enter_sandbox(options, table->denied_syscall_slot(worker)).ok())
    return 70;
  feed::WorkerPool pool(**ring, id, guarded, plan);
  Coordinator coordinator;
  pool.start(std::stoi(arguments["--num-threads"]), coordinator);
  return coordinator.join(kLong).ok() ? 0 : 70;
}

}  // namespace
}  // namespace stoker::supervisor

int main(int argc, char** argv) {
  std::map<std::string, std::string> arguments;
  for (int i = 1; i + 1 < argc; i += 2) arguments[argv[i]] = argv[i + 1];
  return stoker::supervisor::run(arguments);
}
