#include "daemon/group/rendezvous.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <random>
#include <vector>

#include <boost/json.hpp>

#include "daemon/group/socket_address.h"
#include "shared/base/json_parser.h"
#include "shared/base/log.h"

namespace stoker::group {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;

constexpr size_t kMaxNamedRanks = 8;
// For the other ranks to notice a failure and to read its record, before the store ends.
constexpr std::chrono::seconds kStoreGrace{20};
// For a rank that cannot take part, to find the group to which it reports that.
constexpr std::chrono::seconds kReportGrace{10};
// Between two checks for failed ranks; longer with more ranks, which load the store.
constexpr milliseconds kMinCheckInterval{500};
constexpr const char* kExitedWithoutReason =
    " exited without a reason; see its log, and that of the kernel for the OOM killer";
constexpr const char* kLost = " exited, hangs or cannot be reached";
constexpr const char* kGenerationKey = "generation";
// Of one generation:
constexpr const char* kRunKey = "run";        // set by rank 0: the generation has begun
constexpr const char* kJoinedKey = "joined";  // number of ranks
constexpr const char* kAllJoinedKey = "all_joined";
constexpr const char* kCompleteKey = "complete";  // set by rank 0, after it has seen all_joined
constexpr const char* kFailedKey = "failed";      // the first rank that failed or was lost

std::string rank_key(int rank) { return "rank/" + std::to_string(rank); }
std::string connected_key(int rank) { return "connected/" + std::to_string(rank); }
// Set by a rank that does not need the store any more.
std::string left_key(int rank) { return "left/" + std::to_string(rank); }

// The number distinguishes two processes with the same host name and pid, as containers have.
std::string to_json(const StartRecord& record) {
  std::random_device random;
  return json::serialize(
      json::object{{"host", record.host}, {"pid", record.pid}, {"instance", random()}});
}

Result<StartRecord> parse_start_record(const std::string& text, const std::string& key) {
  return parse_json_object<StartRecord>(text, "store key " + key, [](const json::object& fields) {
    return StartRecord{.host = std::string(fields.at("host").as_string()),
                       .pid = fields.at("pid").to_number<int64_t>()};
  });
}

// nullopt: it has not joined, or the store does not respond.
std::optional<StartRecord> find_start_record(Store& keys, int rank) {
  const std::string key = rank_key(rank);
  const auto text = keys.get(key);
  if (!text.ok() || !*text) return std::nullopt;
  auto record = parse_start_record(**text, key);
  return record.ok() ? std::optional(*std::move(record)) : std::nullopt;
}

std::string name_of(const LaunchEnvironment& environment, int rank,
                    const std::optional<StartRecord>& record) {
  if (!record) return environment.name_of(rank);
  return "rank " + std::to_string(rank) + " (" + record->host + ", pid " +
         std::to_string(record->pid) + ")";
}

// At most kMaxNamedRanks of them.
std::string names_of(Store& keys, const LaunchEnvironment& environment,
                     const std::vector<int>& ranks) {
  std::string names;
  for (size_t i = 0; i < std::min(ranks.size(), kMaxNamedRanks); ++i)
    names += (i == 0 ? "" : ", ") + describe_rank(keys, environment, ranks[i]);
  if (ranks.size() > kMaxNamedRanks)
    names += " and " + std::to_string(ranks.size() - kMaxNamedRanks) + " more";
  return names;
}

std::string logs_of_launcher(const LaunchEnvironment& environment) {
  return environment.launcher == Launcher::kNone ? std::string("their launcher")
                                                 : std::string(to_string(environment.launcher));
}

std::string size_text(const LaunchEnvironment& environment) {
  return " with " + std::to_string(environment.world_size) + " ranks";
}
std::string run_text(const LaunchEnvironment& environment, const std::string& run_id) {
  return "run '" + run_id + "'" + size_text(environment);
}

template <typename Number>
Number parse_number(const std::string& text) {
  Number number{};
  (void)std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

Status check_run(Store& keys, const LaunchEnvironment& environment, const std::string& run_id) {
  STOKER_ASSIGN_OR_RETURN(const auto first, keys.get(kRunKey));
  const std::string own = run_text(environment, run_id);
  if (!first || *first == own) return {};
  Status mismatch(StatusCode::kMismatch,
                  "rank " + std::to_string(environment.rank) + " is of " + own +
                      ", but its store is used by " + *first +
                      "; start all ranks of a run with the same command line, and give each run "
                      "its own MASTER_PORT");
  // The ranks of the same run would wait for this one in vain. A group that is complete needs nobody else, and a
  // rank of another run is none of theirs.
  STOKER_ASSIGN_OR_RETURN(const auto complete, keys.get(kCompleteKey));
  if (!complete && first->starts_with("run '" + run_id + "' "))
    announce_failure(keys, environment, mismatch);
  return mismatch;
}

Status register_rank(Store& keys, const LaunchEnvironment& environment, const StartRecord& own) {
  const std::string key = rank_key(environment.rank);
  const std::string text = to_json(own);
  STOKER_ASSIGN_OR_RETURN(const std::string found, keys.set_if_absent(key, text));
  if (found == text) return {};
  const auto other = parse_start_record(found, key);
  return Status(StatusCode::kBusy,
                "two processes are rank " + std::to_string(environment.rank) + ": this one (" +
                    own.host + ", pid " + std::to_string(own.pid) + ") and " +
                    (other.ok() ? other->host + ", pid " + std::to_string(other->pid)
                                : std::string("another one")) +
                    "; start each rank once");
}

Result<std::vector<int>> find_missing(Store& keys, const LaunchEnvironment& environment) {
  std::vector<int> missing;
  for (int rank = 0; rank < environment.world_size; ++rank) {
    STOKER_ASSIGN_OR_RETURN(const auto record, keys.get(rank_key(rank)));
    if (!record) missing.push_back(rank);
  }
  return missing;
}

// kPeerLost with the names of ranks that have not joined; ok if none is missing.
Status check_missing(Store& keys, const LaunchEnvironment& environment) {
  STOKER_ASSIGN_OR_RETURN(const std::vector<int> missing, find_missing(keys, environment));
  if (missing.empty()) return {};
  const auto world_size = static_cast<size_t>(environment.world_size);
  return Status(
      StatusCode::kPeerLost,
      std::to_string(world_size - missing.size()) + " of " + std::to_string(world_size) +
          " ranks joined the group in time; missing: " + names_of(keys, environment, missing) +
          "; see their logs, or those of " + logs_of_launcher(environment));
}

// ---- generations ---------------------------------------------------------------------------------

PrefixedStore keys_of(Store& store, int64_t generation) {
  return {store, std::to_string(generation) + "/"};
}

Result<bool> has_begun(Store& store, int64_t generation) {
  STOKER_ASSIGN_OR_RETURN(const auto run, keys_of(store, generation).get(kRunKey));
  return run.has_value();
}

// The generation that rank 0 began last; 0: none.
Result<int64_t> newest_generation(Store& store) {
  STOKER_ASSIGN_OR_RETURN(const auto text, store.get(kGenerationKey));
  return text ? parse_number<int64_t>(*text) : 0;
}

Result<int64_t> begin_generation(Store& store, const std::string& run) {
  STOKER_ASSIGN_OR_RETURN(const int64_t generation, store.add(kGenerationKey, 1));
  STOKER_RETURN_IF_ERROR(keys_of(store, generation).set(kRunKey, run));
  return generation;
}

// Returns when rank 0 has begun it.
Status wait_for_generation(Store& store, int64_t generation, const LaunchEnvironment& environment,
                           Deadline deadline, const std::stop_token& stop) {
  PrefixedStore keys = keys_of(store, generation);
  StartDelayLog delay;
  Status begun;
  do {
    const Deadline attempt = std::chrono::steady_clock::now() + kMinCheckInterval;
    begun = keys.wait(kRunKey, std::min<Deadline>(deadline, attempt), stop);
    if (begun.code() != StatusCode::kTimedOut) return begun;
    delay.check([&] { return environment.name_of(0); });
  } while (std::chrono::steady_clock::now() < deadline);
  return Status(StatusCode::kPeerLost, environment.name_of(0) +
                                           " did not join the group in time; see its log, or those "
                                           "of " +
                                           logs_of_launcher(environment));
}

// Whether the generation is that of an earlier group of the same store: it has another number of
// ranks, is complete, has failed, or has this rank. Only the store of an agent has had other groups.
Result<bool> is_stale(Store& keys, const LaunchEnvironment& environment) {
  if (!environment.launcher_serves_store) return false;
  STOKER_ASSIGN_OR_RETURN(const auto run, keys.get(kRunKey));
  if (run && !run->ends_with(size_text(environment))) return true;
  for (const std::string& key :
       {std::string(kCompleteKey), std::string(kFailedKey), rank_key(environment.rank)}) {
    STOKER_ASSIGN_OR_RETURN(const auto value, keys.get(key));
    if (value) return true;
  }
  return false;
}

enum class Wake { kSet, kSuperseded };

// Returns when `key` is set, or rank 0 has begun the next generation. kPeerLost.
Result<Wake> wait_in_generation(Store& store, int64_t generation, const std::string& key,
                                const LaunchEnvironment& environment, const HasExited& has_exited,
                                Deadline deadline, const std::stop_token& stop) {
  PrefixedStore keys = keys_of(store, generation);
  const milliseconds interval = kMinCheckInterval + milliseconds(environment.world_size);
  StartDelayLog delay;
  while (true) {
    const auto now = std::chrono::steady_clock::now();
    const Status set = keys.wait(key, std::min<Deadline>(deadline, now + interval), stop);
    if (set.ok()) return Wake::kSet;
    if (set.code() != StatusCode::kTimedOut) return set;
    STOKER_RETURN_IF_ERROR(check_failed(keys, environment));
    STOKER_RETURN_IF_ERROR(check_killed(keys, environment, has_exited));
    STOKER_ASSIGN_OR_RETURN(const bool is_superseded, has_begun(store, generation + 1));
    if (is_superseded) return Wake::kSuperseded;
    delay.check([&] {
      const auto missing = find_missing(keys, environment);
      return missing.ok() ? names_of(keys, environment, *missing) : std::string();
    });
    if (now < deadline) continue;
    STOKER_RETURN_IF_ERROR(check_missing(keys, environment));
    return Status(StatusCode::kPeerLost,
                  environment.name_of(0) + " did not complete the group in time; see its log");
  }
}

// ---- one rank ------------------------------------------------------------------------------------

// Takes part in a generation.
Result<Wake> join_generation(Store& store, int64_t generation, const LaunchEnvironment& environment,
                             const StartRecord& own, const Status& ready,
                             const HasExited& has_exited, Deadline deadline,
                             const std::stop_token& stop) {
  PrefixedStore keys = keys_of(store, generation);
  STOKER_RETURN_IF_ERROR(register_rank(keys, environment, own));
  if (!ready.ok()) return report_start_failure(keys, environment, ready, has_exited);
  // The last rank to join wakes the others, so that no rank polls the records of all others.
  STOKER_ASSIGN_OR_RETURN(const int64_t joined, keys.add(kJoinedKey, 1));
  if (joined == environment.world_size) STOKER_RETURN_IF_ERROR(keys.set(kAllJoinedKey, "1"));
  const char* const awaited = environment.is_chief() ? kAllJoinedKey : kCompleteKey;
  auto woken =
      wait_in_generation(store, generation, awaited, environment, has_exited, deadline, stop);
  if (woken.ok() && environment.is_chief() && *woken == Wake::kSet)
    STOKER_RETURN_IF_ERROR(keys.set(kCompleteKey, "1"));
  if (woken.status().code() == StatusCode::kCancelled) {
    // Without a wait for the others, which may never join.
    announce_failure(keys, environment, woken.status());
    return woken;
  }
  if (!woken.ok()) {
    const auto failed = keys.get(kFailedKey);
    if (failed.ok() && *failed)
      leave_store(keys, environment, parse_number<int>(**failed), has_exited);
  }
  return woken;
}

}  // namespace

void StartDelayLog::check(const std::function<std::string()>& name_missing) {
  if (is_logged_ || std::chrono::steady_clock::now() < due_) return;
  is_logged_ = true;
  log_info("group start delayed",
           {{"missing", name_missing()}, {"hint", "see the log of each, or of its launcher"}});
}

Result<std::string> join_group(Store& store, const LaunchEnvironment& environment,
                               const std::string& run_id, const StartRecord& own,
                               const Status& ready, const HasExited& has_exited, Deadline deadline,
                               const std::stop_token& stop) {
  if (!ready.ok())
    deadline = std::min<Deadline>(deadline, std::chrono::steady_clock::now() + kReportGrace);
  if (environment.is_chief()) {
    STOKER_ASSIGN_OR_RETURN(const int64_t generation,
                            begin_generation(store, run_text(environment, run_id)));
    STOKER_ASSIGN_OR_RETURN(const Wake woken, join_generation(store, generation, environment, own,
                                                              ready, has_exited, deadline, stop));
    if (woken == Wake::kSet) return keys_of(store, generation).prefix();
    return Status(StatusCode::kBusy, "another process is rank 0; start each rank once");
  }
  STOKER_ASSIGN_OR_RETURN(const int64_t newest, newest_generation(store));
  for (int64_t generation = std::max<int64_t>(newest, 1);; ++generation) {
    const Status begun = wait_for_generation(store, generation, environment, deadline, stop);
    if (!begun.ok()) return ready.ok() ? begun : ready;
    PrefixedStore keys = keys_of(store, generation);
    STOKER_ASSIGN_OR_RETURN(const bool is_of_earlier_group, is_stale(keys, environment));
    if (is_of_earlier_group) continue;
    STOKER_RETURN_IF_ERROR(check_run(keys, environment, run_id));
    STOKER_ASSIGN_OR_RETURN(const Wake woken, join_generation(store, generation, environment, own,
                                                              ready, has_exited, deadline, stop));
    if (woken == Wake::kSet) return keys.prefix();
  }
}

Result<std::optional<int>> announced_failure(Store& keys) {
  STOKER_ASSIGN_OR_RETURN(const auto text, keys.get(kFailedKey));
  return text ? std::optional(parse_number<int>(*text)) : std::nullopt;
}

void announce_loss(Store& keys, int rank) {
  (void)keys.set_if_absent(kFailedKey, std::to_string(rank));
}

Status check_failed(Store& keys, const LaunchEnvironment& environment) {
  STOKER_ASSIGN_OR_RETURN(const auto rank, announced_failure(keys));
  if (!rank) return {};
  STOKER_ASSIGN_OR_RETURN(const auto record, read_failure_record(keys, *rank));
  std::string how = kExitedWithoutReason;
  if (record && !record->lost_rank) how = " failed: " + record->reason;
  if (record && record->lost_rank) how = " left the group: " + record->reason;
  return Status(StatusCode::kPeerLost, describe_rank(keys, environment, *rank) + how,
                record ? record->code : StatusCode::kOk);
}

namespace {

bool is_known_to_have_exited(const std::optional<StartRecord>& record, int rank,
                             const HasExited& has_exited) {
  return record && record->host == host_name() && has_exited && has_exited(rank);
}

}  // namespace

bool is_known_to_have_exited(Store& keys, int rank, const HasExited& has_exited) {
  return has_exited && has_exited(rank) &&
         is_known_to_have_exited(find_start_record(keys, rank), rank, has_exited);
}

Status check_killed(Store& keys, const LaunchEnvironment& environment,
                    const HasExited& has_exited) {
  const int end = environment.is_chief() ? environment.world_size : 1;
  for (int rank = 0; rank < end; ++rank)
    STOKER_RETURN_IF_ERROR(check_killed(keys, environment, has_exited, rank));
  return {};
}

Status check_killed(Store& keys, const LaunchEnvironment& environment, const HasExited& has_exited,
                    int rank) {
  if (!has_exited || rank == environment.rank || !has_exited(rank)) return {};
  const auto record = find_start_record(keys, rank);
  if (!is_known_to_have_exited(record, rank, has_exited)) return {};
  STOKER_RETURN_IF_ERROR(check_failed(keys, environment));  // it may have told why
  return Status(StatusCode::kPeerLost, name_of(environment, rank, record) + kExitedWithoutReason);
}

Status check_newest(Store& store, const std::string& prefix) {
  STOKER_ASSIGN_OR_RETURN(const int64_t newest, newest_generation(store));
  if (std::to_string(newest) + "/" == prefix) return {};
  return Status(StatusCode::kPeerLost,
                "another group of this run has started; this process belongs to an earlier one");
}

namespace {

// The rank that was announced first.
Result<int> announce_first_failure(Store& keys, const LaunchEnvironment& environment,
                                   const Status& reason) {
  const bool is_stop = reason.code() == StatusCode::kCancelled;
  (void)write_failure_record(keys, {.rank = environment.rank,
                                    .reason = reason.to_string(),
                                    .code = is_stop ? StatusCode::kOk : reason.code()});
  STOKER_ASSIGN_OR_RETURN(const std::string first,
                          keys.set_if_absent(kFailedKey, std::to_string(environment.rank)));
  return parse_number<int>(first);
}

}  // namespace

void announce_failure(Store& keys, const LaunchEnvironment& environment, const Status& reason) {
  (void)announce_first_failure(keys, environment, reason);
}

Status report_start_failure(Store& keys, const LaunchEnvironment& environment, const Status& reason,
                            const HasExited& has_exited) {
  const auto announced = announce_first_failure(keys, environment, reason);
  const int first = announced.ok() ? *announced : environment.rank;
  const Status failed = first != environment.rank ? check_failed(keys, environment) : Status();
  leave_store(keys, environment, first, has_exited);
  if (failed.ok()) return reason;
  return Status(StatusCode::kPeerLost, failed.message() + "; " + reason.message(), failed.cause());
}

namespace {

// Why a rank cannot connect to all others.
struct ConnectFailure {
  std::optional<FailedRank> cause;
  std::vector<int> silent;  // have neither connected nor written a record
};

// The rank that was announced first, unless it lost another one. Errors of ranks that are announced later can be
// consequences.
Result<std::optional<FailedRank>> find_announced_cause(Store& keys,
                                                       const LaunchEnvironment& environment) {
  std::optional<FailedRank> cause;
  STOKER_ASSIGN_OR_RETURN(const auto announced, announced_failure(keys));
  if (!announced || *announced == environment.rank) return cause;
  STOKER_ASSIGN_OR_RETURN(const auto record, read_failure_record(keys, *announced));
  if (record && record->lost_rank) return cause;
  cause = FailedRank{.rank = *announced};
  if (record) {
    cause->reason = record->reason;
    cause->code = record->code;
  }
  return cause;
}

// One pass over `ranks`; the first silent one has `patience` to write a record. Few requests, because all
// ranks do this at about the same time.
Result<ConnectFailure> ask_ranks(Store& keys, const std::vector<int>& ranks,
                                 const HasExited& has_exited, milliseconds patience) {
  ConnectFailure found;
  for (const int rank : ranks) {
    STOKER_ASSIGN_OR_RETURN(
        auto record,
        wait_for_failure_record(keys, rank, found.silent.empty() ? patience : milliseconds(0)));
    if (record) continue;
    if (is_known_to_have_exited(keys, rank, has_exited)) {
      // It can have written one meanwhile.
      STOKER_ASSIGN_OR_RETURN(record, read_failure_record(keys, rank));
      if (record) continue;
      found.cause = FailedRank{.rank = rank};
      return found;
    }
    STOKER_ASSIGN_OR_RETURN(const auto connected, keys.get(connected_key(rank)));
    if (!connected) found.silent.push_back(rank);
  }
  return found;
}

Result<ConnectFailure> find_connect_failure(Store& keys, const LaunchEnvironment& environment,
                                            const HasExited& has_exited, milliseconds grace) {
  ConnectFailure found;
  for (int rank = 0; rank < environment.world_size; ++rank)
    if (rank != environment.rank) found.silent.push_back(rank);
  // What is known already needs no wait for the others.
  for (const milliseconds patience : {milliseconds(0), grace}) {
    STOKER_ASSIGN_OR_RETURN(found.cause, find_announced_cause(keys, environment));
    if (found.cause || found.silent.empty()) return found;
    STOKER_ASSIGN_OR_RETURN(found, ask_ranks(keys, found.silent, has_exited, patience));
    if (found.cause) return found;
  }
  STOKER_ASSIGN_OR_RETURN(found.cause, find_announced_cause(keys, environment));
  return found;
}

// What is known if no rank is the cause, as the beginning of a message.
std::string describe_suspects(Store& keys, const LaunchEnvironment& environment,
                              const std::vector<int>& silent) {
  std::string suspects;
  if (!silent.empty())
    suspects = names_of(keys, environment, silent) + (silent.size() == 1 ? " has" : " have") +
               " neither connected nor reported an error; see " +
               (silent.size() == 1 ? "its log; " : "their logs; ");
  const auto first = announced_failure(keys);
  if (first.ok() && *first && **first != environment.rank)
    suspects += check_failed(keys, environment).message() + "; ";
  return suspects;
}

}  // namespace

Status announce_connected(Store& keys, int rank) { return keys.set(connected_key(rank), "1"); }

Status report_connect_failure(Store& keys, const LaunchEnvironment& environment,
                              const Status& reason, const HasExited& has_exited,
                              milliseconds grace) {
  const Status written = write_failure_record(
      keys, {.rank = environment.rank, .lost_rank = kUnknownRank, .reason = reason.message()});
  const auto found = written.ok() ? find_connect_failure(keys, environment, has_exited, grace)
                                  : Result<ConnectFailure>(written);
  if (!found.ok())
    return Status(StatusCode::kPeerLost,
                  describe_lost_store(environment, found.status()) + "; " + reason.message());
  const int failed_rank = found->cause ? found->cause->rank : environment.rank;
  announce_loss(keys, failed_rank);
  const std::string message =
      found->cause ? describe_failure(keys, environment, *found->cause) + "; " + reason.message()
                   : describe_suspects(keys, environment, found->silent) + reason.message() +
                         "; check the network interface, and firewalls between the nodes";
  leave_store(keys, environment, failed_rank, has_exited);
  return Status(StatusCode::kPeerLost, message,
                found->cause ? found->cause->code : StatusCode::kOk);
}

void leave_store(Store& keys, const LaunchEnvironment& environment, int failed_rank,
                 const HasExited& has_exited) {
  (void)keys.set(left_key(environment.rank), "1");
  if (!environment.is_chief() || environment.launcher_serves_store) return;
  const auto now = std::chrono::steady_clock::now();
  for (int other = 1; other < environment.world_size; ++other) {
    if (other == failed_rank) continue;
    const auto record = find_start_record(keys, other);
    if (is_known_to_have_exited(record, other, has_exited)) continue;
    (void)keys.wait(left_key(other), now + (record ? kStoreGrace : kReportGrace), {});
  }
}

std::string describe_rank(Store& keys, const LaunchEnvironment& environment, int rank) {
  return name_of(environment, rank, find_start_record(keys, rank));
}

std::string describe_failure(Store& keys, const LaunchEnvironment& environment,
                             const FailedRank& failed) {
  const std::string name = describe_rank(keys, environment, failed.rank);
  if (failed.disconnected_from)
    return name + " and " + describe_rank(keys, environment, *failed.disconnected_from) +
           " lost their connection; check the network between them";
  if (failed.reason) return name + " failed: " + *failed.reason;
  return name + kLost;
}

std::string describe_lost_store(const LaunchEnvironment& environment, const Status& error) {
  const bool is_of_chief =
      error.code() == StatusCode::kPeerLost && !environment.launcher_serves_store;
  return (is_of_chief ? environment.name_of(0) + kLost + ": " : std::string()) + error.message();
}

}  // namespace stoker::group
