// Rendezvous: the ranks of a group meet in the store before their first collective.
//
// The store can outlive a group: that of torchrun's agent does. Rank 0 of each group therefore counts
// the store's generation up, and all keys of a group begin with its generation. Launchers have no
// such number: TORCHELASTIC_RESTART_COUNT is counted by each agent, so that it differs between nodes
// and stays the same when a node joins.
//
// Threads:  one.
// Blocking: join_group() until all ranks have joined, one of them has failed, the deadline, or a stop;
//           report_connect_failure() for `grace`, and as leave_store(); report_start_failure() as the latter.
// Errors:   kPeerLost: ranks are missing at the deadline, or one failed; the message names them.
//           kMismatch: the store belongs to another run or another number of ranks. kBusy: another
//           process has this rank. kCancelled.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "daemon/group/failure_record.h"
#include "daemon/group/launch_environment.h"
#include "daemon/group/store.h"
#include "shared/base/deadline.h"
#include "shared/base/status.h"

namespace stoker::group {

// What a rank reports to the others about itself.
struct StartRecord {
  std::string host;
  int64_t pid = 0;

  bool operator==(const StartRecord&) const = default;
};

// StartDelayLog: logs once, after 10 s, what a process waits for at its start.
class StartDelayLog {
 public:
  // `name_missing`: only called for the line.
  void check(const std::function<std::string()>& name_missing);

 private:
  const Deadline due_ = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  bool is_logged_ = false;
};

// Whether the process of a rank has ended, which leaves no record if it is killed. Only used for ranks
// on the host of this one: locks of other hosts are not visible on every file system. Empty: unknown.
using HasExited = std::function<bool(int rank)>;

// Whether the process of a rank on this host has ended; false: unknown.
bool is_known_to_have_exited(Store& keys, int rank, const HasExited& has_exited);

// Returns the prefix of the group's keys: the other functions take a PrefixedStore with it. `run_id`
// is equal on all ranks of a run and different in other runs. `ready`: why this rank cannot take
// part, or ok; an error is reported to the other ranks and returned.
Result<std::string> join_group(Store& store, const LaunchEnvironment& environment,
                               const std::string& run_id, const StartRecord& own,
                               const Status& ready, const HasExited& has_exited, Deadline deadline,
                               const std::stop_token& stop);

// For a rank that fails after join_group() and before its first collective: reports `reason` to the
// others and returns it. If another rank failed earlier, returns kPeerLost, which names it too.
Status report_start_failure(Store& keys, const LaunchEnvironment& environment, const Status& reason,
                            const HasExited& has_exited);

// For a rank that has connected to all others, so that those that cannot do not suspect it.
Status announce_connected(Store& keys, int rank);

// For a rank that cannot connect to all others, because of `reason`: tells the others. Returns kPeerLost, which
// names the rank that was killed, that failed, or that serves the store and does not respond; else those that
// within `grace` have neither connected nor reported why, and the first one that has. If there are none, it is
// the network.
Status report_connect_failure(Store& keys, const LaunchEnvironment& environment,
                              const Status& reason, const HasExited& has_exited,
                              std::chrono::milliseconds grace);

// Tells the ranks that are not in a collective why this one fails.
void announce_failure(Store& keys, const LaunchEnvironment& environment, const Status& reason);

// Tells them that this rank was lost, if none has announced a failure yet.
void announce_loss(Store& keys, int rank);

// The rank that has announced a failure, or that was announced as lost; nullopt: none.
Result<std::optional<int>> announced_failure(Store& keys);

// kPeerLost, which names the rank, if a rank has announced a failure.
Status check_failed(Store& keys, const LaunchEnvironment& environment);

// kPeerLost, which names the rank, if one of those that this rank can wait for was killed: the chief
// for any that has joined, the others for the chief.
Status check_killed(Store& keys, const LaunchEnvironment& environment, const HasExited& has_exited);
Status check_killed(Store& keys, const LaunchEnvironment& environment, const HasExited& has_exited,
                    int rank);  // the same for one rank

// kPeerLost if another group has begun after that of `prefix`, or the store does not respond: this
// process has been replaced, and must not change the run any more.
Status check_newest(Store& store, const std::string& prefix);

// Last use of the store. The process that serves it waits until the other ranks do not need it any
// more, except `failed_rank` and those that have exited; at most 20 s, and 10 s for those that have
// not joined yet.
void leave_store(Store& keys, const LaunchEnvironment& environment, int failed_rank,
                 const HasExited& has_exited);

// "rank 3 (node-2, pid 4711)"; without what is not known.
std::string describe_rank(Store& keys, const LaunchEnvironment& environment, int rank);

// Why a rank has failed, with its name.
std::string describe_failure(Store& keys, const LaunchEnvironment& environment,
                             const FailedRank& failed);

// An error of the store, with the name of the chief if that serves it.
std::string describe_lost_store(const LaunchEnvironment& environment, const Status& error);

}  // namespace stoker::group
