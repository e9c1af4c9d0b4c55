// Real producer processes that are killed at random: the consumer must see the same tickets with
// the same bytes.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/shared/ring/ring_fixture.h"
#include "tests/support/eventually.h"

extern char** environ;

namespace stoker::ring {
namespace {

class RingProcessTest : public ::testing::Test {
 protected:
  struct Worker {
    ProducerId id;
    pid_t pid = -1;
  };

  void open(const RingOptions& options) {
    ring_ = make_ring(options, small_layout(5000, 8));
    ASSERT_NE(ring_, nullptr);
  }
  void TearDown() override {
    for (const Worker& worker : workers_) end(worker);
  }

  Worker& spawn(const char* mode = "run") {
    const auto id = ring_->add_producer("test");
    EXPECT_TRUE(id.ok());
    const std::string index = std::to_string(id->index),
                      generation = std::to_string(id->generation);
    const char* arguments[] = {RING_TEST_PRODUCER, "3",  index.c_str(),
                               generation.c_str(), mode, nullptr};
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ring_->fd(), 3);
    Worker worker{.id = *id};
    EXPECT_EQ(::posix_spawn(&worker.pid, arguments[0], &actions, nullptr,
                            const_cast<char**>(arguments), environ),
              0);
    ::posix_spawn_file_actions_destroy(&actions);
    ring_->set_producer_pid(*id, worker.pid);
    workers_.push_back(worker);
    return workers_.back();
  }
  static void end(const Worker& worker) {
    ::kill(worker.pid, SIGKILL);
    ::waitpid(worker.pid, nullptr, 0);
  }
  void kill_and_requeue(size_t which) {
    end(workers_[which]);
    ring_->requeue(workers_[which].id);
    workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(which));
  }
  void expect_next(uint64_t ticket) {
    const auto batch = ring_->pop(kTestTimeout);
    ASSERT_TRUE(batch.ok()) << batch.status().to_string();
    ASSERT_EQ(batch->ticket, ticket);
    ASSERT_TRUE(holds(batch->slot, ticket)) << "ticket " << ticket;
    ring_->release(ticket);
  }

  std::unique_ptr<ShmRing> ring_;
  std::vector<Worker> workers_;
};

TEST_F(RingProcessTest, PreservesOrderAndBytesWhenProducersAreKilledRandomly) {
  open({.slots = 4});
  std::mt19937 random(3);
  for (int i = 0; i < 3; ++i) spawn();
  std::set<uint64_t> reported;
  uint64_t ticket = 0;
  int kills = 0;
  const auto drain = [&] {
    ASSERT_NO_FATAL_FAILURE(expect_next(ticket++));
    for (const auto& error : ring_->drain_sample_errors()) {
      EXPECT_EQ(error.sample, error.ticket);
      EXPECT_EQ(error.reason, "process");
      reported.insert(error.ticket);
    }
  };
  while (kills < 12 || ring_->counters().requeued < 3) {
    ASSERT_LT(kills, 2000) << "no kill ever hit a claimed ticket";
    ASSERT_NO_FATAL_FAILURE(drain());
    if (random() % 3 != 0) continue;
    // Prefer a victim that holds a ticket: most are asleep because the ring is full, or are still
    // starting.
    const size_t victim = random() % workers_.size();
    ASSERT_TRUE(test::eventually([&] {
      return ring_->progress(workers_[victim].id).claims > 0 || ring_->counters().ready == 4;
    }));
    ASSERT_LT(ticket, 1'000'000u) << "no reader ever has a ticket in hand";
    if (kills >= 12 && ring_->progress(workers_[victim].id).claims == 0) continue;
    kill_and_requeue(victim);
    ++kills;
    spawn();
  }
  EXPECT_EQ(ring_->counters().lost_reports, 0u);
  for (uint64_t t = 0; t < ticket; ++t)
    EXPECT_EQ(reported.count(t), 1u) << "report of ticket " << t;
}

TEST_F(RingProcessTest, ReplacesStoppedProducer) {
  open({.slots = 4, .end_ticket = 12});
  const Worker stopped = spawn("hold");
  int status = 0;
  ASSERT_EQ(::waitpid(stopped.pid, &status, WUNTRACED), stopped.pid);
  ASSERT_TRUE(WIFSTOPPED(status));
  spawn();
  EXPECT_EQ(ring_->pop(1ms).status().code(), StatusCode::kTimedOut) << "ticket 0 is held";
  kill_and_requeue(0);
  EXPECT_EQ(ring_->counters().requeued, 1u);
  for (uint64_t ticket = 0; ticket < 12; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  EXPECT_EQ(ring_->pop(kTestTimeout).status().code(), StatusCode::kClosed);
}

TEST_F(RingProcessTest, RequeuesTicketsOfProducerKilledInAnySlotState) {
  for (const char* state : {"hold", "hold_report", "hold_published"}) {
    SCOPED_TRACE(state);
    open({.slots = 2, .end_ticket = 6});
    const Worker stopped = spawn(state);
    int status = 0;
    ASSERT_EQ(::waitpid(stopped.pid, &status, WUNTRACED), stopped.pid);
    ASSERT_TRUE(WIFSTOPPED(status));
    kill_and_requeue(0);
    spawn();
    for (uint64_t ticket = 0; ticket < 6; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
    EXPECT_EQ(ring_->pop(kTestTimeout).status().code(), StatusCode::kClosed);
    kill_and_requeue(0);
  }
}

// Number of descriptors and of mappings of a memory file, in all processes that this user can see.
struct References {
  size_t descriptors = 0;
  size_t mappings = 0;
};
References references_to(dev_t device, ino_t inode) {
  namespace fs = std::filesystem;
  References found;
  std::error_code ignored;  // processes end meanwhile
  for (const auto& process : fs::directory_iterator("/proc")) {
    for (const auto& fd : fs::directory_iterator(process.path() / "fd", ignored)) {
      struct stat info {};
      if (::stat(fd.path().c_str(), &info) == 0 && info.st_dev == device && info.st_ino == inode)
        ++found.descriptors;
    }
    // "7f00-7f80 rw-s 00000000 00:01 1024 /memfd:stoker-ring (deleted)"
    std::ifstream maps(process.path() / "maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find("/memfd:") == std::string::npos) continue;
      std::istringstream fields(line);
      std::string skipped;
      ino_t number = 0;
      fields >> skipped >> skipped >> skipped >> skipped >> number;
      found.mappings += number == inode ? 1 : 0;
    }
  }
  return found;
}

TEST_F(RingProcessTest, ReleasesAllMemoryWhenCreatorIsKilled) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t creator = ::fork();
  if (creator == 0) {
    const auto ring = make_ring({.slots = 2});
    struct stat info {};
    if (ring == nullptr || ::fstat(ring->fd(), &info) != 0 ||
        ::write(ends[1], &info, sizeof info) != sizeof info)
      ::_exit(1);
    while (true) ::pause();
  }
  struct stat info {};
  ASSERT_EQ(::read(ends[0], &info, sizeof info), static_cast<ssize_t>(sizeof info));
  EXPECT_EQ(info.st_nlink, 0u) << "it has a name";
  const References before = references_to(info.st_dev, info.st_ino);
  EXPECT_EQ(before.descriptors, 1u);
  EXPECT_GE(before.mappings, 1u);
  ::kill(creator, SIGKILL);
  ASSERT_EQ(::waitpid(creator, nullptr, 0), creator);
  const References after = references_to(info.st_dev, info.st_ino);
  EXPECT_EQ(after.descriptors, 0u);
  EXPECT_EQ(after.mappings, 0u);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(RingProcessTest, PreventsResizeOfSharedMemory) {
  open({.slots = 2});
  EXPECT_EQ(::ftruncate(ring_->fd(), 0), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(ring_->fd(), 1 << 30), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::fcntl(ring_->fd(), F_ADD_SEALS, F_SEAL_WRITE), -1) << "not even by another seal";
}

TEST_F(RingProcessTest, StopsWaitingProcessesOnClose) {
  open({.slots = 2});
  spawn();
  spawn();
  ASSERT_NO_FATAL_FAILURE(expect_next(0));
  ring_->close();
  for (const Worker& worker : workers_) {
    int status = 0;
    ASSERT_EQ(::waitpid(worker.pid, &status, 0), worker.pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  workers_.clear();
}

TEST_F(RingProcessTest, StopsProcessesOnEndOfData) {
  open({.slots = 3, .end_ticket = 50});
  spawn();
  spawn();
  for (uint64_t ticket = 0; ticket < 50; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  for (const Worker& worker : workers_) {
    int status = 0;
    ASSERT_EQ(::waitpid(worker.pid, &status, 0), worker.pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  workers_.clear();
}

}  // namespace
}  // namespace stoker::ring
