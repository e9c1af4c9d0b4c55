// stoker-feed: see feeder_program.h.
#include <cstdio>
#include <exception>

#include "daemon/feeder/feeder_program.h"

int main(int argc, char** argv) {
  try {
    return static_cast<int>(stoker::feeder::run_feeder(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stoker-feed: %s\n", error.what());
    return static_cast<int>(stoker::ExitCode::kInternal);
  }
}
