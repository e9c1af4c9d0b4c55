// Commands that get events of stokerd over the control socket instead of reading files.
//
// Threads:  one.
// Blocking: until stokerd ends the connection.
// Errors:   returns the exit code; the reason is written to console.err.
#pragma once

#include "ctl/command_line.h"
#include "ctl/terminal.h"

namespace stoker::ctl {

// The events whose name matches CommandLine::subscription, from now on.
ExitCode follow_events(const CommandLine& command, const Console& console);
// `logs --socket`
ExitCode show_remote_logs(const CommandLine& command, const Console& console);
// `evaluate --socket`
ExitCode evaluate_remotely(const CommandLine& command, const Console& console);

// "2026-01-31T12:00:00.123Z info    checkpoint saved step=1200", as in the log, of its JSON form.
// kCorrupt: not an event.
Result<std::string> format_event_line(const std::string& event_json);

}  // namespace stoker::ctl
