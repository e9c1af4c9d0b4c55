#include "shared/retention/retention.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace stoker::retention {
namespace {

using namespace std::string_view_literals;

constexpr auto kNames = std::to_array({"incomplete"sv, "newest"sv, "keep_last"sv, "corrupt"sv,
                                       "last_finite"sv, "keep_every_steps"sv, "keep_every_hours"sv,
                                       "best"sv, "unevaluated"sv, "min_age"sv, "delete"sv});

// Whether two times are nearer than `span`, whichever way a clock that was set may have gone.
bool are_near(WallTime one, WallTime other, std::chrono::seconds span) {
  return (one > other ? one - other : other - one) < span;
}

class Deciding {
 public:
  Deciding(const RetentionRule& rule, std::span<const CheckpointFacts> facts)
      : rule_(rule), facts_(facts) {
    for (const CheckpointFacts& each : facts) {
      decisions_.push_back({each.step, Verdict::kRetire});
      if (!each.is_whole) decisions_.back().verdict = Verdict::kNotWhole;
    }
    for (size_t i = 0; i < facts.size(); ++i)
      if (facts[i].is_whole && !facts[i].is_corrupt) sound_.push_back(i);
  }

  std::vector<Decision> take() { return std::move(decisions_); }
  bool has_sound() const { return !sound_.empty(); }

  void keep_all_damaged() {
    for (size_t i = 0; i < facts_.size(); ++i)
      if (facts_[i].is_whole) keep(i, Verdict::kDamaged);
  }

  void keep_newest() { keep(sound_.back(), Verdict::kNewest); }

  void keep_last() {
    const auto count = std::min(static_cast<size_t>(std::max(rule_.keep_last, 1)), sound_.size());
    const size_t oldest = sound_[sound_.size() - count];
    for (size_t i = oldest; i < facts_.size(); ++i)
      keep(i, facts_[i].is_corrupt ? Verdict::kDamaged : Verdict::kLast);
  }

  void keep_finite() {
    const auto last = std::find_if(sound_.rbegin(), sound_.rend(),
                                   [this](size_t i) { return facts_[i].is_finite; });
    if (last != sound_.rend()) keep(*last, Verdict::kFinite);
  }

  void keep_milestones() {
    if (rule_.keep_every_steps == 0) return;
    for (const size_t i : sound_)
      if (facts_[i].step % rule_.keep_every_steps == 0) keep(i, Verdict::kMilestone);
  }

  // From the oldest on, each that is far enough from the one before it that was kept for this. What
  // is between does not matter, so that going once does not change what is kept the next time.
  void keep_periods() {
    if (rule_.keep_every <= std::chrono::seconds(0)) return;
    std::optional<WallTime> maybe_kept;
    for (const size_t i : sound_) {
      const auto created = facts_[i].maybe_created;
      if (!created || (maybe_kept && are_near(*created, *maybe_kept, rule_.keep_every))) continue;
      keep(i, Verdict::kPeriod);
      maybe_kept = created;
    }
  }

  void keep_best() {
    if (rule_.keep_best <= 0) return;
    for (const size_t i : sound_)
      if (facts_[i].is_named_best) keep(i, Verdict::kBest);
    for (size_t score = 0; score < facts_[sound_.front()].scores.size(); ++score)
      keep_best_by(score);
  }

  void keep_pending() {
    uint64_t kept = 0;
    for (auto i = sound_.rbegin(); i != sound_.rend() && kept < rule_.keep_pending; ++i) {
      if (!facts_[*i].is_pending) continue;
      keep(*i, Verdict::kPending);
      ++kept;
    }
  }

  void keep_young(WallTime now) {
    if (rule_.grace <= std::chrono::seconds(0)) return;
    for (const size_t i : sound_)
      if (facts_[i].maybe_created && are_near(now, *facts_[i].maybe_created, rule_.grace))
        keep(i, Verdict::kGrace);
  }

 private:
  void keep(size_t i, Verdict why) {
    if (decisions_[i].verdict == Verdict::kRetire) decisions_[i].verdict = why;
  }

  // Of equals the earlier one, as the evaluator has it: the later is no improvement.
  void keep_best_by(size_t score) {
    std::vector<size_t> ranked;
    for (const size_t i : sound_)
      if (!std::isnan(facts_[i].scores[score])) ranked.push_back(i);
    std::ranges::stable_sort(ranked, {}, [&](size_t i) { return facts_[i].scores[score]; });
    ranked.resize(std::min(ranked.size(), static_cast<size_t>(rule_.keep_best)));
    for (const size_t i : ranked) keep(i, Verdict::kBest);
  }

  const RetentionRule& rule_;
  const std::span<const CheckpointFacts> facts_;
  std::vector<size_t> sound_;  // whole, and not known to be damaged
  std::vector<Decision> decisions_;
};

}  // namespace

std::string_view verdict_name(Verdict verdict) { return kNames[static_cast<size_t>(verdict)]; }

std::vector<Decision> decide(const RetentionRule& rule, std::span<const CheckpointFacts> facts,
                             WallTime now, bool is_short) {
  Deciding deciding(rule, facts);
  if (!deciding.has_sound()) {
    deciding.keep_all_damaged();
    return deciding.take();
  }
  deciding.keep_newest();
  deciding.keep_last();
  deciding.keep_finite();
  deciding.keep_milestones();
  deciding.keep_periods();
  deciding.keep_best();
  if (!is_short) {
    deciding.keep_pending();
    deciding.keep_young(now);
  }
  return deciding.take();
}

std::vector<uint64_t> retired_of(std::span<const Decision> decisions) {
  std::vector<uint64_t> steps;
  for (const Decision& decision : decisions)
    if (decision.verdict == Verdict::kRetire) steps.push_back(decision.step);
  return steps;
}

}  // namespace stoker::retention
