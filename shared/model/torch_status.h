// LibTorch's exceptions as Status.
//
// Threads: pure function.
#pragma once

#include <string_view>

#include <c10/util/Exception.h>

#include "shared/base/status.h"

namespace stoker::model {

// kOutOfMemory where an allocation failed, kInternal otherwise; "what: the first line of the
// exception's text".
Status status_of(const c10::Error& error, std::string_view what);

}  // namespace stoker::model
