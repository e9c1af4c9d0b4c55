#include "shared/run/evaluation_outcomes.h"

#include "shared/base/file.h"

namespace stoker::run {
namespace {

constexpr uint64_t kMaxOutcomeBytes = 256ull << 20;

}  // namespace

void EvaluationOutcomes::add_line(std::string_view text) {
  const auto entry = parse_outcome(text);
  if (entry) outcomes_[{entry->step, entry->manifest_sha256}] = entry->outcome;
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

std::set<uint64_t> EvaluationOutcomes::evaluated_steps() const {
  std::set<uint64_t> steps;
  for (const auto& [checkpoint, outcome] : outcomes_)
    if (outcome == Outcome::kEvaluated) steps.insert(checkpoint.first);
  return steps;
}

Result<EvaluationOutcomes> read_evaluation_outcomes(const std::string& path) {
  const auto text = read_file(path, kMaxOutcomeBytes);
  if (text.status().code() == StatusCode::kNotFound) return EvaluationOutcomes();
  if (!text.ok()) return text.status();
  EvaluationOutcomes outcomes;
  std::string_view rest = *text;
  for (size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    outcomes.add_line(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  return outcomes;
}

}  // namespace stoker::run
