#include "daemon/group/failure_record.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"
#include "shared/base/utf8.h"

namespace stoker::group {
namespace {

namespace json = boost::json;

std::string failure_key(int rank) { return "failure/" + std::to_string(rank); }

std::string to_json(const FailureRecord& record) {
  json::object fields{{"rank", record.rank}, {"reason", valid_utf8(record.reason)}};
  if (record.lost_rank) fields["lost_rank"] = *record.lost_rank;
  fields["code"] = static_cast<int>(record.code);
  return json::serialize(fields);
}

Result<FailureRecord> parse_failure_record(const std::string& text, const std::string& key) {
  return parse_json_object<FailureRecord>(text, "store key " + key, [](const json::object& fields) {
    FailureRecord record{.rank = fields.at("rank").to_number<int>(),
                         .reason = std::string(fields.at("reason").as_string())};
    if (const json::value* const lost = fields.if_contains("lost_rank"))
      record.lost_rank = lost->to_number<int>();
    const int code = fields.at("code").to_number<int>();
    if (code < 0 || code > static_cast<int>(kLastStatusCode)) throw std::out_of_range("code");
    record.code = static_cast<StatusCode>(code);
    return record;
  });
}

}  // namespace

Result<std::optional<FailureRecord>> read_failure_record(Store& store, int rank) {
  const std::string key = failure_key(rank);
  STOKER_ASSIGN_OR_RETURN(const auto text, store.get(key));
  if (!text) return std::optional<FailureRecord>();
  STOKER_ASSIGN_OR_RETURN(auto record, parse_failure_record(*text, key));
  return std::optional(std::move(record));
}

Result<std::optional<FailureRecord>> wait_for_failure_record(Store& store, int rank,
                                                             std::chrono::milliseconds grace) {
  const std::string key = failure_key(rank);
  const Status written = store.wait(key, std::chrono::steady_clock::now() + grace, {});
  if (written.code() == StatusCode::kTimedOut) return std::optional<FailureRecord>();
  STOKER_RETURN_IF_ERROR(written);
  return read_failure_record(store, rank);
}

Status write_failure_record(Store& store, const FailureRecord& record) {
  return store.set_if_absent(failure_key(record.rank), to_json(record)).status();
}

namespace {

constexpr std::chrono::milliseconds kExitCheckInterval{100};

// How long to wait for records that are missing.
struct Patience {
  std::chrono::milliseconds grace;
  const std::function<bool(int rank)>& has_exited;
};

// As wait_for_failure_record(), but no longer than until the rank has exited.
Result<std::optional<FailureRecord>> wait_for_failure_record(Store& store, int rank,
                                                             const Patience& patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience.grace;
  while (true) {
    const bool has_exited = patience.has_exited(rank);
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const bool is_last = has_exited || left <= kExitCheckInterval;
    const auto slice = has_exited
                           ? std::chrono::milliseconds(0)
                           : std::clamp(left, std::chrono::milliseconds(0), kExitCheckInterval);
    STOKER_ASSIGN_OR_RETURN(auto record, wait_for_failure_record(store, rank, slice));
    if (record || is_last) return record;
  }
}

// The first rank that failed by itself, or else the first without a record.
Result<std::optional<FailedRank>> search_failed_rank(Store& store, int world_size,
                                                     const Patience& patience) {
  std::optional<FailedRank> silent;
  for (int rank = 0; rank < world_size; ++rank) {
    // The other ranks have had the time of the first one that is missing.
    const Patience own{silent ? std::chrono::milliseconds(0) : patience.grace, patience.has_exited};
    STOKER_ASSIGN_OR_RETURN(const auto record, wait_for_failure_record(store, rank, own));
    if (record && !record->lost_rank)
      return std::optional(
          FailedRank{.rank = rank, .reason = record->reason, .code = record->code});
    if (!record && !silent) silent = FailedRank{.rank = rank};
  }
  return silent;
}

}  // namespace

Status write_error_file(FileSystem& files, const std::string& path, const std::string& reason,
                        std::chrono::seconds since_epoch) {
  const json::object details{{"timestamp", std::to_string(since_epoch.count())}};
  return write_file_atomically(
      files, path,
      json::serialize(
          json::object{{"message", {{"message", valid_utf8(reason)}, {"extraInfo", details}}}}));
}

Result<std::optional<FailedRank>> find_failed_rank(
    Store& store, int suspect, int world_size, std::chrono::milliseconds grace,
    const std::function<bool(int rank)>& has_exited) {
  const Patience patience{grace, has_exited};
  std::set<int> visited;
  int rank = suspect;
  while (true) {
    if (rank == kUnknownRank) return search_failed_rank(store, world_size, patience);
    visited.insert(rank);
    STOKER_ASSIGN_OR_RETURN(const auto record, wait_for_failure_record(store, rank, patience));
    if (!record) return std::optional(FailedRank{.rank = rank});
    if (!record->lost_rank)
      return std::optional(
          FailedRank{.rank = rank, .reason = record->reason, .code = record->code});
    if (visited.contains(*record->lost_rank))
      return std::optional(FailedRank{
          .rank = rank, .reason = record->reason, .disconnected_from = *record->lost_rank});
    rank = *record->lost_rank;
  }
}

}  // namespace stoker::group
