// trace: runs a program and sees each of its system calls on files below a folder before it is
// done; the test may kill the program there.
//
// Nothing is built into the program for it: what is killed is what is installed. Calls of all
// threads count; processes that the program starts are not followed.
//
// Threads:  one at a time, of a process without other children that end meanwhile.
// Blocking: until the program has ended.
// Errors:   a program that cannot be started or traced ends with 127. untraceable_reason() says
//           beforehand whether this machine lets us.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace stoker::test {

struct FileCall {
  std::string name;         // as in the manual: "renameat2"
  std::string path;         // absolute
  std::string to;           // of a rename or link: the new name
  uint64_t bytes = 0;       // of a write
  uint64_t occurrence = 0;  // of this name in this process, from 1
  bool changes = false;     // may change what is on the disk, or what of it survives a power cut
};
std::string to_string(const FileCall& call);

enum class Verdict {
  kGoOn,
  kKill,          // SIGKILL before the call is done
  kKillInMiddle,  // of a write: half of its bytes are written, then SIGKILL
  kTerminate,     // SIGTERM, and the call is done
  kPretend,       // not done, and the program is told that it was
};

struct TraceEnd {
  int code = 0;    // valid when signal is 0
  int signal = 0;  // that ended it
};

// Standard output and error are appended to `output`, which should not be below `root`.
TraceEnd trace(const std::vector<std::string>& argv, const std::string& output,
               const std::string& root, const std::function<Verdict(const FileCall&)>& check);

// The same without looking.
TraceEnd run_to_its_end(const std::vector<std::string>& argv, const std::string& output);

// Why programs cannot be traced here, in one line; nothing where they can.
std::optional<std::string> untraceable_reason();

}  // namespace stoker::test
