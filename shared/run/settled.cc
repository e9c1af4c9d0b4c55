#include "shared/run/settled.h"

#include "shared/base/file.h"

namespace stoker::run {
namespace {

constexpr uint64_t kMaxBytes = 256ull << 20;

}  // namespace

void Settled::add_line(std::string_view text) {
  const auto entry = maybe_outcome(text);
  if (entry) outcomes_[{entry->step, entry->manifest_sha256}] = entry->outcome;
}

Fate Settled::fate(uint64_t step, const std::string& manifest_sha256) const {
  const auto found = outcomes_.find({step, manifest_sha256});
  if (found == outcomes_.end()) return Fate::kOpen;
  return found->second == Outcome::kEvaluated ? Fate::kEvaluated : Fate::kGivenUp;
}

bool Settled::is_corrupt(uint64_t step, const std::string& manifest_sha256) const {
  const auto found = outcomes_.find({step, manifest_sha256});
  return found != outcomes_.end() && found->second == Outcome::kCorrupt;
}

std::set<uint64_t> Settled::evaluated_steps() const {
  std::set<uint64_t> steps;
  for (const auto& [checkpoint, outcome] : outcomes_)
    if (outcome == Outcome::kEvaluated) steps.insert(checkpoint.first);
  return steps;
}

Result<Settled> read_settled(const std::string& path) {
  const auto text = read_file(path, kMaxBytes);
  if (text.status().code() == Code::kNotFound) return Settled();
  if (!text.ok()) return text.status();
  Settled settled;
  std::string_view rest = *text;
  for (size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    settled.add_line(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  return settled;
}

}  // namespace stoker::run
