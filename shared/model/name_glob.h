// NameGlob: see shared/base/glob.h.
#pragma once

#include "shared/base/glob.h"

namespace stoker::model {

using stoker::NameGlob;

}  // namespace stoker::model
