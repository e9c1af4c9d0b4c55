// Runs of each configuration that are killed repeatedly at random points end with the same bytes as
// uninterrupted ones: model, optimizer and state tensors, and metrics records.
// STOKER_FAULT_TESTS=full covers all pairs of choices with twenty kills each; otherwise a few
// configurations and kills are tested.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <random>
#include <string_view>

#include <gtest/gtest.h>

#include "shared/base/hash.h"
#include "shared/checkpoint/store.h"
#include "tests/reliability/resume_case.h"
#include "tests/support/numpy_files.h"
#include "tests/support/temporary_directory.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

std::vector<ResumeCase> cases() {
  auto all = pairwise_cases();
  if (!is_full_test()) {
    all.resize(6);
    return all;
  }
  std::ranges::move(large_cases(), std::back_inserter(all));
  return all;
}

class ExactResumeTest : public RunTest, public ::testing::WithParamInterface<ResumeCase> {
 protected:
  void SetUp() override {
    // For speed only: this test does not depend on the disk.
    ::setenv("TEST_TMPDIR", quick_folder().c_str(), 1);
    RunTest::SetUp();
    for (const char* const set : {"one", "two"}) write_dataset(set);
    config_ = write_config(config_text());
  }

  bool is_one_of(std::initializer_list<std::string_view> models) const {
    return std::ranges::find(models, GetParam().model) != models.end();
  }
  bool is_text() const { return is_one_of({"gpt", "lstm_lm"}); }
  bool is_vectors() const { return is_one_of({"mlp", "blstm", "sequential"}); }
  bool is_image() const { return !is_text() && !is_vectors(); }
  // The smallest image side that the model accepts.
  size_t image_side() const {
    return GetParam().model == "inception_v3" ? 75 : GetParam().model == "alexnet" ? 64 : 32;
  }

  // Three files each, which serve as shards.
  void write_dataset(const std::string& set) const {
    std::mt19937 random(set.size() + static_cast<unsigned>(set.front()));
    for (int file = 0; file < 3; ++file) {
      const std::string name = "/" + std::to_string(file);
      fs::create_directories(path(set) + "/x");
      fs::create_directories(path(set) + "/y");
      if (is_text()) {
        std::ofstream out(path(set) + "/x" + name + ".txt");
        for (int line = 0; line < 40 + 20 * file; ++line)
          out << set << ", file " << file << ", line " << line << '\n';
        continue;
      }
      const size_t rows = 30 + 10 * static_cast<size_t>(file);
      write_arrays(path(set), name + ".npy", rows, random);
    }
  }

  void write_arrays(const std::string& folder, const std::string& name, size_t rows,
                    std::mt19937& random) const {
    std::vector<int64_t> labels(rows);
    for (int64_t& label : labels) label = random() % 4;
    write_whole(folder + "/y" + name,
                npy("<i8", "(" + std::to_string(rows) + ",)", bytes_of(labels)));
    std::string inputs;
    std::string shape = "(" + std::to_string(rows);
    if (is_image()) {
      const std::string side = std::to_string(image_side());
      std::vector<uint8_t> pixels(rows * 3 * image_side() * image_side());
      for (uint8_t& pixel : pixels) pixel = static_cast<uint8_t>(random());
      inputs = npy("|u1", shape + ", " + side + ", " + side + ", 3)", bytes_of(pixels));
    } else {
      std::vector<float> numbers(rows * 16);
      for (float& number : numbers) number = static_cast<float>(random() % 2000) / 1000 - 1;
      inputs = npy("<f4", shape + (GetParam().model == "blstm" ? ", 4, 4)" : ", 16)"),
                   bytes_of(numbers));
    }
    write_whole(folder + "/x" + name, inputs);
  }

  std::string transforms_text() const {
    return "[random_crop: {size: " + std::to_string(image_side()) +
           ", padding: 2}, random_horizontal_flip: {p: 0.5}, rand_augment: {interpolation: "
           "bilinear},"
           " random_erasing: {value: 128}, normalize: {mean: 0.5, std: 0.5}]";
  }

  // Mixup parameters are sampled per ticket.
  std::string batch_transforms_text(bool is_train) const {
    return is_train && is_image() ? ", batch_transforms: [mixup: {alpha: 0.2}]" : "";
  }

  std::string dataset_text(const std::string& set) const {
    if (is_text()) return "{format: text, path: " + path(set) + "/x}";
    return "{format: numpy, path: " + path(set) + "/x, labels_path: " + path(set) +
           "/y, num_classes: 4" + (is_image() ? ", transforms: " + transforms_text() : "") +
           batch_transforms_text(GetParam().data == "single") + "}";
  }

  std::string data_text() const {
    if (GetParam().data == "single") return "  train: " + dataset_text("one") + "\n";
    return "  train: {mixture: {one: 0.3, two: 0.7}" + batch_transforms_text(true) +
           "}\n  one: " + dataset_text("one") + "\n  two: " + dataset_text("two") + "\n";
  }

  std::string model_text() const {
    static const std::map<std::string, std::string> kModelOptions{
        {"gpt", "num_layers: 1, embed_dim: 16, num_heads: 2, context_length: 16, dropout: 0.1"},
        {"lstm_lm", "hidden_size: 16, context_length: 16, dropout: 0.1"},
        {"mlp", "hidden_sizes: [16], dropout: 0.1"},
        {"blstm", "hidden_size: 8"},
        {"vit", "num_layers: 1, hidden_dim: 16, num_heads: 2, patch_size: 8, dropout: 0.1"},
        {"vgg11_bn", "hidden_dim: 16"},
        {"alexnet", "hidden_dim: 16"},
        {"inception_v3", "aux_logits: false"},
        {"sequential",
         "layers: [linear: {out_features: 16}, batch_norm, relu, dropout: {p: 0.1}, linear]"}};
    const auto options = kModelOptions.find(GetParam().model);
    return "{name: " + GetParam().model +
           (options == kModelOptions.end() ? "" : ", " + options->second) + "}";
  }

  std::string extra_text() const {
    if (GetParam().extra == "ema") return ", ema_decay: 0.9";
    return GetParam().extra == "accumulate" ? ", gradient_accumulation_steps: 2" : "";
  }

  std::string task_text() const {
    return is_text() ? "{name: language_modeling}" : "{name: classification}";
  }

  std::string order_text() const {
    const std::string& order = GetParam().order;
    return order + (order == "block"    ? ", shuffle_block_size: 20"
                    : order == "shards" ? ", shuffle_open_shards: 2"
                                        : "");
  }

  std::string config_text() const {
    const ResumeCase& one = GetParam();
    const std::string optimizer = one.optimizer == "sgd_momentum" ? "sgd, momentum: 0.9"
                                  : one.optimizer == "sgd_nesterov"
                                      ? "sgd, momentum: 0.9, nesterov: true"
                                      : one.optimizer;
    return "data:\n" + data_text() +
           "eval: {datasets: []}\nfeed: {num_workers: 2, num_processes: " +
           (one.workers == "processes" ? "1" : "0") + ", shuffle: " + order_text() +
           "}\nmodel: " + model_text() + "\ntask: " + task_text() +
           "\noptimizer: {lr: 0.001, name: " + optimizer +
           "}\nscheduler: {name: constant, warmup_steps: 10}\n"
           "train: {micro_batch_size: 4, device: cpu, num_threads: 1, precision: " +
           one.precision + extra_text() +
           "}\ncheckpoint: {keep_last: 2, save_every_steps: " + std::to_string(save_every_steps()) +
           "}\nmetrics: {log_every_steps: " + std::to_string(save_every_steps() / 6 + 1) + "}\n";
  }

  // Checkpoint interval in steps, for a checkpoint every few hundredths of a second.
  uint64_t save_every_steps() const {
    if (is_one_of({"vgg11_bn", "alexnet", "inception_v3"})) return 3;
    return GetParam().model == "mlp" ? 300 : is_image() ? 12 : 60;
  }

  static std::vector<std::string> until(uint64_t step) {
    return {"--set", "train.max_steps=" + std::to_string(step)};
  }

  // Two thirds of the kills, rounded up, when a checkpoint has been saved, the others earlier; in an
  // order that differs between cases.
  static std::vector<KillPoint> kill_points(size_t kills) {
    const std::string name = name_of(GetParam());
    std::seed_seq seed(name.begin(), name.end());
    std::mt19937 random(seed);
    std::vector<KillPoint> points(kills, KillPoint::kCheckpointSaved);
    const size_t first = random() % 3;
    for (size_t i = 0; i < kills / 3; ++i) points[i] = static_cast<KillPoint>((first + i) % 3);
    std::shuffle(points.begin(), points.end(), random);
    return points;
  }

  // Runs stokerd, kills it at `point` and counts the kill. Returns false if the start was rejected,
  // which happens once after four failed starts.
  bool run_until_killed(KillPoint point) {
    constexpr uint64_t kSteps = 1'000'000'000;
    const Progress before = progress_of(run_dir());
    Process trainer = this->trainer(config_, run_dir(), until(kSteps));
    if (const auto exit = wait_for(point, trainer, run_dir(), before)) {
      EXPECT_EQ(exit->code, 93) << log_of("stokerd");
      return false;
    }
    EXPECT_TRUE(trainer.kill());
    EXPECT_TRUE(count_kill(report_kill_of(run_dir(), before, kSteps), before.checkpoint,
                           is_in_training(point), counts_));
    return true;
  }

  // The timeout is long because the uninterrupted run takes as many steps as all killed runs
  // together.
  Exit train_until(uint64_t last, const std::string& run) const {
    const auto exit = trainer(config_, run, until(last)).wait(15min);
    EXPECT_TRUE(exit) << "stokerd did not exit";
    return exit.value_or(Exit{-1, 0});
  }

  static std::string deterministic_results(const std::string& run, uint64_t step) {
    const std::string directory =
        run + "/checkpoints/" + checkpoint::CheckpointStore::checkpoint_name(step);
    const auto opened = checkpoint::CheckpointStore::open_verified(directory);
    if (!opened.ok()) return opened.status().to_string();
    std::string results;
    for (const auto& file : opened->manifest().files)
      results += file.name + " " + file.sha256 + "\n";
    results += std::to_string(opened->manifest().next_ticket) + " " +
               opened->manifest().live_settings + "\n";
    for (const std::string& row : deterministic_records(run)) results += row + "\n";
    return results;
  }

  std::string config_;
  KillCounts counts_;
};

TEST_P(ExactResumeTest, MatchesUninterruptedRunAfterRepeatedKills) {
  const auto points = kill_points(is_full_test() ? 20 : 3);
  for (size_t killed = 0; killed < points.size() && !HasFailure();)
    killed += run_until_killed(points[killed]);
  ASSERT_FALSE(HasFailure());
  const Progress before = progress_of(run_dir());
  const uint64_t last = before.checkpoint + save_every_steps() / 2;
  Exit end = train_until(last, run_dir());
  if (end.code == 93) end = train_until(last, run_dir());
  ASSERT_EQ(end.code, 0);
  const auto start_step = start_step_of(log_since(before));
  EXPECT_GT(start_step.value_or(0), 0u) << "the last start did not resume";
  EXPECT_TRUE(count_start(start_step, before.checkpoint, counts_));
  // After each kill that left a new checkpoint, a start resumed.
  const auto saved = std::ranges::count(points, KillPoint::kCheckpointSaved);
  EXPECT_GE(counts_.in_training, std::ranges::count_if(points, is_in_training))
      << to_string(counts_);
  EXPECT_GE(counts_.resumed, saved) << to_string(counts_);
  ASSERT_EQ(train_until(last, run_dir("uninterrupted")).code, 0);
  EXPECT_EQ(deterministic_results(run_dir(), last),
            deterministic_results(run_dir("uninterrupted"), last));
  const ResumeCase& one = GetParam();
  std::cout << "exact: | " << one.model << " | " << one.optimizer << " | " << one.precision << " | "
            << one.order << " | " << one.workers << " | " << one.data << " | " << one.extra << " | "
            << to_string(counts_) << " | " << last << " steps | "
            << deterministic_records(run_dir()).size() << " records"
            << " | " << (HasFailure() ? "DIFFERENT" : "same") << " |\n";
}

INSTANTIATE_TEST_SUITE_P(Cases, ExactResumeTest, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace stoker::test
