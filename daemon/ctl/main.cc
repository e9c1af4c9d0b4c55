// stokerctl: see stokerctl.h.
#include <exception>
#include <iostream>

#include "daemon/ctl/stokerctl.h"

int main(int argc, char** argv) {
  using namespace stoker;
  try {
    return static_cast<int>(
        ctl::run_stokerctl(argc, argv, ctl::style_of_standard_output(), std::cout, std::cerr));
  } catch (const std::exception& error) {
    std::cerr << "stokerctl: " << error.what() << "\n";
    return static_cast<int>(ExitCode::kInternal);
  }
}
