// Real processes from start to end: train, evaluate, stop, resume, reject.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/clock.h"
#include "shared/checkpoint/store.h"
#include "shared/metrics/metrics_record.h"
#include "shared/run/eval_result.h"
#include "shared/run/run_state.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class RunLifecycleTest : public RunTest {};

TEST_F(RunLifecycleTest, TrainsAndEvaluatesEveryCheckpointWithExitCodeZero) {
  const std::string config =
      write_config(text_config("eval: {checkpoints: all, batch_size: 16}\n"));
  Process evaluator = this->evaluator(run_dir(), {"--follow"});
  Process trainer = this->trainer(config, run_dir());
  const auto trained = trainer.wait(90s);
  ASSERT_TRUE(trained.has_value());
  EXPECT_EQ(trained->code, 0);
  const auto evaluated = evaluator.wait(60s);
  ASSERT_TRUE(evaluated.has_value());
  EXPECT_EQ(evaluated->code, 0);

  EXPECT_EQ(newest_step(run_dir()), 60u);
  const auto state = run::read_run_state(run::RunLayout(run_dir()));
  ASSERT_EQ(state.phase, run::RunState::Phase::kEnded);
  EXPECT_EQ(state.end->outcome, run::RunOutcome::kFinished);
  EXPECT_EQ(state.end->step, 60u);
  EXPECT_EQ(deterministic_records(run_dir()).size(), 12u);
  // Step 40 has no checkpoint if the disk was still busy with step 20; it is skipped as documented.
  const auto saved = checkpoints(run_dir());
  ASSERT_GE(saved.size(), 2u);
  for (const std::string& name : saved) {
    const uint64_t step = *checkpoint::CheckpointStore::parse_checkpoint_name(name);
    const auto text = text_of(run::eval_result_path(run_dir() + "/eval", step));
    const auto result = run::parse_eval_result(text, "step");
    ASSERT_TRUE(result.ok()) << step << ": " << result.status().to_string();
    EXPECT_EQ(result->step, step);
    EXPECT_EQ(result->datasets.at(0).dataset, "val");
  }
  const auto first =
      run::parse_eval_result(text_of(run::eval_result_path(run_dir() + "/eval", 20)), "first");
  const auto last =
      run::parse_eval_result(text_of(run::eval_result_path(run_dir() + "/eval", 60)), "last");
  EXPECT_LT(last->datasets[0].metrics[0].second, first->datasets[0].metrics[0].second)
      << "it did not learn";
  const auto best = run::read_best(run::RunLayout(run_dir()));
  ASSERT_TRUE(best.ok());
  EXPECT_EQ(best->step, 60u);
}

TEST_F(RunLifecycleTest, TrainsEachModelOnMatchingData) {
  const std::string images =
      R"(data: {train: {format: synthetic, num_samples: 400, input_shape: [3, 32, 32], num_classes: 4}}
eval: {datasets: []}
task: {name: classification}
train: {max_steps: 3, micro_batch_size: 8, device: cpu, num_threads: 1, gradient_accumulation_steps: 2}
)";
  for (const char* const model :
       {"{name: lenet5}", "{name: resnet8}", "{name: mlp, hidden_sizes: [16]}"}) {
    const std::string config = write_config(images + "model: " + model + "\n");
    const std::string run = run_dir("run-" + std::to_string(count_of(model, "e")) +
                                    std::to_string(std::string(model).size()));
    EXPECT_EQ(train(config, run).code, 0) << model;
    EXPECT_EQ(newest_step(run), 3u) << model;
  }
}

TEST_F(RunLifecycleTest, ProducesIdenticalBytesForSameConfig) {
  const std::string config = write_config(small_config());
  ASSERT_EQ(train(config, run_dir("a")).code, 0);
  ASSERT_EQ(train(config, run_dir("b"),
                  {"--set", "feed.num_workers=5", "--set", "feed.prefetch_batches=7", "--set",
                   "feed.num_processes=2"})
                .code,
            0);
  ASSERT_EQ(train(config, run_dir("c"), {"--set", "feed.num_processes=0"}).code, 0);
  EXPECT_EQ(model_sha256(run_dir("a"), 400), model_sha256(run_dir("b"), 400))
      << "the workers changed the result";
  EXPECT_EQ(model_sha256(run_dir("a"), 400), model_sha256(run_dir("c"), 400))
      << "reading in stokerd changed the result";
  EXPECT_EQ(deterministic_records(run_dir("a")), deterministic_records(run_dir("b")));
}

TEST_F(RunLifecycleTest, SavesOnSigtermAndResumesBitForBit) {
  const std::string config = write_config(small_config());
  // Another number of steps changes no step before.
  const auto until = [](uint64_t step) -> std::vector<std::string> {
    return {"--set", "train.max_steps=" + std::to_string(step), "--set",
            "scheduler={name: constant, warmup_steps: 10}"};
  };
  {
    Process trainer = this->trainer(config, run_dir(), until(100'000'000));
    ASSERT_TRUE(wait_until(30s, [&] { return num_records(run_dir()) > 5; }));
    trainer.signal(SIGTERM);
    const auto exit = trainer.wait(30s);
    ASSERT_TRUE(exit.has_value());
    EXPECT_EQ(exit->code, 0);
  }
  const auto state = run::read_run_state(run::RunLayout(run_dir()));
  ASSERT_EQ(state.phase, run::RunState::Phase::kEnded);
  EXPECT_EQ(state.end->outcome, run::RunOutcome::kStopped);
  EXPECT_EQ(newest_step(run_dir()), state.end->step) << "the last step was not saved";
  const uint64_t last = state.end->step + 400;
  for (const std::string& run : {run_dir(), run_dir("uninterrupted")})
    ASSERT_EQ(train(config, run, until(last)).code, 0);
  EXPECT_EQ(model_sha256(run_dir(), last), model_sha256(run_dir("uninterrupted"), last));
  EXPECT_EQ(deterministic_records(run_dir()), deterministic_records(run_dir("uninterrupted")));
}

TEST_F(RunLifecycleTest, SavesImmediatelyOnSigusr1AndContinues) {
  const std::string config = write_config(small_config());
  Process trainer = this->trainer(
      config, run_dir(),
      {"--set", "train.max_steps=1000000", "--set", "checkpoint.save_every_steps=null"});
  ASSERT_TRUE(wait_until(30s, [&] { return num_records(run_dir()) > 0; }));
  EXPECT_TRUE(checkpoints(run_dir()).empty());
  trainer.signal(SIGUSR1);
  EXPECT_TRUE(wait_until(30s, [&] { return !checkpoints(run_dir()).empty(); }));
  const size_t rows = num_records(run_dir());
  EXPECT_TRUE(wait_until(30s, [&] { return num_records(run_dir()) > rows + 3; }))
      << "training did not continue";
  trainer.signal(SIGTERM);
  const auto exit = trainer.wait(30s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 0);
}

TEST_F(RunLifecycleTest, ExecutesAllControlSocketCommands) {
  const std::string config = write_config(small_config());
  Process trainer = this->trainer(config, run_dir(),
                                  {"--set", "train.max_steps=1000000", "--set",
                                   "scheduler.name=constant", "--set", "scheduler.min_lr="});
  ASSERT_TRUE(wait_until(30s, [&] { return num_records(run_dir()) > 0; }));
  const auto run_stokerctl = [&](const std::vector<std::string>& words, const std::string& log) {
    const auto exit = ctl(run_dir(), words, log).wait(30s);
    return exit ? exit->code : -1;
  };
  EXPECT_EQ(run_stokerctl({"pause"}, "pause"), 0);
  const auto list_threads = [&] {
    fs::remove(path("threads.out"));
    EXPECT_EQ(run_stokerctl({"threads"}, "threads"), 0);
    return log_of("threads");
  };
  // A step that waits for data when the command comes is completed.
  EXPECT_TRUE(
      wait_until(30s, [&] { return list_threads().find("wait for resume") != std::string::npos; }));
  for (const char* name : {"main", "trainer", "checkpoints", "metrics", "feed-supervisor", "log"})
    EXPECT_NE(log_of("threads").find(std::string("\n  ") + name + " "), std::string::npos) << name;
  EXPECT_EQ(run_stokerctl({"--json", "threads"}, "threads-json"), 0);
  EXPECT_EQ(log_of("threads-json").find("\"operation\":\"\""), std::string::npos)
      << log_of("threads-json");
  const auto step_now = [&] {
    fs::remove(path("status.out"));
    EXPECT_EQ(run_stokerctl({"--json", "status"}, "status"), 0);
    std::smatch step;
    const std::string text = log_of("status");
    return std::regex_search(text, step, std::regex(R"("step":(\d+))")) ? step.str(1) : text;
  };
  const std::string step = step_now();
  EXPECT_NE(log_of("status").find("\"paused\""), std::string::npos);
  EXPECT_EQ(run_stokerctl({"checkpoint"}, "checkpoint"), 0);
  EXPECT_FALSE(checkpoints(run_dir()).empty());
  EXPECT_EQ(step_now(), step) << "it trained while paused";
  EXPECT_EQ(run_stokerctl({"set", "optimizer.lr", "0.0005"}, "set"), 0);
  EXPECT_NE(run_stokerctl({"set", "optimizer.lr", "0"}, "set-bad"), 0);
  EXPECT_EQ(run_stokerctl({"resume"}, "resume"), 0);
  EXPECT_TRUE(wait_until(30s, [&] {
    return deterministic_records(run_dir()).back().find("\"lr\":5e-04") != std::string::npos;
  })) << deterministic_records(run_dir()).back();
  EXPECT_EQ(run_stokerctl({"stop"}, "stop"), 0);
  const auto exit = trainer.wait(30s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 0);
}

TEST_F(RunLifecycleTest, RejectsSecondDaemonWith75WithoutSideEffects) {
  const std::string config = write_config(small_config());
  Process first = trainer(config, run_dir(), {"--set", "train.max_steps=1000000"});
  ASSERT_TRUE(wait_until(30s, [&] { return num_records(run_dir()) > 0; }));
  Process second(std::vector<std::string>{std::string(STOKER_BIN_DIR) + "/stokerd", "--config",
                                          config, "--run-dir", run_dir()},
                 path("second.out"));
  const auto rejected = second.wait(30s);
  ASSERT_TRUE(rejected.has_value());
  EXPECT_EQ(rejected->code, 75);
  EXPECT_NE(log_of("second").find("pid=" + std::to_string(first.pid())), std::string::npos)
      << log_of("second");
  const size_t rows = num_records(run_dir());
  EXPECT_TRUE(wait_until(30s, [&] { return num_records(run_dir()) > rows; }))
      << "the first was affected";
}

TEST_F(RunLifecycleTest, ArchivesOldRunAndStartsNewOneOnFresh) {
  const std::string config = write_config(small_config());
  ASSERT_EQ(train(config, run_dir()).code, 0);
  const std::string before = model_sha256(run_dir(), 400);
  ASSERT_EQ(
      train(config, run_dir(), {"--fresh", "--set", "train.max_steps=80", "--set", "run.seed=2"})
          .code,
      0);
  EXPECT_EQ(newest_step(run_dir()), 80u);
  EXPECT_TRUE(fs::exists(run_dir() + "/archive-1/checkpoints/step-000000400"));
  EXPECT_NE(before, model_sha256(run_dir(), 80));
}

TEST_F(RunLifecycleTest, ExitsImmediatelyWithoutChangesOnFinishedRun) {
  const std::string config = write_config(small_config());
  ASSERT_EQ(train(config, run_dir()).code, 0);
  const auto rows = deterministic_records(run_dir());
  const std::string model = model_sha256(run_dir(), 400);
  ASSERT_EQ(train(config, run_dir()).code, 0);
  EXPECT_EQ(deterministic_records(run_dir()), rows);
  EXPECT_EQ(model_sha256(run_dir(), 400), model);
}

TEST_F(RunLifecycleTest, RejectsChangedSettingsByName) {
  const std::string config = write_config(small_config());
  ASSERT_EQ(train(config, run_dir(), {"--set", "train.max_steps=40"}).code, 0);
  EXPECT_EQ(train(config, run_dir(), {"--set", "model.hidden_sizes=[64]"}).code, 78);
  EXPECT_NE(log_of("stokerd").find("model.hidden_sizes"), std::string::npos);
  EXPECT_EQ(train(config, run_dir(), {"--set", "train.micro_batch_size=32"}).code, 78);
  EXPECT_NE(log_of("stokerd").find("train.micro_batch_size"), std::string::npos);
  EXPECT_EQ(train(config, run_dir(), {"--set", "train.max_steps=50"}).code, 0)
      << "a longer run is the same run";
}

struct BadStart {
  const char* name;
  const char* data;
  const char* expected;  // part of the output
};

void PrintTo(const BadStart& start, std::ostream* out) { *out << start.name; }

class InvalidDataTest : public RunTest, public ::testing::WithParamInterface<BadStart> {};

TEST_P(InvalidDataTest, ExitsWith78AndPath) {
  fs::create_directories(path("empty"));
  std::ofstream(path("zero.txt"));
  const std::string data =
      std::regex_replace(std::string(GetParam().data), std::regex("@"), folder_);
  const std::string config =
      write_config("data: {train: " + data +
                   "}\nmodel: {name: gpt}\neval: {datasets: []}\ntrain: {max_steps: 5}\n");
  EXPECT_EQ(train(config, run_dir()).code, 78);
  EXPECT_NE(log_of("stokerd").find(folder_ + GetParam().expected), std::string::npos)
      << log_of("stokerd");
}

INSTANTIATE_TEST_SUITE_P(
    Paths, InvalidDataTest,
    ::testing::Values(BadStart{"Missing", "{format: text, path: @/nowhere}", "/nowhere"},
                      BadStart{"Empty", "{format: text, path: @/empty}", "/empty"},
                      BadStart{"ZeroLength", "{format: text, path: @/zero.txt}", "/zero.txt"}),
    [](const auto& test) { return test.param.name; });

// Prefix of a command that runs `file` without the right of root to read every file: as an
// unprivileged user or, if a folder on the way to it is closed to others, as its owner.
std::vector<std::string> without_rights_of_root(const std::string& file) {
  if (::geteuid() != 0) return {};
  std::string user = "65534", group = "65534";
  fs::path folder;
  for (const fs::path& part : fs::path(file).parent_path()) {
    folder /= part;
    struct stat state {};
    EXPECT_EQ(::stat(folder.c_str(), &state), 0) << folder;
    if ((state.st_mode & S_IXOTH) != 0) continue;
    user = std::to_string(state.st_uid);
    group = std::to_string(state.st_gid);
    break;
  }
  return {"setpriv",        "--reuid=" + user, "--regid=" + group,
          "--clear-groups", "--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search"};
}

TEST_F(RunLifecycleTest, ExitsWith78AndReasonWithoutDevice) {
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);  // also on a machine with a GPU
  const Exit exit = train(write_config(small_config()), run_dir(), {"--set", "train.device=cuda"});
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(exit.code, 78);
  const std::string log = log_of("stokerd");
  EXPECT_NE(log.find("train.device: cuda"), std::string::npos) << log;
  EXPECT_NE(log.find("; set it to cpu or auto"), std::string::npos) << log;
  EXPECT_TRUE(checkpoints(run_dir()).empty());
}

TEST_F(RunLifecycleTest, ExitsWith78AndPathOnUnreadableFolder) {
  fs::create_directories(path("locked"));
  ::chmod(path("locked").c_str(), 0);
  ::chmod(folder_.c_str(), 01777);
  const std::string config = write_config("data: {train: {format: text, path: " + path("locked") +
                                          "}}\nmodel: {name: gpt}\neval: {datasets: []}\n");
  const std::vector<std::string> as_user = without_rights_of_root(program("stokerd"));
  const auto exit_code_of = [&](const std::vector<std::string>& words, const std::string& log) {
    const auto exit = Process(joined(as_user, words), path(log + ".out")).wait(30s);
    return exit && exit->signal == 0 ? exit->code : -1;
  };
  if (exit_code_of({program("stokerd"), "--version"}, "version") != 0)
    GTEST_SKIP() << "the tests run as root, and stokerd does not start without root's rights: "
                 << log_of("version");
  ASSERT_EQ(exit_code_of({"ls", path("locked")}, "ls"), 2) << "the folder can be read";
  const std::vector<std::string> command =
      joined(as_user, {program("stokerd"), "--config", config, "--run-dir", run_dir()});
  Process trainer(command, path("stokerd.out"));
  const auto exit = trainer.wait(60s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->code, 78);
  EXPECT_NE(log_of("stokerd").find(path("locked")), std::string::npos) << log_of("stokerd");
}

// The inputs are not normalized: do_normalize false is the same, a mean and std are not.
TEST_F(RunLifecycleTest, WarnsOfTheNormalizationOfAPretrainedFolder) {
  fs::create_directory(path("vit"));
  for (const char* const name : {"config.json", "model.safetensors"})
    fs::copy(fs::path(STOKER_GOLDEN "/../parity/golden/images/vit_transformers_1") / name,
             path("vit"));
  const auto log_with = [&](const std::string& preprocessor, const std::string& run,
                            int exit_code = 0) {
    std::ofstream(path("vit/preprocessor_config.json")) << preprocessor;
    const std::string config = write_config(
        "data: {train: {format: synthetic, num_samples: 40, input_shape: [3, 6, 6], num_classes: "
        "5}}\n"
        "model: {name: vit, pretrained: {path: " +
        path("vit") +
        "}}\ntask: {name: classification}\n"
        "train: {max_steps: 2, micro_batch_size: 4, device: cpu, num_threads: 1}\n");
    EXPECT_EQ(train(config, run_dir(run)).code, exit_code) << log_of("stokerd");
    return log_of("stokerd");
  };
  const std::string warning = "pretrained normalization differs";
  EXPECT_EQ(log_with(R"({"do_normalize": false})", "same").find(warning), std::string::npos);
  const std::string log = log_with(R"({"image_mean": [0.4, 0.5], "image_std": [0.25]})", "other");
  EXPECT_NE(log.find(warning), std::string::npos) << log;
  EXPECT_NE(log.find("[0.4, 0.5]"), std::string::npos) << log;
  EXPECT_THAT(
      log_with("{\n\"image_mean\": [0.5", "malformed", 78),
      ::testing::HasSubstr("model.pretrained.path: " + path("vit/preprocessor_config.json") +
                           ": line 2: not JSON: incomplete JSON"));
}

// What a process has used so far, from the files that the kernel has for it.
double cpu_seconds_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string line{std::istreambuf_iterator<char>(file), {}};
  std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
  std::string skipped;
  double user = 0, system = 0;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  fields >> user >> system;
  return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double resident_bytes_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  double all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

// The records that have measured what stokerd and its workers use.
std::vector<metrics::TrainMetrics> measured_records(const std::string& text) {
  std::vector<metrics::TrainMetrics> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto record = metrics::parse_record(line);
    const auto parsed = record.ok() ? metrics::train_metrics_from(*record) : record.status();
    if (parsed.ok() && parsed->resources[Resource::kWorkerRss] > 0) found.push_back(*parsed);
  }
  return found;
}

TEST_F(RunLifecycleTest, RecordsWhatStokerdAndItsWorkersUse) {
  Process stokerd =
      trainer(write_config(small_config()), run_dir(),
              {"--set", "train.max_steps=100000000", "--set", "feed.num_processes=2"});
  const auto records = [&] {
    return measured_records(text_if_exists(run_dir() + "/metrics/train.jsonl"));
  };
  ASSERT_TRUE(wait_until(kPatience, [&] { return records().size() >= 3; })) << log_of("stokerd");
  const auto measured = records();
  const auto workers = children_of(stokerd.pid(), "stoker-feed");
  ASSERT_EQ(workers.size(), 2u);
  double resident = 0, worker_cpu = 0;
  for (const pid_t worker : workers) {
    resident += resident_bytes_of(worker);
    worker_cpu += cpu_seconds_of(worker);
  }
  constexpr double kMib = 1 << 20;
  const ResourceUse& last = measured.back().resources;
  EXPECT_NEAR(last[Resource::kWorkerRss], resident, 0.2 * resident);
  EXPECT_NEAR(last[Resource::kRss], resident_bytes_of(stokerd.pid()), 32 * kMib);
  // The sum over all intervals but the first, whose begin is not in the records.
  double sum = 0, sum_of_workers = 0;
  for (size_t i = 1; i < measured.size(); ++i) {
    const double seconds = std::chrono::duration<double>(*parse_iso8601(measured[i].wall_time) -
                                                         *parse_iso8601(measured[i - 1].wall_time))
                               .count();
    EXPECT_GE(seconds, 0.99) << "at most once a second";
    sum += seconds * measured[i].resources[Resource::kCpu];
    sum_of_workers += seconds * measured[i].resources[Resource::kWorkerCpu];
  }
  EXPECT_GT(sum, 0);
  EXPECT_LE(sum, cpu_seconds_of(stokerd.pid()) + 0.1);
  EXPECT_GT(sum_of_workers, 0);
  EXPECT_LE(sum_of_workers, worker_cpu + 0.1);
  EXPECT_GE(last[Resource::kMachineCpu], 0);
  stokerd.signal(SIGTERM);
  EXPECT_EQ(code_of(stokerd), 0);
  // The evaluator's are in its own records.
  const auto evaluated = evaluator(run_dir(), {"--once"}).wait(kPatience);
  ASSERT_TRUE(evaluated && evaluated->code == 0) << log_of("stoker-eval");
  const std::string line = text_of(run_dir() + "/metrics/eval.jsonl");
  const auto record = metrics::parse_record(line.substr(0, line.find('\n')));
  ASSERT_TRUE(record.ok());
  const auto evaluation = metrics::eval_metrics_from(*record);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status().to_string();
  EXPECT_GT(evaluation->resources[Resource::kCpu], 0);
  EXPECT_GT(evaluation->resources[Resource::kRss], 16 * kMib);
  EXPECT_GT(evaluation->resources[Resource::kWorkerRss], kMib);
}

}  // namespace
}  // namespace stoker::test
