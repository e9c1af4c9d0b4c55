// task_section: the settings of the task, what each may be and which tasks read it.
//
// Threads: any; the section writes into `task`, which must outlive it.
#pragma once

#include "shared/config/schema.h"

namespace stoker::config {

Section task_section(TaskConfig& task);

}  // namespace stoker::config
