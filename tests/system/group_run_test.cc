// Runs that several stokerd processes train together: the same bytes as one process, one decision for
// all, and the end of all when one is lost.
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/group/authenticated_store.h"
#include "daemon/group/rendezvous.h"
#include "daemon/group/socket_address.h"
#include "daemon/group/tcp_store.h"
#include "shared/base/deadline.h"
#include "shared/base/descriptor_limit.h"
#include "shared/base/file.h"
#include "shared/checkpoint/store.h"
#include "tests/daemon/service/notify_listener.h"
#include "tests/support/idle_connections.h"
#include "tests/support/listening_sockets.h"
#include "tests/system/group_run_fixture.h"

namespace stoker::test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST_F(GroupRunTest, TrainsSameBytesWithAnyNumberOfProcesses) {
  configure(24);
  train_alone(run_dir(kAlone));
  for (const int world_size : {2, 4}) {
    const std::string run = run_dir("run-" + std::to_string(world_size));
    expect_success(start_group(world_size, run));
    expect_same_run(run, run_dir(kAlone));
    // Only the chief has what is the run's.
    EXPECT_TRUE(fs::exists(run + "/exit_status.json"));
    EXPECT_TRUE(fs::exists(run + "/ranks/1/logs/stokerd.log"));
    EXPECT_FALSE(fs::exists(run + "/ranks/1/exit_status.json"));
    EXPECT_FALSE(fs::exists(run + "/ranks/1/metrics"));
    EXPECT_FALSE(fs::exists(run + "/ranks/1/checkpoints"));
  }
}

// With dropout. At a random step a random rank is killed, and by the launcher then the others; the next start has another
// number of ranks.
TEST_F(GroupRunTest, TrainsSameBytesWhenKilledAtRandomWithOtherNumberOfProcessesEachTime) {
  std::mt19937 random(18);
  micro_batches_ = 8;
  save_every_ = 2;
  configure_endless();
  const std::string run = run_dir();
  std::vector<uint64_t> shown{1};
  for (const int world_size : {8, 2, 1, 4}) {
    SCOPED_TRACE(world_size);
    const uint64_t resumed = newest_step(run);
    const uint64_t steps = 2 + random() % 6;
    auto ranks = start_group(world_size, run);
    ASSERT_TRUE(wait_until(kPatience, [&] {
      return newest_step(run) > resumed && newest_record_step(run) >= resumed + steps;
    }));
    std::swap(ranks.front(), ranks[random() % ranks.size()]);
    for (const auto& rank : ranks) rank->signal(SIGKILL);
    for (const auto& rank : ranks) ASSERT_TRUE(rank->wait(kPatience));
    shown.push_back(newest_step(run) + 1);  // is trained again
    shown.push_back(newest_record_step(run));
  }
  end_at(newest_step(run) + 8);
  shown.push_back(newest_step(run) + 8);
  expect_success(start_group(2, run));
  train_alone(run_dir(kAlone));
  expect_same_run(run, run_dir(kAlone));
  for (const uint64_t step : shown)
    EXPECT_EQ(batch_of(run, step), batch_of(run_dir(kAlone), step)) << step;
}

// Opened by an ordinary user of the host, before rank 1 starts and while the ranks train.
TEST_F(GroupRunTest, TrainsSameBytesDuringThousandConnectionsToEachPort) {
  raise_descriptor_limit();
  configure_endless();
  const std::string run = run_dir();
  std::vector<std::unique_ptr<Process>> ranks;
  ranks.push_back(std::make_unique<Process>(start_rank(0, 2, run)));
  ASSERT_TRUE(wait_until(kPatience, [&] { return !listening_sockets(ranks[0]->pid()).empty(); }));
  IdleConnections idle;
  idle.open(port_.number(), 1'000);
  ranks.push_back(std::make_unique<Process>(start_rank(1, 2, run)));
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_record_step(run) > 0; }));
  size_t num_ports = 0;
  for (const auto& rank : ranks)
    for (const ListeningSocket& socket : listening_sockets(rank->pid())) {
      ++num_ports;
      idle.open(socket.port, 1'000);
    }
  EXPECT_EQ(num_ports, 3u);
  const uint64_t before = newest_record_step(run);
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_record_step(run) > before + 3; }));
  ranks[0]->signal(SIGTERM);
  expect_success(ranks);
  EXPECT_EQ(fs::status(run + "/group_secret").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
  end_at(newest_step(run));
  train_alone(run_dir(kAlone));
  expect_same_run(run, run_dir(kAlone));
}

// So that a process can open `free` more descriptors.
rlim_t limit_with_free(pid_t pid, int free) {
  std::set<rlim_t> used;
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd"))
    used.insert(std::stoul(entry.path().filename()));
  rlim_t limit = 0;
  for (int found = 0; found <= free; ++limit)
    if (!used.contains(limit)) ++found;
  return limit - 1;
}

// A thread of Gloo then ends by an exception. This test is rank 1, which joins and does not connect, so that rank 0 still
// accepts connections.
TEST_F(GroupRunTest, EndsWithReasonWhenDescriptorsRunOut) {
  ::signal(SIGPIPE, SIG_IGN);
  configure(24);
  const std::string run = run_dir();
  Process chief = start_rank(0, 2, run);
  const auto ports = [&] { return listening_sockets(chief.pid()); };
  ASSERT_TRUE(wait_until(kPatience, [&] { return !ports().empty(); }));
  const auto secret = group::read_or_create_secret(run + "/group_secret");
  ASSERT_TRUE(secret.ok()) << secret.status().message();
  const auto store =
      group::TcpStore::connect("127.0.0.1", static_cast<uint16_t>(port_.number()),
                               {.prefix = "stoker", .server = "rank 0", .secret = *secret});
  ASSERT_TRUE(store.ok()) << store.status().message();
  const auto joined = group::join_group(
      **store, {.launcher = group::Launcher::kTorchrun, .rank = 1, .world_size = 2},
      fs::absolute(run).lexically_normal(), {.host = "node-1", .pid = 7}, {}, {}, kNoDeadline, {});
  ASSERT_TRUE(joined.ok()) << joined.status().message();
  ASSERT_TRUE(wait_until(kPatience, [&] { return ports().size() == 2; }));
  const rlim_t limit = limit_with_free(chief.pid(), 3);
  const rlimit limits{.rlim_cur = limit, .rlim_max = limit};
  ASSERT_EQ(::prlimit(chief.pid(), RLIMIT_NOFILE, &limits, nullptr), 0);
  IdleConnections idle;
  for (const ListeningSocket& socket : ports())
    if (socket.port != port_.number()) idle.open(socket.port, 10);
  EXPECT_EQ(code_of(chief), 73);
  const std::string status = text_of(run + "/exit_status.json");
  EXPECT_THAT(status, HasSubstr("\"exit_code\":73"));
  EXPECT_THAT(status, ContainsRegex("a thread of a library ended by an exception: .*Too many open "
                                    "files; raise the limit"));
  EXPECT_THAT(output_of(0), ContainsRegex("daemon failed .*Too many open files"));
}

// Each thread updates a part of a large parameter, which begins elsewhere in a shard than in the complete
// parameter; sizes are odd, so that no border is one of vectors.
TEST_F(GroupRunTest, TrainsSameBytesWithShardedOptimizerAndSeveralThreads) {
  configure(6);
  const std::vector<std::string> large{"--set", "train.num_threads=2", "--set",
                                       "model.hidden_sizes=[611, 307]"};
  train_alone(run_dir(kAlone), large);
  expect_success(start_group(2, run_dir(), joined(kSharded, large)));
  expect_same_state(run_dir(), run_dir(kAlone));
}

TEST_F(GroupRunTest, ContinuesShardedRunWithOtherNumberOfProcesses) {
  configure_endless();
  socket_ = "auto";
  const std::string run = run_dir("changing");
  for (const int world_size : {1, 2, 4, 2, 1}) {
    const uint64_t before = newest_record_step(run);
    auto ranks = start_group(world_size, run, kSharded);
    ASSERT_TRUE(wait_until(kPatience, [&] { return newest_record_step(run) > before + 3; }));
    if (world_size == 2) {
      Process status = ctl(run, {"status"}, "status");
      EXPECT_EQ(code_of(status), 0);
      EXPECT_THAT(log_of("status"), ContainsRegex("; optimizer state [^\n]* per rank"));
    }
    ranks.back()->signal(SIGTERM);
    expect_success(ranks);
    EXPECT_EQ(newest_step(run), newest_record_step(run));
  }
  end_at(newest_step(run) + 4);
  expect_success(start_group(4, run, kSharded));
  train_alone(run_dir(kAlone));
  expect_same_state(run, run_dir(kAlone));
}

// Rank 1 is killed while the chief waits for its part of a checkpoint.
TEST_F(GroupRunTest, LeavesNoCheckpointOfRankKilledWhileWritingItsPart) {
  configure_endless();
  const std::string run = run_dir();
  const auto options = joined(kSharded, {"--set", "checkpoint.save_every_steps=1"});
  auto ranks = start_group(2, run, options);
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_step(run) > 0; }));
  // Stopped at any time; in some of them the files of the chief are written and that of rank 1 not.
  const auto is_waiting = [&] {
    const auto names = unfinished(run);
    return names.size() == 1 &&
           fs::exists(run + "/checkpoints/" + names[0] + "/trainer_state.safetensors") &&
           !fs::exists(run + "/checkpoints/" + names[0] + "/optimizer-00002-of-00002.safetensors");
  };
  ASSERT_TRUE(wait_until(kPatience, [&] {
    ranks[1]->signal(SIGSTOP);
    EXPECT_TRUE(wait_until(kPatience, [&] { return is_stopped(ranks[1]->pid()); }));
    if (wait_until(500ms, is_waiting)) return true;
    ranks[1]->signal(SIGCONT);
    return false;
  }));
  const uint64_t saved = newest_step(run);
  ASSERT_TRUE(ranks[1]->kill());
  EXPECT_EQ(code_of(*ranks[0]), 73);
  EXPECT_EQ(unfinished(run), std::vector<std::string>());
  EXPECT_EQ(newest_step(run), saved);
  expect_valid_checkpoints(run);

  end_at(saved + 4);
  expect_success(start_group(2, run, kSharded));
  train_alone(run_dir(kAlone));
  expect_same_state(run, run_dir(kAlone));
}

// The chief is killed then. The next start removes what it has left.
TEST_F(GroupRunTest, RemovesUnfinishedShardsOfKilledChief) {
  configure_endless();
  const std::string run = run_dir();
  auto ranks = start_group(2, run, joined(kSharded, {"--set", "checkpoint.save_every_steps=1"}));
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_step(run) > 0; }));
  stop_in_commit(*ranks[0], run);
  ASSERT_TRUE(ranks[0]->kill());
  EXPECT_EQ(code_of(*ranks[1]), 73);
  EXPECT_EQ(unfinished(run).size(), 1u);
  end_at(newest_step(run) + 4);
  expect_success(start_group(2, run, kSharded));
  EXPECT_EQ(unfinished(run), std::vector<std::string>());
  train_alone(run_dir(kAlone));
  expect_same_state(run, run_dir(kAlone));
}

// It hangs then, with its store. When it continues, it has lost the other rank.
TEST_F(GroupRunTest, NamesChiefStoppedInCommitThatEndsWhenItContinues) {
  configure_endless();
  const std::string run = run_dir();
  auto ranks = start_group(
      2, run,
      joined(kSharded, {"--set", "checkpoint.save_every_steps=1", "--set",
                        "distributed.timeout_seconds=" + std::to_string(scaled_seconds(5))}));
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_step(run) > 0; }));
  stop_in_commit(*ranks[0], run);
  EXPECT_EQ(code_of(*ranks[1]), 73);
  EXPECT_THAT(output_of(1), HasSubstr("served by rank 0, does not respond"));
  ranks[0]->signal(SIGCONT);
  EXPECT_EQ(code_of(*ranks[0]), 73);
  expect_valid_checkpoints(run);
  end_at(newest_step(run) + 4);
  expect_success(start_group(2, run, kSharded));
  EXPECT_EQ(unfinished(run), std::vector<std::string>());
  train_alone(run_dir(kAlone));
  expect_same_state(run, run_dir(kAlone));
}

// Rank 1 is killed when it has reported its part, before the chief commits. All parts are complete, so the chief does so,
// although it has lost the rank. The store is not stopped with the chief, as that of torchrun's agent.
TEST_F(GroupRunTest, CommitsCheckpointOfRankKilledAfterItsReport) {
  configure_endless();
  const std::string run = run_dir();
  ::signal(SIGPIPE, SIG_IGN);  // of the store
  auto listening = group::listen_on("127.0.0.1", 0);
  ASSERT_TRUE(listening.ok()) << listening.status().message();
  const std::vector<std::string> agent{"TORCHELASTIC_USE_AGENT_STORE=True",
                                       "MASTER_PORT=" + std::to_string(listening->port)};
  const auto store =
      group::TcpStore::serve(*std::move(listening), {.prefix = "stoker", .server = "the test"});
  ASSERT_TRUE(store.ok()) << store.status().message();
  std::vector<Process> ranks;
  for (const int rank : {0, 1})
    ranks.push_back(start_rank(
        rank, 2, run,
        // Gloo alone does not always notice a connection that was closed while the process was stopped.
        joined(kSharded, {"--set", "checkpoint.save_every_steps=1", "--set",
                          "distributed.timeout_seconds=3600"}),
        agent));
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_step(run) > 0; }));
  // In the first group of the store.
  const auto has_told = [&](int rank, const std::string& event, const std::string& directory) {
    const auto told = (*store)->get("1/named/checkpoint/" + std::to_string(rank));
    if (!told.ok() || !told->has_value()) return false;
    const json::object fields = json::parse(**told).as_object();
    const auto text = [&](const char* name) {
      return json::value_to<std::string>(fields.at(name));
    };
    return text("event") == event && text("directory") == directory;
  };
  // Stopped when it has told rank 1 the directory, and has not committed.
  std::string directory;
  ASSERT_TRUE(wait_until(kPatience, [&] {
    directory = stop_in_commit(ranks[0], run);
    if (has_told(0, "begun", directory)) return true;
    ranks[0].signal(SIGCONT);
    return false;
  }));
  ASSERT_TRUE(wait_until(kPatience, [&] { return has_told(1, "written", directory); }));
  const uint64_t before = newest_step(run);
  ASSERT_TRUE(ranks[1].kill());
  ranks[0].signal(SIGCONT);
  EXPECT_EQ(code_of(ranks[0]), 73);
  EXPECT_EQ(unfinished(run), std::vector<std::string>());
  const uint64_t committed = newest_step(run);
  EXPECT_GT(committed, before);
  EXPECT_THAT(directory, HasSubstr(checkpoint::CheckpointStore::checkpoint_name(committed) + "-"));
  expect_valid_checkpoints(run);

  end_at(committed + 4);
  expect_success(start_group(2, run, kSharded));
  EXPECT_THAT(output_of(0), HasSubstr("start_step=" + std::to_string(committed)));
  train_alone(run_dir(kAlone));
  expect_same_state(run, run_dir(kAlone));
}

TEST_F(GroupRunTest, ReportsTruncatedShardAndResumesFromCheckpointBefore) {
  configure(24);
  const std::string run = run_dir();
  expect_success(start_group(2, run, kSharded));
  const auto file = [&] {
    return run + "/checkpoints/" + checkpoint::CheckpointStore::checkpoint_name(24) +
           "/optimizer-00002-of-00002.safetensors";
  };
  fs::resize_file(file(), fs::file_size(file()) - 1);
  Process verify = ctl(run, {"verify", "24"}, "verify");
  EXPECT_EQ(code_of(verify), 65);
  EXPECT_THAT(log_of("verify"), HasSubstr("optimizer-00002-of-00002.safetensors: has "));
  expect_success(start_group(2, run, kSharded));
  EXPECT_THAT(output_of(0), HasSubstr("optimizer-00002-of-00002.safetensors: has "));
  train_alone(run_dir(kAlone));
  expect_same_state(run, run_dir(kAlone));
}

TEST_F(GroupRunTest, EndsAllRanksAndNamesKilledOne) {
  configure(100'000);
  const std::string run = run_dir();
  auto ranks = start_group(3, run, {"--set", "train.gradient_accumulation_steps=6"});
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_record_step(run) > 8; }));
  ASSERT_TRUE(ranks[1]->kill());
  for (const int survivor : {0, 2}) {
    EXPECT_EQ(code_of(*ranks[static_cast<size_t>(survivor)]), 73);
    EXPECT_THAT(output_of(survivor),
                ContainsRegex("rank 1 \\([^ ]+, pid " + std::to_string(ranks[1]->pid()) +
                              "\\) exited, hangs or cannot be reached"));
  }
  EXPECT_THAT(text_of(run + "/exit_status.json"), HasSubstr("\"exit_code\":73"));
  EXPECT_EQ(newest_step(run) % 8, 0u) << "a step that was not complete has been saved";
  for (const std::string& directory : {run, run + "/ranks/2"}) {
    const json::object last = last_collective(directory);
    EXPECT_EQ(last.at("operation"), "all_reduce_ordered");
    EXPECT_EQ(last.at("state"), "started");
    EXPECT_GT(last.at("step").to_number<int64_t>(), 8);
    EXPECT_THAT(text_of(flight_record(directory)), HasSubstr("\"reason\":\"rank 1 ("));
  }
}

TEST_F(GroupRunTest, NamesStoppedRankAndEndsOneThatHangs) {
  configure(100'000);
  const std::string run = run_dir();
  const std::vector<std::string> more{
      "--set", "distributed.timeout_seconds=" + std::to_string(scaled_seconds(5))};
  auto ranks = start_group(2, run, more);
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_record_step(run) > 8; }));
  // Without its data, rank 1 waits outside of a collective.
  for (const pid_t worker : children_of(ranks[1]->pid(), "stoker-feed")) ::kill(worker, SIGSTOP);
  EXPECT_EQ(code_of(*ranks[0]), 73);
  EXPECT_EQ(code_of(*ranks[1]), 73);
  const std::string named =
      "rank 1 \\([^ ]+, pid " + std::to_string(ranks[1]->pid()) + "\\) exited, hangs";
  EXPECT_THAT(output_of(0), ContainsRegex(named));
  EXPECT_THAT(output_of(1),
              ContainsRegex("group hang detected step=[0-9]+ seconds=[0-9]+ activity=\"wait for "
                            "batch\""));
  // The chief waits in a collective that rank 1 has not begun.
  const json::object chief = last_collective(run);
  const json::object hanging = last_collective(run + "/ranks/1");
  EXPECT_EQ(chief.at("state"), "started");
  EXPECT_EQ(hanging.at("state"), "completed");
  EXPECT_EQ(chief.at("sequence").to_number<int64_t>(),
            hanging.at("sequence").to_number<int64_t>() + 1);
}

TEST_F(GroupRunTest, NoticesRankThatIsKilledBeforeTraining) {
  configure(100'000);
  auto ranks = start_group(2, run_dir());
  ASSERT_TRUE(wait_until(kPatience,
                         [&] { return output_of(1).find("group opened") != std::string::npos; }));
  ASSERT_TRUE(ranks[1]->kill());
  // Long before distributed.start_timeout_seconds.
  EXPECT_EQ(code_of(*ranks[0]), 73);
  EXPECT_THAT(output_of(0), ContainsRegex("rank 1 \\([^ ]+, pid [0-9]+\\) exited"));
}

// Kubernetes sends SIGTERM to one pod; the exit code must not complete the Job.
TEST_F(GroupRunTest, IsPreemptedBySigtermAndResumes) {
  configure_endless();
  const std::string run = run_dir();
  auto ranks = start_group(2, run, {}, kKubernetes);
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_record_step(run) > 3; }));
  // A launcher can repeat it. The step ends when rank 0 continues.
  ranks[0]->signal(SIGSTOP);
  ASSERT_TRUE(wait_until(kPatience, [&] { return is_stopped(ranks[0]->pid()); }));
  ranks[1]->signal(SIGTERM);
  EXPECT_TRUE(wait_until(
      kPatience, [&] { return output_of(1).find("shutdown requested") != std::string::npos; }));
  ranks[1]->signal(SIGTERM);
  ranks[0]->signal(SIGCONT);
  // The first exit can be the end of all.
  EXPECT_EQ(code_of(*ranks[1]), 143);
  const uint64_t step = newest_step(run);
  EXPECT_EQ(step, newest_record_step(run));
  EXPECT_EQ(code_of(*ranks[0]), 143);
  EXPECT_THAT(text_of(run + "/exit_status.json"), HasSubstr(R"("state":"preempted")"));
  Process status = ctl(run, {"status"}, "status");
  EXPECT_EQ(code_of(status), 69);
  EXPECT_THAT(log_of("status"), HasSubstr("preempted at step " + std::to_string(step)));
  Process follower({program("stoker-eval"), "--run-dir", run, "--follow"}, path("follower.out"));
  EXPECT_TRUE(wait_until(kPatience, [&] {
    return text_of(path("follower.out")).find("which was preempted at step") != std::string::npos;
  }));
  EXPECT_FALSE(follower.wait(0ms)) << "the run has not ended";

  end_at(step + 4);
  expect_success(start_group(2, run));
  EXPECT_EQ(code_of(follower), 0) << text_of(path("follower.out"));
  train_alone(run_dir(kAlone));
  expect_same_run(run, run_dir(kAlone));
}

// The Job is complete then.
TEST_F(GroupRunTest, ExitsWithZeroUnderKubernetesWhenStoppedOrFinished) {
  configure(8);
  const std::string finished = run_dir("finished");
  expect_success(start_group(2, finished, {}, kKubernetes));
  EXPECT_THAT(text_of(finished + "/exit_status.json"), HasSubstr(R"("state":"finished")"));
  configure_endless();
  socket_ = "auto";
  const std::string stopped = run_dir("stopped");
  auto ranks = start_group(2, stopped, {}, kKubernetes);
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_record_step(stopped) > 0; }));
  Process stop = ctl(stopped, {"stop"}, "stop");
  EXPECT_EQ(code_of(stop), 0) << log_of("stop");
  expect_success(ranks);
  EXPECT_THAT(text_of(stopped + "/exit_status.json"), HasSubstr(R"("state":"stopped")"));
}

// The evaluator, for which a preempted run has not ended, requests its end meanwhile.
TEST_F(GroupRunTest, IsNotContinuedIfStoppedEarlyWhilePreempted) {
  configure_endless();
  const std::string run = run_dir();
  const std::vector<std::string> rule{"--set", "eval.early_stopping.stopping_threshold=1000"};
  auto ranks = start_group(2, run, rule);
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_record_step(run) > 3; }));
  ranks[1]->signal(SIGTERM);
  expect_success(ranks);
  const uint64_t step = newest_step(run);
  EXPECT_THAT(text_of(run + "/exit_status.json"), HasSubstr(R"("state":"preempted")"));
  Process follower({program("stoker-eval"), "--run-dir", run, "--follow"}, path("follower.out"));
  ASSERT_TRUE(wait_until(kPatience, [&] { return fs::exists(run + "/eval/early_stop.json"); }));
  EXPECT_FALSE(follower.wait(0ms)) << "the run has not ended";

  // It is written after rank 1 has started, and before rank 0.
  fs::rename(run + "/eval/early_stop.json", path("early_stop.json"));
  ranks[1] = std::make_unique<Process>(start_rank(1, 2, run, rule));
  ASSERT_TRUE(wait_until(kPatience, [&] { return count_in_log(1, "group starting") == 2; }));
  fs::rename(path("early_stop.json"), run + "/eval/early_stop.json");
  ranks[0] = std::make_unique<Process>(start_rank(0, 2, run, rule));
  expect_success(ranks);
  EXPECT_EQ(count_in_log(1, "run already finished"), 1);
  EXPECT_EQ(newest_step(run), step);
  EXPECT_THAT(text_of(run + "/exit_status.json"),
              ContainsRegex(R"("state":"finished".*"reason":"stopped early: )"));
  EXPECT_EQ(code_of(follower), 0) << text_of(path("follower.out"));
}

// A step cannot end while rank 1 is stopped.
TEST_F(GroupRunTest, ExitsAtStopDeadlineWithoutLastCheckpoint) {
  configure(100'000);
  const std::string run = run_dir();
  auto ranks = start_group(2, run, {"--set", "distributed.stop_deadline_seconds=1"});
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_step(run) >= 8; }));
  ranks[1]->signal(SIGSTOP);
  ASSERT_TRUE(wait_until(kPatience, [&] { return is_stopped(ranks[1]->pid()); }));
  ranks[0]->signal(SIGTERM);
  EXPECT_EQ(code_of(*ranks[0]), 0);
  EXPECT_THAT(output_of(0), HasSubstr("stop deadline exceeded step="));
  EXPECT_THAT(text_of(run + "/exit_status.json"), HasSubstr(R"("state":"preempted","step":)"));
  EXPECT_EQ(newest_step(run) % 8, 0u) << "a step that was not complete has been saved";
}

TEST_F(GroupRunTest, TrainsWithAllReduce) {
  configure(24);
  const std::string run = run_dir();
  expect_success(start_group(
      2, run,
      {"--set", "distributed.reduction=allreduce", "--set", "distributed.bucket_mib=0.001"}));
  EXPECT_EQ(newest_step(run), 24u);
  EXPECT_THAT(output_of(0), HasSubstr("reason=\"distributed.reduction is allreduce\""));
  // The same again has the same bytes.
  const std::string again = run_dir("again");
  expect_success(start_group(
      2, again,
      {"--set", "distributed.reduction=allreduce", "--set", "distributed.bucket_mib=0.001"}));
  expect_same_run(again, run);
}

// Of two ranks both sums are the same bytes, and so is all that does not depend on the norm.
TEST_F(GroupRunTest, TrainsShardsWithReduceScatter) {
  configure(24);
  const std::vector<std::string> settings{"--set", "distributed.reduction=allreduce",
                                          "--set", "distributed.bucket_mib=0.001",
                                          "--set", "train.max_grad_norm=null"};
  const std::string complete = run_dir("complete");
  expect_success(start_group(2, complete, settings));
  const std::string sharded = run_dir("sharded");
  expect_success(start_group(2, sharded, joined(settings, kSharded)));
  expect_same_checkpoint(sharded, complete, {"model.safetensors", "trainer_state.safetensors"});
  EXPECT_TRUE(export_of(sharded, "optimizer") == export_of(complete, "optimizer"));
}

// Of a language model whose only trained parameters are an adapter, and of one with frozen layers that join the training
// later.
TEST_F(GroupRunTest, TrainsSameBytesWithParametersThatAreNotTrained) {
  write_config(text_config("distributed: {reduction: ordered}\n"), "group.yaml");
  max_steps_ = "12";
  train_alone(run_dir("base"));
  const std::vector<std::string> adapter{
      "--set", "model.pretrained.path=" + newest_checkpoint(run_dir("base")), "--set",
      "model.lora={r: 2, lora_alpha: 4, lora_dropout: 0.1, target_modules: all-linear}"};
  const std::vector<std::string> frozen{"--set", "model.freeze=[blocks.*]", "--set",
                                        "model.unfreeze_at_step=5"};
  for (const auto& [name, settings] :
       {std::pair("adapter", adapter), std::pair("frozen", frozen)}) {
    SCOPED_TRACE(name);
    const std::string alone = run_dir(std::string("alone-") + name);
    train_alone(alone, settings);
    const std::string run = run_dir(name);
    expect_success(start_group(2, run, settings));
    expect_same_run(run, alone);
    const std::string sharded = run_dir(std::string("sharded-") + name);
    expect_success(start_group(2, sharded, joined(kSharded, settings)));
    expect_same_state(sharded, alone);
  }
}

// Of all processes: those that read data are children of the ranks.
TEST_F(GroupRunTest, ListensOnLoopbackInterfaceOnly) {
  configure_endless();
  socket_ = "auto";
  auto ranks = start_group(2, run_dir());
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_record_step(run_dir()) > 0; }));
  for (const auto& rank : ranks) {
    const std::vector<ListeningSocket> sockets = listening_sockets(rank->pid());
    EXPECT_FALSE(sockets.empty());
    for (const ListeningSocket& socket : sockets)
      EXPECT_EQ(socket.address, "127.0.0.1") << "port " << socket.port;
  }
  ranks[1]->signal(SIGTERM);
  expect_success(ranks);
}

TEST_F(GroupRunTest, NotifiesSystemdOfChiefOnly) {
  configure(8);
  const auto kPath = service::NotifyListener::Kind::kPath;
  service::NotifyListener of_chief(kPath), of_other(kPath);
  auto chief = start_rank(0, 2, run_dir(), {}, {"NOTIFY_SOCKET=" + of_chief.name()});
  auto other = start_rank(1, 2, run_dir(), {}, {"NOTIFY_SOCKET=" + of_other.name()});
  std::string heard;
  EXPECT_TRUE(wait_until(kPatience, [&] {
    for (const std::string& message : of_chief.take()) heard += message + "\n";
    return heard.find("READY=1") != std::string::npos;
  })) << heard;
  EXPECT_EQ(code_of(chief), 0);
  EXPECT_EQ(code_of(other), 0);
  EXPECT_THAT(of_other.take(), testing::IsEmpty());
}

// The chief writes them as one process does.
TEST_F(GroupRunTest, WritesTensorBoardEventsOnChiefOnly) {
  configure(8);
  const std::vector<std::string> events{"--set", "metrics.tensorboard=true"};
  train_alone(run_dir(kAlone), events);
  expect_success(start_group(2, run_dir(), events));
  const auto tags_of = [](const std::string& run) {
    std::set<std::string> tags;
    for (const auto& entry : fs::recursive_directory_iterator(run))
      if (entry.path().filename().string().find("tfevents") != std::string::npos) {
        const std::string text = text_of(entry.path());
        for (const char* const tag : {"train/loss", "train/lr", "train/grad_norm"})
          if (text.find(tag) != std::string::npos) tags.insert(tag);
        tags.insert(fs::relative(entry.path().parent_path(), run));
      }
    return tags;
  };
  EXPECT_GT(tags_of(run_dir()).size(), 1u);
  EXPECT_EQ(tags_of(run_dir()), tags_of(run_dir(kAlone)));
}

TEST_F(GroupRunTest, ReportsRankWithoutGpuOnAllRanks) {
  if (fs::exists("/dev/nvidiactl")) GTEST_SKIP() << "there is a GPU";
  configure(24);
  auto ranks = start_group(2, run_dir(), {"--set", "train.device=cuda"});
  for (auto& rank : ranks) EXPECT_EQ(code_of(*rank), 78);
  for (const int rank : {0, 1})
    EXPECT_THAT(output_of(rank),
                ContainsRegex("train.device: cuda: rank 0 \\([^ ]+, pid [0-9]+\\): no CUDA .*; "
                              "set it to auto"));
}

TEST_F(GroupRunTest, NamesRanksOfOneGpu) {
  if (!fs::exists("/dev/nvidia0")) GTEST_SKIP() << "there is no GPU";
  configure(24);
  std::vector<Process> ranks;
  for (const int rank : {0, 1})
    ranks.push_back(
        start_rank(rank, 2, run_dir(), {"--set", "train.device=cuda"}, {"CUDA_VISIBLE_DEVICES=0"}));
  for (Process& rank : ranks) EXPECT_EQ(code_of(rank), 78);
  for (const int rank : {0, 1})
    EXPECT_THAT(output_of(rank),
                ContainsRegex("rank 0 \\(.*\\) and rank 1 \\(.*\\) have the same GPU"));
}

TEST_F(GroupRunTest, TrainsOnTwoGpusAsOnOne) {
  if (!fs::exists("/dev/nvidia1")) GTEST_SKIP() << "there are not two GPUs";
  configure(24);
  const std::vector<std::string> settings{"--set", "train.device=cuda", "--set",
                                          "run.deterministic=true"};
  const std::string alone = run_dir(kAlone);
  train_alone(alone, settings);
  const std::string run = run_dir();
  expect_success(start_group(2, run, settings));
  expect_same_run(run, alone);
  const std::string sharded = run_dir("sharded");
  expect_success(start_group(2, sharded, joined(settings, kSharded)));
  expect_same_state(sharded, alone);
  for (const auto& more : {settings, joined(settings, kSharded)})
    expect_success(
        start_group(2, run_dir("allreduce"),
                    joined(more, {"--fresh", "--set", "distributed.reduction=allreduce"})));
}

TEST_F(GroupRunTest, AppliesCommandsOnAllRanks) {
  configure(100'000);
  socket_ = "auto";
  const std::string run = run_dir();
  auto ranks = start_group(2, run);
  const auto control = [&](const std::vector<std::string>& command) {
    Process client = ctl(run, command, command.front());
    EXPECT_EQ(code_of(client), 0) << log_of(command.front());
  };
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_record_step(run) > 0; }));
  Process pause = ctl(run, {"--json", "pause"}, "pause");
  ASSERT_EQ(code_of(pause), 0) << log_of("pause");
  for (const int rank : {0, 1}) expect_logged("rank-" + std::to_string(rank), "training paused");
  const auto paused_at = json::parse(log_of("pause")).at("step").to_number<uint64_t>();
  EXPECT_TRUE(wait_until(kPatience, [&] { return newest_record_step(run) == paused_at; }));
  control({"set", "optimizer.lr", "0.001"});
  EXPECT_EQ(newest_record_step(run), paused_at);
  control({"status"});
  EXPECT_THAT(log_of("status"), ContainsRegex("group       2 ranks; slowest: rank [01], "));
  control({"logs", "--rank", "1", "-n", "1000"});
  EXPECT_THAT(log_of("logs"), HasSubstr("training paused"));
  control({"logs", "--all", "-n", "1000"});
  EXPECT_THAT(log_of("logs"), ContainsRegex("rank 0  [^\n]*training paused"));
  EXPECT_THAT(log_of("logs"), ContainsRegex("rank 1  [^\n]*training paused"));
  control({"resume"});
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_record_step(run) > paused_at; }));
  control({"stop"});
  expect_success(ranks);
  const auto line_of = [&](int rank, const std::string& event) {
    const std::string log = output_of(rank);
    const size_t at = log.find(event);
    return at == std::string::npos ? "" : log.substr(at, log.find('\n', at) - at);
  };
  for (const char* const event : {"training paused step=", "live setting changed step="}) {
    EXPECT_NE(line_of(0, event), "");
    EXPECT_EQ(line_of(0, event), line_of(1, event));
  }
}

TEST_F(GroupRunTest, NamesRankAndSettingThatDiffers) {
  configure(24);
  auto chief = start_rank(0, 2, run_dir());
  auto other = start_rank(1, 2, run_dir(), {"--set", "optimizer.lr=0.004"});
  EXPECT_EQ(code_of(chief), 78);
  EXPECT_EQ(code_of(other), 78);
  for (const int rank : {0, 1})
    EXPECT_THAT(output_of(rank),
                ContainsRegex("rank 1 \\([^ ]+, pid " + std::to_string(other.pid()) +
                              "\\): optimizer.lr is 0.004, but 0.003 on rank 0; start all ranks"));
}

TEST_F(GroupRunTest, NamesRankThatIsMissingAtStart) {
  configure(24);
  auto chief = start_rank(0, 2, run_dir());
  expect_logged("rank-0", "group start delayed missing=\"rank 1\"");
  chief.signal(SIGTERM);
  EXPECT_EQ(code_of(chief), 0);
}

// At the same path, as on two hosts without a common file system.
TEST_F(GroupRunTest, NamesRankThatSeesAnotherRunDirectory) {
  Process namespaces({"/usr/bin/env", "unshare", "--mount", "true"}, path("unshare.out"));
  if (code_of(namespaces) != 0) GTEST_SKIP() << "mount namespaces are not permitted here";
  configure(24);
  const std::string run = run_dir(), other = path("other");
  fs::create_directories(run);
  ASSERT_TRUE(group::read_or_create_secret(run + "/group_secret").ok());
  fs::copy(run, other, fs::copy_options::recursive);
  const std::vector<std::string> timeout{"--set", "distributed.start_timeout_seconds=20"};
  auto chief = start_rank(0, 2, run, timeout);
  Process rank(joined({"/usr/bin/env", "MASTER_ADDR=127.0.0.1",
                       "MASTER_PORT=" + std::to_string(port_.number()), "RANK=1", "WORLD_SIZE=2",
                       "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "unshare", "--mount", "sh", "-c",
                       "mount --bind '" + other + "' '" + run + "' && exec \"$@\"", "sh",
                       program("stokerd")},
                      arguments(run, timeout)),
               log_path(1));
  EXPECT_EQ(code_of(rank), 78);
  EXPECT_EQ(code_of(chief), 78);
  for (const int each : {0, 1})
    EXPECT_THAT(output_of(each), HasSubstr("all ranks must see the same file system at the run "
                                           "directory"));
  for (const auto& entry : fs::directory_iterator(run))
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("group_start")));
}

TEST_F(GroupRunTest, RejectsWhatDoesNotWorkInGroup) {
  configure(24);
  auto ranks = start_group(
      2, run_dir(),
      {"--set", "distributed.reduction=null", "--set", "train.gradient_accumulation_steps=3"});
  for (auto& rank : ranks) EXPECT_EQ(code_of(*rank), 78);
  for (const int rank : {0, 1})
    EXPECT_THAT(
        output_of(rank),
        HasSubstr(
            "distributed.reduction: must be ordered or allreduce in a group of 2 ranks (the "
            "ranks must add gradients in the same way); train.gradient_accumulation_steps: 2 ranks "
            "cannot share 3 micro-batches "
            "per step; set it to a multiple of 2, with a smaller "
            "train.micro_batch_size for the same samples per step; run.rng: must be "
            "per_ticket in a group of 2 ranks (a micro-batch must not depend on which process "
            "computes it)"));
}

TEST_F(GroupRunTest, RejectsPartOfEnvironmentAsUsageError) {
  configure(24);
  Process process(
      joined({"/usr/bin/env", "RANK=0", "WORLD_SIZE=2", program("stokerd")}, arguments(run_dir())),
      log_path(0));
  EXPECT_EQ(code_of(process), 64);
  EXPECT_THAT(output_of(0), HasSubstr("is incomplete"));
}

TEST_F(GroupRunTest, TellsOtherRanksThatRunDirectoryIsLocked) {
  configure_endless();
  Process holder(joined({program("stokerd")}, arguments(run_dir())), path("holder.out"));
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_record_step(run_dir()) > 0; }));
  auto ranks = start_group(2, run_dir());
  EXPECT_EQ(code_of(*ranks[0]), 75);
  EXPECT_EQ(code_of(*ranks[1]), 73);
  EXPECT_THAT(output_of(1), ContainsRegex("rank 0 \\([^ ]+, pid [0-9]+\\) failed: .*another "
                                          "stokerd uses this directory"));
}

TEST_F(GroupRunTest, TrainsAloneInWorldOfOneRank) {
  configure(24);
  train_alone(run_dir(kAlone));
  expect_success(start_group(1, run_dir("one")));
  expect_same_run(run_dir("one"), run_dir(kAlone));
  EXPECT_FALSE(fs::exists(run_dir("one") + "/ranks"));
  EXPECT_THAT(output_of(0), Not(HasSubstr("group starting")));
}

// Under torchrun of PyTorch, whose agent serves the store and starts all ranks again.
class GroupTorchrunTest : public GroupRunTest {
 protected:
  void SetUp() override {
    GroupRunTest::SetUp();
    const char* const python = std::getenv("STOKER_PYTHON");
    if (python == nullptr || *python == '\0') GTEST_SKIP() << "STOKER_PYTHON is not set";
    python_ = python;
  }
  Process start_agent(const std::string& run, int max_restarts) const {
    return Process(
        joined({python_, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1",
                "--nproc-per-node=2", "--max-restarts=" + std::to_string(max_restarts),
                "--no-python", program("stokerd")},
               arguments(run)),
        path("torchrun.out"));
  }
  bool has_torchrun() const {
    return text_of(path("torchrun.out")).find("No module named") == std::string::npos;
  }
  static std::string log_in(const std::string& directory) {
    return text_if_exists(directory + "/logs/stokerd.log");
  }

  std::string python_;
};

// Rank 1 first, then the chief.
TEST_F(GroupTorchrunTest, ResumesAfterTwoKilledRanksWithSameBytes) {
  configure(200);
  const std::string run = run_dir();
  Process agent = start_agent(run, 2);
  size_t starts = 0;
  for (const std::string& directory : {run + "/ranks/1", run}) {
    ++starts;
    const uint64_t resumed = newest_step(run);
    ASSERT_TRUE(wait_until(kPatience, [&] {
      return agent.wait(0ms) || (count_of(log_in(directory), "training started") == starts &&
                                 newest_step(run) > resumed);
    }));
    if (!has_torchrun()) GTEST_SKIP() << python_ << " has no PyTorch";
    const std::string log = log_in(directory);
    constexpr std::string_view kPid = " pid=";
    const size_t at = log.find(kPid, log.rfind("daemon started"));
    ASSERT_NE(at, std::string::npos) << log;
    ASSERT_EQ(::kill(std::atoi(log.c_str() + at + kPid.size()), SIGKILL), 0);
  }
  EXPECT_EQ(code_of(agent), 0);
  EXPECT_THAT(log_in(run), HasSubstr("restart_count=2"));
  train_alone(run_dir(kAlone));
  expect_same_run(run, run_dir(kAlone));
}

// The chief, which exits because of it, has the lower rank.
TEST_F(GroupTorchrunTest, ShowsReasonOfRankThatFailedAsRootCause) {
  configure(24);
  const std::string own = run_dir() + "/ranks/1";
  fs::create_directories(own);
  const auto lock = lock_file(own + "/LOCK", "the test");
  ASSERT_TRUE(lock.ok()) << lock.status().message();
  Process agent = start_agent(run_dir(), 0);
  EXPECT_EQ(code_of(agent), 1);
  if (!has_torchrun()) GTEST_SKIP() << python_ << " has no PyTorch";
  const std::string output = text_of(path("torchrun.out"));
  const size_t cause = output.find("Root Cause (first observed failure):");
  ASSERT_NE(cause, std::string::npos) << output;
  EXPECT_THAT(output.substr(cause),
              ContainsRegex("rank +: 1 .*exitcode +: 75 .*another process is rank 1 of this run"));
}

}  // namespace
}  // namespace stoker::test
