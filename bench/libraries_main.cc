// stoker-bench-libraries: own code compared with the libraries that could replace it, in processor
// time. docs/dependencies.md has the results.
#include "bench/library_benches.h"
#include "bench/options.h"

int main(int argc, char** argv) {
  using namespace stoker::bench;
  int exit_code = 0;
  const auto options = parse_options(argc, argv, exit_code);
  if (!options) return exit_code;
  return run_all({library_csv(), library_glob(), library_resize(), library_tar(), library_zip()},
                 *options);
}
