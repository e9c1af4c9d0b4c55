// What ranks tell each other through the store between their rendezvous and their first collective:
// they compare what must be the same, before tensors of different sizes meet, and wait for what rank 0
// prepares.
//
// Threads:  one. All ranks call the same functions in the same order, each with another `topic`.
// Blocking: until the other ranks have called it too, one of them has failed, the deadline, or a stop.
// Errors:   kMismatch: the settings differ. kPeerLost: a rank is missing at the deadline, or failed;
//           the message names it. kCancelled.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "daemon/group/launch_environment.h"
#include "daemon/group/process_group.h"
#include "daemon/group/rendezvous.h"
#include "daemon/group/store.h"
#include "shared/base/deadline.h"
#include "shared/base/status.h"

namespace stoker::group {

// How long ranks wait for each other.
struct StartWait {
  Deadline deadline;
  HasExited has_exited = {};  // may be empty: unknown
  // Why the connection to a rank is closed; nullopt: it is open. May be empty: unknown.
  std::function<std::optional<std::string>(int rank)> find_closed = {};
  // The error for such a rank, if it has not called the same function before.
  std::function<Status(int rank, const std::string& reason)> lose = {};
};

// Settings as the value of a key of the store. kCorrupt: they are none.
std::string to_json(const SharedSettings& settings);
Result<SharedSettings> parse_settings(const std::string& text, const std::string& key);

struct SettingDifference {
  std::string name, other, own;  // "(unset)" for a setting that one of them does not have
};
// The first one; nullopt: they are the same, in any order.
std::optional<SettingDifference> find_difference(const SharedSettings& others,
                                                 const SharedSettings& own);

// As ProcessGroup::check_same(). Rank 0 compares, and tells the others the result.
Status check_same_settings(Store& keys, const LaunchEnvironment& environment,
                           const std::string& topic, const SharedSettings& settings,
                           const StartWait& wait, const std::stop_token& stop);

// As ProcessGroup::text_of_chief().
Result<std::string> receive_from_chief(Store& keys, const LaunchEnvironment& environment,
                                       const std::string& topic, const std::string& text,
                                       const StartWait& wait, const std::stop_token& stop);

// As ProcessGroup::gather().
Result<std::vector<std::string>> gather_at_chief(Store& keys, const LaunchEnvironment& environment,
                                                 const std::string& topic, const std::string& text,
                                                 const StartWait& wait,
                                                 const std::stop_token& stop);

}  // namespace stoker::group
