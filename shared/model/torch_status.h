// LibTorch's exceptions as Status.
//
// Threads: pure function.
#pragma once

#include <string>
#include <string_view>

#include <c10/util/Exception.h>

#include "shared/base/status.h"

namespace stoker::model {

// kOutOfMemory where an allocation failed, kMismatch of an OutOfVocabError, kInternal otherwise; "what: the
// first line of the exception's text".
Status to_status(const c10::Error& error, std::string_view what);

// Of an exception's text.
std::string first_line(std::string_view text);

}  // namespace stoker::model
