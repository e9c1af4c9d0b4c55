#include "shared/run/evaluation_outcome.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "shared/run/json_object.h"

namespace stoker::run {
namespace {

namespace json = boost::json;
constexpr std::array<std::string_view, 4> kOutcomes{"evaluated", "corrupt", "superseded", "failed"};

Outcome outcome_of(std::string_view word) {
  const auto found = std::ranges::find(kOutcomes, word);
  if (found == kOutcomes.end()) throw std::invalid_argument("no outcome");
  return static_cast<Outcome>(found - kOutcomes.begin());
}

EvaluationOutcome outcome_in(const json::object& root) {
  return {.step = root.at("step").to_number<uint64_t>(),
          .manifest_sha256 = root.at("manifest_sha256").as_string().c_str(),
          .outcome = outcome_of(root.at("outcome").as_string()),
          .reason = {}};
}

template <typename Read>
std::optional<EvaluationOutcome> try_read(std::string_view line, Read read) {
  auto entry = parse_object<EvaluationOutcome>(line, "ledger", read);
  if (!entry.ok()) return std::nullopt;
  return *std::move(entry);
}

}  // namespace

std::string to_json_line(const EvaluationOutcome& entry, std::string_view wall_time) {
  return json::serialize(json::object{{"step", entry.step},
                                      {"manifest_sha256", entry.manifest_sha256},
                                      {"outcome", kOutcomes[static_cast<size_t>(entry.outcome)]},
                                      {"attempts", entry.attempts},
                                      {"reason", entry.reason},
                                      {"wall_time", wall_time}}) +
         "\n";
}

std::optional<EvaluationOutcome> parse_outcome_record(std::string_view line) {
  return try_read(line, [](const json::object& root) {
    EvaluationOutcome entry = outcome_in(root);
    entry.attempts = root.at("attempts").to_number<int>();
    entry.reason = root.at("reason").as_string().c_str();
    return entry;
  });
}

std::optional<EvaluationOutcome> parse_outcome(std::string_view line) {
  return try_read(line, outcome_in);
}

}  // namespace stoker::run
