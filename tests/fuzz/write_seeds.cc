// write_seeds FOLDER: writes the seeds of each format to FOLDER/NAME/ as the initial corpus of
// libFuzzer.
#include <cstdio>
#include <filesystem>

#include "tests/fuzz/format.h"
#include "tests/support/temporary_directory.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: write_seeds FOLDER\n", stderr);
    return 64;
  }
  for (const stoker::fuzz::Format& format : stoker::fuzz::formats()) {
    const auto folder = std::filesystem::path(argv[1]) / format.name;
    std::filesystem::create_directories(folder);
    size_t number = 0;
    for (const std::string& seed : format.seeds())
      stoker::test::write_whole((folder / ("seed-" + std::to_string(number++))).string(), seed);
  }
}
