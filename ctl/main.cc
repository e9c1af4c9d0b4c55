// stokerctl: see stokerctl.h.
#include <exception>
#include <iostream>

#include "ctl/stokerctl.h"

int main(int argc, char** argv) {
  try {
    return static_cast<int>(stoker::ctl::run_stokerctl(
        argc, argv, stoker::ctl::standard_output_style(), std::cout, std::cerr));
  } catch (const std::exception& error) {
    std::cerr << "stokerctl: " << error.what() << "\n";
    return static_cast<int>(stoker::ExitCode::kInternal);
  }
}
