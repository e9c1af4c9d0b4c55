#include "shared/run/evaluation_outcomes.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include <boost/json.hpp>

#include "shared/base/file.h"
#include "shared/base/json_parser.h"
#include "shared/base/utf8.h"

namespace stoker::run {
namespace {

namespace json = boost::json;
constexpr std::array<std::string_view, 4> kOutcomes{"evaluated", "corrupt", "superseded", "failed"};

Outcome outcome_of(std::string_view word) {
  const auto found = std::ranges::find(kOutcomes, word);
  if (found == kOutcomes.end()) throw std::invalid_argument("no outcome");
  return static_cast<Outcome>(found - kOutcomes.begin());
}

std::string request_id_in(const json::object& root) {
  const json::value* const id = root.if_contains("request_id");
  return id != nullptr ? std::string(id->as_string()) : std::string();
}

EvaluationOutcome outcome_in(const json::object& root) {
  return {.step = root.at("step").to_number<uint64_t>(),
          .manifest_sha256 = root.at("manifest_sha256").as_string().c_str(),
          .outcome = outcome_of(root.at("outcome").as_string()),
          .reason = {},
          .request_id = request_id_in(root)};
}

template <typename Read>
std::optional<EvaluationOutcome> try_read(std::string_view line, Read read) {
  auto entry = parse_json_object<EvaluationOutcome>(line, "outcome", read);
  if (!entry.ok()) return std::nullopt;
  return *std::move(entry);
}

}  // namespace

std::string to_json_line(const EvaluationOutcome& entry, std::string_view wall_time) {
  json::object record{{"step", entry.step},
                      {"manifest_sha256", entry.manifest_sha256},
                      {"outcome", kOutcomes[static_cast<size_t>(entry.outcome)]},
                      {"attempts", entry.attempts},
                      {"reason", valid_utf8(entry.reason)},
                      {"wall_time", wall_time}};
  if (entry.exit_code) record["exit_code"] = static_cast<int>(*entry.exit_code);
  if (!entry.request_id.empty()) record["request_id"] = entry.request_id;
  return json::serialize(record) + "\n";
}

bool EvaluationOutcome::replaces(Outcome earlier) const {
  const bool is_finding = outcome == Outcome::kEvaluated || outcome == Outcome::kCorrupt;
  return request_id.empty() || is_finding || earlier != Outcome::kEvaluated;
}

std::optional<EvaluationOutcome> parse_outcome_record(std::string_view line) {
  return try_read(line, [](const json::object& root) {
    EvaluationOutcome entry = outcome_in(root);
    entry.attempts = root.at("attempts").to_number<int>();
    entry.reason = root.at("reason").as_string().c_str();
    // Earlier releases recorded none.
    if (const json::value* const code = root.if_contains("exit_code"))
      entry.exit_code = static_cast<ExitCode>(code->to_number<int>());
    return entry;
  });
}

std::optional<EvaluationOutcome> parse_outcome(std::string_view line) {
  return try_read(line, outcome_in);
}

void EvaluationOutcomes::add_line(std::string_view text) {
  const auto entry = parse_outcome(text);
  if (!entry) return;
  const auto [known, is_new] =
      outcomes_.try_emplace({entry->step, entry->manifest_sha256}, entry->outcome);
  if (!is_new && entry->replaces(known->second)) known->second = entry->outcome;
}

EvaluationState EvaluationOutcomes::state(uint64_t step, const std::string& manifest_sha256) const {
  const auto found = outcomes_.find({step, manifest_sha256});
  if (found == outcomes_.end()) return EvaluationState::kPending;
  return found->second == Outcome::kEvaluated ? EvaluationState::kEvaluated
                                              : EvaluationState::kFailed;
}

bool EvaluationOutcomes::is_corrupt(uint64_t step, const std::string& manifest_sha256) const {
  const auto found = outcomes_.find({step, manifest_sha256});
  return found != outcomes_.end() && found->second == Outcome::kCorrupt;
}

std::set<uint64_t> EvaluationOutcomes::evaluated_steps(const Lineage& lineage) const {
  std::set<uint64_t> steps;
  for (const auto& [checkpoint, outcome] : outcomes_)
    if (outcome == Outcome::kEvaluated && lineage.contains(checkpoint.first, checkpoint.second))
      steps.insert(checkpoint.first);
  return steps;
}

Status for_each_outcome_line(const std::string& path, uint64_t max_line_bytes,
                             const std::function<Status(const FileLine&)>& on_line) {
  return for_each_line(path, max_line_bytes, [&](const FileLine& line) {
    if (line.end <= kMaxOutcomesBytes) return on_line(line);
    return Status(
        StatusCode::kInvalidArgument,
        path + ": has more than " + std::to_string(kMaxOutcomesBytes) + " bytes; move it away");
  });
}

Result<EvaluationOutcomes> read_evaluation_outcomes(const std::string& path) {
  EvaluationOutcomes outcomes;
  const Status read = for_each_outcome_line(path, kMaxOutcomeBytes, [&](const FileLine& line) {
    if (line.is_complete) outcomes.add_line(line.text);
    return Status();
  });
  if (!read.ok() && read.code() != StatusCode::kNotFound) return read;
  return outcomes;
}

}  // namespace stoker::run
