#include "bench/device_training.h"

#include <exception>
#include <thread>
#include <utility>

#include "bench/stopwatch.h"
#include "bench/trained_model.h"
#include "daemon/train/device.h"
#include "daemon/train/make_engine.h"
#include "daemon/train/numerics.h"
#include "daemon/train/train_step.h"
#include "shared/feed/batch_receiver.h"
#include "shared/model/fused_kernels.h"
#include "shared/ring/shm_ring.h"

namespace stoker::bench {
namespace {

using namespace std::chrono_literals;
constexpr int kWarmUpSteps = 8;  // includes CUDA graph capture
constexpr uint64_t kSlots = 8;

// Publishes batches as soon as slots are free; their contents are written only once.
class EndlessFeed {
 public:
  EndlessFeed(ring::ShmRing& ring, const DeviceSetup& setup) : ring_(ring) {
    const size_t stride = ring.payload().size() / ring.slots();
    for (uint64_t slot = 0; slot < ring.slots(); ++slot)
      fill_batch(setup.training, ring.layout(), ring.payload().subspan(slot * stride, stride));
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
  RingFedTraining(const DeviceSetup& setup, TrainedModel trained,
                  std::unique_ptr<ring::ShmRing> ring)
      : setup_(setup),
        trained_(std::move(trained)),
        step_(*trained_.model, *trained_.task, *trained_.optimizer, setup_.train),
        ring_(std::move(ring)),
        receiver_(ring_->layout(), ring_->layout(), kSlots),
        feed_(*ring_, setup) {}

  Status open(c10::Device device) {
    const train::StepEngine::Calls calls{
        .prepare = [](task::Batch batch, uint64_t, train::MicroBatchInfo) { return batch; },
        .work =
            [this](const task::Batch& batch, train::MicroBatchInfo) {
              step_.add(batch);
              (void)step_.finish();
            },
        .release = [this](uint64_t ticket) { ring_->release(ticket); }};
    STOKER_ASSIGN_OR_RETURN(
        engine_, train::make_engine(setup_.train, device, *ring_, receiver_.memory(), calls));
    return {};
  }

  Result<double> run(std::chrono::nanoseconds time) override {
    try {
      for (int i = 0; i < kWarmUpSteps; ++i) STOKER_RETURN_IF_ERROR(run_step());
      wait();
      const Stopwatch watch;
      uint64_t steps = 0;
      for (; steps == 0 || watch.elapsed() < time; ++steps) STOKER_RETURN_IF_ERROR(run_step());
      wait();
      return static_cast<double>(steps) / watch.seconds();
    } catch (const std::exception& error) {
      return Status(StatusCode::kInternal, std::string("training: ") + error.what());
    }
  }

  int64_t parameters() const override { return trained_.parameters(); }

 private:
  Status run_step() {
    STOKER_ASSIGN_OR_RETURN(const ring::ReadyBatch batch, ring_->pop(10s));
    trained_.optimizer->set_lr(kLearningRate);
    engine_->run(receiver_.receive(batch), {});
    return {};
  }
  // Reading the last loss waits for all previous work.
  void wait() {
    engine_->read({step_.loss()}, [](std::span<const double>) {});
    engine_->synchronize();
  }

  const DeviceSetup setup_;
  TrainedModel trained_;
  train::TrainStep step_;
  std::unique_ptr<ring::ShmRing> ring_;
  feed::BatchReceiver receiver_;
  EndlessFeed feed_;
  std::unique_ptr<train::StepEngine> engine_;  // destroyed before the ring that it copies from
};

}  // namespace

Result<std::shared_ptr<DeviceTraining>> DeviceTraining::create(const DeviceSetup& setup) {
  const TrainingSetup& training = setup.training;
  STOKER_ASSIGN_OR_RETURN(const c10::Device device, train::open_device(setup.train.device));
  STOKER_RETURN_IF_ERROR(train::configure_numerics({}, setup.train));
  train::select_fused_kernels(setup.train, device);
  if (setup.train.fused_kernels != config::FusedKernelsConfig() &&
      model::fused_kernels(device) == model::KernelTable())
    return Status(StatusCode::kNotFound,
                  "STOKER_BENCH_FUSED_KERNELS: there are no fused kernels for " + device.str());
  try {
    STOKER_ASSIGN_OR_RETURN(TrainedModel trained,
                            TrainedModel::create(training, device, setup.train.channels_last));
    STOKER_ASSIGN_OR_RETURN(
        auto ring, ring::ShmRing::create(ring::BatchLayout(training.sample, training.batch),
                                         {.slots = kSlots}));
    auto training_run =
        std::make_shared<RingFedTraining>(setup, std::move(trained), std::move(ring));
    STOKER_RETURN_IF_ERROR(training_run->open(device));
    return std::shared_ptr<DeviceTraining>(std::move(training_run));
  } catch (const std::exception& error) {
    return Status(StatusCode::kInternal,
                  std::string("create ") + training.name + ": " + error.what());
  }
}

}  // namespace stoker::bench
