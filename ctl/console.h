// Console: where a command writes, and how.
//
// Threads: one object per thread.
#pragma once

#include <ostream>
#include <string_view>

#include "ctl/terminal.h"
#include "shared/base/exit_code.h"
#include "shared/base/status.h"

namespace stoker::ctl {

struct Console {
  std::ostream& out;  // what was asked for
  std::ostream& err;  // why it cannot be had
  TextStyle style;

  // Says what went wrong and returns `code`.
  ExitCode fail(const Status& status, ExitCode code) const {
    err << "stokerctl: " << status.message() << "\n";
    return code;
  }
};

}  // namespace stoker::ctl
