#include "daemon/ctl/checkpoint_check.h"

#include <algorithm>

#include <boost/json.hpp>

#include "daemon/ctl/number_text.h"
#include "shared/checkpoint/store.h"

namespace stoker::ctl {
namespace {

using checkpoint::CheckpointEntry;

std::string known_steps(const std::vector<CheckpointEntry>& entries) {
  constexpr size_t kShown = 8;
  std::string text;
  const size_t first = entries.size() - std::min(entries.size(), kShown);
  for (size_t i = first; i < entries.size(); ++i)
    text += (i == first ? (first > 0 ? "… " : "") : " ") + std::to_string(entries[i].step);
  return text;
}

Result<std::vector<CheckpointEntry>> choose(std::vector<CheckpointEntry> entries,
                                            const std::string& directory,
                                            std::optional<uint64_t> maybe_step, bool all) {
  if (entries.empty()) return Status(Code::kNotFound, directory + ": no checkpoint yet");
  if (all) return entries;
  if (!maybe_step.has_value()) return std::vector{entries.back()};
  for (const CheckpointEntry& entry : entries)
    if (entry.step == *maybe_step) return std::vector{entry};
  return Status(Code::kNotFound, directory + ": no checkpoint of step " +
                                     std::to_string(*maybe_step) +
                                     "; there are: " + known_steps(entries));
}

}  // namespace

Result<std::vector<CheckedCheckpoint>> check_checkpoints(const run::RunLayout& layout,
                                                         std::optional<uint64_t> maybe_step,
                                                         bool all) {
  const checkpoint::CheckpointStore store(layout.checkpoints(), real_files());
  STOKER_ASSIGN_OR_RETURN(auto entries, store.list());
  STOKER_ASSIGN_OR_RETURN(const auto chosen,
                          choose(std::move(entries), store.directory(), maybe_step, all));
  std::vector<CheckedCheckpoint> checked;
  for (const CheckpointEntry& entry : chosen) {
    CheckedCheckpoint one{.step = entry.step, .path = entry.path};
    const auto verified = checkpoint::CheckpointStore::open_verified(entry.path);
    if (verified.ok()) {
      one.files = verified->manifest().files.size();
      for (const auto& file : verified->manifest().files) one.bytes += file.bytes;
    } else if (verified.status().code() == Code::kCorrupt) {
      one.damage = verified.status().message();
    } else if (verified.status().code() == Code::kNotFound && all) {
      continue;  // retired meanwhile
    } else {
      return verified.status();
    }
    checked.push_back(std::move(one));
  }
  return checked;
}

Result<std::string> checkpoint_path(const run::RunLayout& layout, uint64_t step) {
  const checkpoint::CheckpointStore store(layout.checkpoints(), real_files());
  STOKER_ASSIGN_OR_RETURN(auto entries, store.list());
  STOKER_ASSIGN_OR_RETURN(const auto chosen,
                          choose(std::move(entries), store.directory(), step, /*all=*/false));
  return chosen.front().path;
}

bool is_damaged(const std::vector<CheckedCheckpoint>& checked) {
  return std::any_of(checked.begin(), checked.end(),
                     [](const CheckedCheckpoint& one) { return !one.damage.empty(); });
}

std::string render_check(const std::vector<CheckedCheckpoint>& checked) {
  std::string out;
  for (const CheckedCheckpoint& one : checked) {
    out += "step " + format_count(one.step) + ": ";
    if (one.damage.empty()) {
      out += "as it was saved (" + std::to_string(one.files) + " files and the manifest, " +
             format_bytes(one.bytes) + ")\n";
    } else {
      out += "DAMAGED: " + printable(one.damage) + "\n";
    }
  }
  return out;
}

std::string to_json(const std::vector<CheckedCheckpoint>& checked) {
  namespace json = boost::json;
  json::array list;
  for (const CheckedCheckpoint& one : checked) {
    json::object fields{{"step", one.step}, {"path", one.path}, {"ok", one.damage.empty()}};
    if (one.damage.empty()) {
      fields["bytes"] = one.bytes;
    } else {
      fields["error"] = one.damage;
    }
    list.push_back(std::move(fields));
  }
  return json::serialize(json::object{{"ok", !is_damaged(checked)}, {"checkpoints", list}});
}

}  // namespace stoker::ctl
