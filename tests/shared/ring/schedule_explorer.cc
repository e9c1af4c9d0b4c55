#include "tests/shared/ring/schedule_explorer.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>

namespace stoker::ring {
namespace {

ScheduleExplorer* exploring = nullptr;

constexpr size_t kStackBytes = 256 << 10;
// More than a correct schedule has.
constexpr int kMaxOperations = 4000;
constexpr int kMaxTimeouts = 4;

// Unwind a thread.
struct Killed {};
struct EndOfSchedule {};

using VectorClock = std::array<uint32_t, kMaxThreads>;

void join(VectorClock& clock, const VectorClock& other) {
  for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15ull ^ (b + 0x7f4a7c159e3779b9ull);
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  x ^= x >> 29;
  return x;
}

bool acquires(std::memory_order order) {
  return order == std::memory_order::acquire || order == std::memory_order::acq_rel ||
         order == std::memory_order::seq_cst;
}
bool releases(std::memory_order order) {
  return order == std::memory_order::release || order == std::memory_order::acq_rel ||
         order == std::memory_order::seq_cst;
}

std::memory_order changed_order(const Access& access, Change change) {
  if (change == Change::kRelaxed) return std::memory_order::relaxed;
  if (change != Change::kAcquireRelease) return access.order;
  if (access.operation == Operation::kLoad) return std::memory_order::acquire;
  if (access.operation == Operation::kStore) return std::memory_order::release;
  return std::memory_order::acq_rel;
}

// Its result is not used, or only compared with itself.
bool is_statistic(Operation operation, std::memory_order order) {
  return operation == Operation::kFetchAdd && order == std::memory_order::relaxed;
}

std::string_view to_string(Operation operation) {
  switch (operation) {
    case Operation::kLoad:
      return "load";
    case Operation::kStore:
      return "store";
    case Operation::kExchange:
      return "exchange";
    case Operation::kFetchAdd:
      return "fetch_add";
    case Operation::kFetchSub:
      return "fetch_sub";
    case Operation::kCompareExchange:
      return "compare_exchange";
    case Operation::kFutexWait:
      return "futex_wait";
    case Operation::kFutexWake:
      return "futex_wake";
  }
  return "";
}

// "static Result<T> stoker::ring::MappedRing::wait_for(…) [with T = …]": "MappedRing::wait_for".
std::string short_name(std::string_view function) {
  std::string name(function.substr(0, function.find(" [with")));
  for (const std::string_view scope :
       {"stoker::ring::", "{anonymous}::", "(anonymous namespace)::"})
    for (size_t at; (at = name.find(scope)) != std::string::npos;) name.erase(at, scope.size());
  name = name.substr(0, name.find('('));
  return name.substr(name.rfind(' ') + 1);
}

uint64_t read_memory(const void* word, size_t bytes) {
  uint64_t value = 0;
  std::memcpy(&value, word, bytes);
  return value;
}

uint64_t truncated(uint64_t value, size_t bytes) {
  return bytes < sizeof(value) ? value & ((uint64_t{1} << 8 * bytes) - 1) : value;
}

// The value after a successful operation that changes the word.
uint64_t changed_value(const Access& access, uint64_t value) {
  switch (access.operation) {
    case Operation::kStore:
    case Operation::kExchange:
    case Operation::kCompareExchange:
      return access.operand;
    case Operation::kFetchAdd:
      return truncated(value + access.operand, access.bytes);
    case Operation::kFetchSub:
      return truncated(value - access.operand, access.bytes);
    case Operation::kLoad:
    case Operation::kFutexWait:
    case Operation::kFutexWake:
      break;
  }
  return value;
}

// Outside of the threads, and of words that are not explored.
AccessResult perform_directly(const Access& access) {
  const uint64_t value = read_memory(access.word, access.bytes);
  const bool is_compared = access.operation == Operation::kCompareExchange;
  if (is_compared && value != access.expected) return {.value = value};
  const uint64_t changed = changed_value(access, value);
  if (changed != value) std::memcpy(access.word, &changed, access.bytes);
  return {.value = value, .is_exchanged = is_compared};
}

struct Store {
  uint64_t value = 0;
  VectorClock released{};  // what a thread knows that acquires the value
  uint64_t hash = 0;
};

// One explored word.
struct Word {
  // A thread has read or written this store; who knows of it cannot read an older one.
  struct Event {
    int thread;
    uint32_t time;
    size_t store;
  };
  std::vector<Store> stores;  // in modification order
  std::vector<Event> events;
  size_t last_sequential = 0;  // the newest store that a seq_cst operation has read or written
  uint64_t reads_hash = 0;     // of the loads since the newest store
};

struct PlainMemory {
  int writer = -1;
  uint32_t write_time = 0;
  VectorClock read_times{};
};

enum class ThreadState { kReady, kWaitsForFutex, kWaitsForEnd, kEnded };

struct Thread {
  std::function<void()> body;
  ThreadState state = ThreadState::kReady;
  bool is_started = false;
  const void* futex = nullptr;  // that it waits for
  int awaited_thread = -1;
  VectorClock clock{};
  // Of all that it has done and read. Those of all threads identify the state of the program.
  uint64_t hash = 0;
  jmp_buf context{};
};

char* stack_of(size_t thread) {
  static std::array<std::unique_ptr<char[]>, kMaxThreads> stacks;
  if (stacks[thread] == nullptr) stacks[thread] = std::make_unique<char[]>(kStackBytes);
  return stacks[thread].get();
}

}  // namespace

std::string_view to_string(Change change) {
  switch (change) {
    case Change::kNone:
      return "none";
    case Change::kAcquireRelease:
      return "acquire and release";
    case Change::kRelaxed:
      return "relaxed";
    case Change::kNotCompared:
      return "not compared";
    case Change::kOmitted:
      return "omitted";
  }
  return "";
}

// One schedule.
struct ScheduleExplorer::Run {
  ScheduleExplorer& explorer;
  const ExplorerLimits& limits;
  std::unordered_set<uint64_t>& visited;
  const bool is_recorded;

  // Of the program.
  std::deque<Thread> threads{};
  std::function<void()> check{};
  std::function<void(const Access&, const AccessResult&)> observer{};
  char* shared = nullptr;
  char* mapping = nullptr;
  size_t shared_bytes = 0;
  std::vector<std::pair<const void*, const void*>> excluded{};
  bool explores_statistics = false;

  // State.
  int current = -1;  // thread; -1: none
  int next = -1;     // thread; -1: any
  std::unordered_map<const void*, Word> words{};
  std::unordered_map<const void*, PlainMemory> plain{};
  int num_preemptions = 0, num_stale_loads = 0, num_kills = 0, num_timeouts = 0;
  int num_operations = 0;
  size_t num_choices = 0;
  bool is_ending = false;
  std::string failure{};
  std::vector<std::string> history{};
  jmp_buf main{};

  Thread& self() { return threads[static_cast<size_t>(current)]; }
  uint32_t& time() { return self().clock[static_cast<size_t>(current)]; }

  // ---- Choices

  uint64_t state_hash() const {
    uint64_t hash = mix(static_cast<uint64_t>(current + 1),
                        static_cast<uint64_t>(num_preemptions * 1000 + num_stale_loads * 100 +
                                              num_kills * 10 + num_timeouts));
    for (size_t i = 0; i < threads.size(); ++i)
      hash += mix(mix(threads[i].hash, i), static_cast<uint64_t>(threads[i].state));
    return hash;
  }

  // `is_in_operation`: not between two operations, so the hash does not identify the state.
  int choose(size_t num_options, bool is_in_operation = false) {
    if (num_options <= 1) return 0;
    auto& choices = explorer.choices_;
    if (num_choices == choices.size()) {
      if (!is_in_operation && !visited.insert(state_hash()).second) {
        is_ending = true;
        throw EndOfSchedule{};
      }
      choices.push_back({.num_options = static_cast<int>(num_options)});
    }
    assert(choices[num_choices].num_options == static_cast<int>(num_options) &&
           "the program is not deterministic");
    return choices[num_choices++].option;
  }

  std::vector<int> ready_threads() const {
    std::vector<int> ready;
    for (size_t i = 0; i < threads.size(); ++i)
      if (threads[i].state == ThreadState::kReady && static_cast<int>(i) != current)
        ready.push_back(static_cast<int>(i));
    return ready;
  }

  // Before an operation: the thread continues, loses its turn, or is killed.
  void schedule() {
    if (++num_operations > kMaxOperations) fail("the schedule does not end");
    std::vector<int> others;
    if (num_preemptions < limits.preemptions) others = ready_threads();
    const bool is_mortal = current == limits.mortal_thread && num_kills == 0;
    const auto option = static_cast<size_t>(choose(1 + others.size() + (is_mortal ? 1 : 0)));
    if (option == 0) return;
    if (option <= others.size()) {
      ++num_preemptions;
      return switch_to(others[option - 1]);
    }
    ++num_kills;
    self().hash = mix(self().hash, 1);
    record("is killed");
    throw Killed{};
  }

  // ---- Threads

  void switch_to(int thread) {
    next = thread;
    if (_setjmp(self().context) == 0) _longjmp(main, 1);
    if (is_ending) throw EndOfSchedule{};
  }

  void wait(ThreadState state) {
    self().state = state;
    switch_to(-1);
  }

  static void run_body() {
    Run& run = *exploring->run_;
    try {
      run.self().body();
    } catch (const Killed&) {
    } catch (const EndOfSchedule&) {
    }
    run.end_thread();
    _longjmp(run.main, 1);
  }

  void end_thread() {
    self().state = ThreadState::kEnded;
    for (Thread& thread : threads)
      if (thread.state == ThreadState::kWaitsForEnd && thread.awaited_thread == current) {
        thread.state = ThreadState::kReady;
        learn_end(thread, self());
      }
    next = -1;
  }

  static void learn_end(Thread& thread, const Thread& ended) {
    join(thread.clock, ended.clock);
    thread.hash = mix(thread.hash, ended.hash);
  }

  void resume(int thread) {
    current = thread;
    if (_setjmp(main) == 0) start_or_continue();
    current = -1;
  }

  // Without swapcontext(), which makes two system calls.
  [[noreturn]] void start_or_continue() {
    if (!self().is_started) {
      self().is_started = true;
      ucontext_t context{};
      ::getcontext(&context);
      context.uc_stack.ss_sp = stack_of(static_cast<size_t>(current));
      context.uc_stack.ss_size = kStackBytes;
      context.uc_link = nullptr;
      ::makecontext(&context, &Run::run_body, 0);
      ::setcontext(&context);
    }
    _longjmp(self().context, 1);
  }

  // The thread that continues when the last one cannot; -1: none can.
  int pick() {
    std::vector<int> ready = ready_threads();
    if (ready.empty() && limits.timeouts && num_timeouts < kMaxTimeouts) {
      ++num_timeouts;
      for (Thread& thread : threads)
        if (thread.state == ThreadState::kWaitsForFutex) thread.state = ThreadState::kReady;
      ready = ready_threads();
    }
    return ready.empty() ? -1 : ready[static_cast<size_t>(choose(ready.size()))];
  }

  void execute() {
    try {
      while (!is_ending) {
        const int thread = next >= 0 ? next : pick();
        if (thread < 0) break;
        next = -1;
        resume(thread);
      }
      if (!is_ending) check_ends();
    } catch (const EndOfSchedule&) {
    }
    is_ending = true;
    for (size_t i = 0; i < threads.size(); ++i)
      if (threads[i].is_started && threads[i].state != ThreadState::kEnded)
        resume(static_cast<int>(i));
  }

  void check_ends() {
    for (size_t i = 0; i < threads.size(); ++i)
      if (threads[i].state != ThreadState::kEnded)
        fail("thread " + std::to_string(i) + " waits forever");
    if (check) check();
  }

  void record(const std::string& operation) {
    if (is_recorded) history.push_back("thread " + std::to_string(current) + " " + operation);
  }
  [[noreturn]] void fail(const std::string& reason) {
    if (failure.empty()) failure = reason;
    is_ending = true;
    throw EndOfSchedule{};
  }

  // ---- Operations

  Word& word_at(const Access& access) {
    Word& word = words[access.word];
    if (word.stores.empty())
      word.stores.push_back({.value = read_memory(access.word, access.bytes)});
    return word;
  }

  // The oldest store that a load can return.
  size_t oldest_visible(const Word& word, std::memory_order order) {
    size_t oldest = order == std::memory_order::seq_cst ? word.last_sequential : 0;
    if (oldest + 1 == word.stores.size()) return oldest;
    for (const Word::Event& event : word.events)
      if (event.store > oldest && event.time <= self().clock[static_cast<size_t>(event.thread)])
        oldest = event.store;
    return oldest;
  }

  void add_event(Word& word, std::memory_order order, size_t store) {
    word.events.push_back({.thread = current, .time = time(), .store = store});
    if (order == std::memory_order::seq_cst)
      word.last_sequential = std::max(word.last_sequential, store);
  }

  uint64_t read(Word& word, std::memory_order order, size_t store) {
    if (acquires(order)) join(self().clock, word.stores[store].released);
    self().hash = mix(self().hash, word.stores[store].hash);
    word.reads_hash += self().hash;
    add_event(word, order, store);
    return word.stores[store].value;
  }

  void write(Word& word, const Access& access, std::memory_order order, uint64_t value) {
    const bool is_update = access.operation != Operation::kStore;
    Store store{.value = value};
    if (is_update) {
      if (acquires(order)) join(self().clock, word.stores.back().released);
      store.released = word.stores.back().released;  // continues a release sequence
    }
    if (releases(order)) join(store.released, self().clock);
    self().hash = mix(mix(self().hash, word.stores.back().hash), word.reads_hash + 1);
    store.hash = self().hash;
    word.reads_hash = 0;
    word.stores.push_back(store);
    add_event(word, order, word.stores.size() - 1);
    std::memcpy(access.word, &value, access.bytes);
  }

  // The store that a load returns, unless it has the value `ignored`.
  size_t choose_store(const Word& word, std::memory_order order, std::optional<uint64_t> ignored) {
    const size_t newest = word.stores.size() - 1;
    const size_t oldest = oldest_visible(word, order);
    if (oldest == newest || num_stale_loads >= limits.stale_loads) return newest;
    std::vector<size_t> stores{newest};
    for (size_t store = newest; store-- > oldest;)
      if (word.stores[store].value != ignored) stores.push_back(store);
    const size_t store = stores[static_cast<size_t>(choose(stores.size(), true))];
    if (store != newest) ++num_stale_loads;
    return store;
  }

  AccessResult compare_exchange(const Access& access, std::memory_order order, Change change) {
    Word& word = word_at(access);
    // A failed one is a load.
    const size_t store = choose_store(word, order, access.expected);
    const uint64_t value = word.stores[store].value;
    const bool is_equal = value == access.expected || change == Change::kNotCompared;
    if (store + 1 < word.stores.size() || !is_equal) return {.value = read(word, order, store)};
    write(word, access, order, access.operand);
    return {.value = value, .is_exchanged = true};
  }

  void futex_wait(const Access& access, Change change) {
    Word& word = word_at(access);
    read(word, std::memory_order::relaxed, word.stores.size() - 1);
    if (word.stores.back().value != access.expected && change != Change::kNotCompared) return;
    self().futex = access.word;
    wait(ThreadState::kWaitsForFutex);
  }

  // It does not synchronize: a woken thread knows no more than before.
  void futex_wake(const Access& access) {
    Word& word = word_at(access);
    self().hash = mix(self().hash, word.reads_hash);
    word.reads_hash += self().hash;
    std::vector<Thread*> waiters;
    for (Thread& thread : threads)
      if (thread.state == ThreadState::kWaitsForFutex && thread.futex == access.word)
        waiters.push_back(&thread);
    for (uint64_t i = 0; i < access.operand && !waiters.empty(); ++i) {
      const bool wakes_all = access.operand - i >= waiters.size();
      const int chosen = wakes_all ? 0 : choose(waiters.size(), true);
      Thread& thread = *waiters[static_cast<size_t>(chosen)];
      thread.state = ThreadState::kReady;
      thread.hash = mix(thread.hash, self().hash);
      waiters.erase(waiters.begin() + chosen);
    }
  }

  AccessResult execute_operation(const Access& access, Change change) {
    const std::memory_order order = changed_order(access, change);
    switch (access.operation) {
      case Operation::kLoad: {
        Word& word = word_at(access);
        const size_t store = choose_store(word, order, std::nullopt);
        const uint64_t value = read(word, order, store);
        // It can have been written as plain memory, too.
        if (word.stores.size() == 1) return {.value = read_memory(access.word, access.bytes)};
        return {.value = value};
      }
      case Operation::kStore:
      case Operation::kExchange:
      case Operation::kFetchAdd:
      case Operation::kFetchSub: {
        Word& word = word_at(access);
        const uint64_t value = word.stores.back().value;
        write(word, access, order, changed_value(access, value));
        return {.value = value};
      }
      case Operation::kCompareExchange:
        return compare_exchange(access, order, change);
      case Operation::kFutexWait:
        futex_wait(access, change);
        return {};
      case Operation::kFutexWake:
        futex_wake(access);
        return {};
    }
    return {};
  }

  // An omitted operation appears to succeed.
  AccessResult omit(const Access& access) {
    Word& word = word_at(access);
    return {.value = read(word, std::memory_order::relaxed, word.stores.size() - 1),
            .is_exchanged = true};
  }

  AccessResult perform(const Access& access, Change change) {
    schedule();
    ++time();
    self().hash =
        mix(self().hash, static_cast<uint64_t>(access.operation) + access.site.line() * 16);
    if (is_recorded)
      record(short_name(access.site.function_name()) + " " +
             std::string(to_string(access.operation)) + " in line " +
             std::to_string(access.site.line()));
    const AccessResult result =
        change == Change::kOmitted ? omit(access) : execute_operation(access, change);
    if (is_recorded && access.operation != Operation::kFutexWait)
      history.back() += ": " + std::to_string(result.value);
    if (observer) observer(access, result);
    return result;
  }

  bool is_shared(const void* word) const {
    const char* const at = static_cast<const char*>(word);
    return shared <= at && at < shared + shared_bytes;
  }
  bool is_explored(const Access& access) const {
    if (current < 0) return false;
    if (is_statistic(access.operation, access.order) && !explores_statistics) return false;
    return std::none_of(excluded.begin(), excluded.end(), [&access](const auto& range) {
      return range.first <= access.word && access.word < range.second;
    });
  }
};

Exploration ScheduleExplorer::explore(const ExplorerLimits& limits, const Program& program) {
  Exploration exploration;
  std::unordered_set<uint64_t> visited;
  choices_.clear();
  exploring = this;
  bool has_failed = false;  // then the schedule is repeated and recorded
  do {
    Run run{.explorer = *this, .limits = limits, .visited = visited, .is_recorded = has_failed};
    run_ = &run;
    program(*this);
    run.execute();
    run_ = nullptr;
    if (has_failed) {
      exploration.failure = run.failure.empty() ? "a failure that did not recur" : run.failure;
      for (const std::string& operation : run.history) exploration.failure += "\n  " + operation;
      break;
    }
    ++exploration.schedules;
    has_failed = !run.failure.empty();
  } while (has_failed || advance());
  exploring = nullptr;
  exploration.states = visited.size();
  return exploration;
}

bool ScheduleExplorer::advance() {
  while (!choices_.empty() && choices_.back().option + 1 == choices_.back().num_options)
    choices_.pop_back();
  if (choices_.empty()) return false;
  ++choices_.back().option;
  return true;
}

void ScheduleExplorer::add_thread(std::function<void()> body) {
  assert(run_->threads.size() < kMaxThreads);
  run_->threads.emplace_back().body = std::move(body);
}
void ScheduleExplorer::at_end(std::function<void()> check) { run_->check = std::move(check); }
void ScheduleExplorer::share(void* memory, size_t bytes, void* mapping) {
  run_->shared = static_cast<char*>(memory);
  run_->shared_bytes = bytes;
  run_->mapping = static_cast<char*>(mapping);
}
void ScheduleExplorer::exclude(const void* begin, const void* end) {
  run_->excluded.emplace_back(begin, end);
}
void ScheduleExplorer::explore_statistics() { run_->explores_statistics = true; }
void ScheduleExplorer::observe(std::function<void(const Access&, const AccessResult&)> observer) {
  run_->observer = std::move(observer);
}

void ScheduleExplorer::fail(const std::string& reason) { run_->fail(reason); }

void ScheduleExplorer::wait_for_end(int thread) {
  const Thread& awaited = run_->threads[static_cast<size_t>(thread)];
  if (awaited.state == ThreadState::kEnded) return Run::learn_end(run_->self(), awaited);
  run_->self().awaited_thread = thread;
  run_->wait(ThreadState::kWaitsForEnd);
}

bool ScheduleExplorer::has_ended(int thread) {
  const Thread& other = run_->threads[static_cast<size_t>(thread)];
  const bool has_ended = other.state == ThreadState::kEnded;
  if (has_ended) run_->self().hash = mix(run_->self().hash, other.hash);
  return has_ended;
}

void ScheduleExplorer::read_plain(const void* memory) {
  PlainMemory& plain = run_->plain[memory];
  const VectorClock& clock = run_->self().clock;
  if (plain.writer >= 0 && plain.write_time > clock[static_cast<size_t>(plain.writer)])
    fail("data race with a write of thread " + std::to_string(plain.writer));
  plain.read_times[static_cast<size_t>(run_->current)] = ++run_->time();
}

void ScheduleExplorer::write_plain(const void* memory) {
  PlainMemory& plain = run_->plain[memory];
  const VectorClock& clock = run_->self().clock;
  if (plain.writer >= 0 && plain.write_time > clock[static_cast<size_t>(plain.writer)])
    fail("data race with a write of thread " + std::to_string(plain.writer));
  for (size_t i = 0; i < clock.size(); ++i)
    if (plain.read_times[i] > clock[i])
      fail("data race with a read of thread " + std::to_string(i));
  plain.writer = run_->current;
  plain.write_time = ++run_->time();
}

std::vector<ScheduleExplorer::Site> ScheduleExplorer::sites() const {
  std::vector<Site> sites;
  std::map<std::string, int> num_sites;  // by name
  for (const auto& [key, access] : sites_) {
    std::string name =
        short_name(access.site.function_name()) + " " + std::string(to_string(access.operation));
    const bool is_same = !sites.empty() && sites.back().key.file == key.file &&
                         sites.back().key.line == key.line && sites.back().key.column == key.column;
    const int number = is_same ? num_sites[name] : ++num_sites[name];
    if (number > 1) name += " " + std::to_string(number);
    if (key.is_private) name += " (private)";
    sites.push_back({.key = key,
                     .operation = access.operation,
                     .order = access.order,
                     .name = std::move(name)});
  }
  return sites;
}

void ScheduleExplorer::change(const SiteKey& site, Change change) {
  changed_site_ = site;
  change_ = change;
}

AccessResult ScheduleExplorer::perform(const Access& access) {
  if (run_ == nullptr) return perform_directly(access);
  Access canonical = access;  // the word in the first mapping
  char* const word = static_cast<char*>(access.word);
  if (run_->mapping != nullptr && run_->mapping <= word &&
      word < run_->mapping + run_->shared_bytes)
    canonical.word = run_->shared + (word - run_->mapping);
  const bool is_changed = note_site(access, !run_->is_shared(canonical.word));
  if (!run_->is_explored(canonical)) return perform_directly(canonical);
  return run_->perform(canonical, is_changed ? change_ : Change::kNone);
}

// Whether it is the changed one. Called for every operation, hence the numbers of seen sites.
bool ScheduleExplorer::note_site(const Access& access, bool is_private) {
  const auto name_of = [](const char* path) {
    std::string_view file = path;
    file.remove_prefix(file.rfind('/') + 1);
    return file;
  };
  const uint32_t line = access.site.line(), column = access.site.column();
  const auto path = reinterpret_cast<uintptr_t>(access.site.file_name());
  if (seen_.insert(mix(path, uint64_t{line} << 32 | column << 1 | (is_private ? 1 : 0))).second)
    sites_.try_emplace({.file = name_of(access.site.file_name()),
                        .line = line,
                        .column = column,
                        .is_private = is_private},
                       access);
  return line == changed_site_.line && column == changed_site_.column &&
         is_private == changed_site_.is_private &&
         name_of(access.site.file_name()) == changed_site_.file;
}

AccessResult perform(const Access& access) {
  return exploring == nullptr ? perform_directly(access) : exploring->perform(access);
}

std::vector<Change> changes_of(const ScheduleExplorer::Site& site) {
  std::vector<Change> changes;
  const bool is_futex =
      site.operation == Operation::kFutexWait || site.operation == Operation::kFutexWake;
  if (is_statistic(site.operation, site.order)) return changes;
  if (!is_futex && site.order == std::memory_order::seq_cst)
    changes.push_back(Change::kAcquireRelease);
  if (!is_futex && site.order != std::memory_order::relaxed) changes.push_back(Change::kRelaxed);
  if (site.operation == Operation::kCompareExchange || site.operation == Operation::kFutexWait)
    changes.push_back(Change::kNotCompared);
  if (site.operation != Operation::kLoad) changes.push_back(Change::kOmitted);
  return changes;
}

}  // namespace stoker::ring
