#include "daemon/service/signal_policy.h"

#include <signal.h>

#include <utility>

namespace stoker::service {

SignalAction SignalPolicy::on_signal(int number) {
  switch (number) {
    case SIGTERM:
    case SIGINT:
      return std::exchange(stop_was_signalled_, true) ? SignalAction::kForceExit
                                                      : SignalAction::kStopGracefully;
    case SIGHUP:
      // A reload has no effect on a run that is about to end.
      return stop_was_signalled_ ? SignalAction::kIgnore : SignalAction::kReload;
    case SIGUSR1:
      // The graceful stop saves a checkpoint anyway.
      return stop_was_signalled_ ? SignalAction::kIgnore : SignalAction::kSave;
    default:
      return SignalAction::kIgnore;
  }
}

}  // namespace stoker::service
