#include "evaluator/outcome_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <span>

#include "shared/base/log.h"

namespace stoker::evaluator {

Result<OutcomeLog> OutcomeLog::open(FileSystem& files, const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(UniqueFd fd, files.open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW));
  OutcomeLog log(files, path, std::move(fd));
  uint64_t number = 0, complete_bytes = 0, bytes = 0;
  const auto read_line = [&](const FileLine& line) {
    bytes = line.end;
    if (!line.is_complete) return Status();
    complete_bytes = line.end;
    log.read_line(line.text, ++number);
    return Status();
  };
  STOKER_RETURN_IF_ERROR(run::for_each_outcome_line(path, run::kMaxOutcomeBytes, read_line));
  if (bytes > complete_bytes) {
    // Remove a partial last line left by a crash, so that the next line is not appended to it.
    if (::ftruncate(log.fd_.get(), static_cast<off_t>(complete_bytes)) != 0)
      return Status::from_errno(errno, "truncate " + path);
    log_warn("partial line removed",
             {{"path", path}, {"offset", complete_bytes}, {"bytes", bytes - complete_bytes}});
  }
  // A new file; without its name, a power failure would lose synced lines.
  if (bytes == 0)
    STOKER_RETURN_IF_ERROR(files.sync_directory(std::filesystem::path(path).parent_path()));
  return log;
}

void OutcomeLog::read_line(std::string_view text, uint64_t number) {
  const auto entry = run::parse_outcome_record(text);
  if (entry)
    add(*entry);
  else
    log_warn("outcome record invalid", {{"path", path_}, {"line", number}});
}

Status OutcomeLog::append(const EvaluationOutcome& entry, std::string_view wall_time) {
  const std::string line = run::to_json_line(entry, wall_time);
  STOKER_RETURN_IF_ERROR(files_->write(fd_.get(), std::as_bytes(std::span(line)), path_));
  STOKER_RETURN_IF_ERROR(files_->sync(fd_.get(), path_));
  add(entry);
  return {};
}

void OutcomeLog::add(const EvaluationOutcome& entry) {
  const auto [known, is_new] = entries_.try_emplace({entry.step, entry.manifest_sha256}, entry);
  if (!is_new && entry.replaces(known->second.outcome)) known->second = entry;
  if (!entry.request_id.empty()) finished_requests_.insert(entry.request_id);
}

const EvaluationOutcome* OutcomeLog::find(uint64_t step, const std::string& manifest_sha256) const {
  const auto found = entries_.find({step, manifest_sha256});
  return found == entries_.end() ? nullptr : &found->second;
}

std::set<uint64_t> OutcomeLog::evaluated_steps(const run::Lineage& lineage) const {
  std::set<uint64_t> steps;
  for (const auto& [key, entry] : entries_)
    if (entry.outcome == Outcome::kEvaluated && lineage.contains(entry.step, entry.manifest_sha256))
      steps.insert(entry.step);
  return steps;
}

}  // namespace stoker::evaluator
