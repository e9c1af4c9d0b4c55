#include "daemon/checkpoint/retainer.h"

#include <algorithm>

#include "shared/base/log.h"

namespace stoker::writer {
namespace {

using namespace std::chrono_literals;
// A reader that takes longer than this is more likely one that hangs.
constexpr auto kLongHeld = 1h;

}  // namespace

Retainer::Retainer(const config::Config& config, checkpoint::CheckpointStore& store,
                   const run::RunLayout& layout, Clock& clock)
    : rule_(retention::rule_of(config)),
      wanted_(retention::facts_wanted(config)),
      store_(store),
      layout_(layout),
      clock_(clock) {}

void Retainer::retire(bool is_short) {
  const auto facts = retention::gather_facts(store_, layout_, wanted_);
  if (!facts.ok())
    return log_warn("checkpoint cleanup failed", {{"error", facts.status().to_string()}});
  const auto decisions = retention::decide(rule_, *facts, clock_.wall(), is_short);
  tell_of_damaged(decisions);
  const auto retired = store_.retire(retention::retired_of(decisions));
  if (!retired.ok())
    return log_warn("checkpoint cleanup failed", {{"error", retired.status().to_string()}});
  for (const uint64_t step : retired->gone) log_debug("checkpoint deleted", {{"step", step}});
  tell_of_unevaluated(*facts, retired->gone, is_short);
  tell_of_held(retired->held);
}

void Retainer::tell_of_unevaluated(const std::vector<retention::CheckpointFacts>& facts,
                                   const std::vector<uint64_t>& gone, bool is_short) const {
  if (rule_.keep_pending == 0) return;
  for (const retention::CheckpointFacts& each : facts) {
    if (!each.is_pending || std::ranges::count(gone, each.step) == 0) continue;
    log_warn(
        "unevaluated checkpoint deleted",
        {{"step", each.step},
         {"reason",
          is_short
              ? "the disk is full"
              : "more checkpoints wait for evaluation than checkpoint.keep_unevaluated allows"}});
  }
}

void Retainer::tell_of_held(const std::vector<uint64_t>& held) {
  std::erase_if(held_since_,
                [&held](const auto& each) { return std::ranges::count(held, each.first) == 0; });
  for (const uint64_t step : held) {
    const auto since = held_since_.try_emplace(step, clock_.monotonic()).first->second;
    if (clock_.monotonic() - since < kLongHeld || !told_.insert(step).second) continue;
    log_warn("checkpoint deletion blocked",
             {{"step", step},
              {"hours", seconds_between(since, clock_.monotonic()) / 3600},
              {"reason", "open"}});
  }
}

void Retainer::tell_of_damaged(const std::vector<retention::Decision>& decisions) {
  for (const retention::Decision& decision : decisions) {
    if (decision.verdict != retention::Verdict::kNotWhole || !told_.insert(decision.step).second)
      continue;
    log_warn("checkpoint incomplete", {{"step", decision.step}});
  }
}

}  // namespace stoker::writer
