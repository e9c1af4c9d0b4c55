// SignalPolicy: what each signal means to stokerd. Who listens for them is another matter
// (app).
//
// Threads: one.
#pragma once

namespace stoker::service {

enum class SignalAction {
  kStopGracefully,  // finish the step, save, exit 0
  kForceExit,       // abandon what is in flight, exit 143; the last checkpoint is intact
  kReload,          // read again the settings that may change live
  kSave,            // a checkpoint now
  kIgnore,
};

class SignalPolicy {
 public:
  // After a stop that came another way (stokerctl stop) the next SIGTERM or SIGINT is still the first
  // one, because whoever sends it may not know of the other.
  SignalAction on_signal(int number);

 private:
  bool stop_was_signalled_ = false;
};

}  // namespace stoker::service
