// Two servers and their workers in one process.
#include "daemon/parameter_server/parameter_server.h"

#include <signal.h>

#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include "daemon/group/socket_address.h"
#include "daemon/parameter_server/worker_connection.h"
#include "shared/base/exception_status.h"
#include "tests/support/eventually.h"

namespace stoker::parameter_server {
namespace {

using namespace std::chrono_literals;

constexpr size_t kNumServers = 2;

SettingsVersion settings_from(uint64_t step, uint64_t max_steps) {
  SettingsVersion settings{.step = step, .live = {}, .change = {}};
  settings.live.settings = {
      {.key = "train.max_steps", .value = std::to_string(max_steps), .configured = "100"}};
  settings.change = {
      .key = "train.max_steps", .previous = "100", .current = std::to_string(max_steps)};
  return settings;
}

// A store, without servers.
class ServerStartTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);
    task_.cluster = {.ps = {"a:1", "b:1"}, .worker = {}};
    for (size_t i = 0; i < num_workers_; ++i)
      task_.cluster.worker.push_back("worker" + std::to_string(i) + ":1");
    auto listening = group::listen_on("127.0.0.1", 0);
    ASSERT_TRUE(listening.ok()) << listening.status().to_string();
    meeting_.store_address = meeting_.address = "127.0.0.1";
    meeting_.store_port = listening->port;
    meeting_.store.prefix = "test";
    auto store = group::TcpStore::serve(*std::move(listening), meeting_.store);
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    store_ = *std::move(store);
  }

  ServerOptions options_of(size_t server) {
    ServerOptions options{
        .task = task_,
        .updates = {.replicas = replicas_,
                    .num_workers = num_workers_,
                    .gradients_per_step = 1,
                    .max_steps = max_steps_},
        .is_recorded = [](uint64_t) { return true; },
        .apply_settings = [this, server](const SettingsVersion& version) -> Result<uint64_t> {
          const std::lock_guard lock(mutex_);
          applied_[server].push_back(version.step);
          return std::stoull(version.live.settings.front().value);
        },
        .meeting = meeting_};
    options.task.job = Job::kPs;
    options.task.index = static_cast<int>(server);
    if (server == 0) options.untrained_bytes = at::full({2}, 0.0).nbytes();
    return options;
  }
  virtual train::NamedTensors make_parameters() const {
    return {{"weight", at::full({num_elements_}, 0.0).set_requires_grad(true)}};
  }
  VariableStore make_variables(bool needs_norm = false) const {
    config::TrainConfig train;
    train.max_grad_norm.reset();
    auto optimizer = train::Optimizer::create(optimizer_, train, make_parameters());
    EXPECT_TRUE(optimizer.ok()) << optimizer.status().to_string();
    return VariableStore(
        *std::move(optimizer), 1, [](uint64_t) { return 0.1; }, [](uint64_t) { return true; },
        needs_norm);
  }

  config::ReplicaMode replicas_ = config::ReplicaMode::kSync;
  size_t num_workers_ = 2;
  int64_t num_elements_ = 3;  // of the variables of each server
  int64_t num_variables_ = 1;
  config::OptimizerConfig optimizer_;
  // The steps of the settings that each server has got.
  std::vector<uint64_t> applied(size_t server) {
    const std::lock_guard lock(mutex_);
    return applied_[server];
  }

  uint64_t max_steps_ = 100;
  std::mutex mutex_;
  std::array<std::vector<uint64_t>, kNumServers> applied_;
  ClusterTask task_;
  Meeting meeting_;
  std::unique_ptr<group::TcpStore> store_;
};

class ParameterServerTest : public ServerStartTest {
 protected:
  void SetUp() override {
    ServerStartTest::SetUp();
    for (size_t i = 0; i < kNumServers; ++i) {
      servers_[i] =
          std::make_unique<ParameterServer>(options_of(i), make_variables(needs_norm_[i]));
      threads_[i] = std::jthread(
          [this, i](const std::stop_token& stop) { outcomes_[i] = servers_[i]->run(stop); });
    }
  }
  void TearDown() override {
    connections_.clear();
    for (std::jthread& thread : threads_) thread.request_stop();
    join();
  }
  void join() {
    for (std::jthread& thread : threads_)
      if (thread.joinable()) thread.join();
  }

  // A start of a worker, which is lost before it has connected to the other servers.
  WorkerConnection& connect(int worker, size_t num_servers = kNumServers) {
    ClusterTask task = task_;
    task.index = worker;
    std::vector<ServerPart> parts;
    const VariableStore like = make_variables();
    for (size_t i = 0; i < kNumServers; ++i) {
      parameters_[i] = at::full({num_elements_}, 1.0);
      ServerPart part{
          .variables = {}, .parameters = parameters_[i].chunk(num_variables_), .state = {}};
      for (size_t v = 0; v < part.parameters.size(); ++v)
        part.variables.push_back(i * part.parameters.size() + v);
      for (const at::Tensor& tensor : like.state()) part.state.push_back(tensor.clone());
      parts.push_back(std::move(part));
    }
    parts.resize(num_servers);
    parts.front().untrained = {at::full({2}, 7.0 - worker)};
    untrained_ = parts.front().untrained.front();
    const bool sums_norms = replicas_ == config::ReplicaMode::kSync && needs_norm_.back();
    auto connection = WorkerConnection::open(task, meeting_, std::move(parts), {}, sums_norms);
    if (!connection.ok()) throw std::runtime_error(connection.status().to_string());
    connections_.push_back(*std::move(connection));
    return *connections_.back();
  }
  // Until it has a ticket, which it trains on.
  void train(WorkerConnection& worker) const { push(worker, pull(worker)); }
  static WorkerConnection::Claimed pull(WorkerConnection& worker) {
    WorkerConnection::Claimed claimed;
    while (claimed.reply == ClaimReply::kWait) {
      const auto reply = worker.claim({});
      EXPECT_TRUE(reply.ok()) << reply.status().to_string();
      if (!reply.ok()) return claimed;
      claimed = *reply;
    }
    EXPECT_EQ(claimed.reply, ClaimReply::kGranted);
    const Status pulled = worker.pull(claimed.step, {});
    EXPECT_TRUE(pulled.ok()) << pulled.to_string();
    return claimed;
  }
  void push(WorkerConnection& worker, const WorkerConnection::Claimed& claimed,
            double norm = -1) const {
    push(worker, claimed, at::full({num_elements_}, 0.5), norm);
  }
  // The same for all servers.
  void push(WorkerConnection& worker, const WorkerConnection::Claimed& claimed,
            const at::Tensor& gradient, double norm = -1) const {
    std::vector<at::Tensor> gradients;
    for (size_t i = 0; i < kNumServers; ++i)
      for (const at::Tensor& part : gradient.chunk(num_variables_)) gradients.push_back(part);
    const auto pushed =
        worker.push(claimed.ticket, claimed.step, {.loss = 1, .steps = 1, .norm = norm}, gradients,
                    train::Optimizer::Reached(gradients.size(), 1), {});
    ASSERT_TRUE(pushed.ok()) << pushed.status().to_string();
    EXPECT_EQ(*pushed, PushResult::kAccepted);
  }
  // After one step. The gradient of the next one comes while the chief, or one that is lost meanwhile, saves.
  void save_during_step(bool is_chief_lost) {
    WorkerConnection& chief = connect(0);
    ASSERT_TRUE(chief.initialize(0, {}, {}).ok());
    train(chief);
    WorkerConnection& worker = connect(1);
    const auto claimed = pull(worker);
    const auto begun = chief.begin_save({});
    ASSERT_TRUE(begun.ok() && *begun);
    EXPECT_EQ((*begun)->first, 1u);
    EXPECT_TRUE(chief.read_state(1, {}).ok());
    push(worker, claimed);
    EXPECT_TRUE(chief.read_state(1, {}).ok());
    EXPECT_EQ(record_after(chief, 1, 0), 0u);
    if (is_chief_lost)
      connections_.erase(connections_.begin());
    else
      ASSERT_TRUE(chief.end_save({}).ok());
    train(worker);
    WorkerConnection& saving = is_chief_lost ? connect(0) : chief;
    EXPECT_EQ(record_after(saving, 1, 0), 2u);
    EXPECT_TRUE(saving.read_state(3, {}).ok());
  }
  // After one step. The gradient of the next one comes while the chief saves, or after it has ended the run.
  void end_during_step(bool has_ended) {
    WorkerConnection& chief = connect(0);
    ASSERT_TRUE(chief.initialize(0, {}, {}).ok());
    train(chief);
    WorkerConnection& worker = connect(1);
    const auto claimed = pull(worker);
    const auto begun = chief.begin_save({});
    ASSERT_TRUE(begun.ok() && *begun);
    EXPECT_EQ((*begun)->first, 1u);
    if (!has_ended) push(worker, claimed);
    ASSERT_TRUE(chief.end_run(run::RunOutcome::kStopped, {}).ok());
    connections_.erase(connections_.begin());
    if (has_ended) push(worker, claimed);
    const auto ended = worker.claim({});
    ASSERT_TRUE(ended.ok()) << ended.status().to_string();
    EXPECT_EQ(ended->reply, ClaimReply::kEnded);
    EXPECT_EQ(ended->step, 1u);
    connections_.clear();
    join();
    for (const auto& server : servers_) EXPECT_EQ(server->step(), 1u);
  }
  static uint64_t record_after(WorkerConnection& chief, uint64_t step, uint64_t saved) {
    const auto record = chief.take_record(step, saved, {});
    EXPECT_TRUE(record.ok()) << record.status().to_string();
    return record.ok() && *record ? (*record)->step : 0;
  }

  std::array<bool, kNumServers> needs_norm_{};  // of all gradients
  // Of the last connection.
  at::Tensor untrained_;
  std::array<at::Tensor, kNumServers> parameters_;  // of which server
  std::array<std::unique_ptr<ParameterServer>, kNumServers> servers_;
  std::array<Status, kNumServers> outcomes_;
  std::vector<std::unique_ptr<WorkerConnection>> connections_;
  std::array<std::jthread, kNumServers> threads_;
};

// It has told that it is there before.
TEST_F(ServerStartTest, EndsIfOtherServerCannotCreateThreads) {
  meeting_.timeout = 1s;
  ServerOptions options = options_of(1);
  options.start_thread = [](std::function<void()>) -> std::jthread {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  };
  ParameterServer without_threads(std::move(options), make_variables());
  ASSERT_EQ(without_threads.run({}).code(), StatusCode::kBusy);
  ParameterServer first(options_of(0), make_variables());
  EXPECT_EQ(first.run({}).code(), StatusCode::kPeerLost);
}

TEST_F(ServerStartTest, ReportsThreadThatCannotBeCreated) {
  int num_threads = 0;
  ServerOptions options = options_of(0);
  options.start_thread = [&num_threads](std::function<void()> body) {
    if (++num_threads == 2)
      throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    return std::jthread(std::move(body));
  };
  ParameterServer server(std::move(options), make_variables());
  const Status outcome = server.run({});
  EXPECT_EQ(outcome.code(), StatusCode::kBusy);
  const std::string limit = thread_limit_reached("cannot start a thread").message();
  EXPECT_EQ(
      outcome.message(),
      "thread 2 of the parameter server, which needs one for each worker and server: " + limit);
}

class ShortTimeoutTest : public ParameterServerTest {
 protected:
  ShortTimeoutTest() { meeting_.timeout = test::scaled(5s); }
};

// Until the chief sends the parameters, other workers talk to server 0 only.
TEST_F(ShortTimeoutTest, KeepsWorkerThatWaitsLongerThanTimeout) {
  WorkerConnection& worker = connect(1);
  const auto until = std::chrono::steady_clock::now() + meeting_.timeout * 3 / 2;
  while (std::chrono::steady_clock::now() < until) {
    const auto claimed = worker.claim({});
    ASSERT_TRUE(claimed.ok()) << claimed.status().to_string();
    ASSERT_EQ(claimed->reply, ClaimReply::kWait);
  }
  ASSERT_TRUE(connect(0).initialize(0, {}, {}).ok());
  train(worker);
}

// After it has connected to the first server, it connects to the others, which may take longer.
TEST_F(ShortTimeoutTest, KeepsWorkerWhoseFirstRequestIsLate) {
  WorkerConnection& chief = connect(0);
  std::this_thread::sleep_for(meeting_.timeout * 5 / 4);
  ASSERT_TRUE(chief.initialize(0, {}, {}).ok());
  train(chief);
}

TEST_F(ParameterServerTest, EndsOnlyConnectionOfInvalidRequest) {
  WorkerConnection& chief = connect(0);
  ASSERT_TRUE(chief.initialize(0, {}, {}).ok());
  const auto expect_error = [this](auto request) {
    EXPECT_FALSE(request(connect(1)));
    connections_.pop_back();
  };
  expect_error([](auto& worker) { return worker.end_run(run::RunOutcome::kFinished, {}).ok(); });
  expect_error([](auto& worker) { return worker.begin_save({}).ok(); });
  expect_error([](auto& worker) { return worker.take_record(0, 0, {}).ok(); });
  expect_error([](auto& worker) { return worker.initialize(0, {}, {}).ok(); });
  expect_error([](auto& worker) { return worker.change_settings(settings_from(0, 5), {}).ok(); });
  expect_error([](auto& worker) { return worker.pull(7, {}).ok(); });
  expect_error([](auto& worker) {
    return worker.push(7, 0, {}, {at::full({3}, 1.0), at::full({3}, 1.0)}, {1, 1}, {}).ok();
  });
  train(chief);
  train(connect(1));
}

TEST_F(ParameterServerTest, HasRecordsAfterCheckpointForChiefThatReturns) {
  WorkerConnection& chief = connect(0);
  ASSERT_TRUE(chief.initialize(0, {}, {}).ok());
  for (int i = 0; i < 3; ++i) train(chief);
  EXPECT_EQ(record_after(chief, 0, 0), 1u);
  EXPECT_EQ(record_after(chief, 1, 0), 2u);
  EXPECT_EQ(record_after(chief, 2, 1), 3u);  // step 1 is saved
  EXPECT_EQ(record_after(chief, 3, 1), 0u);
  connections_.clear();
  WorkerConnection& returned = connect(0);
  const auto record = returned.take_record(1, 1, {});
  ASSERT_TRUE(record.ok() && *record);
  EXPECT_EQ((*record)->step, 2u);
  EXPECT_GT((*record)->grad_norm, 0);
  EXPECT_EQ(record_after(returned, 0, 1), 2u);
}

TEST_F(ParameterServerTest, ChangesSettingsOfAllServersAtStepOfChief) {
  WorkerConnection& chief = connect(0);
  ASSERT_TRUE(chief.initialize(0, {}, {}).ok());
  train(chief);
  ASSERT_TRUE(chief.begin_save({}).ok());
  ASSERT_TRUE(chief.change_settings(settings_from(1, 2), {}).ok());
  ASSERT_TRUE(chief.end_save({}).ok());
  for (const size_t server : {0, 1}) EXPECT_EQ(applied(server), std::vector<uint64_t>{1});
  WorkerConnection& worker = connect(1);
  train(worker);
  const auto settings = worker.take_settings();
  ASSERT_EQ(settings.size(), 1u);
  EXPECT_EQ(settings[0].step, 1u);
  EXPECT_EQ(settings[0].live.settings, settings_from(1, 2).live.settings);
  EXPECT_EQ(settings[0].change.key, "train.max_steps");
  EXPECT_TRUE(chief.take_settings().empty()) << "its own";
  const auto ended = worker.claim({});
  ASSERT_TRUE(ended.ok()) << ended.status().to_string();
  EXPECT_EQ(ended->reply, ClaimReply::kEnded) << "after step 2";
  for (const size_t server : {0, 1}) EXPECT_EQ(applied(server), std::vector<uint64_t>{1});
}

// Server 0 has decided; the others learn of it before the update that it concerns.
TEST_F(ParameterServerTest, ForwardsSettingsOfChiefThatIsLostBeforeAllServersHaveThem) {
  ASSERT_TRUE(connect(0).initialize(0, {}, {}).ok());
  connections_.clear();
  WorkerConnection& chief = connect(0, /*num_servers=*/1);
  ASSERT_TRUE(chief.begin_save({}).ok());
  ASSERT_TRUE(chief.change_settings(settings_from(0, 50), {}).ok());
  connections_.clear();
  EXPECT_EQ(applied(1), std::vector<uint64_t>());
  WorkerConnection& worker = connect(1);
  const auto claimed = worker.claim({});
  ASSERT_TRUE(claimed.ok()) << claimed.status().to_string();
  EXPECT_EQ(applied(1), std::vector<uint64_t>{0});
  WorkerConnection& returned = connect(0);
  ASSERT_TRUE(returned.claim({}).ok());
  EXPECT_EQ(returned.take_settings().size(), 1u);
  ASSERT_TRUE(returned.begin_save({}).ok());
  ASSERT_TRUE(returned.change_settings(settings_from(0, 60), {}).ok());
  EXPECT_EQ(applied(0), (std::vector<uint64_t>{0, 0}));
  EXPECT_EQ(applied(1), (std::vector<uint64_t>{0, 0}));
}

TEST_F(ParameterServerTest, SavesSyncStateWhileWorkerComputes) { save_during_step(false); }

TEST_F(ParameterServerTest, CompletesStepWhenChiefIsLostDuringSave) { save_during_step(true); }

TEST_F(ParameterServerTest, CompletesNoStepDuringLastSave) { end_during_step(false); }

TEST_F(ParameterServerTest, CompletesNoStepAfterEndOfRun) { end_during_step(true); }

TEST_F(ParameterServerTest, ServesChiefAfterRequestToEnd) {
  WorkerConnection& chief = connect(0);
  ASSERT_TRUE(chief.initialize(0, {}, {}).ok());
  for (const auto& server : servers_) server->request_end(1h);
  train(chief);
  const auto begun = chief.begin_save({});
  ASSERT_TRUE(begun.ok() && *begun);
  EXPECT_EQ((*begun)->first, 1u);
  ASSERT_TRUE(chief.read_state(1, {}).ok());
  ASSERT_TRUE(chief.end_run(run::RunOutcome::kPreempted, {}).ok());
  connections_.clear();
  join();
  for (size_t i = 0; i < kNumServers; ++i) {
    EXPECT_TRUE(outcomes_[i].ok()) << outcomes_[i].to_string();
    EXPECT_EQ(servers_[i]->outcome(), run::RunOutcome::kPreempted);
  }
}

// A worker that cannot read its samples: any other one could not, either.
TEST_F(ParameterServerTest, EndsWithFailureThatTaskHasAnnounced) {
  ASSERT_TRUE(connect(0).initialize(0, {}, {}).ok());
  ClusterTask worker = task_;
  worker.index = 1;
  announce_failure(*store_, worker, Status(StatusCode::kCorrupt, "line 3"));
  announce_failure(*store_, task_, Status(StatusCode::kInternal, "later"));
  join();
  for (const Status& outcome : outcomes_) {
    EXPECT_EQ(outcome.code(), StatusCode::kPeerLost);
    EXPECT_EQ(outcome.cause(), StatusCode::kCorrupt);
    EXPECT_EQ(outcome.message(), "worker 1 (worker1:1) failed: corrupt: line 3");
  }
}

class ChiefMissingTest : public ParameterServerTest {
 protected:
  ChiefMissingTest() { meeting_.start_timeout = 100ms; }
};

TEST_F(ChiefMissingTest, EndsAtStartTimeout) {
  join();
  for (size_t i = 0; i < kNumServers; ++i) {
    EXPECT_EQ(outcomes_[i].code(), StatusCode::kPeerLost);
    EXPECT_TRUE(outcomes_[i].message().starts_with(
        "the chief (worker 0, worker0:1) has not started in time; see its log"))
        << outcomes_[i].message();
  }
}

class RunEndedTest : public ParameterServerTest {
 protected:
  RunEndedTest() {
    meeting_.start_timeout = 100ms;
    meeting_.find_end = [] { return std::string("max_steps reached"); };
  }
};

TEST_F(RunEndedTest, EndsServerThatWaitsForChiefInVain) {
  join();
  for (size_t i = 0; i < kNumServers; ++i) {
    EXPECT_EQ(outcomes_[i].code(), StatusCode::kClosed);
    EXPECT_EQ(outcomes_[i].message(), "max_steps reached");
  }
}

TEST_F(ParameterServerTest, SendsUntrainedParametersOfChief) {
  ASSERT_TRUE(connect(0).initialize(0, {}, {}).ok());
  WorkerConnection& worker = connect(1);
  EXPECT_EQ(untrained_[0].item<double>(), 6);
  train(worker);
  EXPECT_TRUE(at::equal(untrained_, at::full({2}, 7.0)));
}

TEST_F(ParameterServerTest, TellsChiefAboutTasks) {
  WorkerConnection& chief = connect(0);
  ASSERT_TRUE(chief.initialize(0, {}, {}).ok());
  train(chief);
  train(chief);
  auto status = chief.read_status({});
  ASSERT_TRUE(status.ok()) << status.status().to_string();
  EXPECT_EQ(status->replicas, "sync");
  ASSERT_EQ(status->tasks.size(), 4u);
  EXPECT_EQ(status->tasks[1].job, "ps");
  EXPECT_EQ(status->tasks[1].address, "b:1");
  EXPECT_EQ(status->tasks[1].state, "serving");
  EXPECT_GT(status->tasks[1].parameter_bytes, 0u);
  EXPECT_EQ(status->tasks[2].state, "waiting");
  EXPECT_EQ(status->tasks[2].starts, 1u);
  EXPECT_EQ(status->tasks[2].applied_gradients, 2u);
  EXPECT_EQ(status->tasks[3].state, "not_started");
  train(connect(1));
  connections_.pop_back();
  // The server notices it by the end of the connection.
  EXPECT_TRUE(test::eventually([&] {
    status = chief.read_status({});
    return !status.ok() || status->tasks[3].state == "lost";
  }));
  ASSERT_TRUE(status.ok()) << status.status().to_string();
  EXPECT_EQ(status->tasks[3].applied_gradients, 1u);
}

class LastStepTest : public ParameterServerTest {
 protected:
  LastStepTest() { max_steps_ = 1; }
};

// While the chief saves.
TEST_F(LastStepTest, HasNoLostWorkerAtEnd) {
  WorkerConnection& chief = connect(0);
  ASSERT_TRUE(chief.initialize(0, {}, {}).ok());
  train(connect(1));
  connections_.pop_back();
  for (int i = 0; i < 100; ++i) {  // before and after the server has noticed it
    const auto status = chief.read_status({});
    ASSERT_TRUE(status.ok()) << status.status().to_string();
    ASSERT_EQ(status->tasks[3].state, "waiting");
  }
}

class NormTest : public ParameterServerTest {
 protected:
  NormTest() { needs_norm_ = {true, true}; }
};

TEST_F(NormTest, SavesSyncStateWhileWorkerComputes) { save_during_step(false); }

// The update is due, and the worker that would have sent the norm is lost.
TEST_F(NormTest, UpdatesByNormOfWorkerThatReturns) {
  WorkerConnection& chief = connect(0);
  ASSERT_TRUE(chief.initialize(0, {}, {}).ok());
  train(chief);
  connections_.clear();
  WorkerConnection& returned = connect(0);
  train(returned);
  train(connect(1));
  const auto begun = returned.begin_save({});
  ASSERT_TRUE(begun.ok() && *begun);
  EXPECT_EQ((*begun)->first, 3u);
  EXPECT_TRUE(returned.read_state(3, {}).ok());
  EXPECT_EQ(record_after(returned, 2, 0), 3u);
}

class AsyncNormTest : public ParameterServerTest {
 protected:
  AsyncNormTest() {
    replicas_ = config::ReplicaMode::kAsync;
    needs_norm_ = {true, false};  // so that server 0 gets the request, too
  }
};

TEST_F(AsyncNormTest, CountsNoGradientWithoutNorm) {
  WorkerConnection& chief = connect(0);
  ASSERT_TRUE(chief.initialize(0, {}, {}).ok());
  WorkerConnection& invalid = connect(1);
  const auto claimed = pull(invalid);
  EXPECT_FALSE(invalid
                   .push(claimed.ticket, claimed.step, {.loss = 1, .steps = 1},
                         {at::full({3}, 0.5), at::full({3}, 0.5)}, {1, 1}, {})
                   .ok());
  connections_.pop_back();
  WorkerConnection& worker = connect(1);
  const auto again = pull(worker);
  EXPECT_EQ(again.ticket, claimed.ticket);
  push(worker, again, 1.0);
  const auto begun = chief.begin_save({});
  ASSERT_TRUE(begun.ok() && *begun);
  EXPECT_EQ((*begun)->first, 1u);
  EXPECT_TRUE(chief.read_state(1, {}).ok());
}

TEST_F(ParameterServerTest, EndsAtOnceWithoutChief) {
  for (const auto& server : servers_) server->request_end(1h);
  join();
  for (size_t i = 0; i < kNumServers; ++i)
    EXPECT_EQ(outcomes_[i].code(), StatusCode::kCancelled) << i;
}

class AsyncServerTest : public ParameterServerTest {
 protected:
  AsyncServerTest() { replicas_ = config::ReplicaMode::kAsync; }
};

// The allocator of tensors. Calls a function in an allocation.
class HookedAllocator final : public c10::Allocator {
 public:
  HookedAllocator() { c10::SetCPUAllocator(this); }
  ~HookedAllocator() override { c10::SetCPUAllocator(&original_); }

  // In the next one of that size, on its thread.
  void call_in_next(size_t bytes, std::function<void()> hook) {
    hook_ = std::move(hook);
    bytes_ = bytes;
  }
  c10::DataPtr allocate(size_t bytes) override {
    if (size_t expected = bytes; bytes > 0 && bytes_.compare_exchange_strong(expected, 0)) hook_();
    return original_.allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return original_.raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  c10::Allocator& original_ = *c10::GetDefaultCPUAllocator();
  std::function<void()> hook_;
  std::atomic<size_t> bytes_ = 0;  // 0: none; set after hook_
};

// Each server has two variables. It copies the second one, which is not contiguous, whenever it packs or unpacks it: between
// the two, another worker pushes a gradient.
class ConcurrentWorkersTest : public AsyncServerTest {
 protected:
  ConcurrentWorkersTest() {
    num_elements_ = 2 * kRows * kColumns;
    num_variables_ = 2;
  }

  train::NamedTensors make_parameters() const override {
    return {{"first", at::full({kRows, kColumns}, 0.0).set_requires_grad(true)},
            {"second", at::full({kColumns, kRows}, 0.0).t().set_requires_grad(true)}};
  }
  void push_between_variables(WorkerConnection& worker, const WorkerConnection::Claimed& claimed) {
    constexpr size_t kBytes = kRows * kColumns * sizeof(float);
    allocator_.call_in_next(kBytes, [this, &worker, claimed] {
      pushed_ = std::async(std::launch::async, [this, &worker, claimed] { push(worker, claimed); });
      // It has to wait for the lock that is held here. Without that lock, it ends sooner.
      (void)pushed_.wait_for(300ms);
    });
  }
  // Each update changes all elements by the same amount. Whether they are equal, up to how vectors and single
  // elements are rounded.
  static bool is_of_one_update(const at::Tensor& values) {
    const double first = values[0].item<double>();
    return (values - first).abs().max().item<double>() < 1e-4;
  }

  static constexpr int64_t kRows = 7, kColumns = 13;
  HookedAllocator allocator_;
  std::future<void> pushed_;
};

TEST_F(ConcurrentWorkersTest, ReadNoVariablesInMiddleOfUpdate) {
  WorkerConnection& other = connect(1);
  WorkerConnection& chief = connect(0);
  const auto read = parameters_;
  ASSERT_TRUE(chief.initialize(0, {}, {}).ok());
  push_between_variables(other, pull(other));
  ASSERT_TRUE(chief.pull(0, {}).ok());
  for (const at::Tensor& each : read) EXPECT_TRUE(is_of_one_update(each));
  ASSERT_TRUE(pushed_.valid()) << "it was not between the variables";
  pushed_.get();
  ASSERT_TRUE(chief.pull(1, {}).ok());
  for (const at::Tensor& each : read) EXPECT_LT(each.max().item<double>(), 1);
}

TEST_F(ConcurrentWorkersTest, UpdateAllVariablesByOneGradient) {
  WorkerConnection& other = connect(1);
  WorkerConnection& chief = connect(0);
  const auto read = parameters_;
  ASSERT_TRUE(chief.initialize(0, {}, {}).ok());
  const auto claimed = pull(chief);
  push_between_variables(other, pull(other));
  push(chief, claimed);
  ASSERT_TRUE(pushed_.valid()) << "it was not between the variables";
  pushed_.get();
  ASSERT_TRUE(chief.pull(2, {}).ok());
  for (const at::Tensor& each : read) EXPECT_TRUE(is_of_one_update(each));
}

class FourWorkersTest : public AsyncServerTest {
 protected:
  FourWorkersTest() {
    num_workers_ = 4;
    max_steps_ = 80;
    num_elements_ = static_cast<int64_t>(max_steps_);
    optimizer_.method = config::SgdConfig{};
  }
};

// The gradient of each ticket is one in an element of its own.
TEST_F(FourWorkersTest, UpdateOnceByEachTicketOnEachServer) {
  std::vector<WorkerConnection*> workers;
  for (int i = static_cast<int>(num_workers_); i-- > 0;) workers.push_back(&connect(i));
  WorkerConnection& chief = *workers.back();
  const auto read = parameters_;
  ASSERT_TRUE(chief.initialize(0, {}, {}).ok());
  std::vector<std::jthread> threads;
  for (WorkerConnection* const worker : workers)
    threads.emplace_back([this, worker] {
      while (!HasFatalFailure()) {
        const auto claimed = worker->claim({});
        ASSERT_TRUE(claimed.ok()) << claimed.status().to_string();
        if (claimed->reply == ClaimReply::kEnded) return;
        if (claimed->reply == ClaimReply::kWait) continue;
        ASSERT_TRUE(worker->pull(claimed->step, {}).ok());
        at::Tensor gradient = at::full({num_elements_}, 0.0);
        gradient[static_cast<int64_t>(claimed->ticket)] = 1.0;
        push(*worker, *claimed, gradient);
      }
    });
  threads.clear();
  ASSERT_TRUE(chief.pull(max_steps_, {}).ok());
  // SGD with a rate of 0.1.
  for (const at::Tensor& each : read)
    EXPECT_TRUE(at::allclose(each, at::full({num_elements_}, 1 - 0.1))) << each;
}

TEST_F(AsyncServerTest, LetsWorkerThatLeavesCloseGap) {
  WorkerConnection& chief = connect(0);
  ASSERT_TRUE(chief.initialize(4, {}, {}).ok());
  WorkerConnection& other = connect(1);
  const auto first = pull(chief);
  EXPECT_EQ(first.prefetch, 5u);
  train(other);  // ticket 6
  push(chief, first);
  const auto gap = other.claim_gap({});
  ASSERT_TRUE(gap.ok()) << gap.status().to_string();
  EXPECT_EQ(gap->reply, ClaimReply::kGranted);
  EXPECT_EQ(gap->ticket, 5u);
  EXPECT_EQ(gap->step, 6u);
  ASSERT_TRUE(other.pull(gap->step, {}).ok());
  push(other, *gap);
  EXPECT_EQ(other.claim_gap({})->reply, ClaimReply::kWait);
  const auto begun = chief.begin_save({});
  EXPECT_TRUE(begun.ok() && *begun);
}

}  // namespace
}  // namespace stoker::parameter_server
