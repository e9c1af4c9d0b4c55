#include "daemon/ctl/checkpoint_check.h"

#include <algorithm>

#include <boost/json.hpp>

#include "daemon/ctl/checkpoint_choice.h"
#include "daemon/ctl/number_text.h"

namespace stoker::ctl {
namespace {

using checkpoint::CheckpointEntry;

Result<std::vector<CheckpointEntry>> choose(const run::RunLayout& layout,
                                            const CheckRequest& request) {
  if (request.all) return all_checkpoints(layout);
  STOKER_ASSIGN_OR_RETURN(CheckpointEntry one, choose_checkpoint(layout, request.which));
  return std::vector{std::move(one)};
}

}  // namespace

Result<std::vector<CheckedCheckpoint>> check_checkpoints(const run::RunLayout& layout,
                                                         const CheckRequest& request) {
  STOKER_ASSIGN_OR_RETURN(const auto chosen, choose(layout, request));
  std::vector<CheckedCheckpoint> checked;
  for (const CheckpointEntry& entry : chosen) {
    CheckedCheckpoint one{.step = entry.step, .path = entry.path};
    if (request.on_begin) request.on_begin(entry);
    const auto verified = checkpoint::CheckpointStore::open_verified(entry.path, request.on_bytes);
    if (verified.ok()) {
      one.files = verified->manifest().files.size();
      for (const auto& file : verified->manifest().files) one.bytes += file.bytes;
    } else if (verified.status().code() == Code::kCorrupt) {
      one.damage = verified.status().message();
    } else if (verified.status().code() == Code::kNotFound && request.all) {
      continue;  // retired meanwhile
    } else {
      return verified.status();
    }
    if (request.on_checked) request.on_checked(one);
    checked.push_back(std::move(one));
  }
  return checked;
}

bool is_damaged(const std::vector<CheckedCheckpoint>& checked) {
  return std::any_of(checked.begin(), checked.end(),
                     [](const CheckedCheckpoint& one) { return !one.damage.empty(); });
}

std::string render_check(const CheckedCheckpoint& checked) {
  const std::string step = "step " + format_count(checked.step) + ": ";
  if (!checked.damage.empty()) return step + "CORRUPT: " + printable(checked.damage) + "\n";
  return step + "as it was saved (" + std::to_string(checked.files) + " files and the manifest, " +
         format_bytes(checked.bytes) + ")\n";
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
