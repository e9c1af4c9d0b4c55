// Each file of config/ is trained for a few steps with the programs, and evaluated, in a folder that has
// the data it names, a few samples of it, below the same relative paths.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/shared/data/example_writer.h"
#include "tests/shared/image/image_files.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

namespace fs = std::filesystem;

// Writes the data; returns the settings that make the example small enough, or independent of the
// machine.
class ExampleRunTest : public RunTest, public ::testing::WithParamInterface<std::string> {
 protected:
  using Settings = std::vector<std::string>;
  using Prepare = Settings (ExampleRunTest::*)() const;
  static constexpr int kSamples = 24, kClasses = 10;
  static constexpr uint64_t kSteps = 2;
  static const std::map<std::string, Prepare> kExamples;

  void write(const std::string& name, const std::string& content) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << content;
  }
  static std::string random_bytes(size_t count) {
    std::mt19937 random(7);
    std::string bytes(count, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    return bytes;
  }
  static std::string idx_header(char dimensions, std::vector<char> sizes) {
    std::string header{0, 0, 8, dimensions};
    for (const char size : sizes) header += {0, 0, 0, size};
    return header;
  }

  Settings nothing() const { return {}; }

  Settings mnist() const {
    for (const std::string part : {"train", "t10k"}) {
      write("data/mnist/" + part + "-images-idx3-ubyte",
            idx_header(3, {kSamples, 28, 28}) + random_bytes(size_t{kSamples} * 28 * 28));
      std::string labels = idx_header(1, {kSamples});
      for (int i = 0; i < kSamples; ++i) labels += static_cast<char>(i % kClasses);
      write("data/mnist/" + part + "-labels-idx1-ubyte", labels);
    }
    return {};
  }

  Settings cifar() const {
    std::string records;
    for (int i = 0; i < kSamples; ++i)
      records += static_cast<char>(i % kClasses) + random_bytes(3 * 32 * 32);
    for (const char* const name : {"data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"})
      write(std::string("data/cifar-10-batches-bin/") + name, records);
    return {};
  }

  // A shallower network, which has parameters for each of the patterns.
  Settings imagenet() const {
    using namespace image::testing;
    const std::string jpeg = encode_jpeg(gradient(80, 96, 3));
    for (const std::string part : {"train", "val"})
      for (int i = 0; i < kSamples; ++i)
        write("data/imagenet/" + part + (i % 2 == 0 ? "/cat/" : "/dog/") + std::to_string(i) +
                  ".JPEG",
              jpeg);
    return {"model.name=resnet18", "train.device=cpu", "feed.num_workers=2",
            "feed.num_processes=1"};
  }

  Settings text() const {
    std::string lines;
    for (int i = 0; i < 4000; ++i) lines += "line " + std::to_string(i) + "\n";
    write("text/lines.txt", lines);
    return {"data.train.path=text", "data.val.path=text"};
  }

  Settings shapes() const {
    using namespace image::testing;
    for (const std::string part : {"train", "val"}) {
      std::string rows;
      for (int i = 0; i < kSamples; ++i) {
        const bool is_red = i % 2 == 0;
        const uint8_t red = is_red ? 255 : 0, blue = is_red ? 0 : 255;
        const std::string name = part + std::to_string(i) + ".png";
        write("shapes/" + name, encode_png_file(plain(32, 32, {red, 0, blue})));
        rows += R"({"path": ")" + name + R"(", "captions": ["a )" + (is_red ? "red" : "blue") +
                " circle\"]}\n";
      }
      write("shapes/" + part + ".jsonl", rows);
    }
    write("shapes/words.txt", "a\nred\nblue\ncircle\n");
    return {};
  }

  // One utterance per file, of different lengths, with three phones.
  Settings speech() const {
    using namespace data::testing;
    const auto write_files = [&](const std::string& part, int count) {
      const auto number = [](int value) {
        const std::string digits = std::to_string(value);
        return std::string(5 - digits.size(), '0') + digits;
      };
      for (int i = 0; i < count; ++i) {
        std::string frames;
        for (int value = 0; value < 40 * (20 + 5 * i); ++value)
          frames += raw(static_cast<float>((value * 7 + i) % 13) / 13);
        write("data/speech/" + part + "-" + number(i) + "-of-" + number(count) + ".tfrecord",
              framed(example({{"fbank", message(2, message(1, frames))},
                              {"phones", ints_feature({1 + i, 2 + i, 3})}})));
      }
    };
    write_files("train", 32);
    write_files("val", 4);
    return {};
  }

  // A program in the folder of the data. The exit code.
  int run(const std::string& name, const std::vector<std::string>& arguments) const {
    Process process(
        joined({"env", "--chdir=" + folder_, program(name), "--run-dir", run_dir()}, arguments),
        path(name + ".out"));
    return code_of(process);
  }
};

const std::map<std::string, ExampleRunTest::Prepare> ExampleRunTest::kExamples{
    {"captioning-shapes", &ExampleRunTest::shapes},
    {"cifar-resnet", &ExampleRunTest::cifar},
    {"cpp-gpt", &ExampleRunTest::text},
    {"demo", &ExampleRunTest::nothing},
    {"imagenet-resnet50", &ExampleRunTest::imagenet},
    {"mnist-lenet", &ExampleRunTest::mnist},
    {"published-blstm", &ExampleRunTest::nothing},
    {"published-mlp", &ExampleRunTest::nothing},
    {"speech-ctc", &ExampleRunTest::speech},
    {"stoker", &ExampleRunTest::text},
};

std::vector<std::string> example_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(STOKER_EXAMPLES))
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem());
  std::ranges::sort(names);
  return names;
}

TEST_P(ExampleRunTest, TrainsAndIsEvaluated) {
  const auto prepare = kExamples.find(GetParam());
  ASSERT_NE(prepare, kExamples.end())
      << "config/" << GetParam() << ".yaml is new: add its data to this test";
  Settings settings = (this->*prepare->second)();
  for (const char* const setting :
       {"train.micro_batch_size=2", "train.num_threads=1", "eval.max_samples=4",
        "eval.batch_size=2", "eval.num_threads=1", "metrics.log_every_steps=1"})
    settings.emplace_back(setting);
  settings.push_back("train.max_steps=" + std::to_string(kSteps));
  std::vector<std::string> arguments{"--config", STOKER_EXAMPLES "/" + GetParam() + ".yaml"};
  for (const std::string& setting : settings) {
    arguments.emplace_back("--set");
    arguments.push_back(setting);
  }
  ASSERT_EQ(run("stokerd", arguments), 0);
  EXPECT_EQ(newest_step(run_dir()), kSteps);
  const auto records = deterministic_records(run_dir());
  ASSERT_EQ(records.size(), kSteps);
  for (const std::string& record : records) {
    const size_t loss = record.find("\"loss\":");
    ASSERT_NE(loss, std::string::npos) << record;
    EXPECT_GT(std::strtod(record.c_str() + loss + 7, nullptr), 0) << record;
  }
  ASSERT_EQ(run("stoker-eval", {"--once"}), 0);
  const run::DatasetResult result = newest_result(run_dir());
  EXPECT_GT(result.samples, 0u);
  ASSERT_FALSE(result.metrics.empty());
  for (const auto& [name, value] : result.metrics) EXPECT_TRUE(std::isfinite(value)) << name;
  EXPECT_TRUE(fs::exists(run_dir() + "/eval/best.json")) << "the monitored metric has no value";
}

INSTANTIATE_TEST_SUITE_P(Config, ExampleRunTest, ::testing::ValuesIn(example_names()),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace stoker::test
