// Converts exceptions of LibTorch to Status.
//
// Threads: pure function.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include <c10/util/Exception.h>

#include "shared/base/status.h"

namespace stoker::model {

// kOutOfMemory: an allocation failed, on the host or a device. kDeviceLost: the device cannot be used until a
// restart. kMismatch: an OutOfVocabError. kInvalidArgument: is_too_small_batch(). What the system does not
// permit: as stoker::to_status(). Else kInternal.
StatusCode code_of(const std::exception& error);

// Whether a layer such as batch_norm has one value per channel, which has no variance.
bool is_too_small_batch(const std::exception& error);

// With this code. The message is `what`, a colon and the first line of the exception text.
Status to_status(const c10::Error& error, std::string_view what);

std::string first_line(std::string_view text);

}  // namespace stoker::model
