// stoker-feed: see worker_main.h.
#include <cstdio>
#include <exception>

#include "feeder/worker_main.h"

int main(int argc, char** argv) {
  try {
    return static_cast<int>(stoker::feeder::worker_main(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stoker-feed: %s\n", error.what());
    return static_cast<int>(stoker::ExitCode::kInternal);
  }
}
