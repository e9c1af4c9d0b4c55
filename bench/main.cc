#include "bench/benches.h"
#include "bench/options.h"

int main(int argc, char** argv) {
  using namespace stoker::bench;
  int exit_code = 0;
  const auto options = maybe_parse(argc, argv, exit_code);
  if (!options) return exit_code;
  return run_all({plan_orders(), ring_operations(), ring_bandwidth(), ring_consumer(), feed_text(),
                  feed_images(), checkpoint_commit(), snapshot_stall()},
                 *options);
}
