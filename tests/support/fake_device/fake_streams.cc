#include "tests/support/fake_device/fake_streams.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include <ATen/ThreadLocalState.h>
#include <c10/util/Exception.h>

#include "tests/support/fake_device/device_allocator.h"

namespace stoker::fake_device {
namespace {

constexpr int32_t kIllegalAddress = 700;  // cudaErrorIllegalAddress

// Leaves a function in the thread whose device has failed or does not exist any more.
struct Abandon : std::exception {};

struct PinnedRanges {
  std::mutex mutex;
  std::map<const std::byte*, size_t> sizes;
};

PinnedRanges& pinned_ranges() {
  static PinnedRanges ranges;
  return ranges;
}

}  // namespace

bool pin(void* bytes, size_t size) {
  PinnedRanges& ranges = pinned_ranges();
  const std::lock_guard lock(ranges.mutex);
  ranges.sizes[static_cast<const std::byte*>(bytes)] = size;
  return true;
}

void unpin(void* bytes) {
  PinnedRanges& ranges = pinned_ranges();
  const std::lock_guard lock(ranges.mutex);
  ranges.sizes.erase(static_cast<const std::byte*>(bytes));
}

bool is_pinned(const void* bytes, size_t size) {
  PinnedRanges& ranges = pinned_ranges();
  const std::lock_guard lock(ranges.mutex);
  const auto* const first = static_cast<const std::byte*>(bytes);
  auto range = ranges.sizes.upper_bound(first);
  if (range == ranges.sizes.begin()) return false;
  --range;
  return first + size <= range->first + range->second;
}

void poison(void* bytes, size_t size) { std::memset(bytes, 0xff, size); }

namespace {

// "Trainer::do_step+420" for an address in that function; "" if it is not exported.
std::string name_of(const void* address) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || info.dli_sname == nullptr) return "";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status), &std::free);
  std::string name = demangled ? demangled.get() : info.dli_sname;
  name = name.substr(0, name.find('('));
  const auto offset = static_cast<const char*>(address) - static_cast<const char*>(info.dli_saddr);
  return name + '+' + std::to_string(offset);
}

// The calls of the engine and of the trainer that led here.
std::string calls() {
  static std::map<const void*, std::string> names;
  std::array<void*, 24> frames{};
  const int count = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  constexpr std::string_view kNamespace = "stoker::train::";
  std::string found;
  for (int i = 0; i < count; ++i) {
    const auto known = names.find(frames[i]);
    const std::string& name =
        known != names.end() ? known->second : names[frames[i]] = name_of(frames[i]);
    if (!name.starts_with(kNamespace)) continue;
    found += (found.empty() ? " in " : ", ") + name.substr(kNamespace.size());
    if (name.starts_with("stoker::train::Trainer::")) break;
  }
  return found;
}

}  // namespace

// A function for the thread, with the modes of the thread that submitted it.
struct FakeStreams::Call {
  cuda::Work work;
  std::optional<uint64_t> fails_after;  // allocations
  at::ThreadLocalState modes;
  bool is_captured = false;
  uint64_t number = 0;  // of the submission
  bool has_started = false;
  bool is_done = false;
  std::exception_ptr maybe_error;
};

// Shared by the graph and its replays.
struct FakeStreams::GraphState {
  OpRecorder recorder;
  std::vector<Event> events;
  uint64_t pending_replays = 0;
};

class FakeStreams::FakeGraph final : public cuda::Graph {
 public:
  FakeGraph(FakeStreams& streams, std::shared_ptr<GraphState> state)
      : streams_(streams), state_(std::move(state)) {}
  ~FakeGraph() override {
    if (state_->pending_replays > 0 && !streams_.has_failed_)
      streams_.violate("a graph is destroyed during its replay");
  }
  void replay() override {
    streams_.begin_call();
    ++streams_.log_->replays;
    ++state_->pending_replays;
    for (const Event event : state_->events) {
      EventState& recorded = streams_.events_[event];
      ++recorded.recorded;
      if (streams_.is_removed("record " + recorded.name)) recorded.completed = recorded.recorded;
    }
    streams_.enqueue([state = state_, &streams = streams_] {
      state->recorder.replay([&streams] { streams.before_kernel(); });
      --state->pending_replays;
    });
  }

 private:
  FakeStreams& streams_;
  const std::shared_ptr<GraphState> state_;
};

FakeStreams::FakeStreams(FakeDeviceOptions options)
    : options_(std::move(options)), log_(options_.log), random_(options_.seed) {
  change_pace();
  thread_ = std::thread([this] { run_thread(); });
}

FakeStreams::~FakeStreams() {
  if (!has_failed_ && !are_idle()) violate("the device is closed while it works");
  // The thread leaves what is not complete.
  has_failed_ = true;
  while (!queues_[0].empty())
    if (queues_[0].front().run()) queues_[0].pop_front();
  is_ending_ = true;
  to_thread_.release();
  thread_.join();
  for (auto& memory : memory_) poison(memory.data(), memory.size());
  for (auto& memory : host_memory_) poison(memory.data(), memory.size() * sizeof(double));
}

// ---- The schedule

bool FakeStreams::chance(double probability) {
  return static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
}

size_t FakeStreams::below(size_t count) { return static_cast<size_t>(random_() % count); }

bool FakeStreams::can_run(size_t stream) const {
  const std::deque<Item>& queue = queues_[stream];
  return !queue.empty() && (!queue.front().is_ready || queue.front().is_ready());
}

void FakeStreams::run(size_t stream) {
  std::deque<Item>& queue = queues_[stream];
  ++num_parts_;
  if (queue.front().run()) queue.pop_front();
}

bool FakeStreams::run_some() {
  std::array<double, kStreams> weights{};
  double sum = 0;
  for (size_t stream = 0; stream < kStreams; ++stream)
    if (can_run(stream)) sum += weights[stream] = eagerness_[stream] + 0.01;
  if (sum == 0) return false;
  double chosen = static_cast<double>(random_() >> 11) * 0x1p-53 * sum;
  size_t stream = kStreams;
  for (size_t each = 0; each < kStreams && (stream == kStreams || chosen >= 0); ++each) {
    if (weights[each] == 0) continue;
    stream = each;
    chosen -= weights[each];
  }
  run(stream);
  return true;
}

bool FakeStreams::are_idle() const {
  return std::ranges::all_of(queues_, [](const std::deque<Item>& queue) { return queue.empty(); });
}

void FakeStreams::change_pace() {
  constexpr double kEagerness[] = {0, 0, 0.02, 0.1, 0.5, 0.9};
  for (double& eagerness : eagerness_)
    eagerness = options_.is_lazy ? 0 : kEagerness[below(std::size(kEagerness))];
  constexpr double kPauses[] = {0, 0, 0.01, 0.05};
  pause_probability_ = std::max(kPauses[below(std::size(kPauses))], options_.min_pause_probability);
}

void FakeStreams::run_at_random() {
  if (chance(0.01)) change_pace();
  size_t stream = below(kStreams);
  for (size_t i = 0; i < kStreams; ++i, stream = (stream + 1) % kStreams)
    // check_tests: each round runs one of the operations that are queued.
    while (chance(eagerness_[stream]) && can_run(stream)) run(stream);
}

template <typename Condition>
void FakeStreams::run_until(const Condition& condition) {
  // check_tests: each round runs an operation, or fails.
  while (!condition()) {
    const bool has_run = run_some();
    TORCH_INTERNAL_ASSERT(has_run, "the fake device waits for itself");
  }
}

bool FakeStreams::is_removed(std::string fence) {
  if (options_.is_fence_per_call) fence += calls();
  log_->fences.insert(fence);
  return fence == options_.removed_fence;
}

void FakeStreams::check() {
  if (has_failed_)
    throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                                kIllegalAddress,
                                "CUDA error: an illegal memory access was encountered");
  if (maybe_error_) std::rethrow_exception(std::exchange(maybe_error_, nullptr));
}

void FakeStreams::begin_call() {
  run_at_random();
  check();
}

// ---- Memory

void FakeStreams::count_allocation() {
  if (allocations_++ == options_.failing_allocation) throw_out_of_memory();
}

void* FakeStreams::allocate(size_t bytes) {
  begin_call();
  count_allocation();
  memory_.emplace_back(std::max<size_t>(bytes, 1), std::byte{0xff});
  return memory_.back().data();
}

std::span<double> FakeStreams::allocate_host(size_t count) {
  begin_call();
  count_allocation();
  auto& memory = host_memory_.emplace_back(count);
  poison(memory.data(), count * sizeof(double));
  return memory;
}

// ---- Events

FakeStreams::Event FakeStreams::make_event(std::string name, EventUse use) {
  begin_call();
  events_.push_back({.name = std::move(name), .use = use});
  return events_.size() - 1;
}

bool FakeStreams::is_within_capture(const char* call) {
  if (maybe_recording_ == nullptr) return false;
  violate(std::string(call) + " is called by work that is captured");
  return true;
}

void FakeStreams::record(Event event, Stream stream) {
  const bool is_for_graphs = events_[event].use == EventUse::kGraph;
  if (maybe_recording_ != nullptr) {  // by the work that is captured
    if (!is_for_graphs || stream != Stream::kWork)
      violate("a graph records \"" + events_[event].name +
              "\", which is no event for graphs or is on another stream");
    maybe_recording_->events.push_back(event);
    maybe_recording_->recorder.add([this, event] {
      if (events_[event].completed < events_[event].recorded) ++events_[event].completed;
    });
    return;
  }
  if (is_for_graphs) violate("\"" + events_[event].name + "\" is recorded without a graph");
  begin_call();
  const uint64_t version = ++events_[event].recorded;
  const auto complete = [this, event, version] {
    events_[event].completed = version;
    events_[event].completed_at = num_parts_;
    return true;
  };
  // Without it, the event is complete as soon as the host gets there.
  if (is_removed("record " + events_[event].name))
    complete();
  else
    queue_of(stream).push_back({.run = complete, .is_ready = {}});
}

void FakeStreams::wait(Stream stream, Event event) {
  if (is_within_capture("wait()")) return;
  begin_call();
  const uint64_t version = events_[event].recorded;
  if (is_removed("wait " + events_[event].name) || version == 0) return;
  queue_of(stream).push_back({.run = [] { return true; },
                              .is_ready =
                                  [this, event, version] {
                                    // A failed replay does not record the events of its graph.
                                    return has_failed_ || events_[event].completed >= version;
                                  }});
}

bool FakeStreams::is_complete(Event event) {
  begin_call();
  if (is_removed("query " + events_[event].name)) return true;
  return events_[event].completed == events_[event].recorded;
}

void FakeStreams::synchronize(Event event) {
  begin_call();
  if (is_removed("synchronize " + events_[event].name)) return;
  run_until([&] { return events_[event].completed == events_[event].recorded; });
  check();
}

double FakeStreams::elapsed_ms(Event begin, Event end) {
  begin_call();
  if (events_[begin].completed == 0 || events_[end].completed != events_[end].recorded)
    violate("the time of an incomplete event is read");
  return static_cast<double>(events_[end].completed_at) -
         static_cast<double>(events_[begin].completed_at);
}

// ---- Copies

void FakeStreams::copy_to_device(void* to, std::span<const std::byte> from) {
  begin_call();
  auto* const target = static_cast<std::byte*>(to);
  auto moved = std::make_shared<size_t>(0);
  const bool checks_pins = !options_.is_all_pinned;
  const bool is_asynchronous = !checks_pins || is_pinned(from.data(), from.size());
  queue_of(Stream::kCopy)
      .push_back({.run =
                      [this, target, from, moved, is_checked = checks_pins && is_asynchronous] {
                        if (has_failed_) return true;
                        if (is_checked && !is_pinned(from.data(), from.size()))
                          violate("memory is unlocked during a copy from it");
                        if (*moved == 0) poison(target, from.size());
                        const size_t part = 1 + below(from.size() - *moved);
                        std::memcpy(target + *moved, from.data() + *moved, part);
                        *moved += part;
                        return *moved == from.size();
                      },
                  .is_ready = {}});
  if (is_asynchronous) return;
  run_until([&] { return *moved == from.size() || has_failed_; });
  check();
}

void FakeStreams::copy_to_host(double* to, const double* from, size_t count) {
  begin_call();
  poison(to, count * sizeof(double));
  queue_of(Stream::kWork)
      .push_back({.run =
                      [this, to, from, count] {
                        if (has_failed_) return true;
                        std::memcpy(to, from, count * sizeof(double));
                        return true;
                      },
                  .is_ready = {}});
}

// ---- Work

std::shared_ptr<FakeStreams::Call> FakeStreams::enqueue(cuda::Work work,
                                                        std::optional<uint64_t> fails_after) {
  auto call = std::make_shared<Call>();
  call->work = std::move(work);
  call->fails_after = fails_after;
  call->number = log_->submissions;
  ++works_;
  queue_of(Stream::kWork)
      .push_back({.run = [this, call] { return resume(*call); }, .is_ready = {}});
  return call;
}

// An allocation of the host fails while the work before it is already submitted.
void FakeStreams::count_submission() {
  if (log_->submissions++ == options_.failing_submission) throw_out_of_memory();
}

void FakeStreams::submit(cuda::Work work) {
  begin_call();
  try {
    count_submission();
  } catch (const c10::OutOfMemoryError&) {
    enqueue(std::move(work), below(60));
    throw;
  }
  enqueue(std::move(work));
}

// On the thread of the host, because the other can be in the middle of work.
void FakeStreams::submit_sums(cuda::Work work) {
  if (is_within_capture("submit_sums()")) return;
  begin_call();
  const uint64_t before = works_;
  queue_of(Stream::kSums)
      .push_back({.run =
                      [this, work = std::move(work), before] {
                        if (has_failed_) return true;
                        if (completed_works_ < before) ++log_->early_sums;
                        work();
                        return true;
                      },
                  .is_ready = {}});
}

void FakeStreams::call(const cuda::Work& work) {
  // The copy lives as long as it is needed if the call does not wait for it.
  submit(work);
  if (is_removed("wait for call")) return;
  run_until([this] { return queues_[0].empty(); });
  check();
}

std::unique_ptr<cuda::Graph> FakeStreams::capture(const cuda::Work& work) {
  begin_call();
  wait_for_streams();
  std::optional<uint64_t> fails_after;
  if (log_->captures++ == options_.failing_capture) fails_after = below(100);
  const auto state = std::make_shared<GraphState>();
  const auto call = enqueue(
      [this, &work, &graph = *state] {
        struct Recording {
          FakeStreams& streams;
          GraphState& target;
          Recording(FakeStreams& on, GraphState& to) : streams(on), target(to) {
            target.recorder.begin();
            streams.maybe_recording_ = &target;
          }
          ~Recording() {
            streams.maybe_recording_ = nullptr;
            target.recorder.end();
          }
        } const recording(*this, graph);
        work();
      },
      fails_after);
  call->is_captured = true;
  run_until([&] { return call->is_done; });
  std::exception_ptr error = std::exchange(maybe_error_, nullptr);
  check();
  if (error || fails_after) ++log_->failed_captures;
  if (error) std::rethrow_exception(error);
  if (fails_after) throw_out_of_memory();  // for the instance of the graph
  graphs_.push_back(state);
  return std::make_unique<FakeGraph>(*this, state);
}

// Runs the function to its end, or until it pauses.
bool FakeStreams::resume(Call& call) {
  if (has_failed_ && !call.has_started) {
    call.is_done = true;
    ++completed_works_;
    return true;
  }
  if (!call.has_started && log_->submissions > call.number) ++log_->late_works;
  call.has_started = true;
  maybe_running_ = &call;
  to_thread_.release();
  to_host_.acquire();
  maybe_running_ = nullptr;
  if (!call.is_done) return false;
  ++completed_works_;
  if (call.maybe_error) maybe_error_ = call.maybe_error;
  call.work = nullptr;
  return true;
}

void FakeStreams::run_thread() {
  while (true) {
    to_thread_.acquire();
    if (is_ending_) return;
    Call& call = *maybe_running_;
    try {
      const at::ThreadLocalStateGuard modes(call.modes);
      const OperatorInterception interception(*this);
      const FailingAllocation failing(call.fails_after);
      call.work();
    } catch (const Abandon&) {
    } catch (const c10::OutOfMemoryError&) {
      // The host has the exception of a submission already, and gets that of a capture.
      if (!call.fails_after || call.is_captured) call.maybe_error = std::current_exception();
    } catch (...) {
      call.maybe_error = std::current_exception();
    }
    call.is_done = true;
    to_host_.release();
  }
}

void FakeStreams::yield() {
  to_host_.release();
  to_thread_.acquire();
}

void FakeStreams::fail_kernel() {
  has_failed_ = true;
  throw Abandon();
}

void FakeStreams::before_kernel() {
  if (has_failed_) throw Abandon();
  if (log_->kernels++ == options_.failing_kernel) fail_kernel();
  if (chance(pause_probability_)) yield();
}

void FakeStreams::on_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                              torch::jit::Stack& stack) {
  before_kernel();
  if (maybe_recording_ != nullptr)
    maybe_recording_->recorder.call(op, keys, stack);
  else
    call_kernel(op, keys, stack);
}

void FakeStreams::on_kernel(const std::function<void()>& kernel) {
  before_kernel();
  if (maybe_recording_ == nullptr) return kernel();
  maybe_recording_->recorder.add([this, kernel] {
    before_kernel();
    kernel();
  });
}

// ---- The whole device

void FakeStreams::synchronize() {
  begin_call();
  if (!is_removed("synchronize device")) wait_for_streams();
}

void FakeStreams::release_cached_memory() {
  begin_call();
  wait_for_streams();
}

void FakeStreams::wait_for_streams() {
  run_until([this] { return are_idle(); });
  check();
}

cuda::DeviceUsage FakeStreams::memory() {
  cuda::DeviceUsage usage;
  for (const auto& graph : graphs_)
    if (const auto state = graph.lock()) usage.reserved_bytes += state->recorder.bytes();
  return usage;
}

uint64_t FakeStreams::free_bytes() {
  begin_call();
  return options_.is_memory_short && chance(0.5) ? 0 : uint64_t{1} << 40;
}

}  // namespace stoker::fake_device
