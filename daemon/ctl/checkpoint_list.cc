#include "daemon/ctl/checkpoint_list.h"

#include <algorithm>
#include <cmath>

#include <boost/json.hpp>

#include "daemon/ctl/number_text.h"
#include "daemon/ctl/text_table.h"
#include "shared/base/file.h"
#include "shared/base/sha256.h"
#include "shared/checkpoint/manifest.h"
#include "shared/checkpoint/store.h"

namespace stoker::ctl {
namespace {

constexpr uint64_t kMaxManifestBytes = 16 << 20;

// What was evaluated is this very checkpoint, not another that was once saved at the same step.
std::optional<double> maybe_valid(const std::vector<run::EvalResult>& evals,
                                  const MetricName& metric, uint64_t step,
                                  const std::string& manifest_sha256) {
  for (const run::EvalResult& eval : evals)
    if (eval.step == step && eval.manifest_sha256 == manifest_sha256)
      return maybe_value(eval, metric);
  return std::nullopt;
}

ListedCheckpoint describe(const checkpoint::CheckpointEntry& entry,
                          const std::vector<run::EvalResult>& evals, const CheckpointList& list) {
  ListedCheckpoint listed{.step = entry.step, .path = entry.path};
  const std::string path = join_path(entry.path, "manifest.json");
  const auto text = read_file(path, kMaxManifestBytes);
  if (!text.ok()) {
    listed.trouble = text.status().message();
    return listed;
  }
  const auto manifest = checkpoint::parse_manifest(*text, path);
  if (!manifest.ok()) {
    listed.trouble = manifest.status().message();
    return listed;
  }
  listed.created = manifest->created;
  for (const auto& file : manifest->files) listed.bytes += file.bytes;
  const std::string sha256 = sha256_hex(*text);
  listed.maybe_valid = maybe_valid(evals, list.metric, entry.step, sha256);
  listed.best = list.maybe_best.has_value() && list.maybe_best->step == entry.step &&
                list.maybe_best->manifest_sha256 == sha256;
  return listed;
}

// "2026-01-31T12:00:00.123Z" as "2026-01-31 12:00:00".
std::string short_time(const std::string& iso8601) {
  std::string text = printable(iso8601.substr(0, 19));
  if (text.size() > 10 && text[10] == 'T') text[10] = ' ';
  return text;
}

std::string best_text(const CheckpointList& list) {
  if (!list.maybe_best.has_value()) return "";
  const run::Best& best = *list.maybe_best;
  const bool kept = std::any_of(list.checkpoints.begin(), list.checkpoints.end(),
                                [](const ListedCheckpoint& one) { return one.best; });
  return "best " + printable(MetricName{best.set, best.metric}.text()) + " " +
         format_number(best.value, 5) + " at step " + format_count(best.step) +
         (kept ? "\n" : "; that checkpoint is no longer kept\n");
}

}  // namespace

Result<CheckpointList> list_checkpoints(const run::RunLayout& layout) {
  const checkpoint::CheckpointStore store(layout.checkpoints(), real_files());
  STOKER_ASSIGN_OR_RETURN(const auto entries, store.list());
  STOKER_ASSIGN_OR_RETURN(const auto evals, read_evals(layout));
  CheckpointList list{.run_dir = layout.root()};
  if (const auto metrics = reported_metrics(evals); !metrics.empty()) list.metric = metrics.front();
  auto best = run::read_best(layout.best_file());
  if (!best.ok() && best.status().code() != Code::kNotFound) return best.status();
  if (best.ok()) list.maybe_best = *std::move(best);
  for (const auto& entry : entries) list.checkpoints.push_back(describe(entry, evals, list));
  return list;
}

std::string render_list(const CheckpointList& list, const TextStyle& style) {
  if (list.checkpoints.empty()) return "no checkpoint in " + printable(list.run_dir) + " yet\n";
  const std::string metric = list.metric.set.empty() ? "validation" : list.metric.text();
  TextTable table({{.title = "step"},
                   {.title = "saved (UTC)", .left = true},
                   {.title = "size"},
                   {.title = wrapped_title(printable(metric))},
                   {.title = "note", .left = true}});
  for (const ListedCheckpoint& one : list.checkpoints) {
    if (!one.trouble.empty()) {
      table.add({format_count(one.step), "?", "?", "-", "DAMAGED: " + printable(one.trouble)});
      continue;
    }
    std::string notes = one.best ? "* best" : "";
    if (&one == &list.checkpoints.back()) notes += notes.empty() ? "newest" : ", newest";
    table.add({format_count(one.step), short_time(one.created), format_bytes(one.bytes),
               one.maybe_valid ? format_number(*one.maybe_valid, 5) : "-", notes});
  }
  return table.render(style) + best_text(list);
}

std::string to_json(const CheckpointList& list) {
  namespace json = boost::json;
  const auto number = [](double value) -> json::value {
    if (std::isfinite(value)) return value;
    return nullptr;
  };
  json::array checkpoints;
  for (const ListedCheckpoint& one : list.checkpoints) {
    json::object fields{{"step", one.step}, {"path", one.path}};
    if (one.trouble.empty()) {
      fields["created"] = one.created;
      fields["bytes"] = one.bytes;
      fields["valid"] = one.maybe_valid ? number(*one.maybe_valid) : nullptr;
      fields["best"] = one.best;
    } else {
      fields["error"] = one.trouble;
    }
    checkpoints.push_back(std::move(fields));
  }
  json::object root{{"run_dir", list.run_dir},
                    {"set", list.metric.set},
                    {"metric", list.metric.metric},
                    {"checkpoints", std::move(checkpoints)}};
  if (list.maybe_best.has_value())
    root["best"] = {{"step", list.maybe_best->step}, {"value", number(list.maybe_best->value)}};
  return json::serialize(root);
}

}  // namespace stoker::ctl
