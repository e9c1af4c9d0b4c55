// StackReader: the stacks of the stopped threads of a process, with elfutils' libdwfl.
//
// Functions have the names of the symbol tables, of separate debug files too if they are installed;
// every frame has its module and the offset in it, which addr2line and gdb resolve. Nothing is
// downloaded.
//
// Threads:   one.
// Ownership: `process` must outlive this object.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/stacks/traced_process.h"

struct Dwfl;

namespace stoker::stacks {

class StackReader {
 public:
  explicit StackReader(const TracedProcess& process);

  // Why no stack can be read; empty: they can.
  const std::string& problem() const { return problem_; }
  // One line per frame, the innermost first; the last one says why the stack ends early. `tid` is a
  // stopped thread.
  std::vector<std::string> frames(pid_t tid) const;

 private:
  struct Close {
    void operator()(Dwfl* dwfl) const;
  };

  std::unique_ptr<Dwfl, Close> dwfl_;
  std::string problem_;
};

}  // namespace stoker::stacks
