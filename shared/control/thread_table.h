// ThreadTable: the reply to `threads`: the threads of a process and what each of them does.
//
// Threads: values; functions of their arguments and of the clock.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/base/thread_registry.h"

namespace stoker::control {

struct ThreadRow {
  std::string name;
  int tid = 0;                   // 0: not started
  bool is_queue_thread = false;  // otherwise one of the process itself
  std::string queue;
  std::string operation;
  ThreadState state = ThreadState::kNotStarted;
  std::string since;   // when the operation began: "2026-01-31T12:00:00.123Z"
  double seconds = 0;  // since then
};

struct ThreadTable {
  std::vector<ThreadRow> rows;
  uint64_t library_threads = 0;  // of libraries, which have no row
};

ThreadTable make_thread_table(const ThreadList& list);

// A JSON object on one line.
std::string to_json(const ThreadTable& table);
// Unknown fields are ignored. kCorrupt: not JSON, a field is missing or has the wrong type, or the
// state is unknown.
Result<ThreadTable> parse_thread_table(std::string_view json);

}  // namespace stoker::control
