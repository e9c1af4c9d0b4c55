// The trainer on a simulated device, in random schedules of the host and the device's three streams:
// whatever the schedule, the run reports and saves exactly what it does on the CPU, also if the data
// ends within a step. After a failed allocation or kernel it ends with the right error, and what it
// reported and saved before is right.
//
// RemovingAnyFenceIsNoticed removes one fence after the other, each in every place that has it, such as
// the four in which the trainer waits for the device, and checks that schedules go wrong:
//
//   wait copied                      work starts before its batch is there
//   record copied                    work starts, and the slot is released, before its batch is there
//   query copied                     a slot is released during the copy from it
//   synchronize copied               the same, when the host is two batches ahead
//   wait work on buffer done         a batch is copied over one that is in use
//   record work on buffer done       the same
//   query read                       a report contains values that are not there yet
//   synchronize read                 the same, when all reads are in flight
//   record read                      the same
//   synchronize use of the state     a snapshot is written before it is complete
//   record use of the state          the same
//   synchronize drop of graphs       a graph is destroyed during a replay
//   record drop of graphs            the same
//   synchronize device               the engine is destroyed while the device uses its memory
//   wait for call                    an instrumented step is reported before it has run
//   wait gradients complete          a sum starts before its gradients are complete
//   record gradients complete        the same
//   wait start of sums               gradients are used before their sum has started
//   record start of sums             the same
//   query finished                   the time of work that is not complete is read: see StreamQueueTest
//   record finished                  the same
//   record started                   the time of work includes the wait for its batch: see StreamQueueTest
//
// What a fused kernel reads must be in the memory of the device if it changes from step to step, and the
// memory of a graph lives as long as the graph. Schedules went wrong with each of these changes, made by hand:
//
//   AdamW in a graph keeps the learning rate, the step count, the factor that clips gradients, or the flag
//     that skips the step, of the capture
//   AdamW in a graph does not write the BF16 copies of the weights
//   a graph lacks one kernel: each of adamw, cross_entropy, gelu, norm, rope, swiglu, and their backward kernels
//   a graph has the pointer to the arguments instead of a copy
//   kernels run during the capture, too
//   memory that only kernels write is freed after the capture
//
// To replay a schedule first: STOKER_TEST_SEED=N device_schedule_test
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <semaphore>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/cuda/stream_queue.h"
#include "daemon/train/cpu_engine.h"
#include "daemon/train/device_engine.h"
#include "daemon/train/trainer.h"
#include "shared/base/log.h"
#include "shared/data/counter_rng.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/feed/make_sample_plan.h"
#include "shared/model/autocast.h"
#include "shared/model/fused_kernels.h"
#include "tests/daemon/train/thread_group.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_device/device_allocator.h"
#include "tests/support/fake_device/fake_streams.h"
#include "tests/support/fake_device/fused_kernels.h"
#include "tests/support/full_test.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_seed.h"

namespace stoker::train {
namespace {

using fake_device::FakeDeviceLog;
using fake_device::FakeDeviceOptions;

constexpr uint64_t kBatch = 4;
constexpr uint64_t kFeatures = 8;
constexpr uint64_t kSteps = 13;
constexpr int64_t kContext = 6;
constexpr int64_t kVocab = 11;

// ---- What is trained

struct Variant {
  std::string name;
  std::function<void(config::Config&)> change;
  std::function<bool(uint64_t)> is_poisoned = [](uint64_t) { return false; };  // a ticket
  bool is_stream = false;
  bool is_group = false;  // of one rank, whose sums change nothing
};

config::ClassificationTask classification() { return {}; }

void use_fused_language_model(config::Config& config, decltype(config::ModelConfig::arch) arch) {
  config.data["train"].source = config::TokensDataset{.sequence = {.block_size = kContext}};
  config.model.arch = std::move(arch);
  config.task.task = config::LanguageModelingTask{};
  config.train.precision = config::Precision::kBf16;
  for (const config::FusedKernelSwitch& each : config::kFusedKernelSwitches)
    config.train.fused_kernels.*each.is_enabled = true;
}

const std::vector<Variant>& variants() {
  static const std::vector<Variant> all{
      {"adamw", [](config::Config&) {}},
      {"accumulation and EMA",
       [](config::Config& config) {
         config.train.gradient_accumulation_steps = 2;
         config.train.ema_decay = 0.9;
         config.optimizer.method = config::SgdConfig{.lr = 0.02, .momentum = 0.9};
       }},
      {"fp16", [](config::Config& config) { config.train.precision = config::Precision::kFp16; }},
      {"bf16, skipped steps",
       [](config::Config& config) {
         config.train.precision = config::Precision::kBf16;
         config.train.on_nonfinite = config::OnNonfinite::kSkipStep;
       },
       [](uint64_t ticket) { return ticket == 2 || ticket == 7; }},
      {"ordered sums, generator per ticket",
       [](config::Config& config) {
         config.train.gradient_accumulation_steps = 4;
         config.distributed.reduction = config::Reduction::kOrdered;
         config.run.rng = config::Rng::kPerTicket;
       }},
      {"a report of each step",
       [](config::Config& config) {
         config.metrics.log_every_steps = 1;
         config.checkpoint.save_every_steps.reset();
       }},
      {"histograms",
       [](config::Config& config) {
         config.metrics.tensorboard = true;
         config.metrics.histogram_every_steps = 5;
         config.metrics.log_every_steps = 1;
       }},
      {"mixup",
       [](config::Config& config) {
         config.data["train"].batch_transforms = {config::Mixup{.alpha = 0.4}};
         config.train.gradient_accumulation_steps = 2;
       }},
      {"stream", [](config::Config& config) { config.train.gradient_accumulation_steps = 2; },
       [](uint64_t) { return false; },
       /*is_stream=*/true},
      {"frozen at first",
       [](config::Config& config) {
         config.model.freeze = {"0.*"};
         config.model.unfreeze_at_step = 6;
       }},
      {"group, ordered sums",
       [](config::Config& config) {
         config.train.gradient_accumulation_steps = 2;
         config.train.ema_decay = 0.9;
         config.distributed.reduction = config::Reduction::kOrdered;
         config.run.rng = config::Rng::kPerTicket;
       },
       [](uint64_t) { return false; },
       /*is_stream=*/false,
       /*is_group=*/true},
      {"group, all-reduce",
       [](config::Config& config) {
         config.train.gradient_accumulation_steps = 2;
         config.train.precision = config::Precision::kFp16;
         config.distributed.reduction = config::Reduction::kAllReduce;
         config.distributed.bucket_mib = 1e-4;
         config.run.rng = config::Rng::kPerTicket;
       },
       [](uint64_t) { return false; },
       /*is_stream=*/false,
       /*is_group=*/true},
      {"fused AdamW, skipped steps",
       [](config::Config& config) {
         config.train.fused_kernels.adamw = true;
         config.train.max_grad_norm = 0.5;
         config.train.on_nonfinite = config::OnNonfinite::kSkipStep;
         config.train.ema_decay = 0.9;
       },
       [](uint64_t ticket) { return ticket == 2 || ticket == 7; }},
      {"fused kernels of GPT-2",
       [](config::Config& config) {
         use_fused_language_model(config, config::Gpt2Config{.num_layers = 1,
                                                             .num_heads = 2,
                                                             .embed_dim = 8,
                                                             .context_length = kContext,
                                                             .vocab_size = kVocab,
                                                             .dropout = 0});
         config.train.max_grad_norm = 0.5;
       }},
      {"fused kernels of Llama, accumulation",
       [](config::Config& config) {
         use_fused_language_model(config, config::LlamaConfig{.num_layers = 1,
                                                              .num_heads = 2,
                                                              .num_key_value_heads = 1,
                                                              .embed_dim = 8,
                                                              .mlp_dim = 16,
                                                              .context_length = kContext,
                                                              .vocab_size = kVocab});
         config.train.gradient_accumulation_steps = 2;
       }},
  };
  return all;
}

config::Config config_of(const Variant& variant) {
  config::Config config;
  config.data["train"].source = config::SyntheticDataset{
      .num_samples = 64, .input_shape = {static_cast<int64_t>(kFeatures)}, .num_classes = 3};
  config.model.arch = config::MlpConfig{.hidden_sizes = {12}, .dropout = 0.1};
  config.task.task = classification();
  config.optimizer.set_lr(0.01);
  config.scheduler.warmup_steps = 2;
  config.train.max_steps = kSteps;
  config.train.micro_batch_size = static_cast<int64_t>(kBatch);
  config.checkpoint.save_every_steps = 4;
  config.checkpoint.save_every_seconds.reset();
  config.metrics.tensorboard = false;
  config.metrics.log_every_steps = 3;
  variant.change(config);
  return config;
}

// The folders of the runs are in it.
std::string& parent_folder() {
  static std::string folder = test::quick_folder();
  return folder;
}

// Its specification and size are used, not its values.
const data::Dataset& dataset_of(const Variant& variant) {
  static std::map<const Variant*, std::unique_ptr<data::Dataset>> known;
  std::unique_ptr<data::Dataset>& data = known[&variant];
  if (data == nullptr) {
    const test::TemporaryDirectory folder(parent_folder());
    config::DatasetConfig config = config_of(variant).data.at("train");
    if (auto* const tokens = std::get_if<config::TokensDataset>(&config.source)) {
      tokens->path = folder / "tokens.bin";
      const std::vector<uint16_t> zeros(64 * kContext + 1);
      std::ofstream(tokens->path)
          .write(reinterpret_cast<const char*>(zeros.data()), std::ssize(zeros) * 2);
    }
    data = *data::pipeline::open_dataset("train", config, folder.path(), {});
  }
  return *data;
}

// ---- A run

// What a run reported and saved, by step.
struct Results {
  std::map<uint64_t, std::string> rows, checkpoints, histograms;
  int pinned_snapshots = 0;
};

std::string bits_of(double value) {
  if (std::isnan(value)) return "nan";
  char text[32];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

// The trainer with all that it needs, without threads other than that of the checkpoint writer, which
// is held back. Each slot is overwritten as soon as it is released.
class ScheduledRun final : private BatchSource, private MetricsSink {
 public:
  // Without `maybe_device` on the CPU. The data ends at the ticket `end`.
  ScheduledRun(const Variant& variant, uint64_t end, uint64_t slots, uint64_t seed,
               std::optional<FakeDeviceOptions> maybe_device)
      : variant_(variant),
        end_(end),
        config_(config_of(variant)),
        dataset_(dataset_of(variant)),
        maybe_device_(std::move(maybe_device)),
        random_(seed),
        root_(parent_folder()),
        store_(root_ / "checkpoints", default_file_system()),
        channels_(system_clock()),
        plan_(*feed::make_plan_options(config_, dataset_, {})) {
    writer::WriterOptions options;
    options.delete_expired = [](bool) {};
    options.before_commit = [this] {
      gate_.acquire();
      return Status();
    };
    options.delays = {};
    if (maybe_device_)
      options.pinned_allocator = {.pin =
                                      [this](void* bytes, size_t size) {
                                        ++results_.pinned_snapshots;
                                        return fake_device::pin(bytes, size);
                                      },
                                  .unpin = fake_device::unpin,
                                  .poison = fake_device::poison};
    writer_.emplace(store_, options, system_clock());
    model::use_fused_kernels(c10::kCPU,
                             model::enabled_kernels(*fake_device::fused_kernels(0).maybe_table,
                                                    config_.train.fused_kernels));
    state_ = *TrainingState::create(config_, dataset_.info(), c10::Device(c10::kCPU));
    // As on CUDA: the kernels read the factor that clips gradients.
    if (config_.train.fused_kernels.adamw) state_->optimizer().scale_in_kernels();
    const auto all = kSteps * static_cast<uint64_t>(config_.train.gradient_accumulation_steps);
    ring_ = *ring::ShmRing::create(ring::BatchLayout(dataset_.spec(), kBatch),
                                   {.slots = slots, .first_ticket = 0, .end_ticket = all});
    producer_ = *ring_->add_producer("test");
    fill_slots();
    writing_ = std::jthread([this](const std::stop_token& stop) { (void)writer_->run(stop); });
    trainer_.emplace(config_, *state_, static_cast<BatchSource&>(*this),
                     static_cast<MetricsSink&>(*this), channels_, *writer_, system_clock(),
                     TrainerStart{.maybe_group = variant.is_group ? &group_.rank(0) : nullptr},
                     [this](StepEngine::Calls calls) { return make_engine(std::move(calls)); });
  }
  ~ScheduledRun() override {
    trainer_.reset();
    gate_.release(1000);
    writing_ = {};
  }

  Result<TrainerOutcome> train() {
    auto outcome = trainer_->run({});
    trainer_.reset();  // and with it the device
    gate_.release(1000);
    // Not wait_idle(): after an error, the snapshot may be incomplete.
    EXPECT_TRUE(test::eventually([&] {
      (void)writer_->wait_idle(std::chrono::milliseconds(10));
      return !writer_->stats().in_flight;
    }));
    for (const auto& entry : *store_.list()) {
      const auto saved = checkpoint::CheckpointStore::open_verified(entry.path);
      std::string text = saved.ok() ? "" : saved.status().to_string();
      if (saved.ok())
        for (const auto& file : saved->manifest().files)
          text += file.name + '=' + file.sha256 + ' ';
      results_.checkpoints[entry.step] = text;
    }
    return outcome;
  }
  const Results& results() const { return results_; }

 private:
  Result<std::unique_ptr<StepEngine>> make_engine(StepEngine::Calls calls) {
    calls.release = [this, release = std::move(calls.release)](uint64_t ticket) {
      release(ticket);
      fill_slots();
    };
    if (!maybe_device_)
      return std::unique_ptr<StepEngine>(std::make_unique<CpuEngine>(std::move(calls)));
    std::vector<std::unique_ptr<PinnedMemory>> pinned;
    pinned.push_back(
        std::make_unique<PinnedMemory>(PinnedMemory::Driver{fake_device::pin, fake_device::unpin},
                                       ring_->payload(), ring_->layout().slot_bytes(), 4096));
    return std::unique_ptr<StepEngine>(std::make_unique<DeviceEngine>(
        std::make_unique<cuda::StreamQueue>(
            std::make_unique<fake_device::FakeStreams>(*maybe_device_),
            ring_->layout().slot_bytes(), ring_->slots()),
        std::move(pinned), DeviceEngineOptions{.slots = ring_->slots()}, std::move(calls)));
  }

  void fill_slots() {
    while (true) {
      auto claim = ring_->claim(producer_, std::chrono::nanoseconds(0));
      if (!claim.ok()) return;
      std::ranges::fill(claim->slot, std::byte{0xff});
      const ring::BatchLayout& layout = ring_->layout();
      data::CounterRng values({.seed = 7, .sample = claim->ticket}, data::RandomStream::kGenerator);
      for (size_t i = 0; i < layout.sample().size(); ++i) {
        std::byte* const bytes = claim->slot.data() + layout.offset(i);
        const DType dtype = layout.sample()[i].dtype;
        const uint64_t count = kBatch * static_cast<uint64_t>(layout.sample()[i].elements());
        for (uint64_t k = 0; k < count; ++k) {
          const uint64_t random = values.next();
          const auto write = [bytes, k](auto value) {
            std::memcpy(bytes + k * sizeof value, &value, sizeof value);
          };
          if (dtype == DType::kI64)  // a label
            write(static_cast<int64_t>(random % 3));
          else if (dtype == DType::kI32)  // a token
            write(static_cast<int32_t>(random % kVocab));
          else if (variant_.is_poisoned(claim->ticket))
            write(std::nanf(""));
          else
            write(static_cast<float>(random >> 40) * 0x1p-23F - 1);
        }
      }
      (void)ring_->publish(producer_, *claim);
    }
  }

  // Sometimes, a checkpoint that is in progress is written now.
  void write_checkpoint(bool at_random) {
    if (!writer_->stats().in_flight) return;
    if (at_random && maybe_device_ && random_() % 2 == 0) return;
    gate_.release();
    EXPECT_TRUE(
        test::eventually([&] { return writer_->wait_idle(std::chrono::milliseconds(10)); }));
  }

  // ---- BatchSource
  ring::ShmRing& ring() override { return *ring_; }
  const data::order::SamplePlan& plan() const override { return plan_; }
  feed::BatchShapes shapes() const override { return ring_->layout(); }
  bool has_new_version_at(uint64_t) const override { return false; }
  bool accept(const feed::ReceivedBatch& batch) override {
    const bool has_ended = batch.ticket == end_;
    write_checkpoint(/*at_random=*/!has_ended);
    if (has_ended) {
      gate_.release(1000);  // the trainer waits for the writer
      return false;
    }
    stream_.next_source = batch.ticket + 2;
    stream_.elements = {{.source = batch.ticket, .at = {.offset = 3 * batch.ticket, .record = 1}}};
    return true;
  }
  const feed::StreamState* maybe_stream() const override {
    return variant_.is_stream ? &stream_ : nullptr;
  }
  std::vector<std::string> files_of(uint64_t) const override { return {}; }
  std::vector<uint64_t> quarantined() const override { return {}; }
  uint64_t sample_errors_before(uint64_t) override { return 0; }

  // ---- MetricsSink
  uint64_t report(const metrics::TrainMetrics& row) override {
    std::string text = bits_of(row.loss) + ' ' + bits_of(row.grad_norm) + ' ' + bits_of(row.lr) +
                       ' ' + bits_of(row.maybe_loss_scale.value_or(0)) + ' ' +
                       std::to_string(row.maybe_skipped_steps.value_or(0));
    for (const auto& [name, value] : row.metrics) text += ' ' + name + bits_of(value);
    if (results_.rows.contains(row.step)) text += " twice";
    results_.rows[row.step] = text;
    // Before the last step is saved, when the trainer waits for the writer.
    if (row.step == kSteps) {
      write_checkpoint(/*at_random=*/false);
      gate_.release(1000);
    }
    return 0;
  }
  void report_first_batch(const feed::ReceivedBatch&) override {}
  void report_graph(TracedGraph) override {}
  void report_histograms(uint64_t step, std::vector<metrics::NamedSummary> summaries) override {
    for (const metrics::NamedSummary& each : summaries)
      results_.histograms[step] += each.name + boost::json::serialize(to_json(each.summary));
  }
  void save_profile(RecordedProfile, Done) override {}

  const Variant& variant_;
  const uint64_t end_;
  const config::Config config_;
  const data::Dataset& dataset_;
  const std::optional<FakeDeviceOptions> maybe_device_;
  std::mt19937_64 random_;
  const test::TemporaryDirectory root_;
  checkpoint::CheckpointStore store_;
  TrainerChannels channels_;
  ThreadGroup group_{1};
  data::order::SamplePlan plan_;
  std::counting_semaphore<> gate_{0};
  std::optional<writer::CheckpointWriter> writer_;
  std::unique_ptr<TrainingState> state_;
  std::unique_ptr<ring::ShmRing> ring_;
  ring::ProducerId producer_;
  std::jthread writing_;
  feed::StreamState stream_;  // after the last batch
  Results results_;
  std::optional<Trainer> trainer_;
};

// The tickets of the variant.
uint64_t tickets_of(size_t variant) {
  const config::Config config = config_of(variants()[variant]);
  return kSteps * static_cast<uint64_t>(config.train.gradient_accumulation_steps);
}

const Results& expected_of(size_t variant, uint64_t end) {
  static std::map<std::pair<size_t, uint64_t>, Results> known;
  const auto found = known.find({variant, end});
  if (found != known.end()) return found->second;
  // Each step that a device could save is saved.
  ScheduledRun run(variants()[variant], end, 3, 1, std::nullopt);
  const auto outcome = run.train();
  EXPECT_TRUE(outcome.ok()) << outcome.status().to_string();
  return known[{variant, end}] = run.results();
}

// ---- Schedules

struct Totals {
  std::set<std::string> fences;
  uint64_t schedules = 0, captures = 0, failed_captures = 0, replays = 0, late_works = 0;
  uint64_t out_of_memory = 0, lost_devices = 0;
};

void compare(const char* what, const std::map<uint64_t, std::string>& found,
             const std::map<uint64_t, std::string>& expected, bool is_complete,
             std::vector<std::string>* problems) {
  for (const auto& [step, text] : found) {
    const auto right = expected.find(step);
    if (right == expected.end())
      problems->push_back(std::string(what) + " of step " + std::to_string(step));
    else if (right->second != text)
      problems->push_back(std::string(what) + " of step " + std::to_string(step) + " is " + text +
                          " instead of " + right->second);
  }
  if (is_complete && found.size() != expected.size())
    problems->push_back(std::to_string(found.size()) + " of " + std::to_string(expected.size()) +
                        ' ' + what);
}

// Everything follows from the seed. Returns what went wrong.
std::vector<std::string> run_schedule(uint64_t seed, const std::string& removed_fence,
                                      Totals* totals, bool is_fence_per_call = false) {
  std::mt19937_64 random(seed);
  const size_t variant = random() % variants().size();
  // Sometimes the data ends before the last step, in any micro-batch but those of the first step.
  const uint64_t tickets = tickets_of(variant), per_step = tickets / kSteps;
  const bool ends_early = random() % 4 == 0;
  const uint64_t end = ends_early ? per_step + random() % (tickets - per_step) : tickets;
  const uint64_t last_step = end / per_step;
  const Results& expected = expected_of(variant, end);
  FakeDeviceOptions device{
      .seed = random(), .removed_fence = removed_fence, .is_fence_per_call = is_fence_per_call};
  device.is_all_pinned = random() % 4 != 0;
  device.is_memory_short = random() % 3 == 0;
  const uint64_t fault = random() % 10;
  if (fault == 0) device.failing_submission = random() % 200;
  if (fault == 1) device.failing_kernel = random() % 2000;
  if (fault == 2) device.failing_capture = random() % 3;
  if (fault == 3) device.failing_allocation = random() % 4;
  const uint64_t slots = 2 + random() % 3;
  std::vector<std::string> problems;
  {
    ScheduledRun run(variants()[variant], end, slots, random(), device);
    const auto outcome = run.train();
    const StatusCode code = outcome.status().code();
    const bool is_short = device.failing_submission || device.failing_allocation;
    if (!outcome.ok() && !(is_short && code == StatusCode::kOutOfMemory) &&
        !(device.failing_kernel && code == StatusCode::kDeviceLost))
      problems.push_back("the run ended with " + outcome.status().to_string());
    totals->out_of_memory += code == StatusCode::kOutOfMemory ? 1 : 0;
    totals->lost_devices += code == StatusCode::kDeviceLost ? 1 : 0;
    const Results& found = run.results();
    compare("rows", found.rows, expected.rows, outcome.ok(), &problems);
    compare("histograms", found.histograms, expected.histograms, outcome.ok(), &problems);
    // Which are saved depends on the writer, except the last one.
    compare("checkpoints", found.checkpoints, expected.checkpoints, false, &problems);
    if (outcome.ok() && !found.checkpoints.contains(last_step))
      problems.emplace_back("the last step is not saved");
    const int pinned = device.failing_allocation ? 0 : 1;  // which fails when the device is opened
    if (found.pinned_snapshots != pinned)
      problems.emplace_back("the memory of snapshots is not locked once, before the first step");
  }
  for (const std::string& violation : device.log->violations) problems.push_back(violation);
  totals->fences.insert(device.log->fences.begin(), device.log->fences.end());
  ++totals->schedules;
  totals->captures += device.log->captures;
  totals->failed_captures += device.log->failed_captures;
  totals->replays += device.log->replays;
  totals->late_works += device.log->late_works;
  if (!problems.empty())
    problems.insert(problems.begin(),
                    variants()[variant].name + ", " + std::to_string(slots) + " slots" +
                        (device.is_all_pinned ? ", pinned" : "") +
                        (device.is_memory_short ? ", short of memory" : "") +
                        (ends_early ? ", ends at ticket " + std::to_string(end) : "") +
                        (device.failing_submission ? ", a submission fails" : "") +
                        (device.failing_allocation ? ", an allocation fails" : "") +
                        (device.failing_capture ? ", a capture fails" : "") +
                        (device.failing_kernel ? ", a kernel fails" : "") + "; " +
                        std::to_string(device.log->failed_captures) + " captures failed");
  return problems;
}

class DeviceScheduleTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    fake_device::install_device_allocator();
    at::set_num_threads(1);
    ASSERT_TRUE(init_log({.level = LogLevel::kError}).ok());
    for (size_t variant = 0; variant < variants().size(); ++variant)
      (void)expected_of(variant, tickets_of(variant));
  }
};

TEST_F(DeviceScheduleTest, ReportsAndSavesTheSameInEverySchedule) {
  const uint64_t count = test::is_full_test() ? 100000 : 1000;
  const uint64_t first = test::test_seed();
  Totals totals;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const auto problems = run_schedule(seed, "", &totals);
    ASSERT_THAT(problems, ::testing::IsEmpty())
        << "to replay it first: STOKER_TEST_SEED=" << seed << " device_schedule_test";
  }
  std::printf(
      "schedules: %llu, seeds from %llu; %llu functions ran late, %llu replays of %llu graphs, "
      "%llu "
      "captures failed, %llu runs without memory, %llu with a lost device\n",
      static_cast<unsigned long long>(totals.schedules), static_cast<unsigned long long>(first),
      static_cast<unsigned long long>(totals.late_works),
      static_cast<unsigned long long>(totals.replays),
      static_cast<unsigned long long>(totals.captures),
      static_cast<unsigned long long>(totals.failed_captures),
      static_cast<unsigned long long>(totals.out_of_memory),
      static_cast<unsigned long long>(totals.lost_devices));
  EXPECT_GT(totals.late_works, count);
  EXPECT_GT(totals.replays, count);
  EXPECT_GT(totals.failed_captures, 0u);
  EXPECT_GT(totals.out_of_memory, 0u);
  EXPECT_GT(totals.lost_devices, 0u);
}

// A seed has one schedule.
TEST_F(DeviceScheduleTest, ReplaysSeed) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Totals first, second;
    (void)run_schedule(seed, "", &first);
    (void)run_schedule(seed, "", &second);
    EXPECT_EQ(first.late_works, second.late_works) << seed;
    EXPECT_EQ(first.replays, second.replays) << seed;
    EXPECT_EQ(first.fences, second.fences) << seed;
  }
}

// In a separate process, because without a fence it can crash. Returns the first schedule that goes
// wrong.
std::optional<uint64_t> find_schedule(const std::string& removed_fence, uint64_t max_schedules) {
  int ends[2];
  if (::pipe(ends) != 0) return std::nullopt;
  const test::TemporaryDirectory folder(parent_folder());  // of its runs
  const pid_t child = ::fork();
  if (child == 0) {
    parent_folder() = folder.path();
    ::alarm(180);
    for (uint64_t seed = 1; seed <= max_schedules; ++seed) {
      (void)!::write(ends[1], &seed, sizeof seed);
      Totals totals;
      if (!run_schedule(seed, removed_fence, &totals, /*is_fence_per_call=*/true).empty())
        ::_exit(1);
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::optional<uint64_t> last;
  uint64_t seed = 0;
  while (::read(ends[0], &seed, sizeof seed) == sizeof seed) last = seed;
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  const bool is_good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  const bool is_slow = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
  if (is_good || is_slow) return std::nullopt;
  return last;
}

TEST_F(DeviceScheduleTest, RemovingAnyFenceIsNoticed) {
  constexpr uint64_t kMaxSchedules = 3000;
  Totals totals;
  for (uint64_t seed = 1; seed <= 300; ++seed)
    ASSERT_THAT(run_schedule(seed, "", &totals, /*is_fence_per_call=*/true), ::testing::IsEmpty())
        << seed;
  std::set<std::string> names;
  for (const std::string& fence : totals.fences) names.insert(fence.substr(0, fence.find(" in ")));
  EXPECT_THAT(names,
              ::testing::UnorderedElementsAre(
                  "wait copied", "record copied", "query copied", "synchronize copied",
                  "wait work on buffer done", "record work on buffer done", "query read",
                  "synchronize read", "record read", "synchronize use of the state",
                  "record use of the state", "synchronize drop of graphs", "record drop of graphs",
                  "synchronize device", "wait for call", "wait gradients complete",
                  "record gradients complete", "wait start of sums", "record start of sums",
                  // For the time only: see StreamQueueTest.
                  "record started", "record finished", "query finished"))
      << "a new fence belongs to the list at the top";
  EXPECT_FALSE(find_schedule("", 50)) << "with all fences";
  for (const std::string& fence : totals.fences) {
    if (fence.find("started") != fence.npos || fence.find("finished") != fence.npos) continue;
    const auto found = find_schedule(fence, kMaxSchedules);
    EXPECT_TRUE(found) << "training goes well without: " << fence;
    if (found)
      std::printf("without %s, schedule %llu goes wrong\n", fence.c_str(),
                  static_cast<unsigned long long>(*found));
  }
}

// Work items follow each other without waiting, which DeviceEngine does not permit.
std::vector<std::string> violations_without_waiting(const std::string& removed_fence,
                                                    uint64_t* timed) {
  const FakeDeviceOptions options{.removed_fence = removed_fence, .is_lazy = true};
  cuda::StreamQueue queue(std::make_unique<fake_device::FakeStreams>(options), 64, 2);
  for (int i = 0; i < 6; ++i) {
    queue.begin_work(0);
    queue.end_work(0);
  }
  *timed = queue.usage().works;
  queue.synchronize();
  return options.log->violations;
}

TEST(StreamQueueTest, ReadsOnlyTimesOfCompleteWork) {
  uint64_t timed = 0;
  EXPECT_THAT(violations_without_waiting("", &timed), ::testing::IsEmpty());
  EXPECT_EQ(timed, 0u);
  for (const char* const fence : {"query finished", "record finished"})
    EXPECT_THAT(violations_without_waiting(fence, &timed), ::testing::Not(::testing::IsEmpty()))
        << fence;
}

// The mean time of work that consists of nothing, but waits for the copy of its batch.
double time_of_work(const std::string& removed_fence) {
  const FakeDeviceOptions options{
      .removed_fence = removed_fence, .is_lazy = true, .is_all_pinned = true};
  cuda::StreamQueue queue(std::make_unique<fake_device::FakeStreams>(options), 64, 2);
  const std::vector<std::byte> batch(64);
  const cuda::CopyPart part{.offset = 0, .bytes = batch};
  for (int i = 0; i < 8; ++i) {
    queue.start_copy(0, 0, {&part, 1});
    queue.begin_work(0);
    queue.end_work(0);
    queue.synchronize();
  }
  const cuda::DeviceUsage usage = queue.usage();
  EXPECT_EQ(usage.works, 4u);
  return usage.work_ms / static_cast<double>(usage.works);
}

TEST(StreamQueueTest, TimesWorkWithoutWaitForItsBatch) {
  EXPECT_EQ(time_of_work(""), 1);
  EXPECT_GT(time_of_work("record started"), 1);
}

// Adds to two tensors in a graph and reads each when the replay has recorded its event. Returns how often a
// value was not that of the replay.
int wrong_sums(uint64_t seed, const std::string& removed_fence, uint64_t* early) {
  const FakeDeviceOptions options{.seed = seed, .removed_fence = removed_fence};
  at::Tensor first = at::zeros({1}), second = at::zeros({1}), other = at::zeros({1});
  int wrong = 0;
  cuda::StreamQueue queue(std::make_unique<fake_device::FakeStreams>(options), 64, 2);
  queue.make_graph_events(2);
  const auto graph = queue.capture([&] {
    first.add_(1);
    queue.record_graph_event(0);
    for (int i = 0; i < 20; ++i) other.add_(1);
    second.add_(1);
    queue.record_graph_event(1);
    for (int i = 0; i < 20; ++i) other.add_(1);
  });
  for (int replay = 1; replay <= 3; ++replay) {
    graph->replay();
    queue.submit_sum(0, [&, replay] { wrong += first.item<float>() != replay ? 1 : 0; });
    queue.submit_sum(1, [&, replay] { wrong += second.item<float>() != replay ? 1 : 0; });
    queue.wait_for_sums();
  }
  queue.synchronize();
  *early += options.log->early_sums;
  EXPECT_THAT(options.log->violations, ::testing::IsEmpty());
  return wrong;
}

TEST(StreamQueueTest, StartsSumsWhenReplayHasRecordedTheirEvents) {
  constexpr uint64_t kSeeds = 200;
  uint64_t early = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed)
    EXPECT_EQ(wrong_sums(seed, "", &early), 0) << seed;
  EXPECT_GT(early, 0u) << "no sum has started during a replay";
  for (const char* const fence : {"wait gradients complete", "record gradients complete",
                                  "wait start of sums", "record start of sums"}) {
    int wrong = 0;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) wrong += wrong_sums(seed, fence, &early);
    EXPECT_GT(wrong, 0) << fence;
  }
}

// Of a call with an event for `use`, alone or by work that is captured.
using Use = cuda::DeviceStreams::EventUse;
using EventCall = std::function<void(cuda::DeviceStreams&, cuda::DeviceStreams::Event)>;
size_t violations_of(Use use, bool is_captured, const EventCall& call) {
  const FakeDeviceOptions options;
  fake_device::FakeStreams streams(options);
  const auto event = streams.make_event("event", use);
  if (is_captured)
    (void)streams.capture([&] { call(streams, event); });
  else
    call(streams, event);
  streams.synchronize();
  return options.log->violations.size();
}

std::string modes_of_thread() {
  std::string text = at::GradMode::is_enabled() ? "grad" : "no grad";
  if (at::autocast::is_autocast_enabled(at::kCPU))
    text.append(" ").append(c10::toString(at::autocast::get_autocast_dtype(at::kCPU)));
  return text;
}

// CUDA's implementation calls work in the thread that submits it.
TEST(FakeStreamsTest, CallsWorkInModesOfSubmission) {
  const FakeDeviceOptions options{.is_lazy = true};
  fake_device::FakeStreams streams(options);
  std::vector<std::string> modes, wanted;
  const auto submit = [&] {
    const auto note = [&] { modes.push_back(modes_of_thread()); };
    wanted.insert(wanted.end(), 3, modes_of_thread());
    streams.submit(note);
    streams.call(note);
    (void)streams.capture(note);
  };
  submit();
  {
    const at::NoGradGuard no_grad;
    submit();
    const model::Autocast bf16(at::kBFloat16, at::kCPU);
    submit();
  }
  {
    const model::Autocast fp16(at::kHalf, at::kCPU);
    submit();
    streams.submit([&] { modes.push_back(modes_of_thread()); });
    wanted.push_back(modes_of_thread());
  }
  streams.synchronize();
  EXPECT_EQ(modes, wanted);
  EXPECT_EQ(wanted.size(), 13u);
  EXPECT_EQ(std::set(wanted.begin(), wanted.end()).size(), 4u);
}

// CUDA answers them with an error, or captures what was not meant.
TEST(FakeStreamsTest, NoticesCallsThatDoNotFitCapture) {
  using Stream = cuda::DeviceStreams::Stream;
  const auto record_on = [](Stream stream) {
    return [stream](auto& streams, auto event) { streams.record(event, stream); };
  };
  EXPECT_EQ(violations_of(Use::kGraph, true, record_on(Stream::kWork)), 0u);
  EXPECT_EQ(violations_of(Use::kGraph, true, record_on(Stream::kSums)), 1u);
  EXPECT_EQ(violations_of(Use::kGraph, false, record_on(Stream::kWork)), 1u);
  EXPECT_EQ(violations_of(Use::kOrder, true, record_on(Stream::kWork)), 1u);
  EXPECT_EQ(violations_of(Use::kOrder, false, record_on(Stream::kSums)), 0u);
  const auto wait = [](auto& streams, auto event) { streams.wait(Stream::kWork, event); };
  const auto submit_sums = [](auto& streams, auto) { streams.submit_sums([] {}); };
  EXPECT_EQ(violations_of(Use::kGraph, true, wait), 1u);
  EXPECT_EQ(violations_of(Use::kGraph, false, wait), 0u);
  EXPECT_EQ(violations_of(Use::kGraph, true, submit_sums), 1u);
  EXPECT_EQ(violations_of(Use::kGraph, false, submit_sums), 0u);
}

}  // namespace
}  // namespace stoker::train
