// stokerctl: see stokerctl.h.
#include <exception>
#include <iostream>

#include "ctl/stokerctl.h"
#include "shared/base/exception_status.h"
#include "shared/base/utf8.h"

int main(int argc, char** argv) {
  try {
    return static_cast<int>(stoker::ctl::run_stokerctl(
        argc, argv, stoker::ctl::standard_output_style(), std::cout, std::cerr));
  } catch (const std::exception& error) {
    const stoker::Status status = stoker::to_status(error);
    std::cerr << "stokerctl: " << stoker::printable_lines(status.message(), "  ") << "\n";
    return static_cast<int>(stoker::exit_code_for(status));
  }
}
