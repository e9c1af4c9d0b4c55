// Acts as stokerd in the test that kills it: starts worker processes, prints their process ids on
// one line, and waits to be killed. Arguments: stoker-feed, config.yaml, index directory.
#include <unistd.h>

#include <cstdio>

#include "shared/data/pipeline/open_dataset.h"
#include "tests/daemon/supervisor/feed_fixture.h"

namespace stoker::supervisor {
namespace {

int run(char** argv) {
  FeedOptions options;
  options.feed = {.num_workers = 4, .num_processes = 2};
  options.feed_program = argv[1];
  options.config_path = argv[2];
  options.index_dir = argv[3];
  const auto data =
      data::pipeline::open_dataset("train", synthetic_config(), options.index_dir, {});
  if (!data.ok()) return 1;
  const auto plan = plan_for(**data);
  const auto ring = ring::ShmRing::create(ring::BatchLayout((*data)->spec(), kBatch), {.slots = 4});
  if (!ring.ok()) return 2;
  Coordinator coordinator;
  FeedSupervisor supervisor(options, **ring, data->get(), plan, coordinator);
  if (!supervisor.start().ok()) return 3;
  // The startup of the workers is complete when they read.
  if (!(*ring)->pop(kTestTimeout).ok()) return 4;
  for (const int pid : supervisor.process_ids()) std::printf("%d ", pid);
  std::printf("\n");
  std::fflush(stdout);
  while (true) ::pause();
}

}  // namespace
}  // namespace stoker::supervisor

int main(int argc, char** argv) { return argc == 4 ? stoker::supervisor::run(argv) : 64; }
