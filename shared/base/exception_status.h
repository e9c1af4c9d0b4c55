// Exceptions of the standard library as statuses, and the limits of the system on processes and threads,
// which are the cause of some of them.
//
// Threads:  functions of their arguments and of files of the system.
// Blocking: they read small files; check_thread_limit() starts threads and waits until they are gone.
// Errors:   check_thread_limit(): kBusy, with the limits.
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>

#include "shared/base/status.h"

namespace stoker {

// kOutOfMemory; what the system reports as the code of its errno, such as kBusy with the limits if it does not
// permit another thread; otherwise kInternal.
Status to_status(const std::exception& error);

// kBusy: "cannot start the worker process …: a limit on processes and threads is reached: …; raise it".
Status thread_limit_reached(std::string_view what);

// "32 of user 1000 (ulimit -u, LimitNPROC= of a service), 60 of the control group (TasksMax= of a service)"
std::string describe_thread_limits();

// Whether the system now permits this number of further threads, also after the return if nothing else starts some.
Status check_thread_limit(size_t num_threads);

}  // namespace stoker
