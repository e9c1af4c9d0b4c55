#include "evaluator/backlog.h"

#include <set>

#include <gtest/gtest.h>

namespace stoker::evaluator {
namespace {

std::vector<uint64_t> due(const std::vector<uint64_t>& steps, Policy policy,
                          const std::set<uint64_t>& settled) {
  std::vector<checkpoint::CheckpointEntry> entries;
  for (const uint64_t step : steps) entries.push_back({step, "path"});
  std::vector<uint64_t> chosen;
  for (const auto& entry :
       due_checkpoints(entries, policy, [&](const auto& e) { return settled.contains(e.step); })) {
    chosen.push_back(entry.step);
  }
  return chosen;
}

using Steps = std::vector<uint64_t>;

TEST(Backlog, AllTakesEverythingThatIsNotSettledOldestFirst) {
  EXPECT_EQ(due({10, 20, 30}, Policy::kAll, {20}), (Steps{10, 30}));
  EXPECT_EQ(due({10, 20}, Policy::kAll, {10, 20}), Steps{});
}

TEST(Backlog, LatestTakesTheNewestAndNeverGoesBack) {
  EXPECT_EQ(due({10, 20, 30}, Policy::kLatest, {}), Steps{30});
  EXPECT_EQ(due({10, 20, 30}, Policy::kLatest, {30}), Steps{}) << "10 and 20 were skipped for good";
}

TEST(Backlog, NothingThereMeansNothingDue) {
  EXPECT_EQ(due({}, Policy::kAll, {}), Steps{});
  EXPECT_EQ(due({}, Policy::kLatest, {}), Steps{});
}

}  // namespace
}  // namespace stoker::evaluator
