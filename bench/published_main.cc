// stoker-bench-published: trains a configuration in one process, from the same parts as stokerd and
// without its checkpoints and metrics, and prints a JSON object: total time from before
// initialization, time per step, wait for input, and accuracy on data.val before and after, which
// is not part of the times. scripts/published.sh compares it with TensorFlow and PyTorch.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <CLI/CLI.hpp>

#include "bench/cpu_time.h"
#include "bench/scratch_folder.h"
#include "bench/stopwatch.h"
#include "daemon/train/optimizer.h"
#include "shared/base/coordinator.h"
#include "shared/config/load_config.h"
#include "shared/data/order/sample_plan.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/feed/worker_pool.h"
#include "shared/model/host_allocator.h"
#include "shared/model/model.h"
#include "shared/model/torch_dtype.h"
#include "shared/queue/queue.h"
#include "shared/queue/queue_runner.h"
#include "shared/ring/shm_ring.h"
#include "shared/task/task.h"

namespace stoker::bench {
namespace {

constexpr auto kTimeout = std::chrono::minutes(2);
constexpr auto kJoinTimeout = std::chrono::seconds(30);

enum class InputKind { kDirect, kQueue, kRing };

std::string_view name_of(InputKind kind) {
  switch (kind) {
    case InputKind::kDirect:
      return "without overlap";
    case InputKind::kQueue:
      return "FIFOQueue";
    case InputKind::kRing:
      return "ring";
  }
  return "?";
}

struct PublishedOptions {
  std::string config;
  InputKind input = InputKind::kDirect;
  uint64_t steps = 0;    // 0: train.max_steps
  int threads = 0;       // 0: train.num_threads
  double device_ms = 0;  // above 0: a sleep instead of a step
};

// ---- input --------------------------------------------------------------------------------------

class Input {
 public:
  virtual ~Input() = default;
  // Valid until release().
  virtual Result<task::Batch> next() = 0;
  virtual void release() {}
  virtual Status finish() { return {}; }
};

std::vector<int64_t> batch_shape(const TensorSpec& spec, uint64_t batch) {
  std::vector<int64_t> shape{static_cast<int64_t>(batch)};
  shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
  return shape;
}

// Reads the samples in order when they are needed.
class DirectInput final : public Input {
 public:
  DirectInput(const data::Dataset& dataset, uint64_t batch) : dataset_(dataset), batch_(batch) {}

  Result<task::Batch> next() override {
    task::Batch tensors;
    for (const TensorSpec& spec : dataset_.spec())
      tensors.push_back(at::empty(batch_shape(spec, batch_),
                                  at::TensorOptions().dtype(model::to_scalar_type(spec.dtype))));
    for (uint64_t row = 0; row < batch_; ++row) {
      std::vector<std::span<std::byte>> outputs;
      for (size_t i = 0; i < tensors.size(); ++i) {
        const size_t bytes = dataset_.spec()[i].bytes();
        outputs.emplace_back(static_cast<std::byte*>(tensors[i].data_ptr()) + row * bytes, bytes);
      }
      STOKER_RETURN_IF_ERROR(dataset_.read(sample_++ % dataset_.size(), {}, outputs));
    }
    return tensors;
  }

 private:
  const data::Dataset& dataset_;
  const uint64_t batch_;
  uint64_t sample_ = 0;
};

// Queue runners enqueue batches, each of the samples that follow those of the last one to begin.
class QueueInput final : public Input {
 public:
  static Result<std::unique_ptr<Input>> create(const config::Config& config,
                                               const data::Dataset& dataset) {
    const auto batch = static_cast<uint64_t>(config.train.micro_batch_size);
    queue::QueueOptions options{.name = "batches", .capacity = config.feed.prefetch_batches};
    for (const TensorSpec& spec : dataset.spec())
      options.components.push_back(
          {.name = spec.name,
           .dtype = spec.dtype,
           .shape = queue::Shape(std::span<const int64_t>(batch_shape(spec, batch)))});
    STOKER_ASSIGN_OR_RETURN(auto batches, queue::Queue::create(std::move(options)));
    return std::unique_ptr<Input>(
        std::unique_ptr<QueueInput>(new QueueInput(config, dataset, batch, std::move(batches))));
  }
  ~QueueInput() override { (void)finish(); }

  Result<task::Batch> next() override {
    STOKER_ASSIGN_OR_RETURN(current_,
                            queue_->dequeue({}, std::chrono::steady_clock::now() + kTimeout));
    task::Batch tensors;
    for (const queue::Tensor& tensor : current_) {
      // Nothing writes to the tensors of a batch.
      auto* const bytes = const_cast<std::byte*>(tensor.data());
      tensors.push_back(at::from_blob(
          bytes, at::IntArrayRef(tensor.shape().extents().data(), tensor.shape().rank()),
          at::TensorOptions().dtype(model::to_scalar_type(tensor.dtype()))));
    }
    return tensors;
  }
  void release() override { current_.clear(); }
  Status finish() override {
    coordinator_.request_stop();
    return coordinator_.join(kJoinTimeout);
  }

 private:
  QueueInput(const config::Config& config, const data::Dataset& dataset, uint64_t batch,
             std::unique_ptr<queue::Queue> batches)
      : dataset_(dataset), batch_(batch), queue_(std::move(batches)) {
    std::vector<queue::EnqueueOperation> operations;
    for (int i = 0; i < config.feed.num_workers.value_or(1); ++i)
      operations.push_back([this](const std::stop_token& stop) { return enqueue(stop); });
    runners_.add_queue_runner(*queue_, std::move(operations));
    runners_.start_queue_runners(&coordinator_);
  }

  Status enqueue(const std::stop_token& stop) {
    queue::Tuple tensors;
    for (const queue::Component& component : queue_->components()) {
      STOKER_ASSIGN_OR_RETURN(auto tensor,
                              queue::Tensor::allocate(component.dtype, *component.shape));
      tensors.push_back(std::move(tensor));
    }
    const uint64_t first = next_sample_.fetch_add(batch_);
    for (uint64_t row = 0; row < batch_; ++row) {
      std::vector<std::span<std::byte>> outputs;
      for (queue::Tensor& tensor : tensors) {
        const size_t bytes = tensor.bytes() / batch_;
        outputs.emplace_back(tensor.mutable_data() + row * bytes, bytes);
      }
      STOKER_RETURN_IF_ERROR(dataset_.read((first + row) % dataset_.size(), {}, outputs));
    }
    return queue_->enqueue(std::move(tensors), stop);
  }

  const data::Dataset& dataset_;
  const uint64_t batch_;
  const std::unique_ptr<queue::Queue> queue_;
  std::atomic<uint64_t> next_sample_{0};
  queue::Tuple current_;
  Coordinator coordinator_;
  queue::QueueRunnerRegistry runners_;  // last member, because its threads use the others
};

// Threads fill the slots of a ring.
class RingInput final : public Input {
 public:
  static Result<std::unique_ptr<Input>> create(const config::Config& config,
                                               const data::Dataset& dataset) {
    const auto batch = static_cast<uint64_t>(config.train.micro_batch_size);
    STOKER_ASSIGN_OR_RETURN(
        auto ring,
        ring::ShmRing::create(ring::BatchLayout(dataset.spec(), batch),
                              {.slots = static_cast<uint64_t>(config.feed.prefetch_batches)}));
    STOKER_ASSIGN_OR_RETURN(const auto producer, ring->add_producer("bench"));
    return std::unique_ptr<Input>(std::unique_ptr<RingInput>(
        new RingInput(config, dataset, batch, std::move(ring), producer)));
  }
  ~RingInput() override { (void)finish(); }

  Result<task::Batch> next() override {
    STOKER_ASSIGN_OR_RETURN(const ring::ReadyBatch ready, ring_->pop(kTimeout));
    ticket_ = ready.ticket;
    task::Batch tensors;
    const ring::BatchLayout& layout = ring_->layout();
    for (size_t i = 0; i < layout.sample().size(); ++i) {
      const TensorSpec& spec = layout.sample()[i];
      // Nothing writes to the tensors of a batch.
      auto* const bytes = const_cast<std::byte*>(layout.tensor_bytes(ready.slot, i).data());
      tensors.push_back(
          at::from_blob(bytes, batch_shape(spec, layout.batch()),
                        at::TensorOptions().dtype(model::to_scalar_type(spec.dtype))));
    }
    return tensors;
  }
  void release() override { ring_->release(ticket_); }
  Status finish() override {
    ring_->close();
    return coordinator_.join(kJoinTimeout);
  }

 private:
  RingInput(const config::Config& config, const data::Dataset& dataset, uint64_t batch,
            std::unique_ptr<ring::ShmRing> ring, ring::ProducerId producer)
      : plan_({.size = dataset.size(), .batch = batch, .shuffle = config::ShuffleMode::kNone}),
        ring_(std::move(ring)),
        pool_(*ring_, producer, dataset, plan_) {
    pool_.start(config.feed.num_workers.value_or(1), coordinator_);
  }

  const data::order::SamplePlan plan_;
  std::unique_ptr<ring::ShmRing> ring_;
  feed::WorkerPool pool_;
  Coordinator coordinator_;
  uint64_t ticket_ = 0;
};

Result<std::unique_ptr<Input>> make_input(InputKind kind, const config::Config& config,
                                          const data::Dataset& dataset) {
  switch (kind) {
    case InputKind::kDirect:
      return std::unique_ptr<Input>(std::make_unique<DirectInput>(
          dataset, static_cast<uint64_t>(config.train.micro_batch_size)));
    case InputKind::kQueue:
      return QueueInput::create(config, dataset);
    case InputKind::kRing:
      return RingInput::create(config, dataset);
  }
  return Status(StatusCode::kInternal, "an unknown input");
}

// ---- training -----------------------------------------------------------------------------------

struct PublishedModel {
  model::ModelPtr model;
  std::unique_ptr<task::Task> task;
  std::unique_ptr<train::Optimizer> optimizer;
};

Result<PublishedModel> make_published_model(const config::Config& config,
                                            const data::Dataset& dataset) {
  PublishedModel made;
  at::manual_seed(config.run.seed);
  STOKER_ASSIGN_OR_RETURN(made.model,
                          model::make_model(config.model, dataset.spec(), dataset.classes()));
  STOKER_RETURN_IF_ERROR(model::freeze(*made.model, config.model.freeze).status());
  STOKER_ASSIGN_OR_RETURN(made.task,
                          task::make_task(config.task, config::training_normalization(config),
                                          dataset.spec(), dataset.classes()));
  model::NamedTensors trained;
  for (const auto& parameter : made.model->named_parameters())
    if (parameter.value().requires_grad()) trained.emplace_back(parameter.key(), parameter.value());
  STOKER_ASSIGN_OR_RETURN(made.optimizer,
                          train::Optimizer::create(config.optimizer, config.train, trained));
  made.model->train();
  return made;
}

Result<double> accuracy_of(const PublishedModel& trained, const config::Config& config,
                           const std::string& index_dir) {
  STOKER_ASSIGN_OR_RETURN(const auto dataset,
                          data::pipeline::open_dataset("val", config.data, index_dir, {}));
  const auto batch = static_cast<uint64_t>(config.eval.batch_size);
  DirectInput input(*dataset, batch);
  const auto evaluation = trained.task->start_evaluation({});
  trained.model->eval();
  for (uint64_t i = 0; i < dataset->size() / batch; ++i) {
    STOKER_ASSIGN_OR_RETURN(const task::Batch tensors, input.next());
    evaluation->add(*trained.model, tensors);
  }
  trained.model->train();
  return evaluation->report().metrics.at(1).second;
}

void train_on(PublishedModel& trained, const task::Batch& batch, double lr) {
  trained.task->loss(*trained.model, batch).backward();
  trained.optimizer->step(lr);
  trained.optimizer->zero_grad();
}

Status run(const PublishedOptions& options) {
  STOKER_ASSIGN_OR_RETURN(const config::Config config, config::load_config(options.config, {}));
  const int threads = options.threads > 0 ? options.threads : config.train.num_threads.value_or(0);
  if (threads > 0) at::set_num_threads(threads);
  STOKER_ASSIGN_OR_RETURN(const auto folder, ScratchFolder::create(""));
  const Stopwatch total;
  const double cpu_start = cpu_seconds();
  STOKER_ASSIGN_OR_RETURN(const auto dataset,
                          data::pipeline::open_dataset("train", config.data, folder->path(), {}));
  STOKER_ASSIGN_OR_RETURN(PublishedModel trained, make_published_model(config, *dataset));
  const bool is_simulated = options.device_ms > 0;
  double before = 0;
  const Stopwatch evaluation;
  const double cpu_evaluation = cpu_seconds();
  if (!is_simulated) {
    STOKER_ASSIGN_OR_RETURN(before, accuracy_of(trained, config, folder->path()));
  }
  const double excluded = evaluation.seconds(), cpu_excluded = cpu_seconds() - cpu_evaluation;
  STOKER_ASSIGN_OR_RETURN(const auto input, make_input(options.input, config, *dataset));
  const uint64_t steps = options.steps > 0 ? options.steps : config.train.max_steps;
  double wait = 0;
  const Stopwatch stepping;
  for (uint64_t step = 0; step < steps; ++step) {
    const Stopwatch waiting;
    STOKER_ASSIGN_OR_RETURN(const task::Batch batch, input->next());
    wait += waiting.seconds();
    if (is_simulated)
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(options.device_ms));
    else
      train_on(trained, batch, config.optimizer.lr());
    input->release();
  }
  const double stepped = stepping.seconds();
  const double seconds = total.seconds() - excluded;
  const double cores = (cpu_seconds() - cpu_start - cpu_excluded) / seconds;
  STOKER_RETURN_IF_ERROR(input->finish());
  double after = 0;
  if (!is_simulated) {
    STOKER_ASSIGN_OR_RETURN(after, accuracy_of(trained, config, folder->path()));
  }
  const auto count = static_cast<double>(steps);
  std::printf(
      "{\"row\": \"stoker, %s\", \"steps\": %llu, \"seconds\": %.3f, \"step_ms\": %.4f, "
      "\"wait_ms\": %.4f, \"cores\": %.2f",
      std::string(name_of(options.input)).c_str(), static_cast<unsigned long long>(steps), seconds,
      1e3 * stepped / count, 1e3 * wait / count, cores);
  if (!is_simulated) std::printf(", \"before\": %.4f, \"after\": %.4f", before, after);
  std::printf("}\n");
  return {};
}

std::optional<PublishedOptions> parse_published_options(int argc, char** argv, int& exit_code) {
  PublishedOptions options;
  CLI::App app(
      "Trains a configuration with data.val in one process and prints a JSON object: row, steps, "
      "seconds from before initialization, step_ms and wait_ms (means per step), cores (CPU time "
      "per second), accuracy before and after.");
  app.add_option("--config", options.config, "Configuration, such as config/published-mlp.yaml")
      ->required()
      ->check(CLI::ExistingFile);
  app.add_option("--input", options.input,
                 "direct: reads a batch when it is needed; queue, ring: others read batches in "
                 "advance, into a FIFOQueue or the ring")
      ->transform(
          CLI::CheckedTransformer(std::map<std::string, InputKind>{{"direct", InputKind::kDirect},
                                                                   {"queue", InputKind::kQueue},
                                                                   {"ring", InputKind::kRing}})
              .description("direct|queue|ring"));
  app.add_option("--steps", options.steps, "Steps instead of train.max_steps");
  app.add_option("--threads", options.threads, "Threads of LibTorch instead of train.num_threads");
  app.add_option("--device-ms", options.device_ms,
                 "Sleep for this time instead of a step, as for a device that needs no processor");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error);
    return std::nullopt;
  }
  return options;
}

int run_program(int argc, char** argv) {
  int exit_code = 0;
  const auto options = parse_published_options(argc, argv, exit_code);
  if (!options) return exit_code;
  try {
    const Status status = run(*options);
    if (status.ok()) return 0;
    std::fprintf(stderr, "stoker-bench-published: %s\n", status.to_string().c_str());
    return static_cast<int>(exit_code_for(status));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stoker-bench-published: %s\n", error.what());
    return static_cast<int>(ExitCode::kInternal);
  }
}

}  // namespace
}  // namespace stoker::bench

int main(int argc, char** argv) {
  stoker::model::install_host_allocator();  // as in stokerd
  return stoker::bench::run_program(argc, argv);
}
