// SignalPolicy: maps signals to the actions of stokerd. The app receives the signals.
//
// Threads: one.
#pragma once

namespace stoker::service {

enum class SignalAction {
  kStopGracefully,  // finish the step, save, exit with code 0
  kForceExit,       // abort work in progress, exit with code 143; the last checkpoint is intact
  kReload,          // reload the settings that can change at runtime
  kSave,            // save a checkpoint now
  kIgnore,
};

class SignalPolicy {
 public:
  // After a stop by other means (stokerctl stop) the next SIGTERM or SIGINT still counts as the
  // first one, because its sender might not know about that stop.
  SignalAction on_signal(int number);

 private:
  bool stop_was_signalled_ = false;
};

}  // namespace stoker::service
