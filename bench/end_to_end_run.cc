#include "bench/end_to_end_run.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "bench/benchmark.h"
#include "bench/stopwatch.h"
#include "shared/base/file.h"

namespace stoker::bench {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using std::chrono::nanoseconds;

constexpr auto kTick = 25ms;
constexpr auto kWarmUpTime = 500ms;  // not measured after a change
constexpr auto kStopDelay = 2s;      // until an evaluator is stopped
constexpr auto kStartLimit = 60s;
constexpr auto kMaxEvaluatorStart = 20s;
constexpr uint64_t kMaxRows = 1 << 30;

// One evaluation thread; with one training thread, each has its own core on a machine with two.
constexpr char kConfig[] = R"(
data:
  train: {format: text, path: CORPUS, split: [0.0, 0.7]}
  val: {format: text, path: CORPUS, split: [0.7, 1.0]}
feed: {num_workers: 1}
model: {name: gpt, num_layers: LAYERS, embed_dim: 128, num_heads: 4, context_length: 64}
task: {name: language_modeling}
train: {max_steps: 100000000, micro_batch_size: 16, device: cpu, num_threads: THREADS}
checkpoint: {save_every_steps: null, save_every_seconds: null, keep_last: 3}
eval: {checkpoints: latest, batch_size: 64, num_threads: 1}
metrics: {log_every_steps: 1, tensorboard: false}
)";

std::string replaced(std::string text, const std::string& word, const std::string& by) {
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + by.size()))
    text.replace(at, word.size(), by);
  return text;
}

std::string program(const std::string& name) {
  return (fs::read_symlink("/proc/self/exe").parent_path() / name).string();
}

void write_corpus(const std::string& path, size_t bytes) {
  std::mt19937 random(1);
  std::string text(bytes, ' ');
  for (char& letter : text) letter = static_cast<char>('a' + random() % 26);
  std::ofstream(path, std::ios::binary) << text;
}

// The step times in the complete lines of `path` from `offset` on.
Result<std::vector<double>> step_times(const std::string& path, uint64_t offset) {
  STOKER_ASSIGN_OR_RETURN(const std::string rows, read_file(path, kMaxRows));
  static constexpr std::string_view kField = "\"step_time_ms\":";
  std::vector<double> times;
  const size_t last_newline = rows.rfind('\n');
  for (size_t at = rows.find(kField, offset); at < last_newline; at = rows.find(kField, at + 1))
    times.push_back(std::strtod(rows.c_str() + at + kField.size(), nullptr));
  return times;
}

// The nice value of eval.priority: low.
void run_busy_loop(std::stop_token stop) {
  constexpr int kLow = 10;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kLow);
  for (volatile uint64_t counted = 0; !stop.stop_requested();) counted = counted + 1;
}

std::string evaluation_priority(BackgroundLoad background) {
  if (background == BackgroundLoad::kIdleEvaluator) return "idle";
  if (background == BackgroundLoad::kNormalEvaluator) return "normal";
  return "low";
}

uint64_t size_of(const std::string& path) {
  std::error_code missing;
  const auto bytes = fs::file_size(path, missing);
  return missing ? 0 : bytes;
}

}  // namespace

Result<std::shared_ptr<EndToEndRun>> EndToEndRun::start(const std::string& dir, bool tiny,
                                                        TrainerThreads threads) {
  if (!fs::exists(program("stokerd")) || !fs::exists(program("stoker-eval")))
    return Status(StatusCode::kNotFound,
                  program("stokerd") + ", stoker-eval: not found; build them");
  STOKER_ASSIGN_OR_RETURN(auto folder, ScratchFolder::create(dir));
  write_corpus(folder->file("corpus.txt"), tiny ? 100'000 : 2'000'000);
  std::string config = replaced(kConfig, "CORPUS", folder->file("corpus.txt"));
  config = replaced(config, "LAYERS", tiny ? "1" : "4");
  config = replaced(config, "THREADS", threads == TrainerThreads::kOne ? "1" : "null");
  std::ofstream(folder->file("config.yaml")) << config;
  STOKER_ASSIGN_OR_RETURN(
      ChildProcess trainer,
      ChildProcess::exec({program("stokerd"), "--config", folder->file("config.yaml"), "--run-dir",
                          folder->file("run")},
                         folder->file("stokerd.out")));
  std::shared_ptr<EndToEndRun> run(new EndToEndRun(std::move(folder), std::move(trainer), tiny));
  STOKER_RETURN_IF_ERROR(run->wait_for_first_steps());
  return run;
}

Status EndToEndRun::wait_for_first_steps() {
  const Stopwatch watch;
  while (size_of(rows_path()) < 2000) {
    STOKER_RETURN_IF_ERROR(wait(BackgroundLoad::kNone, Saving::kNever, kTick));
    if (watch.elapsed() > kStartLimit) return Status(StatusCode::kTimedOut, "stokerd ran no step");
  }
  return {};
}

Result<double> EndToEndRun::step_ms(BackgroundLoad background, Saving saving, nanoseconds time,
                                    StepTime statistic) {
  STOKER_RETURN_IF_ERROR(set_load(background));
  STOKER_RETURN_IF_ERROR(wait(background, saving, tiny_ ? kTick : kWarmUpTime));
  const uint64_t before = size_of(rows_path());
  STOKER_RETURN_IF_ERROR(wait(background, saving, time));
  for (;;) {
    STOKER_ASSIGN_OR_RETURN(const auto times, step_times(rows_path(), before));
    if (times.empty()) {
      STOKER_RETURN_IF_ERROR(wait(background, saving, kTick));
    } else if (statistic == StepTime::kMedian) {
      return median(times);
    } else {
      return std::reduce(times.begin(), times.end()) / static_cast<double>(times.size());
    }
  }
}

Status EndToEndRun::set_load(BackgroundLoad background) {
  busy_loop_ = {};
  if (background == BackgroundLoad::kBusyLoop) busy_loop_ = std::jthread(run_busy_loop);
  if (background == BackgroundLoad::kNone || background == BackgroundLoad::kBusyLoop ||
      background == BackgroundLoad::kKilledEvaluators) {
    evaluator_.reset();
    return {};
  }
  const std::string priority = evaluation_priority(background);
  if (!evaluator_ || priority != priority_) {
    STOKER_RETURN_IF_ERROR(start_evaluator(priority));  // replaces the previous one
    if (!tiny_) STOKER_RETURN_IF_ERROR(wait_for_first_evaluation());
  }
  evaluator_->signal(SIGCONT);
  if (background == BackgroundLoad::kStoppedEvaluator) {
    // Stop it while it is working.
    STOKER_RETURN_IF_ERROR(wait(background, Saving::kEachSecond, tiny_ ? kTick : kStopDelay));
    evaluator_->signal(SIGSTOP);
  }
  return {};
}

Status EndToEndRun::start_evaluator(const std::string& priority) {
  STOKER_ASSIGN_OR_RETURN(
      ChildProcess evaluator,
      ChildProcess::exec({program("stoker-eval"), "--run-dir", folder_->file("run"), "--follow",
                          "--set", "eval.priority=" + priority},
                         folder_->file("stoker-eval.out")));
  evaluator_.reset();
  evaluator_.emplace(std::move(evaluator));
  priority_ = priority;
  return {};
}

// Its start is not measured. One with priority idle may never get that far.
Status EndToEndRun::wait_for_first_evaluation() {
  const std::string results = folder_->file("run/metrics/eval.jsonl");
  const uint64_t before = size_of(results);
  const Stopwatch watch;
  while (size_of(results) == before && watch.elapsed() < kMaxEvaluatorStart)
    STOKER_RETURN_IF_ERROR(wait(BackgroundLoad::kEvaluator, Saving::kEachSecond, kTick));
  return {};
}

Status EndToEndRun::wait(BackgroundLoad background, Saving saving, nanoseconds time) {
  const Stopwatch watch;
  Stopwatch since_save;
  Stopwatch since_kill;
  while (watch.elapsed() < time) {
    std::this_thread::sleep_for(std::min<nanoseconds>(kTick, time - watch.elapsed()));
    if (!trainer_.is_running()) {
      const auto log = read_file(folder_->file("stokerd.out"), kMaxRows);
      const std::string text = log.ok() ? *log : "";
      return Status(
          StatusCode::kClosed,
          "stokerd has exited: " + text.substr(text.size() > 500 ? text.size() - 500 : 0));
    }
    if (saving == Saving::kAlways || (saving == Saving::kEachSecond && since_save.elapsed() > 1s)) {
      trainer_.signal(SIGUSR1);
      since_save = {};
    }
    if (background == BackgroundLoad::kKilledEvaluators && since_kill.elapsed() > 700ms) {
      STOKER_RETURN_IF_ERROR(start_evaluator("low"));  // replaces the previous one
      since_kill = {};
    }
  }
  return {};
}

}  // namespace stoker::bench
