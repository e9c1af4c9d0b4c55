// ScheduleExplorer: runs a program of a few threads on scheduled_atomics.h in every schedule with a
// limited number of preemptions.
//
// Its threads are coroutines. Before each atomic operation another thread can continue (a
// preemption), or the thread can be killed. When a thread waits or ends, any other can continue, and
// a futex wakes any of its waiters. A depth-first search repeats the program with every sequence of
// these choices. It ends a schedule in a state that it has reached before: by the same operations,
// in another order of those that do not affect each other.
//
// Memory orders are those of C++20: a load can return every store that coherence, happens-before
// and the order of the sequentially consistent operations permit. Not modeled: a store that another
// thread sees before the stores to the same word that were executed earlier, and a load that
// returns the value of a later store. Accesses to plain memory that the program declares are checked
// for data races with vector clocks.
//
// Threads:  one; one explorer at a time explores.
// Blocking: explore() until every schedule was run, or one failed.
// Errors:   a failure is a message with the operations of the schedule.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tests/shared/ring/scheduled_atomics.h"

namespace stoker::ring {

inline constexpr int kMaxThreads = 4;

struct ExplorerLimits {
  int preemptions = 0;     // in a schedule
  int stale_loads = 2;     // loads in a schedule that do not return the newest value
  int mortal_thread = -1;  // can be killed
  bool timeouts = false;   // waits for futexes time out when no thread can continue
};

struct Exploration {
  uint64_t schedules = 0;
  uint64_t states = 0;
  std::string failure;  // empty: none
};

// What an operation does instead.
enum class Change : uint8_t {
  kNone,
  kAcquireRelease,  // instead of sequential consistency
  kRelaxed,
  kNotCompared,  // compare-and-swap, futex wait: as if the word had the expected value
  kOmitted,      // stores, additions and wake-ups
};
std::string_view to_string(Change change);

class ScheduleExplorer {
 public:
  using Program = std::function<void(ScheduleExplorer&)>;

  ScheduleExplorer() = default;
  ScheduleExplorer(const ScheduleExplorer&) = delete;
  ScheduleExplorer& operator=(const ScheduleExplorer&) = delete;

  // Calls `program`, which adds the threads, before each schedule.
  Exploration explore(const ExplorerLimits& limits, const Program& program);

  // -- before a schedule
  void add_thread(std::function<void()> body);
  // Called after a schedule without a failure, outside of its threads; can fail().
  void at_end(std::function<void()> check);
  // The memory that the processes share, and a second mapping of it.
  void share(void* memory, size_t bytes, void* mapping = nullptr);
  // Words in this range are not explored.
  void exclude(const void* begin, const void* end);
  // Relaxed additions are statistics, and not explored without this.
  void explore_statistics();
  // Called after each explored operation, for plain memory that is accessed next.
  void observe(std::function<void(const Access&, const AccessResult&)> observer);

  // -- in a thread
  [[noreturn]] void fail(const std::string& reason);
  // Until `thread` has ended or was killed, like waitpid().
  void wait_for_end(int thread);
  bool has_ended(int thread);
  void read_plain(const void* memory);
  void write_plain(const void* memory);

  // -- sites: the operations in the code of the ring that have been executed
  struct SiteKey {
    std::string_view file;  // name without folders
    uint32_t line = 0;
    uint32_t column = 0;
    bool is_private = false;  // the word is not in shared memory
    auto operator<=>(const SiteKey&) const = default;
  };
  struct Site {
    SiteKey key;
    Operation operation;
    std::memory_order order;
    // Function, operation, its number in the function, and "(private)": "EventCount::enter load".
    std::string name;
  };
  std::vector<Site> sites() const;
  // Of later calls of explore().
  void change(const SiteKey& site, Change change);

  AccessResult perform(const Access& access);  // of perform() in scheduled_atomics.h

 private:
  struct Run;
  struct Choice {
    int option = 0;
    int num_options = 0;
  };
  bool advance();  // to the choices of the next schedule; false: there are none
  bool note_site(const Access& access, bool is_private);

  Run* run_ = nullptr;
  std::vector<Choice> choices_;
  std::map<SiteKey, Access> sites_;
  std::unordered_set<uint64_t> seen_;  // hashes of the keys of sites_
  SiteKey changed_site_;
  Change change_ = Change::kNone;
};

// Every change of the operation that can be an error.
std::vector<Change> changes_of(const ScheduleExplorer::Site& site);

}  // namespace stoker::ring
