#include "daemon/train/training_error.h"

#include <new>

#include <c10/util/Exception.h>
#include <gmock/gmock.h>

#include "daemon/train/cpu_engine.h"
#include "daemon/train/device_engine.h"
#include "shared/base/status.h"
#include "tests/daemon/train/fake_queue.h"
#include "tests/daemon/train/trainer_session.h"

namespace stoker::train {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// A CpuEngine that fails at one batch.
class FailingEngine final : public StepEngine {
 public:
  FailingEngine(Calls calls, int64_t batches, std::function<void()> fail)
      : inner_(std::move(calls)), left_(batches), fail_(std::move(fail)) {}
  void run(const feed::ReceivedBatch& batch, MicroBatchInfo micro_batch) override {
    if (left_-- == 0) fail_();
    inner_.run(batch, micro_batch);
  }
  void submit(cuda::Work work) override { inner_.submit(std::move(work)); }
  bool is_asynchronous() const override { return false; }
  void read(const std::vector<at::Tensor>& scalars, OnRead take) override {
    inner_.read(scalars, std::move(take));
  }
  bool poll() override { return false; }
  void synchronize() override {}
  void on_gradients_complete(size_t sum) override { inner_.on_gradients_complete(sum); }
  cuda::DeviceUsage device_usage() override { return inner_.device_usage(); }

 private:
  CpuEngine inner_;
  int64_t left_;
  const std::function<void()> fail_;
};

constexpr const char* kOfAllocator =
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.18 GiB of "
    "which 1.02 GiB is free.\nOf the allocated memory 70.00 GiB is allocated by PyTorch.";

class TrainingErrorTest : public TrainerTest {
 protected:
  // A session whose steps fail after the first `good` batches.
  std::unique_ptr<Session> session(const config::Config& config, int64_t good,
                                   std::function<void()> fail) {
    ModelContext around;
    around.make_engine = [good,
                          fail](StepEngine::Calls calls) -> Result<std::unique_ptr<StepEngine>> {
      return std::unique_ptr<StepEngine>(
          std::make_unique<FailingEngine>(std::move(calls), good, fail));
    };
    return std::make_unique<Session>(config, root_, kNoPoison, std::move(around));
  }
};

TEST_F(TrainingErrorTest, ReportsAllocatorSummaryAndHintsOnOutOfMemoryAtFirstStep) {
  auto config = small_config(10);
  const auto run =
      session(config, 0, [] { TORCH_CHECK_WITH(OutOfMemoryError, false, kOfAllocator); });
  const auto outcome = run->train();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(static_cast<int>(exit_code_for(outcome.status())), 71);
  EXPECT_THAT(
      outcome.status().message(),
      AllOf(HasSubstr("step 1: CUDA out of memory. Tried to allocate"),
            HasSubstr("70.00 GiB is allocated"), HasSubstr("the model uses 1 MiB"),
            HasSubstr("train.micro_batch_size: 2 with train.gradient_accumulation_steps: 2"),
            HasSubstr("train.precision: bf16"), Not(HasSubstr("\n"))));
  EXPECT_TRUE(run->saved().empty());
}

TEST_F(TrainingErrorTest, PreservesLastCheckpointOnOutOfMemory) {
  auto config = slow_config(10);
  config.checkpoint.save_every_steps = 4;
  const auto run = session(config, 6, [] { throw std::bad_alloc(); });
  wait_for_saves(*run);
  const auto outcome = run->train();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.status().code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(outcome.status().message(), HasSubstr("step 7: the host has no"));
  EXPECT_THAT(run->saved(), ElementsAre(4));
  EXPECT_TRUE(run->store_.open_newest({}).ok());
}

TEST_F(TrainingErrorTest, FailsRunWithoutSnapshotOnLostDevice) {
  auto config = slow_config(10);
  config.checkpoint.save_every_steps = 4;
  const auto run = session(config, 6, [] {
    throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, 700,
                                "CUDA error: an illegal memory access was encountered\nCompile "
                                "with ...");
  });
  wait_for_saves(*run);
  const auto outcome = run->train();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(static_cast<int>(exit_code_for(outcome.status())), 72);
  EXPECT_THAT(outcome.status().message(), HasSubstr("step 7: CUDA error: an illegal memory"));
  EXPECT_THAT(run->saved(), ElementsAre(4)) << "nothing is copied from a context that is broken";
  Session again(small_config(10), root_);
  EXPECT_EQ(again.state_->step, 4u);
}

StatusCode code_of(const std::exception& error) { return to_status(error).code(); }

TEST(DeviceErrorTest, IsLostDeviceForCodesAfterWhichOnlyRestartHelps) {
  const auto accelerator_error = [](int32_t code) {
    return c10::AcceleratorError({__func__, __FILE__, __LINE__}, code, "CUDA error");
  };
  for (const int32_t code : {46, 214, 700, 702, 714, 715, 716, 717, 718, 719})
    EXPECT_EQ(code_of(accelerator_error(code)), StatusCode::kDeviceLost) << code;
  // Invalid value and configuration, no kernel image, an assertion in a kernel, a failed capture.
  for (const int32_t code : {1, 9, 209, 710, 901})
    EXPECT_EQ(code_of(accelerator_error(code)), StatusCode::kInternal) << code;
  EXPECT_EQ(code_of(accelerator_error(2)), StatusCode::kOutOfMemory);
}

TEST(DeviceErrorTest, IsClassifiedByStatusOfCublasAndCudnn) {
  const auto code = [](const std::string& text) {
    return code_of(c10::Error({__func__, __FILE__, __LINE__}, text));
  };
  EXPECT_EQ(code("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), StatusCode::kDeviceLost);
  EXPECT_EQ(code("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`"),
            StatusCode::kDeviceLost);
  EXPECT_EQ(code("CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm(...)`"),
            StatusCode::kInternal);
  EXPECT_EQ(code("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED"), StatusCode::kInternal);
  EXPECT_EQ(code("mat1 and mat2 shapes cannot be multiplied"), StatusCode::kInternal);
  EXPECT_EQ(code("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            StatusCode::kOutOfMemory);
  EXPECT_EQ(code("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
            StatusCode::kOutOfMemory);
}

TEST(MemorySavingHintsTest, SuggestsOnlySettingsNotYetUsed) {
  config::Config config;
  config.train.micro_batch_size = 12;
  EXPECT_THAT(
      memory_saving_hints(config),
      AllOf(HasSubstr("train.micro_batch_size: 6 with train.gradient_accumulation_steps: 2"),
            HasSubstr("model.activation_checkpointing"), HasSubstr("bf16")));
  config.train.micro_batch_size = 3;
  EXPECT_THAT(memory_saving_hints(config),
              HasSubstr("train.micro_batch_size: 1 with train.gradient_accumulation_steps: 3"));
  config.train.micro_batch_size = 1;
  config.model.arch = config::GptConfig{.activation_checkpointing = true};
  config.train.precision = config::Precision::kBf16;
  EXPECT_THAT(memory_saving_hints(config), HasSubstr("only a smaller model"));
  config.model.arch = config::CaptionerConfig{};  // without transformer blocks
  EXPECT_THAT(memory_saving_hints(config), HasSubstr("only a smaller model"));
  config.model.arch = config::VitConfig{};
  EXPECT_THAT(memory_saving_hints(config), HasSubstr("model.activation_checkpointing: true"));
}

// Runs the complete device path on the CPU. With delayed copies, replays and delayed reads,
// training must be bit-for-bit identical to the CPU engine and report the same records.
TEST_F(TrainerTest, TrainsIdenticallyOnSlowDevice) {
  for (const auto precision : {config::Precision::kFp32, config::Precision::kFp16}) {
    auto config = small_config(20);
    config.train.precision = precision;
    config.train.gradient_accumulation_steps = 2;
    config.checkpoint.save_every_steps = 8;
    Session plain(config, fresh());
    ASSERT_TRUE(plain.train().ok());

    const auto log = std::make_shared<FakeQueue::Log>();
    log->copies_are_slow = log->reads_are_slow = true;
    ModelContext around;
    auto ring = std::make_shared<ring::ShmRing*>(nullptr);
    around.make_engine = [&log,
                          ring](StepEngine::Calls calls) -> Result<std::unique_ptr<StepEngine>> {
      const auto& layout = (*ring)->layout();
      return std::unique_ptr<StepEngine>(std::make_unique<DeviceEngine>(
          std::make_unique<FakeQueue>(log, layout.slot_bytes()),
          std::vector<std::unique_ptr<PinnedMemory>>(),
          DeviceEngineOptions{.slots = (*ring)->slots()}, std::move(calls)));
    };
    Session late(config, fresh(), kNoPoison, std::move(around));
    *ring = late.ring_.get();
    const auto outcome = late.train();
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    EXPECT_EQ(late.model_sha256(), plain.model_sha256());
    EXPECT_GT(log->replays, 20);
    ASSERT_EQ(late.rows_.size(), plain.rows_.size());
    for (size_t i = 0; i < late.rows_.size(); ++i) {
      EXPECT_EQ(late.rows_[i].step, plain.rows_[i].step);
      EXPECT_EQ(late.rows_[i].loss, plain.rows_[i].loss);
      EXPECT_EQ(late.rows_[i].grad_norm, plain.rows_[i].grad_norm);
      EXPECT_EQ(late.rows_[i].lr, plain.rows_[i].lr);
    }
  }
}

}  // namespace
}  // namespace stoker::train
