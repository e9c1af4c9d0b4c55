#include "shared/run/lineage.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <span>
#include <utility>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"

namespace stoker::run {
namespace {

namespace json = boost::json;

constexpr std::string_view kStarted = "started";
constexpr std::string_view kSaved = "saved";
constexpr std::string_view kResumed = "resumed";

json::object fields_of(std::string_view event, const CheckpointId& checkpoint) {
  return {
      {"event", event}, {"step", checkpoint.step}, {"manifest_sha256", checkpoint.manifest_sha256}};
}

std::string to_line(const json::object& fields) { return json::serialize(fields) + "\n"; }

// After the rest of a line that a crash or a full disk has cut.
Status append(FileSystem& files, const std::string& path, std::string lines) {
  STOKER_ASSIGN_OR_RETURN(const UniqueFd fd, files.open(path, O_RDWR | O_CREAT | O_APPEND));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::from_errno(errno, path);
  std::byte last{'\n'};
  if (info.st_size > 0) {
    const auto read =
        files.read_at(fd.get(), static_cast<uint64_t>(info.st_size) - 1, {&last, 1}, path);
    if (!read.ok()) return read.status();
  }
  if (last != std::byte{'\n'}) lines.insert(0, 1, '\n');
  STOKER_RETURN_IF_ERROR(files.write(fd.get(), std::as_bytes(std::span(lines)), path));
  return files.sync(fd.get(), path);
}

}  // namespace

struct Lineage::Line {
  std::string event;
  CheckpointId checkpoint;  // not of a start
  bool has_parent = false;  // whether the line says which one it follows
  std::optional<uint64_t> parent_step;
};

std::optional<Lineage::Line> Lineage::parse_line(std::string_view text) {
  auto line = parse_json_object<Line>(text, "lineage", [](const json::object& fields) {
    Line parsed{.event = fields.at("event").as_string().c_str()};
    if (parsed.event == kStarted) return parsed;
    parsed.checkpoint = {.step = fields.at("step").to_number<uint64_t>(),
                         .manifest_sha256 = fields.at("manifest_sha256").as_string().c_str()};
    if (const json::value* const parent = fields.if_contains("parent_step")) {
      parsed.has_parent = true;
      if (!parent->is_null()) parsed.parent_step = parent->to_number<uint64_t>();
    }
    return parsed;
  });
  if (!line.ok()) return std::nullopt;
  return *std::move(line);
}

Lineage Lineage::parse(std::string_view text) {
  Lineage lineage;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (const auto line = parse_line(text.substr(0, end))) lineage.add(*line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  lineage.find_ancestors();
  return lineage;
}

void Lineage::add(const Line& line) {
  if (line.event == kSaved) return add_saved(line);
  if (line.event != kStarted && line.event != kResumed) return;
  has_start_ = true;
  if (line.event == kStarted) return go_back_to(std::nullopt);
  go_back_to(line.checkpoint.step);
  parents_.try_emplace(line.checkpoint.manifest_sha256, std::nullopt);
  newest_ = line.checkpoint;
}

void Lineage::add_saved(const Line& line) {
  const bool follows_newest =
      !newest_ || !line.has_parent || (line.parent_step && *line.parent_step >= newest_->step);
  if (!follows_newest && !is_known(line.checkpoint.manifest_sha256)) go_back_to(line.parent_step);
  parents_.try_emplace(line.checkpoint.manifest_sha256, newest_);
  newest_ = line.checkpoint;
  after_last_resume_.insert(line.checkpoint.manifest_sha256);
}

void Lineage::go_back_to(std::optional<uint64_t> step) {
  while (newest_ && (!step || newest_->step > *step))
    newest_ = parents_.at(newest_->manifest_sha256);
  after_last_resume_.clear();
  first_left_step_ = std::min(first_left_step_, step ? *step + 1 : 0);
}

void Lineage::find_ancestors() {
  for (std::optional<CheckpointId> at = newest_; at;) {
    if (!ancestors_.insert(at->manifest_sha256).second) break;
    ancestor_steps_.insert(at->step);
    at = parents_.at(at->manifest_sha256);
  }
}

bool Lineage::contains(uint64_t step, const std::string& manifest_sha256) const {
  if (is_known(manifest_sha256)) return ancestors_.contains(manifest_sha256);
  return step < first_left_step_ && !ancestor_steps_.contains(step);
}

void Lineage::add_found(const CheckpointId& checkpoint) {
  if (!parents_.try_emplace(checkpoint.manifest_sha256, std::nullopt).second) return;
  ancestors_.insert(checkpoint.manifest_sha256);
  ancestor_steps_.insert(checkpoint.step);
}

Result<Lineage> read_lineage(const std::string& path) {
  const auto text = read_file(path, kMaxLineageBytes);
  if (text.ok()) return Lineage::parse(*text);
  if (text.status().code() == StatusCode::kNotFound) return Lineage();
  return text.status();
}

Status add_started(FileSystem& files, const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(const Lineage before, read_lineage(path));
  if (before.has_start() && !before.newest()) return {};
  return append(files, path, to_line(json::object{{"event", kStarted}}));
}

Status add_saved(FileSystem& files, const std::string& path,
                 const std::vector<SavedCheckpoint>& checkpoints) {
  std::string lines;
  for (const SavedCheckpoint& saved : checkpoints) {
    json::object fields = fields_of(kSaved, saved.id);
    fields["parent_step"] = saved.parent_step ? json::value(*saved.parent_step) : nullptr;
    lines += to_line(fields);
  }
  return lines.empty() ? Status() : append(files, path, std::move(lines));
}

Status add_resumed(FileSystem& files, const std::string& path, const CheckpointId& checkpoint) {
  STOKER_ASSIGN_OR_RETURN(const Lineage before, read_lineage(path));
  if (before.newest() == checkpoint && before.has_start()) return {};
  return append(files, path, to_line(fields_of(kResumed, checkpoint)));
}

}  // namespace stoker::run
