// LogLevel and LogFormat. Apart from log.h, so that the headers of the configuration do not include the table of
// all events.
#pragma once

namespace stoker {

enum class LogLevel { kDebug, kInfo, kWarn, kError };
enum class LogFormat { kText, kJson };

}  // namespace stoker
