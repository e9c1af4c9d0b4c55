// A stokerd that trains on a simulated device: `stokerctl pause --release`, and the fused kernels.
#include <filesystem>
#include <regex>

#include <gmock/gmock.h>

#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using ::testing::HasSubstr;

class ReleasedPauseRunTest : public RunTest {
 protected:
  // A constant learning rate, so that the last step changes no other one.
  Process start(const std::string& run, uint64_t max_steps) const {
    return Process({STOKER_FAKE_DEVICE_STOKERD, "--config", write_config(small_config()),
                    "--run-dir", run, "--set", "train.device=fake", "--set", "feed.num_processes=0",
                    "--set", "scheduler={name: constant, warmup_steps: 0}", "--set",
                    "train.max_steps=" + std::to_string(max_steps)},
                   path("stokerd.out"));
  }
  // The output of stokerctl, which must succeed.
  std::string run_stokerctl(const std::vector<std::string>& words) const {
    std::filesystem::remove(path("ctl.out"));
    const auto exit = ctl(run_dir(), words, "ctl").wait(kPatience);
    EXPECT_TRUE(exit && exit->code == 0) << log_of("ctl") << log_of("stokerd");
    return log_of("ctl");
  }
  bool trains_after(uint64_t step) const {
    return wait_until(kPatience, [&] { return newest_record_step(run_dir()) > step; });
  }
  static uint64_t step_of(const std::string& reply) {
    std::smatch step;
    return std::regex_search(reply, step, std::regex(R"("step":(\d+))")) ? std::stoull(step.str(1))
                                                                         : 0;
  }
};

TEST_F(ReleasedPauseRunTest, EndsWithSameBytesAsWithoutPause) {
  Process trainer = start(run_dir(), 100'000'000);
  ASSERT_TRUE(trains_after(0)) << log_of("stokerd");
  // A pause that becomes one with release.
  run_stokerctl({"pause"});
  const std::string released = run_stokerctl({"--json", "pause", "--release"});
  EXPECT_THAT(released, HasSubstr(R"("released":true)"));
  const uint64_t step = step_of(released);
  EXPECT_EQ(newest_step(run_dir()), step);
  EXPECT_THAT(run_stokerctl({"--json", "status"}), HasSubstr(R"("state":"paused")"));
  const auto busy = ctl(run_dir(), {"set", "train.max_steps", "9"}, "busy").wait(kPatience);
  EXPECT_TRUE(busy && busy->code != 0);
  EXPECT_THAT(log_of("busy"), HasSubstr("without the memory of its device"));
  run_stokerctl({"resume"});
  ASSERT_TRUE(trains_after(step)) << log_of("stokerd");

  const uint64_t last = step_of(run_stokerctl({"--json", "pause"})) + 20;
  run_stokerctl({"set", "train.max_steps", std::to_string(last)});
  run_stokerctl({"resume"});
  ASSERT_EQ(code_of(trainer), 0) << log_of("stokerd");
  const std::string log = log_of("stokerd");
  EXPECT_EQ(count_of(log, "daemon started"), 1u);
  EXPECT_EQ(count_of(log, "training paused"), 2u);
  EXPECT_EQ(count_of(log, "training resumed"), 2u);

  Process whole = start(run_dir("whole"), last);
  ASSERT_EQ(code_of(whole), 0) << log_of("stokerd");
  expect_same_checkpoint(run_dir(), run_dir("whole"),
                         {"model.safetensors", "optimizer.safetensors"});
}

using FusedKernelsRunTest = RunTest;

TEST_F(FusedKernelsRunTest, EndsWithSameBytesInEverySchedule) {
  const std::string config = write_config(text_config());
  for (const std::string device : {"fake:1", "fake:2"}) {
    std::vector<std::string> words{STOKER_FAKE_DEVICE_STOKERD, "--config", config, "--run-dir",
                                   run_dir(device)};
    for (const std::string& setting :
         {"train.device=" + device, std::string("feed.num_processes=0"),
          std::string("train.max_steps=20"), std::string("train.precision=bf16"),
          std::string(
              "train.fused_kernels={adamw: true, cross_entropy: true, gelu: true, norm: true}")})
      words.insert(words.end(), {"--set", setting});
    Process trainer(words, path("stokerd.out"));
    ASSERT_EQ(code_of(trainer), 0) << log_of("stokerd");
  }
  const std::string log = log_of("stokerd");
  EXPECT_THAT(log, HasSubstr("adamw, cross_entropy, gelu, norm"));
  EXPECT_EQ(count_of(log, "fused kernels enabled"), 2u);
  EXPECT_GE(count_of(log, "cuda graph captured"), 4u);
  expect_same_checkpoint(run_dir("fake:1"), run_dir("fake:2"),
                         {"model.safetensors", "optimizer.safetensors"});
}

TEST_F(ReleasedPauseRunTest, NeedsBuildWithSimulatedDevice) {
  const std::string config = write_config(small_config());
  const std::vector<std::string> fake{"--set", "train.device=fake"};
  EXPECT_EQ(train(config, run_dir(), fake).code, 78);
  const std::string line =
      "stokerd: train.device: fake exists in stoker's own tests only; set it to auto, cpu or "
      "cuda\n";
  EXPECT_EQ(log_of("stokerd"), line);
  EXPECT_EQ(train(config, run_dir(), joined(fake, {"--check-config"})).code, 78);
  EXPECT_EQ(log_of("stokerd"), line + line);
  EXPECT_FALSE(std::filesystem::exists(run_dir()));
}

}  // namespace
}  // namespace stoker::test
