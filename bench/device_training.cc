#include "bench/device_training.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "bench/stopwatch.h"
#include "daemon/train/device.h"
#include "daemon/train/make_engine.h"
#include "daemon/train/numerics.h"
#include "daemon/train/optimizer.h"
#include "daemon/train/train_step.h"
#include "shared/model/channels_last.h"
#include "shared/model/model.h"
#include "shared/ring/shm_ring.h"
#include "shared/task/task.h"

namespace stoker::bench {
namespace {

using namespace std::chrono_literals;
constexpr int kWarmUpSteps = 8;  // until graphs are captured, and a while
constexpr uint64_t kSlots = 8;
constexpr double kLearningRate = 3e-4;

// Whole numbers below `limit` and at most 255; floats from -1 to 1.
void fill(const TensorSpec& spec, uint64_t limit, std::span<std::byte> bytes) {
  const size_t width = dtype_bytes(spec.dtype);
  uint64_t state = 1;
  std::ranges::fill(bytes, std::byte{0});
  for (size_t at = 0; at < bytes.size(); at += width) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    if (spec.dtype == DType::kF32) {
      const float number = static_cast<float>(state >> 40) / static_cast<float>(1 << 23) - 1.0f;
      std::memcpy(&bytes[at], &number, sizeof number);
    } else {
      bytes[at] = static_cast<std::byte>((state >> 33) % std::min<uint64_t>(limit, 256));
    }
  }
}

// Publishes batches as fast as slots come back; their bytes are written once.
class EndlessFeed {
 public:
  EndlessFeed(ring::ShmRing& ring, const DeviceSetup& setup) : ring_(ring) {
    const ring::BatchLayout& layout = ring.layout();
    const size_t stride = ring.payload().size() / ring.slots();
    for (uint64_t slot = 0; slot < ring.slots(); ++slot)
      for (size_t i = 0; i < layout.sample().size(); ++i) {
        const TensorSpec& spec = layout.sample()[i];
        const bool holds_classes = spec.name != "input";
        fill(spec, holds_classes ? setup.training.classes : 256,
             ring.payload().subspan(slot * stride + layout.offset(i),
                                    spec.bytes() * setup.training.batch));
      }
    thread_ = std::jthread([this](std::stop_token stop) { publish(stop); });
  }
  ~EndlessFeed() {
    thread_.request_stop();
    ring_.close();
  }
  EndlessFeed(const EndlessFeed&) = delete;
  EndlessFeed& operator=(const EndlessFeed&) = delete;

 private:
  void publish(std::stop_token stop) {
    const auto producer = ring_.add_producer("bench");
    while (producer.ok() && !stop.stop_requested()) {
      const auto claim = ring_.claim(*producer, 100ms);
      if (claim.ok()) ring_.publish(*producer, *claim);
    }
  }

  ring::ShmRing& ring_;
  std::jthread thread_;
};

class RingFedTraining final : public DeviceTraining {
 public:
  RingFedTraining(const DeviceSetup& setup, model::ModelPtr model, std::unique_ptr<task::Task> task,
                  std::unique_ptr<train::Optimizer> optimizer, std::unique_ptr<ring::ShmRing> ring)
      : setup_(setup),
        model_(std::move(model)),
        task_(std::move(task)),
        optimizer_(std::move(optimizer)),
        step_(*model_, *task_, *optimizer_, setup_.train),
        ring_(std::move(ring)),
        feed_(*ring_, setup) {}

  Status open(c10::Device device) {
    const train::StepEngine::Calls calls{
        .prepare = [](task::Batch batch, uint64_t) { return batch; },
        .work =
            [this](const task::Batch& batch, train::Portion) {
              step_.add(batch);
              (void)step_.finish();
            },
        .release = [this](uint64_t ticket) { ring_->release(ticket); }};
    STOKER_ASSIGN_OR_RETURN(engine_, train::make_engine(setup_.train, device, *ring_, calls));
    return {};
  }

  Result<double> run(std::chrono::nanoseconds time) override {
    try {
      for (int i = 0; i < kWarmUpSteps; ++i) STOKER_RETURN_IF_ERROR(take_step());
      wait();
      const Stopwatch watch;
      uint64_t steps = 0;
      for (; steps == 0 || watch.elapsed() < time; ++steps) STOKER_RETURN_IF_ERROR(take_step());
      wait();
      return static_cast<double>(steps) / watch.seconds();
    } catch (const std::exception& error) {
      return Status(Code::kInternal, std::string("training: ") + error.what());
    }
  }

  int64_t parameters() const override {
    int64_t count = 0;
    for (const auto& [name, tensor] : model::named_tensors(*model_)) count += tensor.numel();
    return count;
  }

 private:
  Status take_step() {
    STOKER_ASSIGN_OR_RETURN(const ring::ReadyBatch batch, ring_->pop(10s));
    optimizer_->set_lr(kLearningRate);
    engine_->run(batch, {});
    return {};
  }
  // The loss of the last step is there when everything before it is done.
  void wait() {
    engine_->read({step_.loss()}, [](std::span<const double>) {});
    engine_->settle();
  }

  const DeviceSetup setup_;
  model::ModelPtr model_;
  std::unique_ptr<task::Task> task_;
  std::unique_ptr<train::Optimizer> optimizer_;
  train::TrainStep step_;
  std::unique_ptr<ring::ShmRing> ring_;
  EndlessFeed feed_;
  std::unique_ptr<train::StepEngine> engine_;  // ends before the ring that it copies from
};

}  // namespace

Result<std::shared_ptr<DeviceTraining>> DeviceTraining::create(const DeviceSetup& setup) {
  const TrainingSetup& training = setup.training;
  STOKER_ASSIGN_OR_RETURN(const c10::Device device, train::open_device(setup.train.device));
  train::set_up_numerics({}, setup.train);
  try {
    STOKER_ASSIGN_OR_RETURN(auto model,
                            model::make_model(training.model, training.sample, training.classes));
    STOKER_ASSIGN_OR_RETURN(auto task,
                            task::make_task(training.task, training.sample, training.classes));
    model->to(device);
    if (setup.train.channels_last) model::use_channels_last(*model);
    model->train();
    model::NamedTensors parameters;
    for (const auto& item : model->named_parameters())
      parameters.emplace_back(item.key(), item.value());
    STOKER_ASSIGN_OR_RETURN(auto optimizer, train::Optimizer::create({}, parameters));
    STOKER_ASSIGN_OR_RETURN(
        auto ring, ring::ShmRing::create(ring::BatchLayout(training.sample, training.batch),
                                         {.slots = kSlots}));
    auto made = std::make_shared<RingFedTraining>(setup, std::move(model), std::move(task),
                                                  std::move(optimizer), std::move(ring));
    STOKER_RETURN_IF_ERROR(made->open(device));
    return std::shared_ptr<DeviceTraining>(std::move(made));
  } catch (const std::exception& error) {
    return Status(Code::kInternal, std::string("make ") + training.name + ": " + error.what());
  }
}

}  // namespace stoker::bench
