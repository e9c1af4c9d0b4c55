// fuzz_cost: searches for inputs that cost a parser the most per byte, or measures the worst known
// ones; see scripts/fuzz.sh --cost.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/format.h"
#include "tests/fuzz/worst_inputs.h"

namespace stoker::fuzz {
namespace {

constexpr size_t kMaxInput = 8192;
constexpr size_t kPopulation = 64;
constexpr rlim_t kMaxMemory = rlim_t{4} << 30;
constexpr size_t kTableBytes = size_t{4} << 20;  // of an input without a limit

enum Metric : size_t { kHeap, kTime, kWritten };
constexpr std::array kMetrics{"heap", "time", "written"};

double value_of(const Cost& cost, size_t metric) {
  if (metric == kHeap) return static_cast<double>(cost.heap_bytes);
  if (metric == kTime) return cost.seconds * 1e9;
  return static_cast<double>(cost.written_bytes);
}

// The cost of a class of inputs per byte, without that of an empty one.
class CostFuzzer {
 public:
  CostFuzzer(const Parser& parser, uint64_t seed) : parser_(parser), random_(seed) {
    (void)measure(parser_, "");
    empty_ = measure(parser_, "");
    if (const Format* const format = find_format(parser.name))
      for (std::string& input : format->seeds()) add(std::move(input));
    for (const WorstInput& worst : worst_inputs())
      if (worst.parser == parser.name) add(worst.make(2048));
    if (inputs_.empty()) inputs_.emplace_back();
  }

  void run(std::chrono::seconds duration) {
    const auto end = std::chrono::steady_clock::now() + duration;
    while (std::chrono::steady_clock::now() < end) {
      for (int i = 0; i < 16; ++i) add(mutated());
      ++rounds_;
    }
  }

  // Prints a line and stores the worst inputs; false if a limit is exceeded.
  bool report(const std::filesystem::path& folder) const {
    std::printf(
        "%-20s %9zu inputs; per byte: %7.1f bytes of memory, %8.1f ns, %7.1f bytes written\n",
        std::string(parser_.name).c_str(), rounds_ * 16, worst_[kHeap], worst_[kTime],
        worst_[kWritten]);
    std::filesystem::create_directories(folder);
    for (size_t metric = 0; metric < kMetrics.size(); ++metric)
      std::ofstream(folder / (std::string(parser_.name) + '-' + kMetrics[metric]))
          << worst_inputs_[metric];
    const bool is_bounded = parser_.max_heap_factor == 0 || !exceeds_;
    if (!is_bounded)
      std::printf(
          "%s: an input needs more than %zu bytes and %zu times its size, or writes more "
          "than %zu times its size\n",
          std::string(parser_.name).c_str(), static_cast<size_t>(kFixedBytes),
          static_cast<size_t>(parser_.max_heap_factor),
          static_cast<size_t>(parser_.max_written_factor));
    std::fflush(stdout);
    return is_bounded;
  }

 private:
  size_t below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  void add(std::string input) {
    if (input.size() > kMaxInput) return;
    const Cost cost = measure(parser_, input);
    exceeds_ = exceeds_ || cost.heap_bytes > kFixedBytes + parser_.max_heap_factor * input.size() ||
               cost.written_bytes > kFixedBytes + parser_.max_written_factor * input.size();
    bool is_worst = false;
    for (size_t metric = 0; metric < kMetrics.size(); ++metric) {
      double ratio = ratio_of(cost, metric, input);
      if (ratio <= worst_[metric]) continue;
      if (metric == kTime)  // not one that was interrupted
        for (int i = 0; i < 3; ++i)
          ratio = std::min(ratio, ratio_of(measure(parser_, input), metric, input));
      if (ratio <= worst_[metric]) continue;
      worst_[metric] = ratio;
      worst_inputs_[metric] = input;
      is_worst = true;
    }
    if (!is_worst && inputs_.size() >= 8 && below(64) != 0) return;
    if (inputs_.size() < kPopulation)
      inputs_.push_back(std::move(input));
    else
      inputs_[below(kPopulation)] = std::move(input);
  }

  double ratio_of(const Cost& cost, size_t metric, const std::string& input) const {
    constexpr double kSmall = 64;  // so that the smallest inputs do not win by rounding
    return std::max(0.0, value_of(cost, metric) - value_of(empty_, metric)) /
           (static_cast<double>(input.size()) + kSmall);
  }

  std::string mutated() {
    const size_t which = below(inputs_.size() + kMetrics.size());
    std::string input =
        which < inputs_.size() ? inputs_[which] : worst_inputs_[which - inputs_.size()];
    for (size_t rounds = 1 + below(4); rounds > 0; --rounds) mutate(input);
    if (input.size() > kMaxInput) input.resize(kMaxInput);
    return input;
  }
  void mutate(std::string& input) {
    const size_t at = below(input.size() + 1);
    const size_t count = std::min(input.size() - at, 1 + below(random_() % 4 == 0 ? 512 : 16));
    switch (below(7)) {
      case 0:  // one byte
        if (at < input.size()) input[at] = static_cast<char>(random_());
        return;
      case 1:  // a number of 1 to 8 bytes
        for (size_t i = at; i < std::min(input.size(), at + (size_t{1} << below(4))); ++i)
          input[i] = static_cast<char>(i == at ? random_() : random_() % 2 == 0 ? 0 : 0xff);
        return;
      case 2:
        input.erase(at, count);
        return;
      case 3:
      case 4: {  // repeats a part, what most amplification consists of
        std::string repeated;
        const std::string part = input.substr(at, count);
        for (size_t n = size_t{1} << below(10); n > 0 && repeated.size() < kMaxInput; --n)
          repeated += part;
        input.insert(at, repeated);
        return;
      }
      case 5: {  // a part of another input
        const std::string& other = inputs_[below(inputs_.size())];
        const size_t from = below(other.size() + 1);
        input.insert(at, other.substr(from, 1 + below(256)));
        return;
      }
      default:
        input.resize(at);
        return;
    }
  }

  const Parser& parser_;
  std::mt19937_64 random_;
  Cost empty_;
  std::vector<std::string> inputs_;
  std::array<double, kMetrics.size()> worst_{};
  std::array<std::string, kMetrics.size()> worst_inputs_;
  bool exceeds_ = false;
  size_t rounds_ = 0;
};

// In a process of its own, so that one that exceeds the memory ends no other.
template <typename Function>
bool run_in_child(const Function& function) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{.rlim_cur = kMaxMemory, .rlim_max = kMaxMemory};
    ::setrlimit(RLIMIT_AS, &limit);
    const bool ok = function();
    std::fflush(nullptr);
    ::_exit(ok ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) std::printf("ended by signal %d\n", WTERMSIG(status));
  return status == 0;
}

bool is_chosen(const Parser& parser, std::span<char* const> names) {
  return names.empty() ||
         std::ranges::any_of(names, [&](const char* name) { return parser.name == name; });
}

bool fuzz(std::chrono::seconds duration, const std::filesystem::path& folder,
          std::span<char* const> names) {
  bool ok = true;
  for (const Parser& parser : parsers()) {
    if (!is_chosen(parser, names)) continue;
    ok = run_in_child([&] {
           CostFuzzer fuzzer(parser, std::random_device()());
           fuzzer.run(duration);
           return fuzzer.report(folder);
         }) &&
         ok;
  }
  return ok;
}

// The worst known inputs of the largest size that is accepted.
bool print_table(std::span<char* const> names) {
  bool ok = true;
  std::printf("| parser | input | bytes | memory (MiB) | written (MiB) | seconds |\n");
  for (const Parser& parser : parsers()) {
    if (!is_chosen(parser, names)) continue;
    const size_t bytes =
        parser.max_bytes == 0 ? kTableBytes : std::min(parser.max_bytes, size_t{64} << 20);
    for (const WorstInput& worst : worst_inputs()) {
      if (worst.parser != parser.name) continue;
      ok = run_in_child([&] {
             const std::string input = worst.make(bytes - 128);  // the last unit can exceed it
             const Cost cost = measure(parser, input);
             std::printf("| %s | %s | %zu | %.1f | %.1f | %.2f |\n",
                         std::string(parser.name).c_str(), worst.what.c_str(), input.size(),
                         static_cast<double>(cost.heap_bytes) / (1 << 20),
                         static_cast<double>(cost.written_bytes) / (1 << 20), cost.seconds);
             return true;
           }) &&
           ok;
    }
  }
  return ok;
}

}  // namespace
}  // namespace stoker::fuzz

// fuzz_cost --table [PARSER…] | fuzz_cost SECONDS FOLDER [PARSER…]
int main(int argc, char** argv) {
  using namespace stoker::fuzz;
  const std::span<char* const> arguments(argv + 1, static_cast<size_t>(argc - 1));
  set_work(Work::kReadOnce);
  if (!arguments.empty() && std::string_view(arguments[0]) == "--table")
    return print_table(arguments.subspan(1)) ? 0 : 1;
  if (arguments.size() < 2) {
    std::fputs("usage: fuzz_cost --table [PARSER...] | fuzz_cost SECONDS FOLDER [PARSER...]\n",
               stderr);
    return 64;
  }
  const auto seconds = std::chrono::seconds(std::atoi(arguments[0]));
  return fuzz(seconds, arguments[1], arguments.subspan(2)) ? 0 : 1;
}
