// The reference runs of bench/convergence, shortened and on generated data: they reach the metrics
// of the same training in PyTorch. scripts/convergence.sh runs them in full on real data.
#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/packed_bytes.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;

class ConvergenceTest : public RunTest {
 protected:
  // Metrics of the first evaluated dataset after `steps` of bench/convergence/KIND.yaml.
  std::map<std::string, double> learned(const std::string& kind, int steps,
                                        const std::vector<std::string>& settings) {
    std::vector<std::string> options{"--set", "train.max_steps=" + std::to_string(steps),
                                     "--set", "train.num_threads=1",
                                     "--set", "checkpoint.save_every_steps=null"};
    for (const std::string& setting : settings) options.insert(options.end(), {"--set", setting});
    auto trained = trainer(STOKER_CONVERGENCE "/" + kind + ".yaml", run_dir(), options).wait(280s);
    EXPECT_TRUE(trained && trained->code == 0) << log_of("stokerd");
    auto evaluated = evaluator(run_dir(), {"--once"}).wait(100s);
    EXPECT_TRUE(evaluated && evaluated->code == 0) << log_of("stoker-eval");
    const auto metrics = newest_result(run_dir()).metrics;
    return {metrics.begin(), metrics.end()};
  }

  // Text of random words, a few of them much more frequent than the others.
  void write_text(const std::string& name) const {
    std::mt19937 random(1);
    std::array<std::string, 64> words;
    for (std::string& word : words) {
      for (size_t letters = 2 + random() % 6; letters > 0; --letters)
        word += static_cast<char>('a' + random() % 26);
    }
    std::ofstream text(path(name));
    for (int i = 0; i < 40'000; ++i) {
      text << words[(random() % words.size()) * (random() % words.size()) / words.size()];
      text << (random() % 12 == 0 ? '\n' : ' ');
    }
  }

  // IDX images of digits at random positions on a noisy background, each in a random gray level.
  void write_digits(const std::string& images, const std::string& labels, unsigned digits,
                    unsigned seed) const;
};

constexpr size_t kSide = 28;
constexpr size_t kFontWidth = 5, kFontHeight = 7, kScale = 3;
constexpr std::array<const char*, 10> kFont = {
    ".###.#...##..###.#.###..##...#.###.", "..#...##....#....#....#....#...###.",
    ".###.#...#....#...#...#...#...#####", "#####...#...#.....#.....##...#.###.",
    "...#...##..#.#.#..#.#####...#....#.", "######....####.....#....##...#.###.",
    "..##..#...#....####.#...##...#.###.", "#####....#...#...#...#....#....#...",
    ".###.#...##...#.###.#...##...#.###.", ".###.#...##...#.####....#...#..##.."};

void ConvergenceTest::write_digits(const std::string& images, const std::string& labels,
                                   unsigned digits, unsigned seed) const {
  std::mt19937 random(seed);
  std::ofstream encoded_images(path(images), std::ios::binary),
      numbers(path(labels), std::ios::binary);
  encoded_images << big_endian(0x803) + big_endian(digits) + big_endian(kSide) + big_endian(kSide);
  numbers << big_endian(0x801) + big_endian(digits);
  for (unsigned i = 0; i < digits; ++i) {
    const size_t digit = random() % kFont.size();
    const size_t top = random() % (kSide - kScale * kFontHeight + 1);
    const size_t left = random() % (kSide - kScale * kFontWidth + 1);
    const unsigned ink = 90 + random() % 130;
    std::string encoded_image(kSide * kSide, '\0');
    for (char& pixel : encoded_image) pixel = static_cast<char>(random() % 36);
    for (size_t y = 0; y < kScale * kFontHeight; ++y)
      for (size_t x = 0; x < kScale * kFontWidth; ++x)
        if (kFont[digit][y / kScale * kFontWidth + x / kScale] == '#')
          encoded_image[(top + y) * kSide + left + x] = static_cast<char>(ink + random() % 36);
    encoded_images << encoded_image;
    numbers << static_cast<char>(digit);
  }
}

TEST_F(ConvergenceTest, MatchesPyTorchLossWithByteGpt) {
  write_text("text.txt");
  const auto metrics = learned(
      "gpt", 50, {"data.train.path=" + path("text.txt"), "data.val.path=" + path("text.txt")});
  ASSERT_TRUE(metrics.contains("loss"));
  // bench/convergence/baseline.py on the same text: 50 steps with seeds 1, 2 and 3.
  constexpr double kPyTorch = 2.3245;
  EXPECT_NEAR(metrics.at("loss"), kPyTorch, 0.01 * kPyTorch);
}

TEST_F(ConvergenceTest, Reaches98Point5PercentAccuracyWithLenet) {
  write_digits("train-images", "train-labels", 3000, 1);
  write_digits("val-images", "val-labels", 1000, 2);
  std::vector<std::string> files;
  for (const char* const set : {"train", "val"}) {
    const std::string name(set);
    files.push_back("data." + name + ".path=" + path(name + "-images"));
    files.push_back("data." + name + ".labels_path=" + path(name + "-labels"));
  }
  const auto metrics = learned("digits", 500, files);
  ASSERT_TRUE(metrics.contains("accuracy"));
  EXPECT_GT(metrics.at("accuracy"), 0.985);
}

}  // namespace
}  // namespace stoker::test
