#include "daemon/parameter_server/replay_order.h"

#include <malloc.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::parameter_server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<ReadUpdateLog> logs_of(const std::vector<std::vector<LoggedUpdate>>& updates,
                                   uint64_t first_step = 0) {
  std::vector<ReadUpdateLog> logs(updates.size());
  for (size_t i = 0; i < updates.size(); ++i) {
    logs[i].identity = {.server = static_cast<uint32_t>(i),
                        .num_servers = static_cast<uint32_t>(updates.size())};
    logs[i].first_step = first_step;
    for (const auto& [ticket, worker, read_steps] : updates[i])
      logs[i].updates.push_back(ticket, worker, read_steps);
  }
  return logs;
}

LoggedUpdate update(uint64_t ticket, std::vector<uint64_t> read_steps, uint32_t worker = 0) {
  return {.ticket = ticket, .worker = worker, .read_steps = std::move(read_steps)};
}

// What the gradients and updates of a replay are, where a server's variables are the list of the
// gradients that it has applied.
class Replayed {
 public:
  // `start`: the initial state of each server.
  explicit Replayed(ReplayOrder order, const std::vector<std::string>& start = {})
      : order_(std::move(order)) {
    states_.resize(order_.num_servers());
    for (size_t i = 0; i < states_.size(); ++i) {
      states_[i].push_back(start.empty() ? "" : start[i]);
      start_ = order_.step(i);
    }
  }
  // Until the end. Also expects that no server passes a complete step before the others.
  void run() {
    while (true) {
      if (order_.is_complete() && (complete.empty() || complete.back() != order_.step(0)))
        complete.push_back(order_.step(0));
      if (order_.can_begin() && (beginnings.empty() || beginnings.back() != order_.step(0)))
        beginnings.push_back(order_.step(0));
      if (const auto server = order_.next_server()) {
        const uint64_t before = order_.step(*server);
        if (order_.is_read(*server, before)) kept_.insert({*server, before});
        const size_t gradient = order_.next_gradient_of(*server);
        order_.apply_next(*server);
        states_[*server].push_back(states_[*server].back() + "," + values_.at(gradient));
      } else if (const auto gradient = order_.next_gradient()) {
        compute(*gradient);
      } else {
        return;
      }
    }
  }
  const std::string& state(size_t server) const { return states_[server].back(); }
  uint64_t step(size_t server) const { return order_.step(server); }

  std::vector<uint64_t> complete, beginnings;

 private:
  void compute(size_t index) {
    std::string value = std::to_string(order_.ticket(index)) + "(";
    for (size_t i = 0; i < states_.size(); ++i) {
      const uint64_t step = order_.read_steps(index)[i];
      EXPECT_TRUE(step == order_.step(i) || kept_.contains({i, step})) << "not kept";
      value += std::to_string(std::hash<std::string>()(states_[i][step - start_])) + ";";
    }
    EXPECT_TRUE(values_.emplace(index, value + ")").second) << "computed twice";
    order_.finish(index);
  }

  ReplayOrder order_;
  uint64_t start_ = 0;
  std::vector<std::vector<std::string>> states_;
  std::map<size_t, std::string> values_;
  std::set<std::pair<size_t, uint64_t>> kept_;
};

// A run of workers that are lost and return at random, and what its servers have.
class RandomRun {
 public:
  RandomRun(size_t num_servers, size_t num_workers, uint32_t seed)
      : random_(seed), updates(num_servers), states(num_servers), applied_(num_servers) {
    for (auto& each : states) each.push_back("");
    workers_.resize(num_workers);
  }
  void run(int events) {
    for (int i = 0; i < events; ++i) act(pick(workers_.size()));
  }
  // The state that a checkpoint would have.
  void drain() {
    while (!returned_.empty() || std::ranges::any_of(workers_, [](const Worker& worker) {
      return worker.ticket.has_value();
    })) {
      const size_t worker = pick(workers_.size());
      if (workers_[worker].ticket || !returned_.empty()) act(worker, false);
    }
  }
  // Returns the number of updates of the server with the fewest.
  uint64_t steps() const {
    size_t fewest = updates[0].size();
    for (const auto& each : updates) fewest = std::min(fewest, each.size());
    return fewest;
  }

 private:
  struct Worker {
    std::optional<uint64_t> ticket;
    std::vector<uint64_t> read;
    std::string value;
    size_t to_push = 0;  // servers, the last one first
  };

 public:
  size_t pick(size_t count) { return random_() % count; }

 private:
  void act(size_t index, bool may_die = true) {
    Worker& worker = workers_[index];
    if (!worker.ticket) {
      worker = {};
      if (!returned_.empty()) {
        worker.ticket = *returned_.begin();
        returned_.erase(returned_.begin());
      } else {
        worker.ticket = next_ticket_++;
      }
    } else if (may_die && pick(12) == 0) {
      returned_.insert(*worker.ticket);
      worker.ticket.reset();
    } else if (worker.read.size() < states.size()) {
      worker.read.push_back(states[worker.read.size()].size() - 1);
      worker.to_push = states.size();
    } else if (worker.to_push > 0) {
      push(index, --worker.to_push);
      if (worker.to_push == 0) worker.ticket.reset();
    }
  }
  void push(size_t index, size_t server) {
    Worker& worker = workers_[index];
    if (!applied_[server].insert(*worker.ticket).second) return;
    std::string value = std::to_string(*worker.ticket) + "(";
    for (size_t i = 0; i < states.size(); ++i)
      value += std::to_string(std::hash<std::string>()(states[i][worker.read[i]])) + ";";
    states[server].push_back(states[server].back() + "," + value + ")");
    updates[server].push_back(update(*worker.ticket, worker.read, static_cast<uint32_t>(index)));
  }

  std::mt19937 random_;

 public:
  std::vector<std::vector<LoggedUpdate>> updates;
  std::vector<std::vector<std::string>> states;

 private:
  std::vector<std::set<uint64_t>> applied_;
  std::vector<Worker> workers_;
  std::set<uint64_t> returned_;
  uint64_t next_ticket_ = 0;
};

TEST(ReplayOrder, ComputesGradientFromVariablesThatWereRead) {
  // Both workers read before the first update; server 1 applies them in the other order.
  auto order = ReplayOrder::create(logs_of({{update(0, {0, 0}), update(1, {0, 0}, 1)},
                                            {update(1, {0, 0}, 1), update(0, {0, 0})}}),
                                   0);
  ASSERT_TRUE(order.ok()) << order.status().to_string();
  EXPECT_EQ(order->last_complete_step(), 2u);
  Replayed replayed(*std::move(order));
  replayed.run();
  EXPECT_THAT(replayed.complete, ElementsAre(0, 2));
}

TEST(ReplayOrder, RepeatsRandomRuns) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    RandomRun run(1 + seed % 3, 1 + seed / 3 % 4, seed);
    run.run(200);
    run.drain();
    const uint64_t saved = run.steps();
    run.run(150);  // and is then killed
    auto order = ReplayOrder::create(logs_of(run.updates), 0);
    ASSERT_TRUE(order.ok()) << seed << ": " << order.status().to_string();
    EXPECT_GE(order->last_complete_step(), saved);
    Replayed replayed(*std::move(order));
    replayed.run();
    EXPECT_TRUE(std::ranges::binary_search(replayed.complete, saved)) << seed;
    for (size_t i = 0; i < run.states.size(); ++i) {
      EXPECT_GE(replayed.step(i), saved);
      EXPECT_EQ(replayed.state(i), run.states[i][replayed.step(i)]) << seed;
    }
  }
}

// As from a checkpoint of the run.
TEST(ReplayOrder, BeginsAtStateThatWasSaved) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    RandomRun run(2, 3, seed);
    run.run(100);
    run.drain();
    const uint64_t saved = run.steps();
    run.run(100);
    run.drain();
    auto order = ReplayOrder::create(logs_of(run.updates), saved);
    ASSERT_TRUE(order.ok()) << order.status().to_string();
    EXPECT_EQ(order->step(1), saved);
    EXPECT_EQ(order->last_complete_step(), run.steps());
    Replayed replayed(*std::move(order));
    replayed.run();
    EXPECT_EQ(replayed.step(0), run.steps());
    EXPECT_EQ(replayed.complete.front(), saved);
  }
}

// A replay that was stopped: at each of the steps where it could have saved, and at the last one.
TEST(ReplayOrder, BeginsWhereReplayHasSaved) {
  size_t num_refused = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    RandomRun run(1 + seed % 3, 1 + seed / 3 % 3, seed);
    run.run(100);
    run.drain();
    const uint64_t saved = run.steps();
    run.run(60);  // and is then killed
    const auto logs = logs_of(run.updates);
    auto order = ReplayOrder::create(logs, 0);
    ASSERT_TRUE(order.ok()) << order.status().to_string();
    const uint64_t last = order->last_complete_step();
    Replayed all(*std::move(order));
    all.run();
    EXPECT_TRUE(std::ranges::binary_search(all.beginnings, saved)) << seed;
    for (const uint64_t step : all.complete) {
      auto resumed = ReplayOrder::create(logs, step);
      if (step != last && !std::ranges::binary_search(all.beginnings, step)) {
        EXPECT_EQ(resumed.status().code(), StatusCode::kMismatch) << seed;
        ++num_refused;
        continue;
      }
      ASSERT_TRUE(resumed.ok()) << seed << ": " << resumed.status().to_string();
      EXPECT_EQ(resumed->last_complete_step(), last);
      std::vector<std::string> start;
      for (const auto& states : run.states) start.push_back(states[step]);
      Replayed rest(*std::move(resumed), start);
      rest.run();
      for (size_t i = 0; i < run.states.size(); ++i) {
        EXPECT_GE(rest.step(i), last);
        EXPECT_EQ(rest.state(i), run.states[i][rest.step(i)]) << seed;
      }
    }
  }
  EXPECT_GT(num_refused, 0u);
}

TEST(ReplayOrder, CannotBeginWhereLaterGradientReadBefore) {
  const auto logs = logs_of({{update(0, {0}), update(1, {0}, 1), update(2, {2})}});
  EXPECT_THAT(ReplayOrder::create(logs, 1).status().message(),
              HasSubstr("computed from the parameters before step 1"));
  Replayed replayed(*ReplayOrder::create(logs, 0));
  replayed.run();
  EXPECT_THAT(replayed.complete, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(replayed.beginnings, ElementsAre(0, 2, 3));
}

TEST(ReplayOrder, EndsAtUpdateOfOneServer) {
  auto order = ReplayOrder::create(
      logs_of({{update(0, {0, 0})}, {update(0, {0, 0}), update(1, {1, 1}), update(2, {5, 2})}}), 0);
  ASSERT_TRUE(order.ok()) << order.status().to_string();
  EXPECT_EQ(order->last_complete_step(), 1u);
  Replayed replayed(*std::move(order));
  replayed.run();
  EXPECT_EQ(replayed.step(0), 1u);
  EXPECT_EQ(replayed.step(1), 2u);
}

TEST(ReplayOrder, RejectsLogsThatDoNotFitTogether) {
  const auto error_of = [](const std::vector<ReadUpdateLog>& logs, uint64_t step = 0) {
    const auto order = ReplayOrder::create(logs, step);
    return order.status();
  };
  auto logs = logs_of({{update(0, {2, 2})}, {update(0, {2, 2})}}, 2);
  EXPECT_THAT(error_of(logs, 1).message(), HasSubstr("begins at step 2"));
  EXPECT_THAT(error_of(logs, 9).message(), HasSubstr("ends at step 3"));
  EXPECT_EQ(error_of(logs, 2).code(), StatusCode::kCorrupt);  // a ticket of before
  logs[1].identity.server = 0;
  EXPECT_THAT(error_of(logs, 2).message(), HasSubstr("is of another run, or of another server"));
  logs[1].identity = {.start_id = 7, .server = 1, .num_servers = 2};
  EXPECT_THAT(error_of(logs, 2).message(), HasSubstr("is of another run"));
  logs.pop_back();
  EXPECT_THAT(error_of(logs, 2).message(), HasSubstr("1 update logs of 2 servers"));
  // Not a state of one process.
  EXPECT_THAT(error_of(logs_of({{update(1, {0}), update(0, {0})}}), 1).message(),
              HasSubstr("no complete state at step 1"));
  // A ticket twice; variables of the future.
  EXPECT_EQ(error_of(logs_of({{update(0, {0}), update(0, {0})}})).code(), StatusCode::kCorrupt);
  EXPECT_EQ(error_of(logs_of({{update(0, {1})}})).code(), StatusCode::kCorrupt);
}

// The logs of a long run have millions.
TEST(ReplayOrder, NeedsFewBytesPerUpdate) {
  constexpr uint64_t kUpdates = 100'000, kWorkers = 4;
  std::vector<LoggedUpdate> updates;
  for (uint64_t i = 0; i < kUpdates; ++i) {
    const uint64_t read = i < kWorkers ? 0 : i - kWorkers + 1;
    updates.push_back(update(i, {read, read}, static_cast<uint32_t>(i % kWorkers)));
  }
  const auto logs = logs_of({updates, updates});
  const auto heap_bytes = [] {
    const struct mallinfo2 heap = ::mallinfo2();
    return heap.uordblks + heap.hblkhd;
  };
  const size_t before = heap_bytes();
  if (before == 0) GTEST_SKIP() << "the allocator does not tell what is in use";
  const auto order = ReplayOrder::create(logs, 0);
  const size_t after = heap_bytes();
  ASSERT_TRUE(order.ok()) << order.status().to_string();
  EXPECT_LT((after - before) / kUpdates, 64);  // of both servers
}

}  // namespace
}  // namespace stoker::parameter_server
