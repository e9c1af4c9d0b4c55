// A run of two servers, and its replay.
#include "daemon/parameter_server/replay_connection.h"

#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "daemon/train/optimizer.h"

namespace stoker::parameter_server {
namespace {

constexpr size_t kNumServers = 2;

at::Tensor packed(const std::vector<at::Tensor>& tensors) {
  const at::Tensor bytes = at::empty({packed_bytes(tensors)}, at::kByte);
  pack(tensors, bytes);
  return bytes;
}

bool has_same_bytes(const at::Tensor& one, const at::Tensor& other) {
  return one.nbytes() == other.nbytes() &&
         std::memcmp(one.const_data_ptr(), other.const_data_ptr(), one.nbytes()) == 0;
}

VariableStore make_store() {
  config::TrainConfig train;
  train.max_grad_norm.reset();
  auto optimizer = train::Optimizer::create(
      config::OptimizerConfig(), train, {{"weight", at::full({3}, 0.0).set_requires_grad(true)}});
  EXPECT_TRUE(optimizer.ok()) << optimizer.status().to_string();
  return VariableStore(
      *std::move(optimizer), 1, [](uint64_t step) { return 0.1 / static_cast<double>(step + 1); },
      [](uint64_t) { return true; });
}

// The gradients of both servers; each depends on the variables of both.
std::vector<at::Tensor> gradients_of(uint64_t ticket, const std::vector<at::Tensor>& variables) {
  const at::NoGradGuard no_grad;
  const at::Tensor sum = variables[0] + variables[1] * static_cast<double>(ticket + 1);
  return {sum * 0.5 + 0.25, sum - 0.75};
}

class ReplayConnectionTest : public ::testing::Test {
 protected:
  ReplayConnectionTest() {
    for (size_t i = 0; i < kNumServers; ++i) {
      logs_[i].identity = {.server = static_cast<uint32_t>(i), .num_servers = kNumServers};
      stores_.push_back(make_store());
      stores_[i].initialize(0);
      at::NoGradGuard no_grad;
      stores_[i].parameters()[0].fill_(static_cast<double>(i) + 1);
      start_.push_back(ServerPart{.variables = {i},
                                  .parameters = {stores_[i].parameters()[0].detach().clone()},
                                  .state = {}});
      for (const at::Tensor& tensor : stores_[i].state()) start_[i].state.push_back(tensor.clone());
    }
  }
  struct Computed {
    LoggedUpdate logged;
    std::vector<at::Tensor> gradients;
  };
  Computed compute(uint64_t ticket) const {
    Computed computed{.logged = {.ticket = ticket, .worker = 0, .read_steps = {}}, .gradients = {}};
    std::vector<at::Tensor> variables;
    for (const VariableStore& store : stores_) {
      computed.logged.read_steps.push_back(store.step());
      variables.push_back(store.parameters()[0].detach());
    }
    computed.gradients = gradients_of(ticket, variables);
    return computed;
  }
  void apply(size_t server, const Computed& computed) {
    ASSERT_TRUE(
        stores_[server].apply(computed.logged.ticket, packed({computed.gradients[server]})).ok());
    const auto& [ticket, worker, read_steps] = computed.logged;
    logs_[server].updates.push_back(ticket, worker, read_steps);
  }
  ReplayConnection replay() {
    auto order = ReplayOrder::create({logs_[0], logs_[1]}, 0);
    EXPECT_TRUE(order.ok()) << order.status().to_string();
    std::vector<VariableStore> stores;
    for (size_t i = 0; i < kNumServers; ++i) stores.push_back(make_store());
    return {*std::move(order), start_, std::move(stores), [](uint64_t) { return true; }};
  }
  // As the chief does. Returns the tickets.
  std::vector<uint64_t> train(ReplayConnection& replay) const {
    std::vector<uint64_t> tickets;
    while (true) {
      const auto claimed = replay.claim({});
      EXPECT_TRUE(claimed.ok()) << claimed.status().to_string();
      if (!claimed.ok() || claimed->reply == ClaimReply::kEnded) return tickets;
      if (claimed->reply == ClaimReply::kInitialize) {
        EXPECT_TRUE(replay.initialize(0, {}, {}).ok());
      }
      if (claimed->reply != ClaimReply::kGranted) continue;
      EXPECT_TRUE(replay.pull(claimed->step, {}).ok());
      tickets.push_back(claimed->ticket);
      const auto gradients =
          gradients_of(claimed->ticket, {start_[0].parameters[0], start_[1].parameters[0]});
      const double loss = static_cast<double>(claimed->ticket);
      EXPECT_TRUE(
          replay.push(claimed->ticket, claimed->step, {.loss = loss, .steps = 1}, gradients, {})
              .ok());
    }
  }

  std::vector<VariableStore> stores_;
  std::vector<ReadUpdateLog> logs_ = std::vector<ReadUpdateLog>(kNumServers);
  std::vector<ServerPart> start_;  // tensors of the chief
};

TEST_F(ReplayConnectionTest, RepeatsVariablesOptimizerStateAndLosses) {
  const Computed first = compute(0), second = compute(1);
  apply(1, first);
  const Computed third = compute(2);  // between the updates of the servers
  apply(0, second);
  apply(0, first);
  apply(0, third);
  apply(1, third);
  apply(1, second);
  ReplayConnection replayed = replay();
  train(replayed);
  EXPECT_TRUE(replayed.has_ended());
  const auto begun = replayed.begin_save({});
  ASSERT_TRUE(begun.ok() && *begun);
  EXPECT_EQ((*begun)->first, 3u);
  ASSERT_TRUE(replayed.read_state(3, {}).ok());
  for (size_t i = 0; i < kNumServers; ++i) {
    EXPECT_TRUE(has_same_bytes(packed(start_[i].parameters), packed(stores_[i].parameters())));
    EXPECT_TRUE(has_same_bytes(packed(start_[i].state), packed(stores_[i].state())));
  }
  uint64_t step = 0;
  for (const double loss : {1, 0, 2}) {  // in the order of server 0
    const auto record = replayed.take_record(step, 0, {});
    ASSERT_TRUE(record.ok() && *record);
    EXPECT_EQ((*record)->step, ++step);
    EXPECT_EQ((*record)->sums.loss, loss);
    EXPECT_GT((*record)->grad_norm, 0);
  }
  EXPECT_FALSE(replayed.take_record(3, 0, {})->has_value());
}

// Not where a replay could not begin: the second gradient was computed from the variables before.
TEST_F(ReplayConnectionTest, SavesOnlyWhereReplayCanBegin) {
  const Computed first = compute(0), second = compute(1);
  for (const size_t server : {0, 1}) apply(server, first);
  for (const size_t server : {0, 1}) apply(server, second);
  const Computed third = compute(2);
  for (const size_t server : {0, 1}) apply(server, third);
  ReplayConnection replayed = replay();
  std::vector<uint64_t> saved;
  const auto try_save = [&] {
    const auto begun = replayed.begin_save({});
    ASSERT_TRUE(begun.ok());
    EXPECT_EQ(replayed.can_save_soon(), begun->has_value());
    if (*begun && (saved.empty() || saved.back() != (*begun)->first))
      saved.push_back((*begun)->first);
  };
  ASSERT_TRUE(replayed.initialize(0, {}, {}).ok());
  for (int round = 0; !replayed.has_ended(); ++round) {
    ASSERT_LT(round, 100) << "the replay does not end";
    try_save();
    const auto claimed = replayed.claim({});
    ASSERT_TRUE(claimed.ok());
    if (claimed->reply != ClaimReply::kGranted) continue;
    ASSERT_TRUE(replayed.pull(claimed->step, {}).ok());
    const auto gradients =
        gradients_of(claimed->ticket, {start_[0].parameters[0], start_[1].parameters[0]});
    ASSERT_TRUE(replayed.push(claimed->ticket, claimed->step, {.steps = 1}, gradients, {}).ok());
  }
  EXPECT_EQ(saved, (std::vector<uint64_t>{0, 2, 3}));
}

// What only one server has applied when the run ended is repeated, but not saved.
TEST_F(ReplayConnectionTest, SavesLastStepThatAllServersHave) {
  apply(0, compute(0));
  logs_[1].updates = logs_[0].updates;
  ASSERT_TRUE(stores_[1]
                  .apply(0, packed({gradients_of(0, {at::full({3}, 1.0), at::full({3}, 2.0)})[1]}))
                  .ok());
  const at::Tensor saved = packed(stores_[1].parameters());
  apply(1, compute(1));
  ReplayConnection replayed = replay();
  EXPECT_EQ(train(replayed), (std::vector<uint64_t>{0, 1}));
  const auto begun = replayed.begin_save({});
  ASSERT_TRUE(begun.ok() && *begun);
  EXPECT_EQ((*begun)->first, 1u);
  ASSERT_TRUE(replayed.read_state(1, {}).ok());
  EXPECT_TRUE(has_same_bytes(packed(start_[1].parameters), saved));
  EXPECT_FALSE(has_same_bytes(saved, packed(stores_[1].parameters())));
}

}  // namespace
}  // namespace stoker::parameter_server
