// The code of the ring, compiled with scheduled_atomics.h, in all schedules up to a number of
// preemptions: two producers and a consumer on two slots. In other runs a producer is killed before
// any of its accesses and its tickets are requeued. Each ticket must be consumed once with
// the content that its producer published, and no thread may wait forever.
//
// A mutation of the code must fail in one of these schedules.
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "shared/ring/atomics.h"
#include "shared/ring/shm_ring.h"

namespace stoker::ring {
namespace {

using namespace std::chrono_literals;

// How far schedules differ from one in which each thread runs until it waits.
struct Bounds {
  int preemptions = 0;
  int kills = 0;
};

// Scheduler: runs threads as coroutines and repeats the run with every other decision within the
// bounds: depth-first search over the decisions of a run.
//
// Threads: one.
class Scheduler {
 public:
  explicit Scheduler(Bounds bounds) : bounds_(bounds) { instance_ = this; }
  ~Scheduler() { instance_ = nullptr; }
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  static Scheduler* instance() { return instance_; }

  // Of a run. `is_mortal`: it can be killed.
  void add(std::function<void()> body, bool is_mortal = false) {
    threads_.push_back({.body = std::move(body), .is_mortal = is_mortal});
  }
  // Like add(), for a thread that starts when another one has been killed.
  void add_supervisor(std::function<void()> body) {
    threads_.push_back({.body = std::move(body), .state = State::kWaitsForKill});
  }
  // Runs the threads until all have ended. Empty: no error.
  std::string run();
  // Prepares the next run. False: there are no further decisions.
  bool advance();

  // In a thread.
  void point();
  void wait(uint64_t word);
  void wake(uint64_t word, int max_waiters);
  void fail(const std::string& error) {
    if (error_.empty()) error_ = error;
  }
  uint64_t exchange_last_read(const void* word, uint32_t line, uint64_t now) {
    if (!is_running_) return now;
    const auto [at, is_new] = last_reads_.try_emplace({current_, word, line}, now);
    return is_new ? now : std::exchange(at->second, now);
  }
  bool is_running() const { return is_running_; }

 private:
  static constexpr size_t kStackBytes = 256 << 10;
  // More accesses than a correct run has.
  static constexpr int kMaxPoints = 5000;

  enum class State { kReady, kWaiting, kWaitsForKill, kEnded };
  struct Thread {
    std::function<void()> body;
    bool is_mortal = false;
    State state = State::kReady;
    uint64_t word = 0;  // that it waits for
    ucontext_t context{};
  };
  struct Decision {
    size_t option = 0, num_options = 0;
  };

  static void run_body();
  size_t decide(size_t num_options);
  std::vector<size_t> ready_threads() const;
  void switch_to(size_t thread);
  void continue_another();  // the current thread cannot continue
  void end_run();

  static inline Scheduler* instance_ = nullptr;

  const Bounds bounds_;
  std::vector<std::vector<char>> stacks_;
  std::vector<Decision> decisions_;

  // Of the current run.
  std::vector<Thread> threads_;
  size_t current_ = 0;
  size_t num_decisions_ = 0;
  int num_preemptions_ = 0, num_kills_ = 0, num_points_ = 0;
  bool is_running_ = false;
  std::string error_;
  std::map<std::tuple<size_t, const void*, uint32_t>, uint64_t> last_reads_;
  ucontext_t main_{};
};

std::string Scheduler::run() {
  num_decisions_ = 0;
  num_preemptions_ = num_kills_ = num_points_ = 0;
  error_.clear();
  last_reads_.clear();
  while (stacks_.size() < threads_.size()) stacks_.emplace_back(kStackBytes);
  for (size_t i = 0; i < threads_.size(); ++i) {
    ::getcontext(&threads_[i].context);
    threads_[i].context.uc_stack = {
        .ss_sp = stacks_[i].data(), .ss_flags = 0, .ss_size = kStackBytes};
    threads_[i].context.uc_link = nullptr;
    ::makecontext(&threads_[i].context, &Scheduler::run_body, 0);
  }
  is_running_ = true;
  current_ = decide(ready_threads().size());
  ::swapcontext(&main_, &threads_[current_].context);
  is_running_ = false;
  threads_.clear();
  return error_;
}

void Scheduler::run_body() {
  Scheduler& scheduler = *instance_;
  scheduler.threads_[scheduler.current_].body();
  scheduler.threads_[scheduler.current_].state = State::kEnded;
  scheduler.continue_another();
}

bool Scheduler::advance() {
  decisions_.resize(num_decisions_);  // those of a failed run
  while (!decisions_.empty() && decisions_.back().option + 1 == decisions_.back().num_options)
    decisions_.pop_back();
  if (decisions_.empty()) return false;
  ++decisions_.back().option;
  return true;
}

size_t Scheduler::decide(size_t num_options) {
  if (num_options == 1) return 0;
  if (num_decisions_ == decisions_.size()) decisions_.push_back({.num_options = num_options});
  assert(decisions_[num_decisions_].num_options == num_options && "a run is not deterministic");
  return decisions_[num_decisions_++].option;
}

std::vector<size_t> Scheduler::ready_threads() const {
  std::vector<size_t> ready;
  for (size_t i = 0; i < threads_.size(); ++i)
    if (threads_[i].state == State::kReady) ready.push_back(i);
  return ready;
}

void Scheduler::switch_to(size_t thread) {
  const size_t before = std::exchange(current_, thread);
  ::swapcontext(&threads_[before].context, &threads_[thread].context);
}

void Scheduler::end_run() { ::swapcontext(&threads_[current_].context, &main_); }

void Scheduler::continue_another() {
  const std::vector<size_t> ready = ready_threads();
  if (!error_.empty()) end_run();
  if (!ready.empty()) return switch_to(ready[decide(ready.size())]);
  for (size_t i = 0; i < threads_.size(); ++i)
    if (threads_[i].state == State::kWaiting)
      fail("thread " + std::to_string(i) + " waits forever");
  end_run();
}

// The options: continue, another thread, or be killed.
void Scheduler::point() {
  if (!error_.empty()) end_run();
  if (++num_points_ > kMaxPoints) {
    fail("the run does not end");
    end_run();
  }
  std::vector<size_t> others;
  if (num_preemptions_ < bounds_.preemptions) {
    others = ready_threads();
    std::erase(others, current_);
  }
  const bool can_be_killed = threads_[current_].is_mortal && num_kills_ < bounds_.kills;
  const size_t option = decide(1 + others.size() + (can_be_killed ? 1 : 0));
  if (option == 0) return;
  if (option <= others.size()) {
    ++num_preemptions_;
    return switch_to(others[option - 1]);
  }
  ++num_kills_;
  threads_[current_].state = State::kEnded;
  for (Thread& thread : threads_)
    if (thread.state == State::kWaitsForKill) thread.state = State::kReady;
  continue_another();
}

void Scheduler::wait(uint64_t word) {
  threads_[current_].state = State::kWaiting;
  threads_[current_].word = word;
  continue_another();
}

void Scheduler::wake(uint64_t word, int max_waiters) {
  for (Thread& thread : threads_) {
    if (max_waiters == 0) return;
    if (thread.state != State::kWaiting || thread.word != word) continue;
    thread.state = State::kReady;
    --max_waiters;
  }
}

Mutation mutation;

// The same for each process that maps the word.
uint64_t futex_of(const uint32_t& word) { return reinterpret_cast<uintptr_t>(&word) % 4096; }

}  // namespace

void schedule_point() {
  Scheduler* const scheduler = Scheduler::instance();
  if (scheduler != nullptr && scheduler->is_running()) scheduler->point();
}

bool is_mutated(Mutation::Kind kind, const std::source_location& at) {
  Scheduler* const scheduler = Scheduler::instance();
  if (scheduler == nullptr || !scheduler->is_running()) return false;
  return mutation == Mutation{.kind = kind, .line = at.line()};
}

uint64_t exchange_last_read(const void* word, uint32_t line, uint64_t now) {
  Scheduler* const scheduler = Scheduler::instance();
  return scheduler == nullptr ? now : scheduler->exchange_last_read(word, line, now);
}

void futex_wait(uint32_t& word, uint32_t expected, std::chrono::nanoseconds) {
  schedule_point();
  if (word == expected) Scheduler::instance()->wait(futex_of(word));
}

void futex_wake(uint32_t& word, int max_waiters) {
  schedule_point();
  if (mutation.kind == Mutation::Kind::kWakeNone || !Scheduler::instance()->is_running()) return;
  Scheduler::instance()->wake(futex_of(word), max_waiters);
}

namespace {

constexpr uint64_t kSlots = 2, kTickets = 3;
constexpr size_t kProducers = 2, kBytes = 8;

class Run {
 public:
  explicit Run(Scheduler& scheduler) : scheduler_(scheduler) {
    ring_ = *ShmRing::create(BatchLayout({{"bytes", DType::kU8, {int64_t{kBytes}}}}, 1),
                             {.slots = kSlots, .end_ticket = kTickets});
    scheduler.add([this] { consume(); });
    for (size_t i = 0; i < kProducers; ++i) {
      attached_.push_back(*ShmRing::attach(UniqueFd(::dup(ring_->fd()))));
      ids_.push_back(*ring_->add_producer("producer"));
      scheduler.add([this, i] { produce(i); }, /*is_mortal=*/i == 0);
    }
    scheduler.add_supervisor([this] { ring_->requeue(ids_[0]); });
  }

  // The error, or empty.
  std::string run() {
    std::string error = scheduler_.run();
    if (error.empty() && num_consumed_ != kTickets)
      error = std::to_string(num_consumed_) + " tickets consumed";
    return error;
  }

 private:
  void produce(size_t i) {
    ShmRing& ring = *attached_[i];
    while (true) {
      const auto claim = ring.claim(ids_[i], 1h);
      if (!claim.ok()) {
        if (claim.status().code() != StatusCode::kClosed) scheduler_.fail(claim.status().message());
        return;
      }
      // Byte by byte, so that two owners of a ticket are noticed.
      for (std::byte& byte : claim->slot.first(kBytes)) {
        byte = byte_of(claim->ticket, i);
        if (&byte == claim->slot.data()) schedule_point();
      }
      if (!ring.publish(ids_[i], *claim)) scheduler_.fail("a claim of a live producer is lost");
    }
  }

  void consume() {
    for (uint64_t ticket = 0;; ++ticket) {
      const auto batch = ring_->pop(1h);
      if (!batch.ok()) {
        if (batch.status().code() != StatusCode::kClosed) scheduler_.fail(batch.status().message());
        return;
      }
      if (batch->ticket != ticket || ticket >= kTickets)
        return scheduler_.fail("ticket " + std::to_string(batch->ticket) + " consumed as number " +
                               std::to_string(ticket));
      const std::vector<std::byte> content(batch->slot.begin(), batch->slot.begin() + kBytes);
      schedule_point();
      const bool is_valid = content == std::vector<std::byte>(kBytes, byte_of(ticket, 0)) ||
                            content == std::vector<std::byte>(kBytes, byte_of(ticket, 1));
      if (!is_valid || !std::ranges::equal(content, batch->slot.first(kBytes)))
        scheduler_.fail("another content of ticket " + std::to_string(ticket));
      ++num_consumed_;
      ring_->release(ticket);
    }
  }

  static std::byte byte_of(uint64_t ticket, size_t producer) {
    return static_cast<std::byte>(1 + ticket * kProducers + producer);
  }

  Scheduler& scheduler_;
  std::unique_ptr<ShmRing> ring_;
  std::vector<std::unique_ptr<ShmRing>> attached_;
  std::vector<ProducerId> ids_;
  uint64_t num_consumed_ = 0;
};

struct Explored {
  uint64_t num_runs = 0;
  std::string error;  // of the first failed run
};

Explored explore(Bounds bounds) {
  Explored explored;
  Scheduler scheduler(bounds);
  do {
    Run run(scheduler);
    ++explored.num_runs;
    explored.error = run.run();
  } while (explored.error.empty() && scheduler.advance());
  return explored;
}

constexpr Bounds kAllBounds[] = {{.preemptions = 1}, {.kills = 1}};

TEST(RingScheduleTest, LosesAndDuplicatesNoTicketInAnySchedule) {
  for (const Bounds& bounds : kAllBounds) {
    const Explored explored = explore(bounds);
    EXPECT_EQ(explored.error, "") << "in run " << explored.num_runs;
    std::printf("schedules with up to %d preemptions and %d kills: %llu\n", bounds.preemptions,
                bounds.kills, static_cast<unsigned long long>(explored.num_runs));
  }
}

// The first error with a mutation, or empty.
std::string find_error(Mutation mutated) {
  mutation = mutated;
  std::string error;
  for (const Bounds& bounds : kAllBounds)
    if (error.empty()) error = explore(bounds).error;
  mutation = {};
  return error;
}

// The line of mapped_ring.h or mapped_ring.cc that contains `code`; 0 unless there is exactly one.
uint32_t line_of(const std::string& code) {
  std::vector<uint32_t> found;
  for (const char* const name : {"/mapped_ring.h", "/mapped_ring.cc"}) {
    std::ifstream file(std::string(STOKER_RING_SOURCES) + name);
    uint32_t number = 0;
    for (std::string line; std::getline(file, line);)
      if (++number; line.find(code) != std::string::npos) found.push_back(number);
  }
  return found.size() == 1 ? found.front() : 0;
}

TEST(MutatedRingTest, FailsWithoutWakeUps) {
  EXPECT_NE(find_error({.kind = Mutation::Kind::kWakeNone}), "");
}

struct MutatedAccess {
  const char* name;
  Mutation::Kind kind;
  const char* code;
};

class MutatedAccessTest : public ::testing::TestWithParam<MutatedAccess> {};

TEST_P(MutatedAccessTest, FailsInSomeSchedule) {
  const uint32_t line = line_of(GetParam().code);
  ASSERT_GT(line, 0u) << "not exactly one line contains " << GetParam().code;
  EXPECT_NE(find_error({.kind = GetParam().kind, .line = line}), "");
}

INSTANTIATE_TEST_SUITE_P(
    Accesses, MutatedAccessTest,
    ::testing::Values(MutatedAccess{"ClaimWithoutCompare", Mutation::Kind::kExchangeAlways,
                                    "word.compare_exchange_strong(seen, claimed_word("},
                      MutatedAccess{"WaiterNotCounted", Mutation::Kind::kForgetAdd,
                                    "atomic(words_.waiters).fetch_add("},
                      MutatedAccess{"EpochNotIncremented", Mutation::Kind::kForgetAdd,
                                    "atomic(words_.epoch).fetch_add("},
                      MutatedAccess{"StaleNumberOfWaiters", Mutation::Kind::kStaleLoad,
                                    "if (atomic(words_.waiters).load() > 0)"},
                      MutatedAccess{"NextTicketNotStored", Mutation::Kind::kForgetStore,
                                    "atomic(next_ticket_).store("},
                      MutatedAccess{"NextTicketNotPublished", Mutation::Kind::kForgetStore,
                                    "atomic(header_.next_ticket).store("},
                      MutatedAccess{"StaleNextTicket", Mutation::Kind::kStaleLoad,
                                    "return atomic(next_ticket_).load();"},
                      MutatedAccess{"StaleSlotInPop", Mutation::Kind::kStaleLoad,
                                    "uint64_t seen = word_of(ticket).load();"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace stoker::ring
