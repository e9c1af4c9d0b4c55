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
  Deciding(const RetentionPolicy& policy, std::span<const CheckpointInfo> checkpoints)
      : policy_(policy), checkpoints_(checkpoints) {
    for (const CheckpointInfo& each : checkpoints) {
      decisions_.push_back({each.step, RetentionReason::kDelete});
      if (!each.is_complete) decisions_.back().reason = RetentionReason::kIncomplete;
    }
    for (size_t i = 0; i < checkpoints.size(); ++i)
      if (checkpoints[i].is_complete && !checkpoints[i].is_corrupt) sound_.push_back(i);
  }

  std::vector<RetentionDecision> take() { return std::move(decisions_); }
  bool has_sound() const { return !sound_.empty(); }

  void keep_corrupt() {
    for (size_t i = 0; i < checkpoints_.size(); ++i)
      if (checkpoints_[i].is_complete) keep(i, RetentionReason::kCorrupt);
  }

  void keep_newest() { keep(sound_.back(), RetentionReason::kNewest); }

  void keep_last() {
    const auto count = std::min(static_cast<size_t>(std::max(policy_.keep_last, 1)), sound_.size());
    const size_t oldest = sound_[sound_.size() - count];
    for (size_t i = oldest; i < checkpoints_.size(); ++i)
      keep(i, checkpoints_[i].is_corrupt ? RetentionReason::kCorrupt : RetentionReason::kKeepLast);
  }

  void keep_finite() {
    const auto last = std::find_if(sound_.rbegin(), sound_.rend(),
                                   [this](size_t i) { return checkpoints_[i].is_finite; });
    if (last != sound_.rend()) keep(*last, RetentionReason::kLastFinite);
  }

  void keep_every_n_steps() {
    if (policy_.keep_every_steps == 0) return;
    for (const size_t i : sound_)
      if (checkpoints_[i].step % policy_.keep_every_steps == 0)
        keep(i, RetentionReason::kKeepEverySteps);
  }

  // From the oldest on, each that is far enough from the one before it that was kept for this. What
  // is between does not matter, so that going once does not change what is kept the next time.
  void keep_every_n_hours() {
    if (policy_.keep_every <= std::chrono::seconds(0)) return;
    std::optional<WallTime> maybe_keep_reason;
    for (const size_t i : sound_) {
      const auto created = checkpoints_[i].maybe_created;
      if (!created ||
          (maybe_keep_reason && are_near(*created, *maybe_keep_reason, policy_.keep_every)))
        continue;
      keep(i, RetentionReason::kKeepEveryHours);
      maybe_keep_reason = created;
    }
  }

  void keep_best() {
    if (policy_.keep_best <= 0) return;
    for (const size_t i : sound_)
      if (checkpoints_[i].is_named_best) keep(i, RetentionReason::kBest);
    for (size_t score = 0; score < checkpoints_[sound_.front()].scores.size(); ++score)
      keep_best_by(score);
  }

  void keep_unevaluated() {
    uint64_t num_kept = 0;
    for (auto i = sound_.rbegin(); i != sound_.rend() && num_kept < policy_.keep_unevaluated; ++i) {
      if (!checkpoints_[*i].is_unevaluated) continue;
      keep(*i, RetentionReason::kUnevaluated);
      ++num_kept;
    }
  }

  void keep_recent(WallTime now) {
    if (policy_.min_age <= std::chrono::seconds(0)) return;
    for (const size_t i : sound_)
      if (checkpoints_[i].maybe_created &&
          are_near(now, *checkpoints_[i].maybe_created, policy_.min_age))
        keep(i, RetentionReason::kMinAge);
  }

 private:
  void keep(size_t i, RetentionReason why) {
    if (decisions_[i].reason == RetentionReason::kDelete) decisions_[i].reason = why;
  }

  // Of equals the earlier one, as the evaluator has it: the later is no improvement.
  void keep_best_by(size_t score) {
    std::vector<size_t> ranked;
    for (const size_t i : sound_)
      if (!std::isnan(checkpoints_[i].scores[score])) ranked.push_back(i);
    std::ranges::stable_sort(ranked, {}, [&](size_t i) { return checkpoints_[i].scores[score]; });
    ranked.resize(std::min(ranked.size(), static_cast<size_t>(policy_.keep_best)));
    for (const size_t i : ranked) keep(i, RetentionReason::kBest);
  }

  const RetentionPolicy& policy_;
  const std::span<const CheckpointInfo> checkpoints_;
  std::vector<size_t> sound_;  // whole, and not known to be damaged
  std::vector<RetentionDecision> decisions_;
};

}  // namespace

std::string_view to_string(RetentionReason reason) { return kNames[static_cast<size_t>(reason)]; }

std::vector<RetentionDecision> apply_retention(const RetentionPolicy& policy,
                                               std::span<const CheckpointInfo> checkpoints,
                                               WallTime now, bool is_disk_full) {
  Deciding deciding(policy, checkpoints);
  if (!deciding.has_sound()) {
    deciding.keep_corrupt();
    return deciding.take();
  }
  deciding.keep_newest();
  deciding.keep_last();
  deciding.keep_finite();
  deciding.keep_every_n_steps();
  deciding.keep_every_n_hours();
  deciding.keep_best();
  if (!is_disk_full) {
    deciding.keep_unevaluated();
    deciding.keep_recent(now);
  }
  return deciding.take();
}

std::vector<uint64_t> steps_to_delete(std::span<const RetentionDecision> decisions) {
  std::vector<uint64_t> steps;
  for (const RetentionDecision& decision : decisions)
    if (decision.reason == RetentionReason::kDelete) steps.push_back(decision.step);
  return steps;
}

}  // namespace stoker::retention
