// optimizer_section, schedule_section: the settings by which a gradient becomes a step, what each may be
// and which kinds read it.
//
// Threads: any; a section writes into what it was made of, which must outlive it.
#pragma once

#include "shared/config/schema.h"

namespace stoker::config {

Section optimizer_section(OptimizerConfig& optimizer);
Section schedule_section(ScheduleConfig& schedule);

}  // namespace stoker::config
