#include "daemon/group/rendezvous.h"

#include <optional>
#include <random>
#include <vector>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"

namespace stoker::group {
namespace {

namespace json = boost::json;

constexpr size_t kMaxNamedRanks = 8;
constexpr const char* kRunKey = "run";
constexpr const char* kJoinedKey = "joined";
constexpr const char* kCompleteKey = "complete";

std::string rank_key(int rank) { return "rank/" + std::to_string(rank); }

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

std::optional<StartRecord> find_start_record(Store& store, int rank) {
  const std::string key = rank_key(rank);
  const auto text = store.get(key);
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

Status check_run(Store& store, const LaunchEnvironment& environment, const std::string& run_id) {
  const std::string own =
      "run '" + run_id + "' with " + std::to_string(environment.world_size) + " ranks";
  STOKER_ASSIGN_OR_RETURN(const std::string first, store.set_if_absent(kRunKey, own));
  if (first == own) return {};
  return Status(StatusCode::kMismatch,
                "rank " + std::to_string(environment.rank) + " is of " + own +
                    ", but its store is used by " + first +
                    "; start all ranks of a run with the same command line, and give each run its "
                    "own MASTER_PORT");
}

Status register_rank(Store& store, const LaunchEnvironment& environment, const StartRecord& own) {
  const std::string key = rank_key(environment.rank);
  const std::string text = to_json(own);
  STOKER_ASSIGN_OR_RETURN(const std::string found, store.set_if_absent(key, text));
  if (found == text) return {};
  const auto other = parse_start_record(found, key);
  return Status(StatusCode::kBusy,
                "two processes are rank " + std::to_string(environment.rank) + ": this one (" +
                    own.host + ", pid " + std::to_string(own.pid) + ") and " +
                    (other.ok() ? other->host + ", pid " + std::to_string(other->pid)
                                : std::string("another one")) +
                    "; start each rank once");
}

// kPeerLost with the names of ranks that have not joined; ok if none is missing.
Status check_missing(Store& store, const LaunchEnvironment& environment) {
  std::string names;
  size_t missing = 0;
  for (int rank = 0; rank < environment.world_size; ++rank) {
    STOKER_ASSIGN_OR_RETURN(const auto record, store.get(rank_key(rank)));
    if (record) continue;
    if (++missing <= kMaxNamedRanks)
      names += (names.empty() ? "" : ", ") + environment.name_of(rank);
  }
  if (missing == 0) return {};
  if (missing > kMaxNamedRanks)
    names += " and " + std::to_string(missing - kMaxNamedRanks) + " more";
  const auto world_size = static_cast<size_t>(environment.world_size);
  return Status(
      StatusCode::kPeerLost,
      std::to_string(world_size - missing) + " of " + std::to_string(world_size) +
          " ranks joined the group in time; missing: " + names + "; see their logs, or those of " +
          (environment.launcher == Launcher::kNone ? std::string("their launcher")
                                                   : std::string(to_string(environment.launcher))));
}

}  // namespace

Status join_group(Store& store, const LaunchEnvironment& environment, const std::string& run_id,
                  const StartRecord& own, Deadline deadline, const std::stop_token& stop) {
  STOKER_RETURN_IF_ERROR(check_run(store, environment, run_id));
  STOKER_RETURN_IF_ERROR(register_rank(store, environment, own));
  // The last rank to join wakes the others, so that no rank polls the records of all others.
  STOKER_ASSIGN_OR_RETURN(const int64_t joined, store.add(kJoinedKey, 1));
  if (joined == environment.world_size) return store.set(kCompleteKey, "1");
  const Status complete = store.wait(kCompleteKey, deadline, stop);
  return complete.code() == StatusCode::kTimedOut ? check_missing(store, environment) : complete;
}

std::string describe_rank(Store& store, const LaunchEnvironment& environment, int rank) {
  return name_of(environment, rank, find_start_record(store, rank));
}

}  // namespace stoker::group
