#include "daemon/parameter_server/update_schedule.h"

#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace stoker::parameter_server {
namespace {

UpdateOptions sync(size_t workers, uint64_t gradients, uint64_t max_steps = 100) {
  return {.replicas = config::ReplicaMode::kSync,
          .num_workers = workers,
          .gradients_per_step = gradients,
          .max_steps = max_steps};
}
UpdateOptions async(size_t workers, uint64_t max_steps = 100,
                    std::optional<uint64_t> max_staleness = {}) {
  return {.replicas = config::ReplicaMode::kAsync,
          .num_workers = workers,
          .max_steps = max_steps,
          .max_staleness = max_staleness};
}

Claim granted(uint64_t ticket, uint64_t step, uint64_t prefetch) {
  return {.result = ClaimResult::kGranted, .ticket = ticket, .step = step, .prefetch = prefetch};
}

// Server 0 with all workers in their first life.
class Cluster {
 public:
  explicit Cluster(const UpdateOptions& options, uint64_t step = 0)
      : schedule_(options), lives_(options.num_workers, 0) {
    for (size_t worker = 0; worker < options.num_workers; ++worker) start(worker);
    schedule_.initialize(step);
  }

  UpdateSchedule& schedule() { return schedule_; }
  WorkerLife life(size_t worker) const { return {.worker = worker, .life = lives_[worker]}; }
  void start(size_t worker) {
    ++lives_[worker];
    EXPECT_TRUE(schedule_.join(life(worker)).ok());
  }
  // These return whether this has completed a step.
  bool kill(size_t worker) {
    schedule_.leave(life(worker));
    return schedule_.complete_step();
  }
  bool end_save() {
    schedule_.end_save(life(0));
    return schedule_.complete_step();
  }

  Claim claim(size_t worker) {
    const auto claimed = schedule_.claim(life(worker));
    EXPECT_TRUE(claimed.ok()) << claimed.status().to_string();
    return claimed.ok() ? *claimed : Claim();
  }
  Claim claim_gap(size_t worker) {
    const auto claimed = schedule_.claim_gap(life(worker));
    EXPECT_TRUE(claimed.ok()) << claimed.status().to_string();
    return claimed.ok() ? *claimed : Claim();
  }
  ClaimResult result_of_claim(size_t worker) { return claim(worker).result; }
  uint64_t ticket(size_t worker) {
    const Claim claimed = claim(worker);
    EXPECT_EQ(claimed.result, ClaimResult::kGranted) << "worker " << worker;
    return claimed.ticket;
  }
  PushResult push(size_t worker, uint64_t ticket) {
    const auto pushed = schedule_.push(life(worker), ticket);
    EXPECT_TRUE(pushed.ok()) << pushed.status().to_string();
    schedule_.complete_step();
    return pushed.ok() ? *pushed : PushResult::kDropped;
  }
  bool begin_save() {
    const auto saving = schedule_.begin_save(life(0));
    EXPECT_TRUE(saving.ok());
    return saving.ok() && *saving;
  }

 private:
  UpdateSchedule schedule_;
  std::vector<uint64_t> lives_;
};

// ---- status --------------------------------------------------------------------------------------

TEST(UpdateScheduleTest, CountsGradientsOfWorkersOverTheirStarts) {
  Cluster cluster(sync(2, 1));  // worker 1 is a backup
  const uint64_t first = cluster.ticket(0);
  EXPECT_EQ(cluster.ticket(1), first);
  cluster.push(0, first);
  EXPECT_EQ(cluster.push(1, first), PushResult::kDropped);
  EXPECT_EQ(cluster.schedule().num_stale(), 1u);
  EXPECT_EQ(cluster.schedule().num_backups(), 0u);
  cluster.kill(1);
  EXPECT_FALSE(cluster.schedule().summary(1).is_present);
  cluster.start(1);
  cluster.push(1, cluster.ticket(1));
  const WorkerSummary summary = cluster.schedule().summary(1);
  EXPECT_EQ(summary.starts, 2u);
  EXPECT_TRUE(summary.is_present);
  EXPECT_FALSE(summary.has_ticket);
  EXPECT_EQ(summary.applied, 1u);
  EXPECT_EQ(summary.dropped, 1u);
}

TEST(UpdateScheduleTest, TellsBackupFromStaleGradient) {
  Cluster cluster(sync(3, 2));
  EXPECT_EQ(cluster.ticket(0), 0);
  EXPECT_EQ(cluster.ticket(1), 1);
  EXPECT_EQ(cluster.ticket(2), 0);
  cluster.push(0, 0);
  EXPECT_EQ(cluster.push(2, 0), PushResult::kDropped);  // the step is not complete
  EXPECT_EQ(cluster.schedule().num_backups(), 1u);
  EXPECT_EQ(cluster.schedule().num_stale(), 0u);
  EXPECT_EQ(cluster.schedule().num_dropped(), 1u);
}

// ---- tickets and steps ---------------------------------------------------------------------------

TEST(UpdateScheduleTest, HandsOutTicketsOfStep) {
  Cluster cluster(sync(2, 4));
  EXPECT_EQ(cluster.claim(0), granted(0, 0, 2));
  EXPECT_EQ(cluster.claim(1), granted(1, 0, 3));
  EXPECT_EQ(cluster.push(1, 1), PushResult::kAccepted);
  EXPECT_EQ(cluster.claim(1), granted(3, 0, 4));
  EXPECT_EQ(cluster.push(0, 0), PushResult::kAccepted);
  EXPECT_EQ(cluster.claim(0), granted(2, 0, 5));
}

TEST(UpdateScheduleTest, GivesWorkerSameTicketUntilItIsPushed) {
  Cluster cluster(sync(2, 2));
  EXPECT_EQ(cluster.ticket(1), 0);
  EXPECT_EQ(cluster.ticket(1), 0);
}

TEST(UpdateScheduleTest, CountsOneStepForEachAggregation) {
  Cluster cluster(sync(2, 2));
  cluster.ticket(0);
  cluster.ticket(1);
  EXPECT_EQ(cluster.push(0, 0), PushResult::kAccepted);
  EXPECT_EQ(cluster.schedule().step(), 0);
  EXPECT_EQ(cluster.push(1, 1), PushResult::kAccepted);
  EXPECT_EQ(cluster.schedule().step(), 1);
  EXPECT_EQ(cluster.claim(0), granted(2, 1, 4));
}

TEST(UpdateScheduleTest, LetsWorkerWaitForOthersOfStep) {
  Cluster cluster(sync(2, 2));
  cluster.ticket(0);
  cluster.ticket(1);
  cluster.push(0, 0);
  EXPECT_EQ(cluster.result_of_claim(0), ClaimResult::kWait);
  cluster.push(1, 1);
  EXPECT_EQ(cluster.ticket(0), 2);
}

TEST(UpdateScheduleTest, CountsOneStepForEachAsyncGradient) {
  Cluster cluster(async(2));
  EXPECT_EQ(cluster.ticket(0), 0);
  EXPECT_EQ(cluster.claim(1), granted(2, 0, 3));
  EXPECT_EQ(cluster.push(1, 2), PushResult::kAccepted);
  EXPECT_EQ(cluster.claim(1), granted(3, 1, 4));
  EXPECT_EQ(cluster.push(0, 0), PushResult::kAccepted);
  EXPECT_EQ(cluster.schedule().step(), 2);
}

TEST(UpdateScheduleTest, AppliesAsyncGradientOfOlderParameters) {
  Cluster cluster(async(2));
  cluster.ticket(0);
  for (uint64_t ticket = 1; ticket <= 5; ++ticket) cluster.push(1, cluster.ticket(1));
  EXPECT_EQ(cluster.push(0, 0), PushResult::kAccepted);
  EXPECT_EQ(cluster.schedule().step(), 6);
  EXPECT_EQ(cluster.schedule().largest_staleness(), 5);
  EXPECT_EQ(cluster.schedule().num_dropped(), 0);
}

TEST(UpdateScheduleTest, ContinuesFromRestoredStep) {
  Cluster of_sync(sync(2, 2), 7);
  EXPECT_EQ(of_sync.claim(0), granted(14, 7, 16));
  Cluster of_async(async(2), 7);
  EXPECT_EQ(of_async.claim(0), granted(7, 7, 8));
}

TEST(UpdateScheduleTest, EndsAfterLastStep) {
  Cluster of_sync(sync(1, 2, 1));
  of_sync.push(0, of_sync.ticket(0));
  of_sync.push(0, of_sync.ticket(0));
  EXPECT_EQ(of_sync.result_of_claim(0), ClaimResult::kEnded);

  Cluster of_async(async(2, 2));
  of_async.ticket(0);
  of_async.push(1, of_async.ticket(1));
  EXPECT_EQ(of_async.result_of_claim(1), ClaimResult::kWait) << "ticket 0 can still be requeued";
  of_async.push(0, 0);
  EXPECT_EQ(of_async.result_of_claim(0), ClaimResult::kEnded);
  EXPECT_EQ(of_async.result_of_claim(1), ClaimResult::kEnded);
}

// ---- backups -------------------------------------------------------------------------------------

TEST(UpdateScheduleTest, LetsBackupComputeTicketOfSlowWorker) {
  Cluster cluster(sync(3, 2));
  EXPECT_EQ(cluster.ticket(0), 0);
  EXPECT_EQ(cluster.ticket(1), 1);
  EXPECT_EQ(cluster.ticket(2), 0) << "the lowest of those that one worker has";
  EXPECT_EQ(cluster.push(1, 1), PushResult::kAccepted);
  EXPECT_EQ(cluster.push(2, 0), PushResult::kAccepted);
  EXPECT_EQ(cluster.schedule().step(), 1);
}

TEST(UpdateScheduleTest, DropsAndCountsGradientOfOlderStep) {
  Cluster cluster(sync(3, 2));
  cluster.ticket(0);
  cluster.ticket(1);
  cluster.ticket(2);
  cluster.push(1, 1);
  cluster.push(2, 0);
  EXPECT_EQ(cluster.push(0, 0), PushResult::kDropped);
  EXPECT_EQ(cluster.schedule().num_dropped(), 1);
  EXPECT_EQ(cluster.schedule().step(), 1);
  EXPECT_EQ(cluster.claim(0).step, 1) << "and continues with the new step";
}

TEST(UpdateScheduleTest, DropsSecondGradientOfTicket) {
  Cluster cluster(sync(3, 2));
  cluster.ticket(0);
  cluster.ticket(1);
  cluster.ticket(2);
  EXPECT_EQ(cluster.push(0, 0), PushResult::kAccepted);
  EXPECT_EQ(cluster.push(2, 0), PushResult::kDropped);
  EXPECT_EQ(cluster.schedule().num_dropped(), 1);
}

TEST(UpdateScheduleTest, HasNoBackupsWithoutMoreWorkersThanTickets) {
  Cluster cluster(sync(2, 2));
  cluster.ticket(0);
  cluster.push(1, cluster.ticket(1));
  EXPECT_EQ(cluster.result_of_claim(1), ClaimResult::kWait);
}

// ---- prefetching ---------------------------------------------------------------------------------

TEST(UpdateScheduleTest, GivesWorkersTheTicketsTheyPrefetch) {
  for (const UpdateOptions& options : {sync(2, 2), sync(2, 4), sync(3, 3), async(2), async(4)}) {
    Cluster cluster(options);
    const size_t workers = options.num_workers;
    std::vector<std::optional<uint64_t>> prefetched(workers);
    std::vector<uint64_t> held(workers);
    for (int round = 0; round < 10; ++round) {
      for (size_t worker = 0; worker < workers; ++worker) {
        const Claim claim = cluster.claim(worker);
        ASSERT_EQ(claim.result, ClaimResult::kGranted);
        if (round > 0) {
          EXPECT_EQ(claim.ticket, prefetched[worker]);
        }
        prefetched[worker] = claim.prefetch;
        held[worker] = claim.ticket;
      }
      for (size_t worker = 0; worker < workers; ++worker) cluster.push(worker, held[worker]);
    }
  }
}

TEST(UpdateScheduleTest, PrefetchesTicketOfNextStep) {
  Cluster cluster(sync(2, 2));
  EXPECT_EQ(cluster.claim(0).prefetch, 2u) << "worker 1 takes ticket 1";
  EXPECT_EQ(cluster.claim(1).prefetch, 3u);
  cluster.push(0, 0);
  EXPECT_EQ(cluster.result_of_claim(0), ClaimResult::kWait) << "the step is not complete";
  cluster.push(1, 1);
  const Claim claim = cluster.claim(0);
  EXPECT_EQ(claim.ticket, 2u);
  EXPECT_EQ(claim.step, 1u) << "the parameters are those of the claim";
}

// A worker that waits would cost more than a read that is not used.
TEST(UpdateScheduleTest, TakesWhatAnotherPrefetchesIfNothingElseIsFree) {
  Cluster of_sync(sync(2, 4));
  EXPECT_EQ(of_sync.claim(0).prefetch, 2u);
  EXPECT_EQ(of_sync.claim(1).prefetch, 3u);
  of_sync.push(0, 0);
  EXPECT_EQ(of_sync.ticket(0), 2u);
  of_sync.push(0, 2);
  EXPECT_EQ(of_sync.ticket(0), 3u);
  of_sync.push(1, 1);
  EXPECT_EQ(of_sync.result_of_claim(1), ClaimResult::kWait);

  Cluster of_async(async(2, 4));
  EXPECT_EQ(of_async.claim(0).prefetch, 1u);
  EXPECT_EQ(of_async.claim(1).prefetch, 3u);
  of_async.push(1, 2);
  EXPECT_EQ(of_async.ticket(1), 3u);
  of_async.push(1, 3);
  EXPECT_EQ(of_async.ticket(1), 1u);
}

// The state would miss a ticket below those that are applied.
TEST(UpdateScheduleTest, SavesNoStateWithoutTicketThatIsPrefetched) {
  Cluster cluster(async(3));
  EXPECT_EQ(cluster.claim(1).prefetch, 1u);
  EXPECT_EQ(cluster.ticket(2), 2u);
  cluster.push(2, 2);
  EXPECT_FALSE(cluster.begin_save());
  EXPECT_EQ(cluster.ticket(2), 1u) << "worker 1 is slow";
  cluster.push(2, 1);
  EXPECT_FALSE(cluster.begin_save());
  EXPECT_EQ(cluster.result_of_claim(2), ClaimResult::kWait);
  cluster.push(1, 0);
  EXPECT_TRUE(cluster.begin_save());
  EXPECT_EQ(cluster.schedule().step(), 3u);
}

// Otherwise the chief would compute all that the others have prefetched before it can save.
TEST(UpdateScheduleTest, LetsWorkersThatLeaveCloseGaps) {
  Cluster cluster(async(4));
  for (uint64_t worker = 0; worker < 4; ++worker) EXPECT_EQ(cluster.ticket(worker), 2 * worker);
  for (uint64_t worker = 0; worker < 4; ++worker) cluster.push(worker, 2 * worker);
  EXPECT_FALSE(cluster.begin_save());
  const std::vector<uint64_t> gaps{3, 5, 1};  // first the ones that they have read
  for (size_t worker = 1; worker < 4; ++worker) {
    const Claim claim = cluster.claim_gap(worker);
    EXPECT_EQ(claim.result, ClaimResult::kGranted);
    EXPECT_EQ(claim.ticket, gaps[worker - 1]);
    EXPECT_EQ(claim.prefetch, std::nullopt);
  }
  EXPECT_FALSE(cluster.begin_save());
  for (size_t worker = 1; worker < 4; ++worker) {
    cluster.push(worker, gaps[worker - 1]);
    EXPECT_EQ(cluster.claim_gap(worker), Claim{});
    cluster.kill(worker);
  }
  EXPECT_TRUE(cluster.begin_save());
  EXPECT_EQ(cluster.schedule().step(), 7u);
}

TEST(UpdateScheduleTest, HasGapsOnlyInAsyncRunWithinBound) {
  Cluster of_sync(sync(2, 4));
  EXPECT_EQ(of_sync.claim_gap(1), Claim{});
  Cluster bounded(async(2, 100, 0));
  bounded.push(0, bounded.ticket(0));
  EXPECT_EQ(bounded.ticket(1), 2u);
  EXPECT_EQ(bounded.claim_gap(0), Claim{}) << "ticket 2 would be older than the bound";
  bounded.push(1, 2);
  EXPECT_EQ(bounded.claim_gap(0).ticket, 1u);
}

TEST(UpdateScheduleTest, GivesChiefAfterSaveTheTicketItHasRead) {
  Cluster cluster(async(2));
  EXPECT_EQ(cluster.claim(0).prefetch, 1u);
  EXPECT_EQ(cluster.ticket(1), 2u);
  cluster.push(0, 0);
  EXPECT_EQ(cluster.claim(0), granted(1, 1, 4));
  cluster.push(1, 2);
  cluster.push(1, cluster.ticket(1));
  EXPECT_EQ(cluster.ticket(1), 5u) << "so ticket 4 is free";
  EXPECT_FALSE(cluster.begin_save());
  EXPECT_EQ(cluster.ticket(0), 1u);
}

TEST(UpdateScheduleTest, PrefetchesNothingAfterLastStep) {
  Cluster of_sync(sync(1, 1, 2));
  EXPECT_EQ(of_sync.claim(0).prefetch, 1u);
  of_sync.push(0, 0);
  EXPECT_EQ(of_sync.claim(0).prefetch, std::nullopt);
  Cluster of_async(async(1, 1));
  EXPECT_EQ(of_async.claim(0).prefetch, std::nullopt);
}

TEST(UpdateScheduleTest, FreesPrefetchedTicketOfLostWorker) {
  for (const UpdateOptions& options : {sync(2, 4), async(2)}) {
    Cluster cluster(options);
    EXPECT_EQ(cluster.ticket(0), 0);
    const Claim other = cluster.claim(1);
    cluster.kill(0);
    cluster.push(1, other.ticket);
    std::set<uint64_t> computed{other.ticket};
    for (int i = 0; computed.size() < 4 && i < 100; ++i) {
      const uint64_t ticket = cluster.ticket(1);
      computed.insert(ticket);
      cluster.push(1, ticket);
    }
    ASSERT_EQ(computed.size(), 4u) << "a ticket is not given out";
    EXPECT_EQ(*computed.rbegin(), 3u);
  }
}

// ---- staleness -----------------------------------------------------------------------------------

TEST(UpdateScheduleTest, LetsFastWorkerWaitForStaleOne) {
  Cluster cluster(async(2, 100, 2));
  EXPECT_EQ(cluster.ticket(0), 0);
  cluster.push(1, cluster.ticket(1));
  cluster.push(1, cluster.ticket(1));
  EXPECT_EQ(cluster.result_of_claim(1), ClaimResult::kWait);
  cluster.push(0, 0);
  EXPECT_EQ(cluster.schedule().largest_staleness(), 2);
  EXPECT_EQ(cluster.result_of_claim(1), ClaimResult::kGranted);
}

TEST(UpdateScheduleTest, DoesNotWaitForWorkerThatIsLost) {
  Cluster cluster(async(2, 100, 0));
  EXPECT_EQ(cluster.ticket(0), 0);
  EXPECT_EQ(cluster.result_of_claim(1), ClaimResult::kWait);
  cluster.kill(0);
  EXPECT_EQ(cluster.ticket(1), 0);
}

// Whatever the order of events, no gradient exceeds the bound, and there is always one that can continue.
TEST(UpdateScheduleTest, NeverExceedsBound) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const size_t workers = 1 + random() % 5;
    const uint64_t bound = random() % 6;
    Cluster cluster(async(workers, 60, bound));
    std::map<size_t, uint64_t> held;
    for (int event = 0; !cluster.schedule().is_finished(); ++event) {
      ASSERT_LT(event, 100'000) << "the run does not end, seed " << seed;
      const size_t worker = random() % workers;
      if (held.contains(worker)) {
        if (random() % 8 == 0) {
          cluster.kill(worker);
          cluster.start(worker);
        } else {
          cluster.push(worker, held[worker]);
        }
        held.erase(worker);
      } else if (const Claim claim = cluster.claim(worker); claim.result == ClaimResult::kGranted) {
        held[worker] = claim.ticket;
      } else {
        ASSERT_FALSE(held.empty()) << "all wait, seed " << seed;
      }
    }
    EXPECT_LE(cluster.schedule().largest_staleness(), bound) << "seed " << seed;
  }
}

// ---- lives ---------------------------------------------------------------------------------------

TEST(UpdateScheduleTest, RequeuesTicketOfLostWorker) {
  Cluster of_sync(sync(2, 2));
  of_sync.push(0, of_sync.ticket(0));
  EXPECT_EQ(of_sync.ticket(1), 1);
  EXPECT_EQ(of_sync.result_of_claim(0), ClaimResult::kWait);
  of_sync.kill(1);
  EXPECT_EQ(of_sync.ticket(0), 1);

  Cluster of_three(sync(3, 4));
  EXPECT_EQ(of_three.claim(0), granted(0, 0, 3));
  EXPECT_EQ(of_three.ticket(1), 1);
  EXPECT_EQ(of_three.ticket(2), 2);
  of_three.kill(1);
  of_three.push(0, 0);
  EXPECT_EQ(of_three.claim(0), granted(3, 0, 1)) << "it has read ticket 3";

  Cluster of_async(async(2));
  EXPECT_EQ(of_async.ticket(0), 0);
  EXPECT_EQ(of_async.claim(1), granted(2, 0, 3));
  of_async.kill(0);
  of_async.push(1, 2);
  EXPECT_EQ(of_async.claim(1), granted(3, 1, 0)) << "it has read ticket 3";
  of_async.push(1, 3);
  EXPECT_EQ(of_async.ticket(1), 0);
}

TEST(UpdateScheduleTest, RejectsGradientOfEarlierLife) {
  for (const UpdateOptions& options : {sync(2, 2), async(2)}) {
    Cluster cluster(options);
    const WorkerLife before = cluster.life(1);
    const uint64_t ticket = cluster.ticket(1);
    cluster.start(1);
    EXPECT_EQ(cluster.schedule().push(before, ticket).status().code(), StatusCode::kClosed);
    EXPECT_EQ(cluster.schedule().claim(before).status().code(), StatusCode::kClosed);
    EXPECT_EQ(cluster.schedule().step(), 0);
  }
}

TEST(UpdateScheduleTest, RequiresTicketBeforeGradientInNewLife) {
  for (const UpdateOptions& options : {sync(2, 2), async(2)}) {
    Cluster cluster(options);
    const uint64_t ticket = cluster.ticket(1);
    cluster.start(1);
    EXPECT_EQ(cluster.schedule().push(cluster.life(1), ticket).status().code(),
              StatusCode::kInvalidArgument);
  }
}

TEST(UpdateScheduleTest, GivesReturnedWorkerCurrentStep) {
  Cluster cluster(async(2));
  cluster.ticket(1);
  for (int i = 0; i < 3; ++i) cluster.push(0, cluster.ticket(0));
  cluster.start(1);
  EXPECT_EQ(cluster.claim(1), granted(0, 3, 1));
}

TEST(UpdateScheduleTest, IgnoresLossOfEarlierLife) {
  Cluster cluster(async(2));
  const WorkerLife before = cluster.life(1);
  cluster.start(1);
  cluster.ticket(1);
  cluster.schedule().leave(before);
  EXPECT_TRUE(cluster.schedule().is_present(1));
  EXPECT_EQ(cluster.push(1, 0), PushResult::kAccepted);
}

TEST(UpdateScheduleTest, RejectsLifeThatIsNotNew) {
  Cluster cluster(sync(2, 2));
  EXPECT_EQ(cluster.schedule().join(cluster.life(1)).code(), StatusCode::kBusy);
}

// ---- the chief -----------------------------------------------------------------------------------

TEST(UpdateScheduleTest, LetsWorkersWaitUntilChiefHasInitialized) {
  UpdateSchedule schedule(sync(2, 2));
  ASSERT_TRUE(schedule.join({.worker = 1, .life = 1}).ok());
  EXPECT_EQ(schedule.claim({.worker = 1, .life = 1})->result, ClaimResult::kWait);
  schedule.initialize(0);
  EXPECT_EQ(schedule.claim({.worker = 1, .life = 1})->result, ClaimResult::kGranted);
}

TEST(UpdateScheduleTest, ContinuesWithoutChief) {
  for (const UpdateOptions& options : {sync(2, 2, 3), async(2, 3)}) {
    Cluster cluster(options);
    cluster.ticket(0);
    cluster.kill(0);
    for (int i = 0; !cluster.schedule().is_finished() && i < 100; ++i)
      cluster.push(1, cluster.ticket(1));
    EXPECT_EQ(cluster.result_of_claim(1), ClaimResult::kEnded);
  }
}

TEST(UpdateScheduleTest, KeepsParametersWhenChiefReturns) {
  Cluster cluster(sync(2, 1));
  cluster.push(1, cluster.ticket(1));
  cluster.start(0);
  EXPECT_TRUE(cluster.schedule().is_initialized());
  EXPECT_EQ(cluster.claim(0).step, 1);
}

// ---- saving --------------------------------------------------------------------------------------

TEST(UpdateScheduleTest, SavesNothingBeforeParametersAreInitialized) {
  for (const UpdateOptions& options : {sync(1, 1), async(1)}) {
    UpdateSchedule schedule(options);
    const WorkerLife chief{.worker = 0, .life = 1};
    ASSERT_TRUE(schedule.join(chief).ok());
    EXPECT_EQ(*schedule.begin_save(chief), false);
    schedule.initialize(7);
    EXPECT_EQ(*schedule.begin_save(chief), true);
  }
}

TEST(UpdateScheduleTest, SavesAsyncStateWhenTicketsThatAreOutAreApplied) {
  Cluster cluster(async(2));
  cluster.ticket(1);
  EXPECT_FALSE(cluster.begin_save());
  cluster.push(1, 0);
  EXPECT_EQ(cluster.result_of_claim(1), ClaimResult::kWait) << "no new tickets";
  EXPECT_TRUE(cluster.begin_save());
  cluster.end_save();
  EXPECT_EQ(cluster.ticket(1), 1);
}

// Of a step before, second ones of a ticket, and one that the step still needs.
TEST(UpdateScheduleTest, SavesSyncStateWithoutGradientsThatAreOut) {
  Cluster cluster(sync(5, 2));
  for (size_t worker = 0; worker < 5; ++worker) EXPECT_EQ(cluster.ticket(worker), worker % 2);
  cluster.push(0, 0);
  cluster.push(1, 1);
  EXPECT_EQ(cluster.ticket(0), 2);
  EXPECT_EQ(cluster.ticket(1), 3);
  cluster.push(3, 1);
  EXPECT_EQ(cluster.ticket(3), 3);
  cluster.push(1, 3);
  EXPECT_EQ(cluster.ticket(1), 2);
  EXPECT_TRUE(cluster.begin_save());
  EXPECT_EQ(cluster.schedule().step(), 1);
  for (const auto& [worker, ticket] : std::map<size_t, uint64_t>{{2, 0}, {3, 3}, {4, 0}})
    EXPECT_EQ(cluster.push(worker, ticket), PushResult::kDropped) << "worker " << worker;
  EXPECT_EQ(cluster.push(1, 2), PushResult::kAccepted);
  EXPECT_EQ(cluster.schedule().step(), 1);
  EXPECT_TRUE(cluster.end_save());
  EXPECT_EQ(cluster.schedule().step(), 2);
}

// One that was slow before the save, or is, returns after it.
TEST(UpdateScheduleTest, DropsGradientOfStepBeforeSave) {
  Cluster cluster(sync(3, 2));
  EXPECT_EQ(cluster.ticket(2), 0);
  cluster.push(0, cluster.ticket(0));
  cluster.push(1, cluster.ticket(1));
  EXPECT_TRUE(cluster.begin_save());
  EXPECT_FALSE(cluster.end_save()) << "no gradient has come";
  EXPECT_EQ(cluster.push(2, 0), PushResult::kDropped);
  EXPECT_EQ(cluster.schedule().num_stale(), 1);
  EXPECT_EQ(cluster.claim(2).step, 1);
}

TEST(UpdateScheduleTest, LetsWorkersComputeStepDuringSave) {
  Cluster cluster(sync(2, 3));
  EXPECT_EQ(cluster.ticket(0), 0);
  EXPECT_TRUE(cluster.begin_save());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cluster.push(1, cluster.ticket(1)), PushResult::kAccepted);
  EXPECT_EQ(cluster.result_of_claim(1), ClaimResult::kWait) << "not with those of the next step";
  EXPECT_TRUE(cluster.begin_save()) << "as long as the chief asks";
  EXPECT_EQ(cluster.schedule().step(), 0);
  EXPECT_TRUE(cluster.end_save());
  EXPECT_EQ(cluster.claim(1).step, 1);
  EXPECT_FALSE(cluster.schedule().complete_step()) << "once";
}

// So that a sync run is saved at the step at which the chief decides to.
TEST(UpdateScheduleTest, RequeuesTicketOfChiefThatSaves) {
  Cluster cluster(sync(2, 2));
  EXPECT_EQ(cluster.ticket(0), 0);
  cluster.push(1, cluster.ticket(1));
  EXPECT_TRUE(cluster.begin_save());
  EXPECT_EQ(cluster.schedule().step(), 0);
  cluster.end_save();
  EXPECT_EQ(cluster.ticket(1), 0);
}

TEST(UpdateScheduleTest, SavesNoStateWithoutTicketOfLostWorker) {
  Cluster cluster(async(2));
  cluster.ticket(1);
  cluster.push(0, cluster.ticket(0));
  cluster.kill(1);
  for (const uint64_t ticket : {0, 1}) {
    EXPECT_FALSE(cluster.begin_save()) << "ticket 2 is applied, " << ticket << " is not";
    EXPECT_EQ(cluster.ticket(0), ticket);
    cluster.push(0, ticket);
  }
  EXPECT_TRUE(cluster.begin_save());
  EXPECT_EQ(cluster.schedule().step(), 3);
}

TEST(UpdateScheduleTest, EndsSaveOfChiefThatIsLost) {
  Cluster of_async(async(2));
  EXPECT_TRUE(of_async.begin_save());
  EXPECT_EQ(of_async.result_of_claim(1), ClaimResult::kWait);
  of_async.kill(0);
  EXPECT_FALSE(of_async.schedule().is_saving());
  EXPECT_EQ(of_async.result_of_claim(1), ClaimResult::kGranted);

  Cluster of_sync(sync(2, 1));
  EXPECT_TRUE(of_sync.begin_save());
  EXPECT_EQ(of_sync.push(1, of_sync.ticket(1)), PushResult::kAccepted);
  EXPECT_TRUE(of_sync.kill(0));
  EXPECT_EQ(of_sync.schedule().step(), 1);
}

// ---- everything together --------------------------------------------------------------------------

// Each ticket is applied exactly once, and what is saved has all tickets below one and none above, although
// workers are slow, are lost and return, and saves begin at any time. Of a sync run none waits.
TEST(UpdateScheduleTest, AppliesEachTicketOnceWhateverHappens) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const bool is_sync = random() % 2 == 0;
    const size_t workers = 1 + random() % 4;
    const uint64_t gradients = is_sync ? 1 + random() % 4 : 1;
    const uint64_t max_steps = 25;
    Cluster cluster(is_sync ? sync(workers, gradients, max_steps) : async(workers, max_steps));
    std::map<size_t, uint64_t> held;
    std::set<uint64_t> applied, of_step;
    std::optional<size_t> saved;  // during a save: the tickets in the state
    uint64_t pushed = 0;
    const auto complete = [&](bool is_completed) {
      if (!is_completed) return;
      EXPECT_EQ(of_step.size(), gradients);
      for (const uint64_t each : of_step)
        EXPECT_TRUE(applied.insert(each).second) << "seed " << seed;
      of_step.clear();
    };
    for (int event = 0; !cluster.schedule().is_finished(); ++event) {
      ASSERT_LT(event, 100'000) << "seed " << seed;
      const size_t worker = random() % workers;
      if (random() % 16 == 0) {
        if (worker == 0) saved.reset();
        complete(cluster.kill(worker));
        cluster.start(worker);
        held.erase(worker);
      } else if (worker == 0 && saved) {
        EXPECT_EQ(*saved, cluster.schedule().step() * gradients);
        EXPECT_EQ(*saved, applied.size());
        saved.reset();
        complete(cluster.end_save());
      } else if (worker == 0 && random() % 4 == 0) {
        held.erase(0);
        const bool is_complete = cluster.begin_save();
        EXPECT_TRUE(is_complete || !is_sync);
        if (!is_complete) continue;
        saved = applied.size();
        EXPECT_EQ(*saved, cluster.schedule().step() * gradients);
        if (!applied.empty()) {
          EXPECT_EQ(*applied.rbegin() + 1, applied.size());
        }
      } else if (!held.contains(worker)) {
        const Claim claim = cluster.claim(worker);
        if (claim.result == ClaimResult::kGranted) held[worker] = claim.ticket;
      } else {
        const uint64_t ticket = held[worker];
        held.erase(worker);
        ++pushed;
        const uint64_t step = cluster.schedule().step();
        if (cluster.push(worker, ticket) == PushResult::kDropped) continue;
        EXPECT_TRUE(of_step.insert(ticket).second) << "seed " << seed;
        complete(cluster.schedule().step() > step);
      }
    }
    EXPECT_EQ(applied.size(), max_steps * gradients);
    EXPECT_EQ(*applied.rbegin() + 1, applied.size());
    EXPECT_EQ(cluster.schedule().num_dropped(), pushed - applied.size());
  }
}

}  // namespace
}  // namespace stoker::parameter_server
