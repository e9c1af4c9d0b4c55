#include "daemon/train/sharded_commit.h"

#include <utility>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"
#include "shared/base/thread_registry.h"

namespace stoker::train {
namespace {

namespace json = boost::json;
using checkpoint::CheckpointContent;
using checkpoint::Manifest;
using checkpoint::WrittenFile;
using std::chrono::steady_clock;

constexpr const char* kTextName = "checkpoint";
// Of the chief: the others can write, or what has become of the snapshot. Of the others.
constexpr const char* kBegun = "begun";
constexpr const char* kCommitted = "committed";
constexpr const char* kAbandoned = "abandoned";
constexpr const char* kWritten = "written";
constexpr const char* kFailed = "failed";
constexpr const char* kInformed = "informed";

constexpr ThreadActivity kWaitForShards{.operation = "wait for checkpoint files of other ranks",
                                        .is_waiting = true};
constexpr std::chrono::seconds kCheckInterval{1};  // of ranks that have exited
// The chief writes its files, waits for the others, and reads theirs, between two of its messages.
constexpr int kChiefTimeouts = 4;

std::string in_seconds(std::chrono::milliseconds time) {
  return std::to_string(time.count() / 1000) + " s";
}

}  // namespace

struct ShardedCommit::Message {
  uint64_t segment = 0;  // set by send()
  uint64_t snapshot = 0;
  std::string event;
  std::string directory = {};
  std::string error = {};
  WrittenFile file = {};
};

// While CheckpointStore::commit() runs.
class ShardedCommit::OtherRanks final : public checkpoint::OtherShards {
 public:
  OtherRanks(ShardedCommit& commit, const std::stop_token& stop) : commit_(commit), stop_(stop) {}
  Status begin(const std::string& directory) override {
    directory_ = directory;
    return commit_.send({.snapshot = commit_.snapshot_, .event = kBegun, .directory = directory});
  }
  Result<std::vector<WrittenFile>> wait() override { return commit_.collect(directory_, stop_); }

 private:
  ShardedCommit& commit_;
  const std::stop_token& stop_;
  std::string directory_;
};

Result<Manifest> ShardedCommit::commit(const CheckpointContent& content,
                                       const std::stop_token& stop) {
  if (!group_.is_chief()) return take_part(content, stop);
  OtherRanks others(*this, stop);
  CheckpointContent complete = content;
  complete.maybe_others = &others;
  return store_.commit(complete);
}

Result<std::vector<WrittenFile>> ShardedCommit::collect(const std::string& directory,
                                                        const std::stop_token& stop) {
  const Deadline deadline = steady_clock::now() + options_.timeout;
  const auto answers = [this, &directory](const Message& message) {
    return message.snapshot == snapshot_ && message.directory == directory &&
           (message.event == kWritten || message.event == kFailed);
  };
  std::vector<WrittenFile> files;
  for (int rank = 1; rank < group_.world_size(); ++rank) {
    const auto message = wait_for_message(rank, answers, deadline, stop);
    if (message.status().code() == StatusCode::kTimedOut)
      return Status(StatusCode::kTimedOut,
                    group_.name_of(rank) + " has not written its file of the checkpoint within " +
                        in_seconds(options_.timeout) +
                        "; see its log, or raise distributed.start_timeout_seconds");
    if (!message.ok()) return message.status();
    if (message->event == kFailed)
      return Status(StatusCode::kIoError, group_.name_of(rank) + ": " + message->error);
    if (message->file.name != checkpoint::optimizer_shard_name(rank, group_.world_size()) ||
        !checkpoint::is_sha256(message->file.sha256))
      return Status(StatusCode::kCorrupt,
                    group_.name_of(rank) + " reported another file than its own");
    files.push_back(message->file);
  }
  return files;
}

void ShardedCommit::announce(const Result<Manifest>& result, const std::stop_token& stop) {
  if (!group_.is_chief()) return;
  Message end{.snapshot = snapshot_, .event = result.ok() ? kCommitted : kAbandoned};
  if (!result.ok()) end.error = result.status().to_string();
  const Deadline deadline = steady_clock::now() + options_.timeout;
  bool is_informed = send(end).ok();
  for (int rank = 1; rank < group_.world_size() && is_informed; ++rank)
    is_informed = wait_for_message(
                      rank,
                      [this](const Message& message) {
                        return message.snapshot == snapshot_ && message.event == kInformed;
                      },
                      deadline, stop)
                      .ok();
  ++snapshot_;
}

// ---- the other ranks

Result<Manifest> ShardedCommit::take_part(const CheckpointContent& content,
                                          const std::stop_token& stop) {
  const uint64_t snapshot = snapshot_++;  // whatever becomes of it, as on the chief
  const auto timeout = kChiefTimeouts * options_.timeout;
  std::string written;  // the last directory
  while (true) {
    const auto message = wait_for_message(
        0,
        [&](const Message& each) {
          if (each.snapshot != snapshot) return each.snapshot > snapshot;
          return each.event != kBegun || each.directory != written;
        },
        steady_clock::now() + timeout, stop);
    if (message.status().code() == StatusCode::kTimedOut)
      return Status(StatusCode::kTimedOut,
                    group_.name_of(0) + " has not continued the checkpoint within " +
                        in_seconds(timeout) +
                        "; see its log, or raise distributed.start_timeout_seconds");
    if (!message.ok()) return message.status();
    if (message->snapshot > snapshot) {
      snapshot_ = message->event == kBegun ? message->snapshot : message->snapshot + 1;
      return Status(StatusCode::kIoError,
                    group_.name_of(0) +
                        " is at another checkpoint; whether this one was saved is "
                        "in its log");
    }
    if (message->event == kBegun) {
      written = message->directory;
      STOKER_RETURN_IF_ERROR(write_shard(content, snapshot, written));
      continue;
    }
    STOKER_RETURN_IF_ERROR(send({.snapshot = snapshot, .event = kInformed}));
    if (message->event == kCommitted) return content.manifest;
    return Status(StatusCode::kIoError, group_.name_of(0) + ": " + message->error);
  }
}

// Reports an error of the disk to the chief, which decides what follows.
Status ShardedCommit::write_shard(const CheckpointContent& content, uint64_t snapshot,
                                  const std::string& directory) {
  Message answer{.snapshot = snapshot, .event = kWritten, .directory = directory};
  const bool is_valid = checkpoint::CheckpointStore::is_unfinished_name(directory) &&
                        directory.find('/') == std::string::npos;
  auto file = is_valid
                  ? checkpoint::write_optimizer_shard(
                        files_, join_path(store_.directory(), directory), content, group_.rank())
                  : Status(StatusCode::kCorrupt, "'" + directory +
                                                     "' is no directory of a "
                                                     "checkpoint");
  if (file.ok()) {
    answer.file = *std::move(file);
  } else {
    answer.event = kFailed;
    answer.error = file.status().to_string();
  }
  return send(answer);
}

// ---- messages

Status ShardedCommit::send(const Message& message) {
  return group_.send_text(kTextName,
                          json::serialize(json::object{{"segment", options_.segment},
                                                       {"snapshot", message.snapshot},
                                                       {"event", message.event},
                                                       {"directory", message.directory},
                                                       {"error", message.error},
                                                       {"name", message.file.name},
                                                       {"bytes", message.file.bytes},
                                                       {"sha256", message.file.sha256}}));
}

Result<ShardedCommit::Message> ShardedCommit::wait_for_message(
    int rank, const std::function<bool(const Message&)>& accepts, Deadline deadline,
    const std::stop_token& stop) {
  const auto parse = [](const json::object& fields) {
    const auto text = [&fields](const char* key) {
      return std::string(fields.at(key).as_string());
    };
    return Message{
        .segment = fields.at("segment").to_number<uint64_t>(),
        .snapshot = fields.at("snapshot").to_number<uint64_t>(),
        .event = text("event"),
        .directory = text("directory"),
        .error = text("error"),
        .file = {text("name"), fields.at("bytes").to_number<uint64_t>(), text("sha256")}};
  };
  const ScopedActivity waiting(kWaitForShards);
  Deadline next_check = steady_clock::now() + kCheckInterval;
  Status lost;
  while (true) {
    STOKER_ASSIGN_OR_RETURN(const std::string text, group_.receive_text(kTextName, rank));
    if (!text.empty()) {
      STOKER_ASSIGN_OR_RETURN(const Message message,
                              parse_json_object<Message>(text, group_.name_of(rank), parse));
      if (message.segment == options_.segment && accepts(message)) return message;
    }
    STOKER_RETURN_IF_ERROR(lost);
    const Deadline now = steady_clock::now();
    if (now >= deadline) return Status(StatusCode::kTimedOut, "no message");
    if (now >= next_check) {
      // Another one may have exited after its message. This one too, which is read once more.
      lost = group_.check_rank(rank);
      if (!lost.ok()) continue;
      next_check = now + kCheckInterval;
    }
    if (!sleep_until(stop, now + options_.poll_interval))
      return Status(StatusCode::kCancelled, "stopped while other ranks write the checkpoint");
  }
}

}  // namespace stoker::train
