// stoker-eval as a process: command line, waiting, and restricted environments.
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include <gtest/gtest.h>

#include "feeder/sandbox.h"
#include "shared/eval_metrics/metric_table.h"
#include "shared/metrics/json_lines.h"
#include "shared/run/eval_result.h"
#include "shared/run/run_layout.h"
#include "shared/run/run_state.h"
#include "tests/shared/image/image_files.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class EvaluatorTest : public RunTest {
 protected:
  bool wait_for_log(const std::string& words) const {
    return wait_until(60s, [&] { return log_of("stoker-eval").find(words) != std::string::npos; });
  }
  std::optional<int> exit_code(Process process) const {
    const auto exit = process.wait(60s);
    return exit ? std::optional(exit->code) : std::nullopt;
  }
  Process eval(const std::vector<std::string>& arguments) const {
    return Process(joined({program("stoker-eval")}, arguments), path("stoker-eval.out"));
  }
  // The last line that is a JSON result.
  run::EvalResult printed_result() const {
    const std::string output = log_of("stoker-eval");
    const size_t at = output.find("{\"step\":");
    EXPECT_NE(at, std::string::npos) << output;
    if (at == std::string::npos) return {};
    const auto result =
        run::parse_eval_result(output.substr(at, output.find('\n', at) - at), "out");
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return result.ok() ? *result : run::EvalResult();
  }
  // "evaluator   …" of `stokerctl status`.
  std::string evaluator_line() const {
    Process status = ctl(run_dir(), {"status"}, "status");
    EXPECT_EQ(code_of(status), 0) << log_of("status");
    const std::string text = log_of("status");
    const size_t at = text.rfind("\nevaluator ");
    return at == std::string::npos ? text : text.substr(at + 1, text.find('\n', at + 1) - at - 1);
  }
  std::string train_checkpoint() const {
    EXPECT_EQ(train(write_config(small_config()), run_dir()).code, 0);
    return run_dir() + "/checkpoints/" + checkpoints(run_dir()).back();
  }
  uint64_t results() const {
    uint64_t count = 0;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(run_dir() + "/eval", ignored))
      count += entry.path().filename().string().starts_with("step-") ? 1 : 0;
    return count;
  }
};

// ---- The best checkpoint

// A classifier by whose metrics larger values are better.
TEST_F(EvaluatorTest, BestCheckpointHasLargestValueOfMetricThatIsMaximized) {
  std::ofstream csv(path("data.csv"));
  csv << "a,b,y\n";
  std::mt19937 generator(3);
  for (int i = 0; i < 400; ++i) {
    const double a = static_cast<double>(generator() % 2000) / 1000 - 1;
    const double b = static_cast<double>(generator() % 2000) / 1000 - 1;
    const double noise = static_cast<double>(generator() % 1200) / 1000 - 0.6;
    csv << a << ',' << b << ',' << (a - b + noise > 0) << '\n';
  }
  csv.close();
  const std::string data = "{format: csv, path: " + path("data.csv") + ", fields: {label: y}}";
  const std::string config = write_config(
      "data: {train: " + data + ", val: " + data +
      "}\nmodel: {name: mlp, hidden_sizes: [8]}\ntask: {name: binary_classification}\n"
      "optimizer: {name: sgd, lr: 0.05}\nscheduler: {name: constant, warmup_steps: 0}\n"
      "train: {max_steps: 60, micro_batch_size: 16, device: cpu, num_threads: 1}\n"
      "checkpoint: {save_every_steps: 10, keep_last: 2, save_top_k: 1}\n"
      "eval: {checkpoints: all, monitor: auroc}\n");
  Process follower = evaluator(run_dir(), {"--follow"});
  ASSERT_EQ(train(config, run_dir(), {"--set", "checkpoint.keep_unevaluated=100"}).code, 0);
  ASSERT_EQ(code_of(follower), 0);
  const auto records = metrics::read_records(run_dir() + "/metrics/eval.jsonl");
  ASSERT_TRUE(records.ok()) << records.status().to_string();
  double largest = 0, smallest = 1;
  for (const metrics::MetricsRecord& record : records->records) {
    largest = std::max(largest, record.find_number("auroc").value_or(0));
    smallest = std::min(smallest, record.find_number("auroc").value_or(1));
  }
  ASSERT_LT(smallest, largest) << "every checkpoint is the best one";
  const auto best = run::read_best(run::RunLayout(run_dir()));
  ASSERT_TRUE(best.ok()) << best.status().to_string();
  EXPECT_EQ(best->metric, "auroc");
  EXPECT_EQ(best->value, largest);
  const auto f1 = best->metrics.find("val/f1");
  ASSERT_NE(f1, best->metrics.end());
  for (const metrics::MetricsRecord& record : records->records)
    EXPECT_LE(record.find_number("f1").value_or(0), f1->second.value);
  const auto table = eval_metrics::read_metric_table(run_dir() + "/metrics/table.json");
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  EXPECT_EQ(table->find("auroc")->direction, eval_metrics::Direction::kMaximize);
  EXPECT_EQ(table->find("perplexity"), nullptr) << "of another task";
  std::filesystem::remove(run_dir() + "/metrics/table.json");
  Process again = evaluator(run_dir(), {"--once"});
  EXPECT_NE(code_of(again), 0);
  EXPECT_NE(log_of("stoker-eval").find("table.json: does not exist"), std::string::npos);
}

// ---- Checkpoints given on the command line

TEST_F(EvaluatorTest, EvaluatesGivenCheckpointWithoutRunDirectory) {
  const std::string checkpoint = train_checkpoint();
  ASSERT_EQ(exit_code(eval({"--checkpoint", checkpoint})), 0) << log_of("stoker-eval");
  const run::EvalResult in_its_run = printed_result();
  EXPECT_EQ(in_its_run.step, 400u);
  // Copied to another path, with the original run removed.
  fs::copy(checkpoint, path("elsewhere"), fs::copy_options::recursive);
  fs::remove_all(run_dir());
  EXPECT_EQ(exit_code(eval({"--checkpoint", path("elsewhere")})), 78);
  EXPECT_NE(log_of("stoker-eval").find("--config"), std::string::npos);
  fs::remove(path("stoker-eval.out"));
  ASSERT_EQ(exit_code(eval({"--checkpoint", path("elsewhere"), "--config", path("config.yaml")})),
            0)
      << log_of("stoker-eval");
  EXPECT_EQ(printed_result().manifest_sha256, in_its_run.manifest_sha256);
  EXPECT_EQ(printed_result().datasets[0].metrics, in_its_run.datasets[0].metrics);
}

TEST_F(EvaluatorTest, EvaluatesSafetensorsFileWithConfig) {
  const std::string checkpoint = train_checkpoint();
  ASSERT_EQ(exit_code(eval({"--checkpoint", checkpoint})), 0);
  const auto expected = printed_result().datasets[0].metrics;
  fs::remove(path("stoker-eval.out"));
  fs::copy(checkpoint + "/model.safetensors", path("weights.safetensors"));
  const std::vector<std::string> bare{"--checkpoint", path("weights.safetensors")};
  ASSERT_EQ(exit_code(eval(joined(bare, {"--config", path("config.yaml")}))), 0)
      << log_of("stoker-eval");
  EXPECT_EQ(printed_result().datasets[0].metrics, expected);
  EXPECT_EQ(printed_result().manifest_sha256, "") << "the file belongs to no checkpoint";
  EXPECT_EQ(exit_code(eval(bare)), 78) << "no configuration";
}

TEST_F(EvaluatorTest, ReportsPathOfInvalidCheckpoint) {
  const std::string checkpoint = train_checkpoint();
  const std::string config = path("config.yaml");
  const auto rejected = [&](const std::string& path_argument,
                            const std::vector<std::string>& more) {
    fs::remove(path("stoker-eval.out"));
    const auto code =
        exit_code(eval(joined({"--checkpoint", path_argument, "--config", config}, more)));
    EXPECT_NE(log_of("stoker-eval").find(path_argument), std::string::npos)
        << log_of("stoker-eval");
    return code;
  };
  EXPECT_EQ(rejected(path("nowhere"), {}), 78);
  EXPECT_EQ(rejected(config, {}), 78) << "neither directory nor safetensors";
  EXPECT_EQ(rejected(checkpoint, {"--set", "model.hidden_sizes=[33]"}), 78) << "another model";
  std::ofstream(path("garbage.safetensors")) << "not tensors at all";
  EXPECT_EQ(rejected(path("garbage.safetensors"), {}), 65);
  std::ofstream(checkpoint + "/model.safetensors", std::ios::app) << "x";
  EXPECT_EQ(rejected(checkpoint, {}), 65);
}

// ---- Following a run

TEST_F(EvaluatorTest, FollowsRunDirectoryCreatedLater) {
  Process follower = evaluator(run_dir(), {"--follow"});
  ASSERT_TRUE(wait_for_log("waiting reason=\"the start of the run"));
  // Also the end of the run is found without a scan.
  const std::string config = write_config(small_config("eval: {poll_interval_seconds: 600}\n"));
  ASSERT_EQ(train(config, run_dir()).code, 0);
  EXPECT_EQ(exit_code(std::move(follower)), 0);
  EXPECT_TRUE(run::read_best(run::RunLayout(run_dir())).ok());
}

TEST_F(EvaluatorTest, ExitsAfterRequestedStepDuringTraining) {
  const std::string config = write_config(small_config("eval: {checkpoints: all}\n"));
  Process trainer = this->trainer(config, run_dir(), {"--set", "train.max_steps=100000000"});
  EXPECT_EQ(exit_code(evaluator(run_dir(), {"--follow", "--until-step", "80"})), 0);
  EXPECT_NE(log_of("stoker-eval").find("until_step=80"), std::string::npos);
  EXPECT_FALSE(trainer.wait(0ms).has_value()) << "training has nothing to do with it";
}

TEST_F(EvaluatorTest, LogsWhetherTrainingIsPausedCrashedOrFinished) {
  const std::string config = write_config(small_config("eval: {poll_interval_seconds: 0.2}\n"));
  Process trainer = this->trainer(config, run_dir(), {"--set", "train.max_steps=100000000"});
  Process follower = evaluator(run_dir(), {"--follow"});
  // It may never wait, because the next checkpoint can already exist.
  ASSERT_TRUE(wait_for_log("evaluation finished"));
  ASSERT_EQ(exit_code(ctl(run_dir(), {"pause"}, "ctl")), 0);
  ASSERT_TRUE(wait_for_log("training is paused at step "));
  trainer.signal(SIGKILL);
  ASSERT_TRUE(trainer.wait(60s).has_value());
  ASSERT_TRUE(wait_for_log("the trainer, which has crashed, to restart"));
  EXPECT_FALSE(follower.wait(0ms).has_value()) << "it may come back";
  ASSERT_EQ(train(config, run_dir(), {"--set", "train.max_steps=1"}).code, 0)
      << "finds itself done";
  EXPECT_EQ(exit_code(std::move(follower)), 0);
  EXPECT_NE(log_of("stoker-eval").find("run finished, evaluation complete"), std::string::npos);
}

// ---- Worker processes

TEST_F(EvaluatorTest, ExcludesImageThatCrashesItsDecoder) {
  if (feeder::kSanitized) GTEST_SKIP() << "the sanitizer runtime must be loaded first";
  for (int i = 0; i < 12; ++i) {
    const std::string folder = path(i % 2 == 0 ? "images/cat" : "images/dog");
    fs::create_directories(folder);
    std::ofstream(folder + "/" + std::to_string(i) + ".png", std::ios::binary)
        << image::testing::encode_png_file(image::testing::pattern(12, 12));
  }
  const std::string images = "{format: image_folder, path: " + path("images") +
                             ", image_mode: gray, transforms: [resize: {size: [12, 12]}]}\n";
  const std::string config =
      write_config("data:\n  train: " + images + "  val: " + images +
                   "model: {name: lenet5}\ntask: {name: classification}\n"
                   "train: {max_steps: 1, micro_batch_size: 4, device: cpu, num_threads: 1}\n");
  ASSERT_EQ(train(config, run_dir()).code, 0) << log_of("stokerd");
  const std::string crashing = path("images/dog/5.png");
  ::setenv("FAIL_READS", (crashing + " 0 0 1000000").c_str(), 1);
  ::setenv("LD_PRELOAD", STOKER_FAILING_READS, 1);
  const auto code = exit_code(evaluator(run_dir(), {"--once"}));
  for (const char* name : {"LD_PRELOAD", "FAIL_READS"}) ::unsetenv(name);
  EXPECT_EQ(code, 0) << log_of("stoker-eval");
  const run::DatasetResult result = newest_result(run_dir());
  EXPECT_EQ(result.samples, 11u);
  EXPECT_EQ(result.quarantined, 1u);
  const std::string log = log_of("stoker-eval");
  EXPECT_NE(log.find("sample quarantined dataset=val"), std::string::npos) << log;
  EXPECT_NE(log.find("path=" + crashing), std::string::npos) << log;
}

// Of data that no index can check: the fault is found when the sample is read.
TEST_F(EvaluatorTest, EndsWith65AndRecordOnCorruptSample) {
  const auto write = [this](const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << text;
  };
  std::string rows = "a,b,y\n", lines;
  for (int i = 0; i < 12; ++i) {
    rows += std::to_string(i) + ",1," + std::to_string(i % 2) + "\n";
    lines += "{\"x\":[" + std::to_string(i) + ",1],\"y\":" + std::to_string(i % 2) + "}\n";
    const std::string png = image::testing::encode_png_file(image::testing::pattern(4, 4));
    for (const std::string part : {"images/", "bad/"})
      write(part + std::to_string(i % 2) + "/" + std::to_string(i) + ".png", png);
  }
  write("train.csv", rows);
  write("val.csv", rows + "3,x,1\n4,1,0\n");
  write("train.jsonl", lines);
  write("val.jsonl", lines + "{\"x\":[1,2,3],\"y\":1}\n" + lines);
  std::string png = text_of(path("bad/1/7.png"));
  write("bad/1/7.png", png.substr(0, png.size() / 2));
  struct Case {
    std::string train, val, place;
  };
  const auto table = [this](const std::string& name) {
    return "{format: csv, path: " + path(name) + ", fields: {label: y}}";
  };
  const auto json = [this](const std::string& name) {
    return "{format: jsonl, path: " + path(name) +
           ", fields: {input: x, label: y}, input_shape: [2]}";
  };
  const auto images = [this](const std::string& name) {
    return "{format: image_folder, path: " + path(name) + ", transforms: [resize: {size: [4, 4]}]}";
  };
  const std::vector<Case> cases{{table("train.csv"), table("val.csv"), "val.csv: line 14"},
                                {json("train.jsonl"), json("val.jsonl"), "val.jsonl: line 13"},
                                {images("images"), images("bad"), "bad/1/7.png"}};
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [train_data, val, place] = cases[i];
    SCOPED_TRACE(place);
    const std::string run = run_dir(std::to_string(i));
    const std::string config =
        write_config("data: {train: " + train_data + ", val: " + val +
                     "}\nmodel: {name: mlp, hidden_sizes: [4]}\ntask: {name: classification}\n"
                     "train: {max_steps: 4, micro_batch_size: 4, device: cpu, num_threads: 1}\n"
                     "eval: {max_attempts: 1}\n");
    ASSERT_EQ(train(config, run).code, 0) << log_of("stokerd");
    Process once = evaluator(run, {"--once"});
    EXPECT_EQ(code_of(once), 65);
    EXPECT_NE(log_of("stoker-eval").find(place), std::string::npos) << log_of("stoker-eval");
    const std::string outcomes = text_of(run + "/eval/outcomes.jsonl");
    EXPECT_NE(outcomes.find(place), std::string::npos) << outcomes;
    EXPECT_NE(outcomes.find("\"exit_code\":65"), std::string::npos) << outcomes;
    const std::string checkpoint = run + "/checkpoints/" + checkpoints(run).back();
    EXPECT_EQ(exit_code(eval({"--checkpoint", checkpoint})), 65) << log_of("stoker-eval");
    EXPECT_NE(log_of("stoker-eval").rfind(place), std::string::npos) << log_of("stoker-eval");
    Process follower = evaluator(run, {"--follow"});
    EXPECT_EQ(code_of(follower), 0) << "it is logged and recorded";
  }
}

TEST_F(EvaluatorTest, LeavesNoWorkerProcessWhenKilled) {
  const std::string config = write_config(small_config());
  Process trainer = this->trainer(config, run_dir(), {"--set", "train.max_steps=100000000"});
  Process follower = evaluator(run_dir(), {"--follow"});
  std::vector<pid_t> workers;
  ASSERT_TRUE(wait_until(
      60s, [&] { return !(workers = children_of(follower.pid(), "stoker-feed")).empty(); }));
  follower.signal(SIGKILL);
  ASSERT_TRUE(follower.wait(60s).has_value());
  for (const pid_t worker : workers) {
    EXPECT_TRUE(wait_until(60s, [&] {
      return text_if_exists("/proc/" + std::to_string(worker) + "/comm") != "stoker-feed\n";
    }));
  }
}

// ---- Restricted environments

TEST_F(EvaluatorTest, EndsWith78AndFixWhenSeccompIsDenied) {
  const std::string checkpoint = train_checkpoint();
  const auto evaluate = [&](const std::vector<std::string>& more) {
    return exit_code(Process(joined({STOKER_WITHOUT_CALLS, "EPERM:seccomp", program("stoker-eval"),
                                     "--checkpoint", checkpoint},
                                    more),
                             path("stoker-eval.out")));
  };
  EXPECT_EQ(evaluate({}), 78);
  EXPECT_NE(log_of("stoker-eval").find("add SystemCallFilter=seccomp"), std::string::npos)
      << log_of("stoker-eval");
  EXPECT_EQ(evaluate({"--set", "feed.sandbox=false"}), 0) << log_of("stoker-eval");
  EXPECT_EQ(evaluate({"--set", "feed.num_processes=0"}), 0) << log_of("stoker-eval");
}

TEST_F(EvaluatorTest, EvaluatesAllCheckpointsWithoutInotifyAndLocks) {
  const std::string config =
      write_config(small_config("eval: {checkpoints: all, poll_interval_seconds: 0.2}\n"));
  Process follower({STOKER_WITHOUT_CALLS, "ENOSYS:inotify_init1,flock", program("stoker-eval"),
                    "--run-dir", run_dir(), "--follow"},
                   path("stoker-eval.out"));
  ASSERT_TRUE(wait_for_log("waiting reason=\"the start of the run"));
  // Save no more checkpoints than are retained, because without locks retention does not know which
  // one is being read.
  ASSERT_EQ(train(config, run_dir(), {"--set", "checkpoint.keep_last=50"}).code, 0);
  ASSERT_EQ(exit_code(std::move(follower)), 0) << log_of("stoker-eval");
  EXPECT_NE(log_of("stoker-eval").find("evaluation lock unavailable"), std::string::npos);
  EXPECT_EQ(results(), checkpoints(run_dir()).size());
}

TEST_F(EvaluatorTest, RecordsFailureWithoutCrashOnMemoryLimit) {
  const std::string config = write_config(R"(data:
  train: {format: synthetic, num_samples: 1000000, input_shape: [1024], num_classes: 4}
  val: {format: synthetic, num_samples: 1000000, input_shape: [1024], num_classes: 4}
model: {name: mlp, hidden_sizes: [8]}
task: {name: classification}
train: {max_steps: 2, micro_batch_size: 4, device: cpu, num_threads: 1}
eval: {memory_limit_mib: 1024, batch_size: 1000000, max_attempts: 1}
)");  // a batch takes 4 GB
  ASSERT_EQ(train(config, run_dir()).code, 0);
  EXPECT_EQ(exit_code(evaluator(run_dir(), {"--once"})), 71);
  const std::string outcomes = text_of(run_dir() + "/eval/outcomes.jsonl");
  EXPECT_NE(outcomes.find("\"outcome\":\"failed\""), std::string::npos)
      << outcomes << log_of("stoker-eval");
  EXPECT_NE(log_of("stoker-eval").find("1 of the evaluations failed, the first at step 2"),
            std::string::npos)
      << log_of("stoker-eval");
  EXPECT_EQ(exit_code(evaluator(run_dir(), {"--once"})), 0) << "nothing is pending";
  fs::remove(run_dir() + "/eval/outcomes.jsonl");
  EXPECT_EQ(exit_code(evaluator(run_dir(), {"--once", "--set", "eval.batch_size=64", "--set",
                                            "eval.max_samples=640"})),
            0);
  EXPECT_EQ(results(), 1u) << "what fits is evaluated under the same bound";
}

// ---- Priority

// Restricts the test and the programs that it starts to one CPU, so that they compete for it.
class OneCpu {
 public:
  OneCpu() {
    EXPECT_EQ(::sched_getaffinity(0, sizeof before_, &before_), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0 && cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &before_)) CPU_SET(cpu, &one);
    EXPECT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  }
  ~OneCpu() { ::sched_setaffinity(0, sizeof before_, &before_); }
  OneCpu(const OneCpu&) = delete;

 private:
  cpu_set_t before_;
};

// 0: the process has no such thread.
pid_t thread_of(pid_t process, const std::string& name) {
  std::error_code ignored;
  for (const auto& task :
       fs::directory_iterator("/proc/" + std::to_string(process) + "/task", ignored)) {
    std::string comm;
    std::getline(std::ifstream(task.path() / "comm"), comm);
    if (comm == name) return std::stoi(task.path().filename());
  }
  return 0;
}

// The trainer has no other load than its steps, and never ends.
TEST_F(EvaluatorTest, YieldsCpuToBusyTrainer) {
  if (!fs::exists("/proc/self/schedstat"))
    GTEST_SKIP() << "this kernel does not report how long a thread waits for a CPU";
  const OneCpu one_cpu;
  const std::string config = write_config(small_config("eval: {batch_size: 4}\n"));
  Process training =
      trainer(config, run_dir(),
              {"--set", "train.max_steps=1000000000", "--set", "checkpoint.save_every_steps=40",
               "--set", "data.val.num_samples=4000"});
  ASSERT_TRUE(wait_until(kPatience, [&] { return newest_step(run_dir()) > 0; }));
  Process follower = evaluator(run_dir(), {"--follow"});
  ASSERT_TRUE(wait_until(kPatience, [&] {
    return log_of("stoker-eval").find("evaluation started") != std::string::npos;
  })) << log_of("stoker-eval");
  const pid_t thread = thread_of(follower.pid(), "evaluate");
  ASSERT_GT(thread, 0);
  EXPECT_EQ(::sched_getscheduler(thread), SCHED_BATCH);
  EXPECT_GE(::getpriority(PRIO_PROCESS, static_cast<id_t>(thread)), 10);
  const auto workers = children_of(follower.pid(), "stoker-feed");
  EXPECT_FALSE(workers.empty());
  for (const pid_t worker : workers)
    EXPECT_GE(::getpriority(PRIO_PROCESS, static_cast<id_t>(worker)), 10);
  ASSERT_TRUE(wait_until(kPatience, [&] {
    return log_of("stoker-eval").find("evaluation finished") != std::string::npos;
  })) << log_of("stoker-eval");
  EXPECT_NE(log_of("stoker-eval").find("evaluation throttled"), std::string::npos)
      << "it competed with the trainer for the CPU and did not pause: " << log_of("stoker-eval");
  EXPECT_FALSE(training.wait(std::chrono::milliseconds(0))) << log_of("stokerd");
}

// ---- Artifacts

TEST_F(EvaluatorTest, WritesTextAndImageArtifacts) {
  ASSERT_EQ(
      train(write_config(text_config("eval: {generate: {max_new_tokens: 20, prompt: 'line '}}\n")),
            run_dir())
          .code,
      0);
  ASSERT_EQ(exit_code(evaluator(run_dir(), {"--once"})), 0);
  const std::string text = text_of(run_dir() + "/eval/artifacts/step-000000060.val.generated.txt");
  EXPECT_EQ(text.size(), 25u);
  EXPECT_TRUE(text.starts_with("line ")) << text;
  const std::string images = R"(data:
  train: {format: synthetic, num_samples: 500, input_shape: [1, 12, 12], num_classes: 4, noise_std: 5}
model: {name: lenet5}
task: {name: classification}
train: {max_steps: 2, micro_batch_size: 4, device: cpu, num_threads: 1}
eval: {datasets: [train], max_samples: 100}
)";
  ASSERT_EQ(train(write_config(images, "images.yaml"), run_dir("images")).code, 0);
  ASSERT_EQ(exit_code(evaluator(run_dir("images"), {"--once"})), 0);
  const std::string base = run_dir("images") + "/eval/artifacts/step-000000002.train.";
  EXPECT_TRUE(text_of(base + "confusion_matrix.png").starts_with("\x89PNG"));
  EXPECT_NE(text_of(base + "misclassified.md").find("| sample | label |"), std::string::npos);
}

// How it ended is known without it: all evaluated, killed, failed.
TEST_F(EvaluatorTest, LeavesItsEndInRun) {
  const std::string checkpoint = train_checkpoint();
  ASSERT_EQ(exit_code(evaluator(run_dir(), {"--once"})), 0) << log_of("stoker-eval");
  EXPECT_NE(evaluator_line().find("exited, up to date"), std::string::npos) << evaluator_line();
  fs::remove(run::RunLayout(run_dir()).exit_status_file());  // so that it waits for more
  Process waiting = evaluator(run_dir(), {"--follow"});
  ASSERT_TRUE(wait_for_log("evaluator started"));
  ASSERT_TRUE(wait_until(
      60s, [&] { return !fs::exists(run::RunLayout(run_dir()).eval_exit_status_file()); }));
  ::kill(waiting.pid(), SIGKILL);
  (void)waiting.wait(60s);
  EXPECT_EQ(run::read_evaluator_state(run::RunLayout(run_dir())).phase,
            run::EvaluatorState::Phase::kCrashed);
  fs::remove(run::RunLayout(run_dir()).metric_table_file());
  EXPECT_NE(exit_code(evaluator(run_dir(), {"--once"})), 0);
  const run::EvaluatorState failed = run::read_evaluator_state(run::RunLayout(run_dir()));
  EXPECT_EQ(failed.phase, run::EvaluatorState::Phase::kFailed);
  EXPECT_NE(failed.reason.find("table.json: does not exist"), std::string::npos) << failed.reason;
}

}  // namespace
}  // namespace stoker::test
