// stoker-feed as real processes.
#include "feeder/worker_main.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <random>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/config/load_config.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/feed/make_sample_plan.h"
#include "tests/daemon/supervisor/feed_fixture.h"
#include "tests/support/eventually.h"

namespace stoker::feeder {

using namespace supervisor;  // its fixture starts the workers
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class WorkerMainTest : public FeedTest {
 protected:
  void SetUp() override {
    FeedTest::SetUp();
    options_.feed_program = FEED_PROGRAM;
    write_config("{format: synthetic, num_samples: 500, input_shape: [3, 10], num_classes: 4}");
  }

  // CIFAR-10 with an invalid label in record 17.
  void use_corrupt_cifar() {
    constexpr size_t kRecord = 3073;
    std::string bytes(40 * kRecord, '\0');
    std::mt19937 random(3);
    for (char& byte : bytes) byte = static_cast<char>(random());
    for (size_t record = 0; record < 40; ++record)
      bytes[record * kRecord] = static_cast<char>(record % 10);
    bytes[17 * kRecord] = 10;
    std::ofstream(path("data.bin"), std::ios::binary) << bytes;
    open_data({.source = config::CifarDataset{.path = path("data.bin")}});
    write_config("{format: cifar10, path: " + path("data.bin") + "}");
    unreadable_ = {17};
  }

  static std::chrono::nanoseconds cpu_time(pid_t pid) {
    clockid_t clock{};
    timespec spent{};
    EXPECT_EQ(::clock_getcpuclockid(pid, &clock), 0);
    EXPECT_EQ(::clock_gettime(clock, &spent), 0);
    return std::chrono::seconds(spent.tv_sec) + std::chrono::nanoseconds(spent.tv_nsec);
  }
};

TEST_F(WorkerMainTest, FillsPlannedBatches) {
  options_.feed.num_workers = 3;
  options_.feed.num_processes = 2;
  open_ring({.slots = 4, .first_ticket = 5});
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 5; ticket < 60; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  const auto ids = supervisor_->process_ids();
  EXPECT_EQ(ids.size(), 2u);
  supervisor_->stop();
  EXPECT_TRUE(no_children_left());
  EXPECT_EQ(supervisor_->crashes(), 0u);
}

// stokerd and stoker-feed create their plans from the same configuration, index and weights
// snapshot. The parameter is the text after "data:\n  train: ".
class WorkerMainPlanTest : public WorkerMainTest,
                           public ::testing::WithParamInterface<const char*> {
 protected:
  void prepare() {
    std::string weights;
    for (int i = 0; i < 40; ++i) weights += std::to_string(i % 3) + '\n';
    std::ofstream(path("weights.txt")) << weights;
    std::string sets = GetParam();
    const std::string file = "WEIGHTS";
    if (const size_t at = sets.find(file); at != std::string::npos)
      sets.replace(at, file.size(), path("weights.txt"));
    write_config(sets);
    const auto config = config::load_config(options_.config_path, {});
    ASSERT_TRUE(config.ok()) << config.status().message();
    data_ = *data::pipeline::open_dataset("train", config->data, options_.index_dir, {});
    const auto numbers = feed::read_sample_weights(*config, *data_);
    ASSERT_TRUE(numbers.ok()) << numbers.status().message();
    ASSERT_TRUE(feed::snapshot_sample_weights(*numbers, options_.index_dir, 3).ok());
    plan_.emplace(*feed::make_plan_options(*config, *data_, *numbers));
  }
};

TEST_P(WorkerMainPlanTest, MatchesPlanOfDaemon) {
  prepare();
  open_ring({.slots = 4, .first_ticket = 3});
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 3; ticket < 40; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
}

#define EVEN "{format: synthetic, num_samples: 90, input_shape: [3, 10], num_classes: 4}\n"
#define ODD \
  "{format: synthetic, num_samples: 40, input_shape: [3, 10], num_classes: 4, noise_std: 2}\n"
#define DRAWN                                                                   \
  "{format: synthetic, num_samples: 40, input_shape: [3, 10], num_classes: 4, " \
  "sample_weights_path: WEIGHTS}\n"
INSTANTIATE_TEST_SUITE_P(Plans, WorkerMainPlanTest,
                         ::testing::Values(EVEN "feed: {shuffle: none}",
                                           EVEN "feed: {shuffle: block, shuffle_block_size: 7}",
                                           EVEN "feed: {shuffle: shards, last_batch: pad}", DRAWN,
                                           "{concat: [even, odd]}\n  even: " EVEN "  odd: " ODD
                                           "feed: {last_batch: drop}",
                                           "{mixture: {even: 1, odd: 2}}\n  even: " EVEN
                                           "  odd: " DRAWN));
#undef EVEN
#undef ODD
#undef DRAWN

TEST_F(WorkerMainTest, PreservesBatchBytesWhenKilledMidBatch) {
  // Large samples make a batch slow to read, so a kill after a slot was released hits a worker with
  // a claimed ticket.
  auto config = synthetic_config();
  std::get<config::SyntheticDataset>(config.source).input_shape = {3, 64, 64};
  open_data(config);
  write_config("{format: synthetic, num_samples: 500, input_shape: [3, 64, 64], num_classes: 4}");
  options_.feed.num_processes = 2;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  std::mt19937 random(5);
  uint64_t ticket = 0;
  for (uint64_t kills = 0; kills < 10 || ring_->counters().requeued < 3; ++kills) {
    ASSERT_LT(kills, 300u) << "too few kills hit a claimed ticket";
    for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(expect_next(ticket++));
    const auto ids = supervisor_->process_ids();
    if (ids.empty()) continue;
    const uint64_t crashes = supervisor_->crashes();
    ::kill(ids[random() % ids.size()], SIGKILL);
    ASSERT_TRUE(eventually([&] { return supervisor_->crashes() > crashes; }));
  }
  for (int i = 0; i < 20; ++i) ASSERT_NO_FATAL_FAILURE(expect_next(ticket++));
  EXPECT_TRUE(supervisor_->quarantined().empty()) << "no sample is to blame";
  EXPECT_FALSE(coordinator_.should_stop()) << coordinator_.reason().to_string();
}

TEST_F(WorkerMainTest, ExitsAtEndOfData) {
  open_ring({.slots = 4, .end_ticket = 10});
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 0; ticket < 10; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  EXPECT_EQ(ring_->pop(kTestTimeout).status().code(), StatusCode::kClosed);
  EXPECT_TRUE(eventually([&] { return supervisor_->live_workers() == 0; }));
  EXPECT_EQ(supervisor_->crashes(), 0u);
  EXPECT_FALSE(coordinator_.should_stop());
}

TEST_F(WorkerMainTest, ReportsCorruptSampleAndReadsReplacement) {
  use_corrupt_cifar();
  options_.feed.max_sample_error_rate = 1.0;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 0; ticket < 12; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  supervisor_->stop();
  EXPECT_THAT(list_of_sample_errors(), HasSubstr("\"sample\":17,"));
  EXPECT_THAT(list_of_sample_errors(),
              HasSubstr("data.bin\",\"offset\":" + std::to_string(17 * 3073)));
  EXPECT_GE(supervisor_->sample_errors(), 4u) << "once in each epoch";
}

TEST_F(WorkerMainTest, CountsSampleErrorsOfConsumedTicketsOnly) {
  use_corrupt_cifar();
  options_.feed.max_sample_error_rate = 1.0;
  options_.sample_errors = {.count = 100, .step = 5, .ticket = 5};
  open_ring({.slots = 8, .first_ticket = 5});
  ASSERT_TRUE(start().ok());
  std::set<std::pair<uint64_t, uint64_t>> error;  // one per batch, although it can be planned twice
  const auto note = [&](uint64_t ticket, uint64_t sample) {
    if (unreadable_.contains(sample)) error.emplace(ticket, sample);
  };
  for (uint64_t ticket = 5; ticket < 60; ++ticket) {
    ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
    for (uint64_t row = 0; row < kBatch; ++row) note(ticket, plan_->at(ticket, row).sample);
    // Up to date immediately, independent of the supervisor thread's last check and of the workers'
    // read-ahead.
    EXPECT_EQ(supervisor_->sample_errors_before(ticket + 1), 100 + error.size()) << ticket;
  }
  EXPECT_GT(error.size(), 15u);
  supervisor_->flush_sample_errors();
  const std::string list = list_of_sample_errors();
  for (const auto& [ticket, sample] : error)
    EXPECT_THAT(list, HasSubstr("{\"step\":" + std::to_string(ticket + 1) +
                                ",\"ticket\":" + std::to_string(ticket) + ",\"sample\":17,"));
}

// Sample 17 of four tokens and the next one contain a token outside the vocabulary.
TEST_F(WorkerMainTest, ReportsOutOfVocabTokenAsSampleError) {
  std::vector<uint16_t> tokens(400);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(i % 100);
  tokens[17 * 4 + 2] = 600;
  std::ofstream(path("tokens.bin"), std::ios::binary)
      .write(reinterpret_cast<const char*>(tokens.data()),
             static_cast<std::streamsize>(tokens.size() * sizeof(uint16_t)));
  std::ofstream(options_.config_path)
      << "run: {seed: 9}\ndata:\n  train: {format: tokens, path: " << path("tokens.bin")
      << ", sequence: {block_size: 4}}\nmodel: {name: gpt, vocab_size: 100, context_length: 4}\n"
      << "train: {micro_batch_size: " << kBatch << "}\n";
  open_data(
      {.source = config::TokensDataset{.path = path("tokens.bin"), .sequence = {.block_size = 4}}});
  unreadable_ = {17};
  options_.feed.max_sample_error_rate = 1.0;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 0; ticket < 12; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  supervisor_->stop();
  EXPECT_THAT(list_of_sample_errors(), HasSubstr("\"sample\":17,"));
  EXPECT_THAT(list_of_sample_errors(), HasSubstr("token 600 at index 2: model.vocab_size is 100"));
}

TEST_F(WorkerMainTest, FailsRunAboveSampleErrorRateLimit) {
  use_corrupt_cifar();
  options_.feed.max_sample_error_rate = 0.01;  // one of 40 exceeds it
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  // The supervisor checks the limit several times a second, even if batches are consumed quickly.
  uint64_t ticket = 0;
  test::Patience patience(60s);
  while (!coordinator_.should_stop()) {
    ASSERT_FALSE(patience.is_over());
    ASSERT_NO_FATAL_FAILURE(expect_next(ticket++));
  }
  EXPECT_EQ(coordinator_.reason().code(), StatusCode::kCorrupt);
  EXPECT_THAT(coordinator_.reason().message(), HasSubstr("feed.max_sample_error_rate = 0.01"));
}

TEST_F(WorkerMainTest, FailsRunOnCorruptSampleWhenConfigured) {
  use_corrupt_cifar();
  options_.feed.on_sample_error = config::OnSampleError::kFail;
  open_ring({.slots = 8});  // three epochs
  ASSERT_TRUE(start().ok());
  ASSERT_TRUE(coordinator_.wait_for_stop(kTestTimeout));
  EXPECT_EQ(coordinator_.reason().code(), StatusCode::kCorrupt);
  EXPECT_THAT(coordinator_.reason().message(), HasSubstr("data.bin"));
}

TEST_F(WorkerMainTest, FailsRunOnUnreadableConfig) {
  std::ofstream(options_.config_path) << "run: [\n";
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  ASSERT_TRUE(coordinator_.wait_for_stop(kTestTimeout));
  EXPECT_EQ(exit_code_for(coordinator_.reason()), ExitCode::kConfiguration);
  EXPECT_THAT(coordinator_.reason().message(), HasSubstr(options_.config_path));
}

// Each sample of the ticket and all of its replacement samples.
TEST_F(WorkerMainTest, FailsRunWithLastErrorOfSamples) {
  constexpr size_t kRecord = 3073;
  const std::string bytes(40 * kRecord, '\x0a');  // labels 10, which are no classes
  std::ofstream(path("data.bin"), std::ios::binary) << std::string(40 * kRecord, '\0');
  open_data({.source = config::CifarDataset{.path = path("data.bin")}});
  const auto before = std::filesystem::last_write_time(path("data.bin"));
  std::fstream(path("data.bin"), std::ios::binary | std::ios::in | std::ios::out) << bytes;
  std::filesystem::last_write_time(path("data.bin"), before);
  write_config("{format: cifar10, path: " + path("data.bin") + "}");
  options_.feed.max_sample_error_rate = 1;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  ASSERT_TRUE(coordinator_.wait_for_stop(kTestTimeout));
  EXPECT_EQ(exit_code_for(coordinator_.reason()), ExitCode::kDataError);
  EXPECT_THAT(coordinator_.reason().message(),
              AllOf(HasSubstr("nor any of its 16 replacement samples"), HasSubstr("data.bin")));
}

TEST_F(WorkerMainTest, FailsRunWithErrorOfSystemWhenDataVanishes) {
  ASSERT_TRUE(std::filesystem::create_directory(path("data")));
  std::ofstream(path("data/data_batch_1.bin"), std::ios::binary) << std::string(40 * 3073, '\0');
  open_data({.source = config::CifarDataset{.path = path("data")}});
  write_config("{format: cifar10, path: " + path("data") + "}");
  options_.feed.max_sample_error_rate = 1;
  open_ring({.slots = 4});
  std::filesystem::rename(path("data"), path("gone"));
  ASSERT_TRUE(start().ok());
  ASSERT_TRUE(coordinator_.wait_for_stop(kTestTimeout));
  EXPECT_EQ(exit_code_for(coordinator_.reason()), ExitCode::kIoError);
  EXPECT_THAT(coordinator_.reason().message(),
              AllOf(HasSubstr(path("data")), HasSubstr("No such file or directory")));
}

TEST_F(WorkerMainTest, FailsRunOnChangedIndex) {
  auto config = synthetic_config();
  std::get<config::SyntheticDataset>(config.source).num_samples = 400;
  open_ring({.slots = 4});
  auto changed = data::pipeline::open_dataset("train", config, options_.index_dir, {});
  ASSERT_TRUE(changed.ok());
  write_config("{format: synthetic, num_samples: 400, input_shape: [3, 10], num_classes: 4}");
  ASSERT_TRUE(start().ok());
  ASSERT_TRUE(coordinator_.wait_for_stop(kTestTimeout));
  EXPECT_EQ(exit_code_for(coordinator_.reason()), ExitCode::kConfiguration);
  EXPECT_THAT(coordinator_.reason().message(), HasSubstr("the dataset was indexed again"));
}

TEST_F(WorkerMainTest, IgnoresSignalsForDaemon) {
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  ASSERT_NO_FATAL_FAILURE(expect_next(0));
  for (const int pid : supervisor_->process_ids())
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE}) ::kill(pid, signal);
  for (uint64_t ticket = 1; ticket < 40; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  EXPECT_EQ(supervisor_->crashes(), 0u);
}

TEST_F(WorkerMainTest, UsesNoCpuTimeWhenRingIsFull) {
  options_.feed.num_workers = 4;
  options_.feed.num_processes = 2;
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  ASSERT_TRUE(eventually([&] { return ring_->counters().ready == ring_->slots(); }));
  const auto ids = supervisor_->process_ids();
  ASSERT_EQ(ids.size(), 2u);
  const auto spent = [&ids] { return cpu_time(ids[0]) + cpu_time(ids[1]); };
  // Training is paused. An idle thread wakes a few times a second, which costs more on some machines
  // than on others; one that polls uses all of a CPU, or its share of it under load.
  const auto is_idle = [&] {
    const auto start = std::chrono::steady_clock::now();
    const auto before = spent();
    EXPECT_FALSE(coordinator_.wait_for_stop(500ms));
    return (spent() - before) * 10 < std::chrono::steady_clock::now() - start;
  };
  // First all threads must have started and become idle; then they must remain so.
  bool has_rested = false;
  for (int look = 0; look < 20 && !has_rested; ++look) has_rested = is_idle();
  EXPECT_TRUE(has_rested && is_idle()) << "of two processes with two threads each";
}

// Of /proc, where files have no size.
std::string text_of_process(pid_t pid, const char* name) {
  std::ostringstream text;
  text << std::ifstream("/proc/" + std::to_string(pid) + name).rdbuf();
  return text.str();
}
constexpr const char* kNoNewPrivileges = "NoNewPrivs:\t1";

TEST_F(WorkerMainTest, DisablesCoreDumpsAndPrivileges) {
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  ASSERT_NO_FATAL_FAILURE(expect_next(0));
  for (const int pid : supervisor_->process_ids()) {
    EXPECT_THAT(text_of_process(pid, "/status"), HasSubstr(kNoNewPrivileges));
    EXPECT_THAT(text_of_process(pid, "/limits"), ContainsRegex("Max core file size +1 +1 "));
  }
}

// A child of this process, or of one that ends; killed with the object.
class OtherProcess {
 public:
  explicit OtherProcess(pid_t pid) : pidfd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}
  OtherProcess(OtherProcess&&) noexcept = default;
  ~OtherProcess() {
    if (!pidfd_.valid()) return;
    (void)::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
    siginfo_t info{};
    ::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED);
  }
  bool known() const { return pidfd_.valid(); }
  bool exits_within(std::chrono::milliseconds timeout) const {
    pollfd entry{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, static_cast<int>(timeout.count())) == 1;
  }

 private:
  UniqueFd pidfd_;
};

// Starts the parent test program; its standard output is read from `output`.
pid_t start_parent(const FeedOptions& options, UniqueFd& output) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  output = UniqueFd(ends[0]);
  const UniqueFd input(ends[1]);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(input.get(), STDOUT_FILENO);
    ::execl(PARENT_TEST_PROGRAM, PARENT_TEST_PROGRAM, options.feed_program.c_str(),
            options.config_path.c_str(), options.index_dir.c_str(), nullptr);
    ::_exit(127);
  }
  return pid;
}

std::string read_line(const UniqueFd& fd) {
  std::string line;
  for (char next = 0; ::read(fd.get(), &next, 1) == 1 && next != '\n';) line.push_back(next);
  return line;
}

// The kernel ends them, not their own code, so that a process that is stopped or hangs ends, too. No
// process is left that could hold memory of the ring or a file.
TEST_F(WorkerMainTest, ExitsWhenParentIsKilled) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);  // this process becomes their parent
  std::vector<OtherProcess> workers;  // ends after the parent, as children of this process
  UniqueFd output;
  const pid_t parent = start_parent(options_, output);
  ASSERT_GT(parent, 0);
  const OtherProcess killed_parent(parent);
  std::istringstream ids(read_line(output));
  std::vector<pid_t> pids;
  for (pid_t pid = 0; ids >> pid;) {
    pids.push_back(pid);
    workers.emplace_back(pid);
  }
  ASSERT_EQ(workers.size(), 2u);
  for (const OtherProcess& worker : workers) {
    EXPECT_TRUE(worker.known());
    EXPECT_FALSE(worker.exits_within(0ms));
  }
  // A worker gives up privileges after it has requested the signal.
  for (const pid_t pid : pids)
    ASSERT_TRUE(test::eventually([pid] {
      return text_of_process(pid, "/status").find(kNoNewPrivileges) != std::string::npos;
    }));
  EXPECT_EQ(::kill(pids[0], SIGSTOP), 0);
  ::kill(parent, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(parent, &status, 0), parent);
  EXPECT_TRUE(WIFSIGNALED(status)) << "exit code " << WEXITSTATUS(status);
  for (size_t i = 0; i < workers.size(); ++i) {
    ASSERT_TRUE(workers[i].exits_within(kTestTimeout)) << "worker process " << i;
    EXPECT_EQ(::waitpid(pids[i], &status, 0), pids[i]);
    EXPECT_TRUE(WIFSIGNALED(status)) << "exit code " << WEXITSTATUS(status);
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
  }
  EXPECT_EQ(::waitpid(-1, &status, WNOHANG), -1) << "another process is left";
  EXPECT_EQ(errno, ECHILD);
  EXPECT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
}

// Runs stoker-feed directly.
int exit_code_of_feed(std::vector<std::string> arguments) {
  std::vector<char*> words{const_cast<char*>(FEED_PROGRAM)};
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::close(STDERR_FILENO);
    ::execv(FEED_PROGRAM, words.data());
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(WorkerMainTest, RejectsInvalidArgumentsAsUsageErrors) {
  EXPECT_EQ(exit_code_of_feed({}), 64);
  EXPECT_EQ(exit_code_of_feed({"--ring-fd", "x"}), 64);
}

TEST_F(WorkerMainTest, FailsWithoutRing) {
  const int code = exit_code_of_feed(
      {"--config", options_.config_path, "--index-dir", options_.index_dir, "--dataset-fingerprint",
       data_->fingerprint(), "--ring-fd", "77", "--quarantine-fd", "78", "--worker-index", "0",
       "--producer-index", "0", "--producer-generation", "1"});
  EXPECT_GT(code, 0);
}

}  // namespace
}  // namespace stoker::feeder
