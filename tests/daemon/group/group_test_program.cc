// group_test_program: one rank of a group. Its environment is that of torchrun.
//
// Usage: group_test_program SCENARIO TIMEOUT_MS START_TIMEOUT_MS RUN_ID INTERFACE
//
// Prints one line per event: "listening PORT" (rank 0, on a port that the store chose), "opened PID",
// "sum SIZE DIGEST", "broadcast ROOT DIGEST", "scattered DIGEST", "collectives N", "sent COLLECTIVE
// BYTES", "us WHAT MEDIAN" (rank 0), "devices aborted", "error MESSAGE". Exits with the exit code of its error. SIGTERM requests a stop.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "daemon/group/control_record.h"
#include "daemon/group/gloo_group.h"
#include "daemon/group/rendezvous.h"
#include "tests/daemon/group/group_values.h"

namespace stoker::group {
namespace {

void print(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

std::span<const float> values_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

at::Tensor fill(int rank, size_t size) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(size)}, at::kFloat);
  for (size_t i = 0; i < size; ++i) tensor.mutable_data_ptr<float>()[i] = test::value_of(rank, i);
  return tensor;
}

std::vector<int64_t> equal_ends(int world_size, size_t size) {
  std::vector<int64_t> ends;
  for (int rank = 1; rank <= world_size; ++rank)
    ends.push_back(static_cast<int64_t>(size) * rank / world_size);
  return ends;
}

// Sums and broadcasts of several sizes, each twice, and then tensors of other types.
Status run_collectives(ProcessGroup& group, const std::stop_token& stop) {
  for (const size_t size : test::kSumSizes) {
    for (int repetition = 0; repetition < 2; ++repetition) {
      const at::Tensor tensor = fill(group.rank(), size);
      STOKER_RETURN_IF_ERROR(group.all_reduce_ordered({tensor}, stop));
      print("sum " + std::to_string(size) + " " + test::digest(values_of(tensor)));
    }
  }
  for (int root = 0; root < group.world_size(); ++root) {
    const at::Tensor tensor = fill(group.rank(), 1000);
    // The same values with other strides, as those of weights in channels_last.
    const at::Tensor strided = tensor.view({20, 50}).t().contiguous().t();
    STOKER_RETURN_IF_ERROR(group.broadcast(tensor, root, stop));
    STOKER_RETURN_IF_ERROR(group.broadcast(strided, root, stop));
    print("broadcast " + std::to_string(root) + " " + test::digest(values_of(tensor)));
    if (!strided.equal(tensor.view({20, 50})))
      return Status(StatusCode::kInternal, "a tensor with strides has other values");
  }
  const at::Tensor parts = fill(group.rank(), 1000);
  STOKER_RETURN_IF_ERROR(group.all_gather(parts, test::part_ends(group.world_size()), stop));
  print("parts " + test::digest(values_of(parts)));
  const at::Tensor scattered = fill(group.rank(), 1000);
  const at::Tensor more = fill(group.rank(), 300'001);
  STOKER_RETURN_IF_ERROR(
      group.start_reduce_scatter(scattered, test::part_ends(group.world_size())));
  STOKER_RETURN_IF_ERROR(group.start_reduce_scatter(more, equal_ends(group.world_size(), 300'001)));
  STOKER_RETURN_IF_ERROR(group.finish_sums(stop));
  print("scattered " + test::digest(values_of(scattered)));
  print("scattered " + test::digest(values_of(more)));
  const at::Tensor count = at::full({2, 3}, group.rank() + 1, at::kLong);
  STOKER_RETURN_IF_ERROR(group.all_reduce_ordered({count}, stop));
  print("count " + std::to_string(count.sum().item<int64_t>()));
  const at::Tensor values = fill(group.rank(), 1000);
  const at::Tensor scalars = at::full({3}, 0.1 * (group.rank() + 1), at::kDouble);
  STOKER_RETURN_IF_ERROR(
      group.all_reduce_ordered({values, at::empty({0}, at::kFloat), scalars, count}, stop));
  print("sum 1000 " + test::digest(values_of(values)));
  print("scalars " + std::to_string(scalars.sum().item<double>()));
  return {};
}

// Same, in which each rank gets its part only.
Status run_reduce_scatters(ProcessGroup& group, const std::stop_token& stop) {
  for (int i = 1;; ++i) {
    const std::vector<at::Tensor> tensors{fill(group.rank(), 100'000), fill(group.rank(), 3)};
    for (const at::Tensor& tensor : tensors)
      STOKER_RETURN_IF_ERROR(group.start_reduce_scatter(
          tensor, equal_ends(group.world_size(), static_cast<size_t>(tensor.numel()))));
    STOKER_RETURN_IF_ERROR(group.finish_sums(stop));
    print("collectives " + std::to_string(i));
  }
}

// Bytes that this process has written, to sockets too.
Result<uint64_t> written_bytes() {
  std::ifstream file("/proc/self/io");
  for (std::string name; file >> name;) {
    uint64_t bytes = 0;
    if (file >> bytes && name == "wchar:") return bytes;
  }
  return Status(StatusCode::kNotFound, "/proc/self/io: has no wchar");
}

// Bytes that this rank sends for each kind of sum of a million F32.
Status run_traffic(ProcessGroup& group, const std::stop_token& stop) {
  constexpr size_t kSize = 1'000'000;
  const auto ends = equal_ends(group.world_size(), kSize);
  const at::Tensor tensor = fill(group.rank(), kSize);
  const auto measure = [](const std::string& collective,
                          const std::function<Status()>& run) -> Status {
    STOKER_ASSIGN_OR_RETURN(const uint64_t before, written_bytes());
    STOKER_RETURN_IF_ERROR(run());
    STOKER_ASSIGN_OR_RETURN(const uint64_t after, written_bytes());
    print("sent " + collective + " " + std::to_string(after - before));
    return {};
  };
  Status measured = measure("all_reduce", [&] {
    const Status started = group.start_all_reduce(tensor);
    return started.ok() ? group.finish_sums(stop) : started;
  });
  if (measured.ok())
    measured = measure("reduce_scatter", [&] {
      const Status started = group.start_reduce_scatter(tensor, ends);
      return started.ok() ? group.finish_sums(stop) : started;
    });
  if (!measured.ok()) return measured;
  return measure("all_gather", [&] { return group.all_gather(tensor, ends, stop); });
}

// Microseconds of sums: as many gradients as bench/group.py trains, and the control record.
Status run_record(ProcessGroup& group, const std::stop_token& stop) {
  constexpr int kWarmUp = 20, kSums = 200;
  at::set_num_threads(1);  // others would wait actively on the cores of the other rank
  const at::Tensor gradients = fill(group.rank(), 860'000);
  const at::Tensor record =
      at::zeros({static_cast<int64_t>(count_numbers(group.world_size()))}, at::kDouble);
  const std::vector<std::pair<std::string, std::vector<at::Tensor>>> cases{
      {"gradients", {gradients}},
      {"gradients and record", {gradients, record}},
      {"record alone", {record}}};
  for (const auto& [name, tensors] : cases) {
    std::vector<double> times;
    for (int i = 0; i < kWarmUp + kSums; ++i) {
      const auto began = std::chrono::steady_clock::now();
      STOKER_RETURN_IF_ERROR(group.all_reduce_ordered(tensors, stop));
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - began;
      if (i >= kWarmUp) times.push_back(took.count());
      gradients.zero_();  // so that the sums stay finite
    }
    std::ranges::nth_element(times, times.begin() + kSums / 2);
    if (group.is_chief()) print("us " + name + " " + std::to_string(times[kSums / 2]));
  }
  return {};
}

// Sums of the backend until an error.
Status run_all_reduces(ProcessGroup& group, const std::stop_token& stop) {
  for (int i = 1;; ++i) {
    const std::vector<at::Tensor> tensors{at::full({100'000}, group.rank() + 1, at::kFloat),
                                          at::full({3}, 2 * (group.rank() + 1), at::kFloat)};
    for (const at::Tensor& tensor : tensors) STOKER_RETURN_IF_ERROR(group.start_all_reduce(tensor));
    STOKER_RETURN_IF_ERROR(group.finish_sums(stop));
    if (i == 1)
      print("all-reduced " + std::to_string(tensors[0].sum().item<int64_t>()) + " " +
            std::to_string(tensors[1].sum().item<int64_t>()));
    print("collectives " + std::to_string(i));
  }
}

// Collectives of GPUs that do nothing, and tell when they are aborted.
class SilentCollectives final : public DeviceCollectives {
 public:
  // `is_endless`: until they are aborted. `error`: of a sum; empty: none.
  explicit SilentCollectives(bool is_endless = false, std::string error = "")
      : is_endless_(is_endless), error_(std::move(error)) {}

  void start_all_reduce(const at::Tensor&) override {
    if (!error_.empty()) throw std::runtime_error(error_);
  }
  void start_reduce(const at::Tensor&, int) override {}
  void finish_sums() override {}
  void broadcast(const at::Tensor&, int) override {}
  void all_to_all(const at::Tensor&, const at::Tensor&) override {}
  void all_gather(const at::Tensor&, const at::Tensor&) override {}
  bool is_complete() override { return !is_endless_ || is_aborted_; }
  void abort() noexcept override {
    if (!is_aborted_.exchange(true)) print("devices aborted");
  }

 private:
  const bool is_endless_;
  const std::string error_;
  std::atomic<bool> is_aborted_{false};
};

Status add_devices(ProcessGroup& group, bool is_endless = false, const std::string& error = "") {
  return group.add_devices([is_endless, error](const CollectivesOptions&) {
    return std::make_unique<SilentCollectives>(is_endless, error);
  });
}

// Collectives of GPUs that do not end: as the host waits for its GPU, which waits for another rank. Rank 1 fails on a
// stop, or in its first collective.
Status run_devices(ProcessGroup& group, bool has_error, const std::stop_token& stop) {
  const std::string error = has_error && group.rank() == 1 ? "an illegal address" : "";
  STOKER_RETURN_IF_ERROR(add_devices(group, true, error));
  STOKER_RETURN_IF_ERROR(group.start_all_reduce(at::empty({1}, at::kMeta)));
  print("waits");
  while (group.rank() == 1 && !stop.stop_requested()) ::usleep(10'000);
  if (group.rank() == 1) {
    group.report_failure(Status(StatusCode::kOutOfMemory, "no memory is left"));
    return {};
  }
  const Status ended = group.wait_for_devices({});
  print(group.check_lost().ok() ? "may save" : "may not save");
  return ended;
}

// The end of a run on GPUs.
Status run_end(ProcessGroup& group, const std::stop_token& stop) {
  STOKER_RETURN_IF_ERROR(add_devices(group));
  STOKER_RETURN_IF_ERROR(group.wait_for_devices(stop));
  print("waits");
  STOKER_RETURN_IF_ERROR(group.end_devices(stop));
  print("ended");
  return {};
}

// Rank 0 fails after the start of a sum, and the others wait for its next one. It does not exit, so they only
// notice if it closes its connections.
Status run_failure(ProcessGroup& group, bool scatters, const std::stop_token& stop) {
  const auto start_sum = [&group, scatters](size_t size) {
    const at::Tensor tensor = fill(group.rank(), size);
    return scatters ? group.start_reduce_scatter(tensor, equal_ends(group.world_size(), size))
                    : group.start_all_reduce(tensor);
  };
  STOKER_RETURN_IF_ERROR(group.all_reduce_ordered({fill(group.rank(), 3)}, stop));  // connects all
  STOKER_RETURN_IF_ERROR(add_devices(group));
  STOKER_RETURN_IF_ERROR(start_sum(1000));
  if (group.is_chief()) {
    group.report_failure(Status(StatusCode::kOutOfMemory, "no memory is left"));
    print("reported");
    while (!stop.stop_requested()) ::usleep(10'000);
    return {};
  }
  STOKER_RETURN_IF_ERROR(start_sum(300'001));
  return group.finish_sums(stop);
}

// Exchanges through the store. Rank 1 has another setting in the second one.
Status run_checks(ProcessGroup& group, const std::stop_token& stop) {
  STOKER_RETURN_IF_ERROR(add_devices(group));
  STOKER_RETURN_IF_ERROR(group.check_same({{"lr", "0.1"}, {"seed", "1"}}, stop));
  print("same");
  STOKER_ASSIGN_OR_RETURN(const std::string text,
                          group.text_of_chief("from " + std::to_string(group.rank()), stop));
  print("text " + text);
  STOKER_ASSIGN_OR_RETURN(const auto texts,
                          group.gather("of " + std::to_string(group.rank()), stop));
  if (group.is_chief()) print("gathered " + texts.at(0) + ", " + texts.at(texts.size() - 1));
  STOKER_RETURN_IF_ERROR(group.send_text("name", "sent by " + std::to_string(group.rank())));
  STOKER_RETURN_IF_ERROR(group.check_newest());
  return group.check_same({{"lr", "0.1"}, {"seed", group.rank() == 1 ? "2" : "1"}}, stop);
}

// Collectives until an error. Rank `idle_rank` never enters the second one.
Status run_forever(ProcessGroup& group, int idle_rank, const std::stop_token& stop) {
  const at::Tensor tensor = fill(group.rank(), 1000);
  for (int i = 1;; ++i) {
    STOKER_RETURN_IF_ERROR(group.all_reduce_ordered({tensor}, stop));
    print("collectives " + std::to_string(i));
    while (group.rank() == idle_rank && !stop.stop_requested()) ::usleep(10'000);
    if (group.rank() == idle_rank) return Status(StatusCode::kOutOfMemory, "no memory is left");
  }
}

// One collective of each kind, again and again. Rank `lost_rank` is killed, or stopped, at the start of collective `at`,
// from 1.
Status run_until_lost(ProcessGroup& group, int signal, int lost_rank, int at,
                      const std::stop_token& stop) {
  const at::Tensor tensor = fill(group.rank(), 1000);
  const auto ends = equal_ends(group.world_size(), 1000);
  const std::vector<std::function<Status()>> kinds{
      [&] { return group.all_reduce_ordered({tensor}, stop); },
      [&] { return group.broadcast(tensor, 1, stop); },
      [&] { return group.all_gather(tensor, ends, stop); },
      [&] { return group.start_all_reduce(tensor); },
      [&] { return group.finish_sums(stop); },
      [&] { return group.start_reduce_scatter(tensor, ends); },
      [&] { return group.finish_sums(stop); }};
  STOKER_RETURN_IF_ERROR(kinds[0]());  // then all ranks are connected
  for (int i = 1;; ++i) {
    if (group.rank() == lost_rank && i == at) ::raise(signal);
    STOKER_RETURN_IF_ERROR(kinds[static_cast<size_t>(i - 1) % kinds.size()]());
  }
}

// Rank 0 sums. The others take part in the first half of that only, the exchange of the summands, which
// has the messages of a gather. Of the second half, rank 2 gets the sums of rank 0, as in a broadcast.
Status run_half_sum(ProcessGroup& group, const std::stop_token& stop) {
  const at::Tensor tensor = fill(group.rank(), 3);
  if (group.is_chief()) return group.all_reduce_ordered({tensor}, stop);
  STOKER_RETURN_IF_ERROR(group.all_gather(tensor, {1, 2, 3}, stop));
  while (group.rank() == 1) ::pause();
  for (int i = 1;; ++i) {
    STOKER_RETURN_IF_ERROR(group.broadcast(fill(group.rank(), 1), 0, stop));
    print("broadcasts " + std::to_string(i));
  }
}

// Rank 0 starts a sum of the backend, which waits for rank 1, which waits for a broadcast of rank 0. Rank 0 waits for the sum,
// or for a broadcast of rank 2, which never calls it.
Status run_partial_sum(ProcessGroup& group, bool waits_for_sum, const std::stop_token& stop) {
  const at::Tensor tensor = fill(group.rank(), 1000);
  STOKER_RETURN_IF_ERROR(group.all_reduce_ordered({tensor}, stop));  // then all are connected
  while (group.rank() == 2) ::pause();
  if (!group.is_chief()) return group.broadcast(tensor, 0, stop);
  STOKER_RETURN_IF_ERROR(group.start_all_reduce(tensor));
  print("started");
  return waits_for_sum ? group.finish_sums(stop) : group.broadcast(tensor, 2, stop);
}

// Rank 0 starts `count` sums, and waits for them. Rank 1 starts its own on a stop, and is killed when it has written the bytes.
Status run_loss(ProcessGroup& group, bool scatters, size_t size, int count, uint64_t bytes,
                const std::stop_token& stop) {
  while (!group.is_chief() && !stop.stop_requested()) ::usleep(10'000);
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < count; ++i)
    tensors.push_back(at::ones({static_cast<int64_t>(size)}, at::kFloat));
  STOKER_ASSIGN_OR_RETURN(const uint64_t before, written_bytes());
  for (const at::Tensor& tensor : tensors)
    STOKER_RETURN_IF_ERROR(
        scatters ? group.start_reduce_scatter(tensor, equal_ends(group.world_size(), size))
                 : group.start_all_reduce(tensor));
  if (group.is_chief()) {
    print("started");
    return group.finish_sums(stop);
  }
  while (true) {
    STOKER_ASSIGN_OR_RETURN(const uint64_t after, written_bytes());
    if (after - before >= bytes) ::raise(SIGKILL);
    ::usleep(1'000);
  }
}

// Rank 1 is killed before its part of a gather.
Status run_absence(ProcessGroup& group, const std::stop_token& stop) {
  // Then both are connected.
  STOKER_RETURN_IF_ERROR(group.text_of_chief("", stop).status());
  if (!group.is_chief()) ::raise(SIGKILL);
  Status lost;
  while ((lost = group.check_rank(1)).ok()) ::usleep(10'000);
  print("check " + lost.message());
  return group.gather("", stop).status();
}

Status run(const std::string& scenario, const GroupOptions& options, const std::stop_token& stop) {
  STOKER_ASSIGN_OR_RETURN(auto environment,
                          parse_launch_environment(read_environment_variables(), "runs/test"));
  // But that of bench/group.py, which starts both ranks together.
  if (!environment.launcher_serves_store && environment.is_chief() && scenario != "record")
    environment.store_port = 0;
  STOKER_ASSIGN_OR_RETURN(const auto group, open_group(environment, options, stop));
  print("opened " + std::to_string(::getpid()));
  if (scenario == "collectives") return run_collectives(*group, stop);
  if (scenario == "checks") return run_checks(*group, stop);
  if (scenario == "end") return run_end(*group, stop);
  if (scenario == "devices") return run_devices(*group, false, stop);
  if (scenario == "device error") return run_devices(*group, true, stop);
  if (scenario == "failure in reduce-scatter") return run_failure(*group, true, stop);
  if (scenario == "failure in allreduce") return run_failure(*group, false, stop);
  if (scenario == "allreduce") return run_all_reduces(*group, stop);
  if (scenario == "reduce-scatter") return run_reduce_scatters(*group, stop);
  if (scenario == "traffic") return run_traffic(*group, stop);
  if (scenario == "record") return run_record(*group, stop);
  if (scenario == "half-sum") return run_half_sum(*group, stop);
  if (scenario == "partial sum") return run_partial_sum(*group, true, stop);
  if (scenario == "broadcast in partial sum") return run_partial_sum(*group, false, stop);
  if (scenario == "absence") return run_absence(*group, stop);
  if (int scatters = 0, size = 0, count = 0, bytes = 0;
      std::sscanf(scenario.c_str(), "loss %d %d %d %d", &scatters, &size, &count, &bytes) == 4)
    return run_loss(*group, scatters != 0, static_cast<size_t>(size), count,
                    static_cast<uint64_t>(bytes), stop);
  if (int signal = 0, rank = 0, at = 0;
      std::sscanf(scenario.c_str(), "signal %d to %d at %d", &signal, &rank, &at) == 3)
    return run_until_lost(*group, signal, rank, at, stop);
  const Status ended = run_forever(*group, scenario == "idle" ? 1 : -1, stop);
  if (ended.code() == StatusCode::kOutOfMemory) group->report_failure(ended);
  return ended;
}

}  // namespace
}  // namespace stoker::group

int main(int argc, char** argv) {
  using namespace stoker;
  if (argc != 6) return 64;
  ::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // if the test is killed, or the launcher that it started
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::stop_source stop;
  const std::jthread on_signal([&signals, &stop](const std::stop_token& ended) {
    const timespec poll{.tv_sec = 0, .tv_nsec = 20'000'000};
    while (!ended.stop_requested()) {
      if (::sigtimedwait(&signals, nullptr, &poll) == SIGTERM) stop.request_stop();
    }
  });
  const group::GroupOptions options{
      .run_id = argv[4],
      .secret = [] { return std::string(test::kSecret); },
      .interface = argv[5],
      .timeout = std::chrono::milliseconds(std::atoi(argv[2])),
      .start_timeout = std::chrono::milliseconds(std::atoi(argv[3])),
      .on_listening = [](const std::string&,
                         uint16_t port) { group::print("listening " + std::to_string(port)); }};
  const Status ended = group::run(argv[1], options, stop.get_token());
  if (!ended.ok()) group::print("error " + ended.to_string());
  return static_cast<int>(exit_code_for(ended));
}
