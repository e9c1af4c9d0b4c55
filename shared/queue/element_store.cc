#include "shared/queue/element_store.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <random>
#include <type_traits>
#include <utility>

namespace stoker::queue {
namespace {

static_assert(std::is_nothrow_move_constructible_v<Tuple>, "growth must not lose elements");

// Room for one more; unlike push_back(), without adding it.
template <typename T>
void make_room(std::vector<T>& values) {
  if (values.size() == values.capacity()) values.reserve(std::max<size_t>(16, 2 * values.size()));
}

// A ring of tuples that doubles when it is full. Element i, counted from the first push(), is at
// index i modulo the size.
class FifoStore final : public ElementStore {
 public:
  void push(Tuple&& element) override {
    if (static_cast<size_t>(size()) == ring_.size()) grow();
    at(pushed_) = std::move(element);
    add(pushed_, 1);
  }
  void pop(Tuple& element) noexcept override {
    element = std::move(at(popped_));
    add(popped_, 1);
  }
  void put_back(std::vector<Tuple>&& elements) noexcept override {
    for (size_t i = elements.size(); i > 0; --i) {
      if (static_cast<size_t>(size()) == ring_.size()) grow();
      at(popped_ - 1) = std::move(elements[i - 1]);
      add(popped_, uint64_t(-1));
    }
    known_popped_ = popped_;
  }
  void for_each(const std::function<void(const Tuple&)>& visit) const override {
    for (uint64_t i = popped_; i != pushed_; ++i) visit(ring_[i & (ring_.size() - 1)].element);
  }
  // The ring does not grow here, because it is read by the other side.
  bool try_push(Tuple&& element, int64_t capacity) noexcept override {
    const uint64_t limit = std::min<uint64_t>(capacity, ring_.size());
    const uint64_t pushed = pushed_.load(std::memory_order_relaxed);
    if (pushed - known_popped_ >= limit) {
      known_popped_ = popped_.load(std::memory_order_acquire);
      if (pushed - known_popped_ >= limit) return false;
    }
    at(pushed) = std::move(element);
    pushed_.store(pushed + 1, std::memory_order_release);
    return true;
  }
  bool try_pop(Tuple& element) noexcept override {
    const uint64_t popped = popped_.load(std::memory_order_relaxed);
    if (popped >= known_pushed_) {  // pop() does not update it
      known_pushed_ = pushed_.load(std::memory_order_acquire);
      if (popped == known_pushed_) return false;
    }
    element = std::move(at(popped));
    popped_.store(popped + 1, std::memory_order_release);
    return true;
  }

 private:
  // Has its own cache lines, so that the sides do not contend for those of neighbors.
  struct alignas(kCacheLine) Slot {
    Tuple element;
  };
  Tuple& at(uint64_t i) { return ring_[i & (ring_.size() - 1)].element; }
  void grow() {
    std::vector<Slot> larger(std::max<size_t>(16, 2 * ring_.size()));
    for (uint64_t i = popped_; i != pushed_; ++i)
      larger[i & (larger.size() - 1)].element = std::move(at(i));
    ring_ = std::move(larger);
  }

  alignas(kCacheLine) std::vector<Slot> ring_;  // its size is a power of two, or zero
};

// The generator Philox4x32-10 (Salmon et al., 2011), keyed and read as in TensorFlow's
// RandomShuffleQueue, so that equal seeds give equal orders.
class Philox {
 public:
  explicit Philox(const GeneratorState& state)
      : key_{low(state.key), high(state.key)},
        counter_{low(state.draws / 4), high(state.draws / 4), low(state.stream),
                 high(state.stream)} {
    if (state.draws % 4 == 0) return;
    next();
    used_ = state.draws % 4;
  }

  uint32_t next() {
    if (used_ == output_.size()) {
      output_ = block();
      used_ = 0;
      for (uint32_t& word : counter_)
        if (++word != 0) break;
    }
    return output_[used_++];
  }
  GeneratorState state() const {
    const uint64_t blocks = joined(counter_[0], counter_[1]);
    return {.key = joined(key_[0], key_[1]),
            .stream = joined(counter_[2], counter_[3]),
            .draws = 4 * blocks + used_ - output_.size()};
  }

 private:
  static uint32_t low(uint64_t value) { return static_cast<uint32_t>(value); }
  static uint32_t high(uint64_t value) { return static_cast<uint32_t>(value >> 32); }
  static uint64_t joined(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

  std::array<uint32_t, 4> block() const {
    std::array<uint32_t, 4> x = counter_;
    std::array<uint32_t, 2> key = key_;
    for (int round = 0; round < 10; ++round) {
      const uint64_t first = uint64_t{0xd2511f53} * x[0];
      const uint64_t second = uint64_t{0xcd9e8d57} * x[2];
      x = {high(second) ^ x[1] ^ key[0], low(second), high(first) ^ x[3] ^ key[1], low(first)};
      key[0] += 0x9e3779b9;
      key[1] += 0xbb67ae85;
    }
    return x;
  }

  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;  // of the next block; its upper half is the stream
  std::array<uint32_t, 4> output_{};
  size_t used_ = 4;  // numbers of output_
};

class RandomShuffleStore final : public ElementStore {
 public:
  explicit RandomShuffleStore(std::optional<uint64_t> seed) : random_(make_generator(seed)) {}

  void push(Tuple&& element) override {
    elements_.push_back(std::move(element));
    add(pushed_, 1);
  }
  void pop(Tuple& element) noexcept override {
    const size_t index = random_.next() % elements_.size();
    element = std::move(elements_[index]);
    if (index + 1 < elements_.size()) elements_[index] = std::move(elements_.back());
    elements_.pop_back();
    add(popped_, 1);
  }
  void put_back(std::vector<Tuple>&& elements) noexcept override {
    for (size_t i = elements.size(); i > 0; --i) push(std::move(elements[i - 1]));
  }
  void for_each(const std::function<void(const Tuple&)>& visit) const override {
    for (const Tuple& element : elements_) visit(element);
  }
  std::optional<GeneratorState> generator() const override { return random_.state(); }
  void set_generator(const GeneratorState& state) override { random_ = Philox(state); }

 private:
  static Philox make_generator(std::optional<uint64_t> seed) {
    // TensorFlow's seed of a graph that has none. An operation's seed is the second one.
    constexpr uint64_t kGraphSeed = 87654321;
    if (seed) return Philox({.key = kGraphSeed, .stream = *seed});
    std::random_device device;
    const auto random64 = [&] { return uint64_t{device()} << 32 | device(); };
    const uint64_t key = random64();
    return Philox({.key = key, .stream = random64()});
  }

  std::vector<Tuple> elements_;
  Philox random_;
};

// A heap of the smallest priority first, by order of arrival within a priority.
class PriorityStore final : public ElementStore {
 public:
  void push(Tuple&& element) override { insert(std::move(element), next_arrival_++); }
  void pop(Tuple& element) noexcept override {
    std::pop_heap(heap_.begin(), heap_.end(), is_later);
    const size_t slot = heap_.back().slot;
    heap_.pop_back();
    element = std::move(slots_[slot]);
    free_slots_.push_back(slot);
    add(popped_, 1);
  }
  // Before all others of their priority, as they were.
  void put_back(std::vector<Tuple>&& elements) noexcept override {
    for (size_t i = elements.size(); i > 0; --i)
      insert(std::move(elements[i - 1]), --first_arrival_);
  }
  void for_each(const std::function<void(const Tuple&)>& visit) const override {
    std::vector<Entry> sorted = heap_;
    std::ranges::sort(sorted, [](const Entry& a, const Entry& b) { return is_later(b, a); });
    for (const Entry& entry : sorted) visit(slots_[entry.slot]);
  }

 private:
  struct Entry {
    int64_t priority;
    int64_t arrival;
    size_t slot;
  };
  static bool is_later(const Entry& a, const Entry& b) {
    return a.priority != b.priority ? a.priority > b.priority : a.arrival > b.arrival;
  }

  void insert(Tuple&& element, int64_t arrival) {
    make_room(heap_);
    if (free_slots_.empty()) make_room(slots_);
    free_slots_.reserve(slots_.capacity());  // for pop()
    size_t slot = slots_.size();
    const auto priority = element[0].value<int64_t>();
    if (free_slots_.empty()) {
      slots_.push_back(std::move(element));
    } else {
      slot = free_slots_.back();
      free_slots_.pop_back();
      slots_[slot] = std::move(element);
    }
    heap_.push_back({priority, arrival, slot});
    std::push_heap(heap_.begin(), heap_.end(), is_later);
    add(pushed_, 1);
  }

  std::vector<Entry> heap_;
  std::vector<Tuple> slots_;
  std::vector<size_t> free_slots_;
  int64_t next_arrival_ = 0;
  int64_t first_arrival_ = 0;
};

}  // namespace

std::unique_ptr<ElementStore> make_element_store(const QueueOptions& options) {
  switch (options.type) {
    case QueueType::kFIFO:
    case QueueType::kPaddingFIFO:
      return std::make_unique<FifoStore>();
    case QueueType::kRandomShuffle:
      return std::make_unique<RandomShuffleStore>(options.seed);
    case QueueType::kPriority:
      return std::make_unique<PriorityStore>();
  }
  return nullptr;
}

}  // namespace stoker::queue
