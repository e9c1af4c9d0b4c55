// stoker-feed: see worker_main.h.
#include <cstdio>
#include <exception>

#include "feeder/worker_main.h"
#include "shared/base/exception_status.h"
#include "shared/base/utf8.h"

int main(int argc, char** argv) {
  try {
    return static_cast<int>(stoker::feeder::worker_main(argc, argv));
  } catch (const std::exception& error) {
    const stoker::Status status = stoker::to_status(error);
    std::fprintf(stderr, "stoker-feed: %s\n",
                 stoker::printable_lines(status.message(), "  ").c_str());
    return static_cast<int>(stoker::exit_code_for(status));
  }
}
