// Groups of real processes over Gloo. Rank 0 serves the store on a port that the store chooses.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/group/gloo_group.h"
#include "daemon/group/rendezvous.h"
#include "daemon/group/socket_address.h"
#include "daemon/group/start_checks.h"
#include "daemon/group/tcp_store.h"
#include "shared/base/descriptor_limit.h"
#include "shared/base/file.h"
#include "tests/daemon/group/group_values.h"
#include "tests/support/idle_connections.h"
#include "tests/support/listening_sockets.h"
#include "tests/support/machine_slowness.h"
#include "tests/support/temporary_directory.h"
#include "tests/system/process.h"

namespace stoker::group {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Of a group that loses a rank. In it, a rank that is healthy and slow is not lost.
const milliseconds kShort = test::scaled(milliseconds(2'000));
constexpr milliseconds kPatience{100'000};  // beyond every wait of a test that succeeds

sockaddr_in loopback_address(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// A socket bound to a free port of the loopback interface.
class BoundSocket {
 public:
  BoundSocket() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = loopback_address(0);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
  }
  int fd() const { return fd_.get(); }
  int port() const { return port_; }

 private:
  UniqueFd fd_;
  int port_ = 0;
};

struct Settings {
  std::string scenario = "collectives";
  milliseconds timeout{60'000};
  milliseconds start_timeout{60'000};
  std::string run_id = "runs/test";
  // As under torchrun, whose agent serves the store on this port and restarts the ranks.
  int agent_port = 0;
  std::string interface = "auto";
};

class GroupTest : public ::testing::Test {
 protected:
  // Starts rank `rank`; its output is in `name`.
  test::Process& start(int rank, int world_size, const Settings& settings,
                       const std::string& name) {
    const auto set = [](const std::string& variable, int value) {
      return variable + "=" + std::to_string(value);
    };
    // The address is not that of this host: ranks of one node use the loopback interface.
    const bool has_agent = settings.agent_port != 0;
    const int port = has_agent ? settings.agent_port : port_;
    // Without an agent the address is not that of this host: ranks of one node use the loopback
    // interface.
    const std::vector<std::string> command{
        "/usr/bin/env",
        has_agent ? "TORCHELASTIC_USE_AGENT_STORE=True" : "TORCHELASTIC_USE_AGENT_STORE=",
        has_agent ? "MASTER_ADDR=127.0.0.1" : "MASTER_ADDR=192.0.2.1",
        set("MASTER_PORT", port == 0 ? 1 : port),
        set("RANK", rank),
        set("WORLD_SIZE", world_size),
        set("LOCAL_RANK", rank),
        set("LOCAL_WORLD_SIZE", world_size),
        GROUP_TEST_PROGRAM,
        settings.scenario,
        std::to_string(settings.timeout.count()),
        std::to_string(settings.start_timeout.count()),
        settings.run_id,
        settings.interface};
    test::Process& started = start(command, name);
    if (rank == 0 && !has_agent) read_port();
    return started;
  }
  test::Process& start(const std::vector<std::string>& command, const std::string& name) {
    processes_.push_back(std::make_unique<test::Process>(command, directory_ / name));
    return *processes_.back();
  }
  test::Process& start(int rank, int world_size, const Settings& settings) {
    return start(rank, world_size, settings, "rank-" + std::to_string(rank));
  }
  std::vector<test::Process*> start_all(int world_size, const Settings& settings) {
    std::vector<test::Process*> ranks;
    for (int rank = 0; rank < world_size; ++rank)
      ranks.push_back(&start(rank, world_size, settings));
    return ranks;
  }

  // Rank 2 of one group of three is killed, that of another one stopped, so that one wait is that of both.
  std::vector<std::vector<test::Process*>> start_and_kill_or_stop(const std::string& scenario) {
    std::vector<std::vector<test::Process*>> groups;
    for (const int signal : {SIGKILL, SIGSTOP}) {
      std::vector<test::Process*>& ranks = groups.emplace_back();
      for (int rank = 0; rank < 3; ++rank)
        ranks.push_back(&start(rank, 3, {.scenario = scenario, .timeout = kShort},
                               std::to_string(signal) + "-" + std::to_string(rank)));
      EXPECT_TRUE(wait_for_output(*ranks[2], "collectives 20\n")) << output_of(*ranks[2]);
      ranks[2]->signal(signal);
    }
    return groups;
  }

  // A group for each, so that one wait is that of all. With a timeout that is longer than the test waits.
  std::vector<std::vector<test::Process*>> start_each(const std::vector<std::string>& scenarios,
                                                      int world_size) {
    std::vector<std::vector<test::Process*>> groups;
    for (const std::string& scenario : scenarios) {
      const Settings settings{.scenario = scenario, .timeout = milliseconds(10 * kPatience)};
      std::vector<test::Process*>& ranks = groups.emplace_back();
      for (int rank = 0; rank < world_size; ++rank)
        ranks.push_back(&start(rank, world_size, settings, scenario + " " + std::to_string(rank)));
    }
    return groups;
  }

  static std::string output_of(const test::Process& process) {
    std::ifstream file(process.log());
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static bool wait_for_output(const test::Process& process, const std::string& text) {
    return test::wait_until(kPatience,
                            [&] { return output_of(process).find(text) != std::string::npos; });
  }
  static int exit_code_of(test::Process& process) {
    const auto exit = process.wait(kPatience);
    EXPECT_TRUE(exit) << "is still running: " << output_of(process);
    if (!exit) return -1;
    EXPECT_EQ(exit->signal, 0) << output_of(process);
    return exit->code;
  }

  // The others end because rank `killed` exited, hangs or cannot be reached. `noticed`: what follows, a
  // regular expression.
  static void expect_lost(const std::vector<test::Process*>& ranks, size_t killed,
                          const std::string& noticed = "") {
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (rank == killed) continue;
      EXPECT_EQ(exit_code_of(*ranks[rank]), 73);
      EXPECT_THAT(output_of(*ranks[rank]),
                  ContainsRegex("error peer lost: rank " + std::to_string(killed) +
                                " \\([^ ]+, pid " + std::to_string(ranks[killed]->pid()) +
                                "\\) exited, hangs or cannot be reached" + noticed));
    }
  }

  int port_ = 0;  // of the store

 private:
  void read_port() {
    const test::Process& chief = *processes_.back();
    ASSERT_TRUE(test::wait_until(kPatience, [&] {
      const std::string output = output_of(chief);
      const size_t begin = output.find("listening ");
      if (begin == std::string::npos || output.find('\n', begin) == std::string::npos) return false;
      port_ = std::stoi(output.substr(begin + 10));
      return true;
    })) << output_of(chief);
  }

  const test::TemporaryDirectory directory_;
  std::vector<std::unique_ptr<test::Process>> processes_;
};

std::string expected_sum(int world_size, size_t size) {
  std::vector<float> sums;
  for (size_t i = 0; i < size; ++i) sums.push_back(test::sum_of(0, world_size, i));
  return "sum " + std::to_string(size) + " " + test::digest(sums) + "\n";
}

std::string expected_broadcast(int root) {
  std::vector<float> values;
  for (size_t i = 0; i < 1000; ++i) values.push_back(test::value_of(root, i));
  return "broadcast " + std::to_string(root) + " " + test::digest(values) + "\n";
}

std::string expected_parts(int world_size) {
  std::vector<float> values;
  const std::vector<int64_t> ends = test::part_ends(world_size);
  int rank = 0;
  for (size_t i = 0; i < 1000; ++i) {
    while (static_cast<int64_t>(i) >= ends[static_cast<size_t>(rank)]) ++rank;
    values.push_back(test::value_of(rank, i));
  }
  return "parts " + test::digest(values) + "\n";
}

// The sums of elements ends[rank - 1] … ends[rank], and what the rank had elsewhere.
std::string expected_scattered(int rank, const std::vector<int64_t>& ends) {
  std::vector<float> values;
  const auto at = static_cast<size_t>(rank);
  const int64_t begin = rank == 0 ? 0 : ends[at - 1];
  for (int64_t i = 0; i < ends.back(); ++i) {
    const auto index = static_cast<size_t>(i);
    const bool is_own = i >= begin && i < ends[at];
    values.push_back(is_own ? test::sum_of(0, static_cast<int>(ends.size()), index)
                            : test::value_of(rank, index));
  }
  return "scattered " + test::digest(values) + "\n";
}

class GroupOfSizeTest : public GroupTest, public ::testing::WithParamInterface<int> {};

TEST_P(GroupOfSizeTest, SumsInTreeOrderAndBroadcastsOnAllRanks) {
  const int world_size = GetParam();
  std::string expected;
  for (const size_t size : test::kSumSizes) {
    expected += expected_sum(world_size, size) + expected_sum(world_size, size);
  }
  for (int root = 0; root < world_size; ++root) expected += expected_broadcast(root);
  expected += expected_parts(world_size);
  const int ranks = world_size * (world_size + 1) / 2;  // sum of rank + 1
  const std::string rest = "count " + std::to_string(6 * ranks) + "\n" +
                           expected_sum(world_size, 1000) + "scalars " +
                           std::to_string(0.3 * ranks) + "\n";
  std::vector<int64_t> equal_ends;
  for (int rank = 1; rank <= world_size; ++rank) equal_ends.push_back(300'001 * rank / world_size);
  int number = 0;
  for (test::Process* const rank : start_all(world_size, {})) {
    EXPECT_EQ(exit_code_of(*rank), 0) << output_of(*rank);
    EXPECT_THAT(output_of(*rank),
                HasSubstr("opened " + std::to_string(rank->pid()) + "\n" + expected +
                          expected_scattered(number, test::part_ends(world_size)) +
                          expected_scattered(number, equal_ends) + rest));
    ++number;
  }
}

// What a rank sends: all-reduce 2 (W - 1) / W of the tensor, the other two (W - 1) / W each.
TEST_P(GroupOfSizeTest, SendsHalfOfAllReduceInReduceScatter) {
  const int world_size = GetParam();
  const double part = 4e6 * (world_size - 1) / world_size;
  for (test::Process* const rank : start_all(world_size, {.scenario = "traffic"})) {
    EXPECT_EQ(exit_code_of(*rank), 0) << output_of(*rank);
    const auto sent = [&](const std::string& collective) {
      const std::string output = output_of(*rank);
      const size_t at = output.find("sent " + collective + " ");
      return at == std::string::npos ? 0.0 : std::stod(output.substr(at + 6 + collective.size()));
    };
    EXPECT_NEAR(sent("all_reduce"), 2 * part, 0.02 * part);
    EXPECT_NEAR(sent("reduce_scatter"), part, 0.02 * part);
    EXPECT_NEAR(sent("all_gather"), part, 0.02 * part);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, GroupOfSizeTest, ::testing::Values(2, 3, 4));

TEST_F(GroupTest, ReportsDifferentSettingsOnAllRanks) {
  const std::vector<test::Process*> ranks = start_all(3, {.scenario = "checks"});
  for (test::Process* const rank : ranks) {
    EXPECT_EQ(exit_code_of(*rank), 78) << output_of(*rank);
    EXPECT_THAT(
        output_of(*rank),
        ContainsRegex("same\ntext from 0\n(gathered of 0, of 2\n)?devices aborted\nerror mismatch: "
                      "rank 1 \\([^ ]+, pid " +
                      std::to_string(ranks[1]->pid()) + "\\): seed is 2, but 1 on rank 0; "));
  }
}

TEST_F(GroupTest, NamesKilledOrStoppedRankInSumOfBackend) {
  for (const std::vector<test::Process*>& ranks : start_and_kill_or_stop("allreduce")) {
    EXPECT_THAT(output_of(*ranks[2]), HasSubstr("all-reduced 600000 36\n"));
    expect_lost(ranks, 2, "; rank [01] lost (another rank|rank [012]) in collective [0-9]+: ");
  }
}

TEST_F(GroupTest, StopsInSumOfBackendOnRequest) {
  const auto ranks = start_all(2, {.scenario = "allreduce"});
  ASSERT_TRUE(wait_for_output(*ranks[1], "collectives 20\n")) << output_of(*ranks[1]);
  ranks[1]->signal(SIGSTOP);
  ranks[0]->signal(SIGTERM);
  EXPECT_EQ(exit_code_of(*ranks[0]), 0);
  EXPECT_THAT(output_of(*ranks[0]), HasSubstr("error cancelled: stopped in a collective"));
}

TEST_F(GroupTest, NamesKilledOrStoppedRankInReduceScatter) {
  for (const std::vector<test::Process*>& ranks : start_and_kill_or_stop("reduce-scatter"))
    expect_lost(ranks, 2, "; rank [01] lost rank [012] in collective [0-9]+: ");
}

TEST_F(GroupTest, StopsInReduceScatterOnRequest) {
  const auto ranks = start_all(2, {.scenario = "reduce-scatter"});
  ASSERT_TRUE(wait_for_output(*ranks[1], "collectives 20\n")) << output_of(*ranks[1]);
  ranks[1]->signal(SIGSTOP);
  ranks[0]->signal(SIGTERM);
  EXPECT_EQ(exit_code_of(*ranks[0]), 0);
  EXPECT_THAT(output_of(*ranks[0]), HasSubstr("error cancelled: stopped in a collective"));
}

TEST_F(GroupTest, NamesRankThatNeverJoins) {
  test::Process& chief = start(0, 2, {.start_timeout = kShort});
  EXPECT_EQ(exit_code_of(chief), 73);
  EXPECT_THAT(output_of(chief), HasSubstr("error peer lost: 1 of 2 ranks joined the group in time; "
                                          "missing: rank 1; see their logs"));
}

TEST_F(GroupTest, NamesChiefThatNeverListens) {
  const BoundSocket reserved;  // not listening, and no other process gets its port
  port_ = reserved.port();
  test::Process& rank = start(1, 2, {.start_timeout = kShort});
  EXPECT_EQ(exit_code_of(rank), 73);
  EXPECT_THAT(
      output_of(rank),
      HasSubstr("error peer lost: cannot connect to the group's store, which rank 0 serves, "
                "within " +
                std::to_string(std::chrono::ceil<std::chrono::seconds>(kShort).count()) +
                " s: 127.0.0.1:" + std::to_string(port_) +
                ": Connection refused; see the log of rank 0"));
}

TEST_F(GroupTest, NamesRankThatCannotTakePart) {
  test::Process& chief = start(0, 2, {});
  test::Process& failing = start(1, 2, {.interface = "stoker-none"});
  EXPECT_EQ(exit_code_of(failing), 78);
  EXPECT_THAT(output_of(failing), HasSubstr("network interface 'stoker-none' does not exist"));
  EXPECT_EQ(exit_code_of(chief), 73);
  EXPECT_THAT(
      output_of(chief),
      ContainsRegex("error peer lost: rank 1 \\([^ ]+, pid " + std::to_string(failing.pid()) +
                    "\\) failed: .*network interface 'stoker-none' does not exist"));
}

TEST_F(GroupTest, TellsRanksThatJoinLaterWhyChiefCannotTakePart) {
  test::Process& chief = start(0, 2, {.interface = "stoker-none"});
  test::Process& other = start(1, 2, {});
  EXPECT_EQ(exit_code_of(other), 73);
  EXPECT_THAT(output_of(other), ContainsRegex("rank 0 \\([^ ]+, pid [0-9]+\\) failed: .*network "
                                              "interface 'stoker-none' does not exist"));
  EXPECT_EQ(exit_code_of(chief), 78);
}

// As one that is stopped, or killed, on another host. This test is rank 0: it serves the store and joins.
TEST_F(GroupTest, NamesChiefThatJoinsAndDoesNotConnect) {
  ::signal(SIGPIPE, SIG_IGN);
  auto listening = listen_on("127.0.0.1", 0);
  ASSERT_TRUE(listening.ok()) << listening.status().message();
  port_ = listening->port;
  const auto store = TcpStore::serve(
      *std::move(listening), {.prefix = "stoker", .server = "test", .secret = test::kSecret});
  ASSERT_TRUE(store.ok()) << store.status().message();
  // Also of each reply of the store.
  test::Process& rank = start(1, 2, {.timeout = kShort});
  const auto joined = join_group(
      **store, {.launcher = Launcher::kTorchrun, .rank = 0, .world_size = 2}, "runs/test",
      {.host = "node-0", .pid = 7}, {}, {}, std::chrono::steady_clock::now() + kPatience, {});
  ASSERT_TRUE(joined.ok()) << joined.status().message();
  EXPECT_EQ(exit_code_of(rank), 73);
  EXPECT_THAT(output_of(rank),
              HasSubstr("error peer lost: rank 0 (node-0, pid 7) has neither "
                        "connected nor reported an error; see its log; rank 1 cannot "
                        "connect from 127.0.0.1 to all other ranks: "));
}

// This test is rank 2, which joins and does not connect, so that rank 1 still waits for it.
TEST_F(GroupTest, NamesChiefKilledWhileAnotherRankConnects) {
  test::Process& chief = start(0, 3, {});
  test::Process& rank = start(1, 3, {});
  const auto store =
      TcpStore::connect("127.0.0.1", static_cast<uint16_t>(port_),
                        {.prefix = "stoker", .server = "rank 0", .secret = test::kSecret});
  ASSERT_TRUE(store.ok()) << store.status().message();
  const auto joined = join_group(
      **store, {.launcher = Launcher::kTorchrun, .rank = 2, .world_size = 3}, "runs/test",
      {.host = "node-2", .pid = 7}, {}, {}, std::chrono::steady_clock::now() + kPatience, {});
  ASSERT_TRUE(joined.ok()) << joined.status().message();
  ASSERT_TRUE(chief.kill());
  EXPECT_EQ(exit_code_of(rank), 73);
  EXPECT_THAT(output_of(rank),
              ContainsRegex("error peer lost: (rank 0 exited, hangs or cannot be reached: )?the "
                            "group's store on [^ ]+, served by rank 0, does not respond"));
  EXPECT_THAT(output_of(rank), Not(HasSubstr("network interface")));
}

// A process that accepts the connection and is stopped, or is another program.
TEST_F(GroupTest, ReportsListenerThatDoesNotReply) {
  const BoundSocket silent;
  ASSERT_EQ(::listen(silent.fd(), 64), 0);
  port_ = silent.port();
  test::Process& rank = start(1, 2, {.timeout = kShort});
  EXPECT_EQ(exit_code_of(rank), 73);
  EXPECT_THAT(output_of(rank),
              HasSubstr("error peer lost: the process that listens on 127.0.0.1:" +
                        std::to_string(port_) + " does not respond as the group's store"));
}

TEST_F(GroupTest, NamesKilledRankOnAllOthers) {
  const auto ranks = start_all(3, {.scenario = "forever"});
  ASSERT_TRUE(wait_for_output(*ranks[1], "collectives 20\n")) << output_of(*ranks[1]);
  ASSERT_TRUE(ranks[1]->kill());
  for (const size_t survivor : {0, 2}) {
    EXPECT_EQ(exit_code_of(*ranks[survivor]), 73);
    EXPECT_THAT(
        output_of(*ranks[survivor]),
        ContainsRegex("error peer lost: rank 1 \\([^ ]+, pid " + std::to_string(ranks[1]->pid()) +
                      "\\) exited, hangs or cannot be reached; rank " + std::to_string(survivor) +
                      " lost rank [0-9] in collective [0-9]+: "));
  }
}

// Gloo does not report that to sends that could not be written, in the first case, and to receives that have begun, in the
// second.
TEST_F(GroupTest, NamesRankKilledDuringTransfersOfStoppedOne) {
  // The second and the fourth one are of more than sockets buffer.
  const auto groups = start_each(
      {"loss 1 2000 2 8000", "loss 1 16777216 1 10000", "loss 0 2000 2 1", "loss 0 16777216 1 1"},
      2);
  for (const auto& ranks : groups) {
    SCOPED_TRACE(ranks[0]->log());
    ASSERT_TRUE(wait_for_output(*ranks[0], "started\n")) << output_of(*ranks[0]);
    ASSERT_TRUE(wait_for_output(*ranks[1], "opened ")) << output_of(*ranks[1]);
    ranks[0]->signal(SIGSTOP);
    siginfo_t stopped{};
    const auto pid = static_cast<id_t>(ranks[0]->pid());
    ASSERT_EQ(::waitid(P_PID, pid, &stopped, WSTOPPED), 0);
    ranks[1]->signal(SIGTERM);
    const auto exit = ranks[1]->wait(kPatience);
    ASSERT_TRUE(exit);
    ASSERT_EQ(exit->signal, SIGKILL) << output_of(*ranks[1]);
    ranks[0]->signal(SIGCONT);
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    SCOPED_TRACE(groups[i][0]->log());
    const std::string lost = i < 2 ? "rank 1" : "(another rank|rank 1)";  // in a sum of the backend
    expect_lost(groups[i], 1, "; rank 0 lost " + lost + " in collective [0-9]+: ");
  }
}

// The sum of rank 0 does not end then, and Gloo's threads with it. Rank 1 only notices if rank 0 closes its connections
// nevertheless.
TEST_F(GroupTest, NamesRankKilledDuringSumThatWaitsForAnother) {
  const auto groups = start_each({"partial sum", "broadcast in partial sum"}, 3);
  for (const auto& ranks : groups) {
    ASSERT_TRUE(wait_for_output(*ranks[0], "started\n")) << output_of(*ranks[0]);
    ASSERT_TRUE(ranks[2]->kill());
  }
  for (const auto& ranks : groups) {
    SCOPED_TRACE(ranks[0]->log());
    expect_lost(ranks, 2, "; rank [01] lost (another rank|rank [02]) in collective [0-9]+: ");
  }
}

// As on another host: no lock tells it.
TEST_F(GroupTest, NamesRankKilledBeforeGather) {
  const auto ranks =
      start_all(2, {.scenario = "absence", .start_timeout = milliseconds(10 * kPatience)});
  expect_lost(ranks, 1, "; rank 0 lost rank 1 in collective 2: ");
  EXPECT_THAT(output_of(*ranks[0]),
              ContainsRegex("check rank 1 \\([^ ]+, pid [0-9]+\\) exited or cannot be reached: "));
}

// Only rank 0 notices it; rank 2 does when rank 0 closes its connections.
TEST_F(GroupTest, NamesRankKilledBetweenHalvesOfSum) {
  const auto ranks = start_all(3, {.scenario = "half-sum"});
  ASSERT_TRUE(wait_for_output(*ranks[2], "broadcasts 1\n")) << output_of(*ranks[2]);
  ASSERT_TRUE(ranks[1]->kill());
  expect_lost(ranks, 1, "; rank [02] lost rank [01] in ");
}

// Rank `lost` of three gets the signal at each of its collectives, in a group for each. All at the same time, 21
// processes: each takes as long as survivors wait.
class GroupOfLostRankTest : public GroupTest {
 protected:
  void start_groups(int signal, size_t lost, milliseconds timeout) {
    for (int at = 1; at <= 7; ++at) {
      const std::string scenario = "signal " + std::to_string(signal) + " to " +
                                   std::to_string(lost) + " at " + std::to_string(at);
      Group group{.lost = lost};
      for (int rank = 0; rank < 3; ++rank) {
        group.ranks.push_back(&start(rank, 3, {.scenario = scenario, .timeout = timeout},
                                     scenario + " " + std::to_string(rank)));
        group.store_port = port_;
      }
      groups_.push_back(std::move(group));
    }
  }
  void expect_named() {
    for (const auto& [ranks, lost, store_port] : groups_)
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        if (rank == lost) continue;
        SCOPED_TRACE(ranks[rank]->log());
        EXPECT_EQ(exit_code_of(*ranks[rank]), 73);
        const std::string name = "rank " + std::to_string(lost) + "( \\([^ ]+, pid " +
                                 std::to_string(ranks[lost]->pid()) + "\\))?";
        EXPECT_THAT(output_of(*ranks[rank]), ContainsRegex("error peer lost: " + name +
                                                           " exited, hangs or cannot be reached"));
        if (lost == 0) {
          EXPECT_THAT(output_of(*ranks[rank]),
                      HasSubstr("127.0.0.1:" + std::to_string(store_port)));
        }
      }
  }

 private:
  struct Group {
    std::vector<test::Process*> ranks = {};
    size_t lost = 0;
    int store_port = 0;
  };
  std::vector<Group> groups_;
};

TEST_F(GroupOfLostRankTest, IsNamedIfItIsKilledAtAnyCollective) {
  start_groups(SIGKILL, 2, milliseconds(10 * kPatience));
  expect_named();
}

TEST_F(GroupOfLostRankTest, NamesChiefKilledAtAnyCollective) {
  start_groups(SIGKILL, 0, milliseconds(10 * kPatience));
  expect_named();
}

TEST_F(GroupOfLostRankTest, IsNamedIfItIsStoppedAtAnyCollective) {
  start_groups(SIGSTOP, 2, 2 * kShort);
  expect_named();
}

// The store is stopped too.
TEST_F(GroupOfLostRankTest, NamesChiefStoppedAtAnyCollective) {
  start_groups(SIGSTOP, 0, 2 * kShort);
  expect_named();
}

// The store survives, so that a restarted group uses it again. Its ranks start before their chief.
TEST_F(GroupTest, NamesKilledChiefAndRestartsWithStoreOfAgent) {
  ::signal(SIGPIPE, SIG_IGN);  // of the store's server
  auto listening = listen_on("127.0.0.1", 0);
  ASSERT_TRUE(listening.ok()) << listening.status().message();
  const int port = listening->port;
  const auto agent = TcpStore::serve(*std::move(listening), {.prefix = "agent", .server = "test"});
  ASSERT_TRUE(agent.ok()) << agent.status().message();
  const auto ranks = start_all(2, {.scenario = "forever", .agent_port = port});
  ASSERT_TRUE(wait_for_output(*ranks[0], "collectives 20\n")) << output_of(*ranks[0]);
  ASSERT_TRUE(ranks[0]->kill());
  EXPECT_EQ(exit_code_of(*ranks[1]), 73);
  EXPECT_THAT(output_of(*ranks[1]), ContainsRegex("error peer lost: rank 0 \\([^ ]+, pid " +
                                                  std::to_string(ranks[0]->pid()) +
                                                  "\\) exited, hangs or cannot be reached"));
  const Settings restarted{.agent_port = port};
  test::Process& other = start(1, 2, restarted, "restarted-1");
  test::Process& chief = start(0, 2, restarted, "restarted-0");
  EXPECT_EQ(exit_code_of(chief), 0) << output_of(chief);
  EXPECT_EQ(exit_code_of(other), 0) << output_of(other);
}

TEST_F(GroupTest, ReportsReasonOfRankThatFailed) {
  const auto ranks = start_all(3, {.scenario = "idle"});
  ASSERT_TRUE(wait_for_output(*ranks[1], "collectives 1\n")) << output_of(*ranks[1]);
  ranks[1]->signal(SIGTERM);
  EXPECT_EQ(exit_code_of(*ranks[1]), 71);
  for (const size_t survivor : {0, 2}) {
    EXPECT_EQ(exit_code_of(*ranks[survivor]), 73);
    EXPECT_THAT(
        output_of(*ranks[survivor]),
        ContainsRegex("error peer lost: rank 1 \\([^ ]+, pid " + std::to_string(ranks[1]->pid()) +
                      "\\) failed: out of memory: no memory is left"));
  }
}

TEST_F(GroupTest, ReportsReasonOfRankThatFailedAfterItStartedSum) {
  for (const auto& ranks : start_each({"failure in reduce-scatter", "failure in allreduce"}, 3)) {
    for (const size_t survivor : {1, 2}) {
      EXPECT_EQ(exit_code_of(*ranks[survivor]), 73) << ranks[survivor]->log();
      EXPECT_THAT(output_of(*ranks[survivor]),
                  ContainsRegex("devices aborted\nerror peer lost: rank 0 \\([^ ]+, pid [0-9]+\\) "
                                "failed: out of memory: no memory is left"));
    }
    ASSERT_TRUE(wait_for_output(*ranks[0], "devices aborted\nreported\n")) << output_of(*ranks[0]);
    ranks[0]->signal(SIGTERM);
    EXPECT_EQ(exit_code_of(*ranks[0]), 0);
  }
}

// With a timeout that is longer than the test waits.
TEST_F(GroupTest, EndsWaitForGpuWhenAnotherRankIsLost) {
  std::vector<std::vector<test::Process*>> groups;
  for (const int signal : {SIGKILL, SIGTERM}) {  // SIGTERM: it fails
    const std::string name = std::to_string(signal) + "-";
    const Settings settings{.scenario = "devices", .timeout = milliseconds(10 * kPatience)};
    std::vector<test::Process*>& ranks = groups.emplace_back();
    for (int rank = 0; rank < 3; ++rank)
      ranks.push_back(&start(rank, 3, settings, name + std::to_string(rank)));
    for (test::Process* const rank : ranks) ASSERT_TRUE(wait_for_output(*rank, "waits\n"));
    ranks[1]->signal(signal);
  }
  for (const std::vector<test::Process*>& ranks : groups) {
    const bool is_killed = &ranks == &groups.front();
    for (const size_t survivor : {0, 2}) {
      EXPECT_EQ(exit_code_of(*ranks[survivor]), 73);
      EXPECT_THAT(
          output_of(*ranks[survivor]),
          ContainsRegex("devices aborted\nmay not save\nerror peer lost: rank 1 \\([^ ]+, pid " +
                        std::to_string(ranks[1]->pid()) + "\\) " +
                        (is_killed ? "exited, hangs or cannot" : "failed: out of memory")));
    }
  }
}

// An error of NCCL does not tell whether this rank or another one is its cause. No healthy rank is blamed.
TEST_F(GroupTest, EndsWaitForGpuWhenAnotherRankLeavesWithErrorOfDevice) {
  const auto ranks =
      start_all(3, {.scenario = "device error", .timeout = milliseconds(10 * kPatience)});
  for (test::Process* const rank : ranks) {
    EXPECT_EQ(exit_code_of(*rank), 73);
    EXPECT_THAT(output_of(*rank),
                AllOf(HasSubstr("ranks lost their connections"), HasSubstr("an illegal address"),
                      Not(HasSubstr("cannot be reached"))));
  }
}

TEST_F(GroupTest, ClosesDevicesWhenAllRanksHaveEnded) {
  test::Process& chief = start(0, 2, {.scenario = "end"});
  test::Process& other = start(1, 2, {.scenario = "end"});
  for (test::Process* const rank : {&chief, &other}) {
    EXPECT_EQ(exit_code_of(*rank), 0);
    EXPECT_THAT(output_of(*rank), HasSubstr("waits\ndevices aborted\nended\n"));
  }
}

TEST_F(GroupTest, StopsInCollectiveOnRequest) {
  const auto ranks = start_all(2, {.scenario = "idle"});
  // Rank 1 does not enter the second collective, in which rank 0 waits.
  ASSERT_TRUE(wait_for_output(*ranks[0], "collectives 1\n")) << output_of(*ranks[0]);
  ranks[0]->signal(SIGTERM);
  EXPECT_EQ(exit_code_of(*ranks[0]), 0);
  EXPECT_THAT(output_of(*ranks[0]), HasSubstr("error cancelled: stopped in a collective"));
}

TEST_F(GroupTest, StopsWhileRanksAreMissingOnRequest) {
  test::Process& chief = start(0, 2, {});
  chief.signal(SIGTERM);
  EXPECT_EQ(exit_code_of(chief), 0);
  EXPECT_THAT(output_of(chief), HasSubstr("error cancelled"));
}

TEST_F(GroupTest, RejectsSecondProcessOfSameRank) {
  (void)start(0, 3, {});
  test::Process& first = start(1, 3, {}, "first");
  test::Process& second = start(1, 3, {}, "second");
  ASSERT_TRUE(test::wait_until(kPatience, [&] {
    return first.wait(milliseconds(0)).has_value() || second.wait(milliseconds(0)).has_value();
  }));
  test::Process& rejected = first.wait(milliseconds(0)) ? first : second;
  EXPECT_EQ(exit_code_of(rejected), 75);
  EXPECT_THAT(output_of(rejected), HasSubstr("error busy: two processes are rank 1"));
}

TEST_F(GroupTest, RejectsRankOfAnotherRun) {
  (void)start(0, 2, {});
  test::Process& other = start(1, 2, {.run_id = "runs/other"});
  EXPECT_EQ(exit_code_of(other), 78);
  EXPECT_THAT(output_of(other), HasSubstr("rank 1 is of run 'runs/other' with 2 ranks"));
}

TEST_F(GroupTest, StartsDuringThousandConnectionsToStore) {
  raise_descriptor_limit();
  test::Process& chief = start(0, 2, {});
  test::IdleConnections idle;
  idle.open(port_, 1'000);
  test::Process& rank = start(1, 2, {});
  EXPECT_EQ(exit_code_of(rank), 0) << output_of(rank);
  EXPECT_EQ(exit_code_of(chief), 0) << output_of(chief);
}

TEST_F(GroupTest, IgnoresGarbageOnPortOfStore) {
  test::Process& chief = start(0, 2, {});
  const sockaddr_in address = loopback_address(port_);
  std::vector<UniqueFd> connections;
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(5000, '\xff'), std::string(5000, '\0'),
        std::string("\xce\xf7\x85\x3c\x01", 5)}) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    (void)::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    connections.push_back(std::move(fd));
  }
  test::Process& rank = start(1, 2, {});
  EXPECT_EQ(exit_code_of(rank), 0) << output_of(rank);
  EXPECT_EQ(exit_code_of(chief), 0) << output_of(chief);
}

size_t collectives_of(const std::string& output) {
  const size_t at = output.rfind("collectives ", output.rfind('\n'));
  return at == std::string::npos ? 0 : std::stoul(output.substr(at + 12));
}

// As an ordinary user of the host could. The store closes most of those to its port.
TEST_F(GroupTest, ContinuesDuringThousandConnectionsToEachPort) {
  raise_descriptor_limit();
  const auto ranks = start_all(2, {.scenario = "forever"});
  ASSERT_TRUE(wait_for_output(*ranks[1], "collectives 20\n")) << output_of(*ranks[1]);
  size_t num_ports = 0;
  test::IdleConnections to_store, to_ranks;
  for (const test::Process* const rank : ranks) {
    for (const test::ListeningSocket& socket : test::listening_sockets(rank->pid())) {
      ++num_ports;
      (socket.port == port_ ? to_store : to_ranks).open(socket.port, 1'000);
    }
  }
  EXPECT_EQ(num_ports, 3u);
  EXPECT_EQ(to_ranks.size(), 2'000u);
  EXPECT_EQ(to_ranks.num_established(), 0u);
  const size_t before = collectives_of(output_of(*ranks[0]));
  EXPECT_TRUE(test::wait_until(kPatience, [&] {
    return collectives_of(output_of(*ranks[0])) > before + 100;
  })) << output_of(*ranks[0]);
}

// The work of the chief at the start is one read for each rank.
TEST(StartOfManyRanksTest, ComparesSettingsOfThousandRanksOverTcp) {
  ::signal(SIGPIPE, SIG_IGN);
  constexpr int kRanks = 1'000;
  auto listening = listen_on("127.0.0.1", 0);
  ASSERT_TRUE(listening.ok()) << listening.status().message();
  const auto store = TcpStore::serve(*std::move(listening), {.prefix = "many", .server = "test"});
  ASSERT_TRUE(store.ok()) << store.status().message();
  const LaunchEnvironment chief{.launcher = Launcher::kTorchrun, .world_size = kRanks};
  const StartWait wait{.deadline = std::chrono::steady_clock::now() + kPatience};
  for (int rank = 1; rank < kRanks; ++rank)
    ASSERT_TRUE((*store)
                    ->set("settings/1/" + std::to_string(rank),
                          rank == kRanks - 1 ? R"({"lr":"2"})" : R"({"lr":"1"})")
                    .ok());
  const Status same = check_same_settings(**store, chief, "1", {{"lr", "1"}}, wait, {});
  EXPECT_EQ(same.code(), StatusCode::kMismatch);
  EXPECT_THAT(same.message(), HasSubstr("rank 999: lr is 2, but 1 on rank 0"));
}

// ---- one process ---------------------------------------------------------------------------------

size_t entries_of(const std::string& directory) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    (void)entry;
    ++count;
  }
  return count;
}

TEST(SingleProcessGroupTest, OpensNeitherSocketNorThread) {
  const size_t descriptors = entries_of("/proc/self/fd");
  const size_t threads = entries_of("/proc/self/task");
  // An address that does not exist is not used.
  const LaunchEnvironment environment{
      .launcher = Launcher::kTorchrun, .store_host = "192.0.2.1", .store_port = 1};
  const auto group = open_group(environment, {}, {});
  ASSERT_TRUE(group.ok()) << group.status().message();
  EXPECT_EQ((*group)->world_size(), 1);
  EXPECT_TRUE((*group)->is_chief());
  EXPECT_EQ(entries_of("/proc/self/fd"), descriptors);
  EXPECT_EQ(entries_of("/proc/self/task"), threads);
}

}  // namespace
}  // namespace stoker::group
