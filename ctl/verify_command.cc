#include "ctl/verify_command.h"

#include <algorithm>

#include <boost/json.hpp>

#include "ctl/checkpoint_selector.h"
#include "ctl/number_format.h"

namespace stoker::ctl {
namespace {

using checkpoint::CheckpointEntry;

Result<std::vector<CheckpointEntry>> choose(const run::RunLayout& layout,
                                            const VerifyOptions& request) {
  if (request.all) return all_checkpoints(layout);
  STOKER_ASSIGN_OR_RETURN(CheckpointEntry one, select_checkpoint(layout, request.which));
  return std::vector{std::move(one)};
}

}  // namespace

Result<std::vector<VerificationResult>> verify_checkpoints(const run::RunLayout& layout,
                                                           const VerifyOptions& request) {
  STOKER_ASSIGN_OR_RETURN(const auto chosen, choose(layout, request));
  std::vector<VerificationResult> results;
  for (const CheckpointEntry& entry : chosen) {
    VerificationResult one{.step = entry.step, .path = entry.path};
    if (request.on_begin) request.on_begin(entry);
    const auto verified = checkpoint::CheckpointStore::open_verified(entry.path, request.on_bytes);
    if (verified.ok()) {
      one.files = verified->manifest().files.size();
      for (const auto& file : verified->manifest().files) one.bytes += file.bytes;
    } else if (verified.status().code() == StatusCode::kCorrupt) {
      one.error = verified.status().message();
    } else if (verified.status().code() == StatusCode::kNotFound && request.all) {
      continue;  // retired meanwhile
    } else {
      return verified.status();
    }
    if (request.on_checked) request.on_checked(one);
    results.push_back(std::move(one));
  }
  return results;
}

bool any_corrupt(const std::vector<VerificationResult>& results) {
  return std::any_of(results.begin(), results.end(),
                     [](const VerificationResult& one) { return !one.error.empty(); });
}

std::string render_verification(const VerificationResult& results) {
  const std::string step = "step " + format_count(results.step) + ": ";
  if (!results.error.empty()) return step + "CORRUPT: " + printable(results.error) + "\n";
  return step + "as it was saved (" + std::to_string(results.files) + " files and the manifest, " +
         format_bytes(results.bytes) + ")\n";
}

std::string to_json(const std::vector<VerificationResult>& results) {
  namespace json = boost::json;
  json::array list;
  for (const VerificationResult& one : results) {
    json::object fields{{"step", one.step}, {"path", one.path}, {"ok", one.error.empty()}};
    if (one.error.empty()) {
      fields["bytes"] = one.bytes;
    } else {
      fields["error"] = one.error;
    }
    list.push_back(std::move(fields));
  }
  return json::serialize(json::object{{"ok", !any_corrupt(results)}, {"checkpoints", list}});
}

}  // namespace stoker::ctl
