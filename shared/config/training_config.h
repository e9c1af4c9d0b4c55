// TaskConfig, OptimizerConfig, SchedulerConfig, TrainConfig, DistributedConfig, ClusterConfig: the training objective
// and the update step.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "shared/config/enum_words.h"

namespace stoker::config {

// ---- task ----------------------------------------------------------------------------------------
enum class TaskName {
  kLanguageModeling,
  kClassification,
  kBinaryClassification,
  kRegression,
  kMultilabelClassification,
  kSequenceLabeling,
  kCtc,
  kCaptioning,
  kCustom
};
template <>
inline constexpr auto kWords<TaskName> = words("language_modeling", "classification",
                                               "binary_classification", "regression",
                                               "multilabel_classification", "sequence_labeling",
                                               "ctc", "captioning", "custom");
// The weight of each class in the loss; empty: 1.
struct ClassWeights {
  std::vector<double> values;
  // Weights from label frequencies; `values` is filled after counting the labels.
  bool is_balanced = false;
  bool operator==(const ClassWeights&) const = default;
};

struct LanguageModelingTask {
  double label_smoothing = 0;  // training only
  bool operator==(const LanguageModelingTask&) const = default;
};
enum class ClassLoss { kCrossEntropy, kFocal };
template <>
inline constexpr auto kWords<ClassLoss> = words("cross_entropy", "focal");
enum class BinaryLoss { kBce, kFocal, kDice };
template <>
inline constexpr auto kWords<BinaryLoss> = words("bce", "focal", "dice");
enum class RegressionLoss { kMse, kL1, kHuber, kSmoothL1, kQuantile, kKlDiv };
template <>
inline constexpr auto kWords<RegressionLoss> = words("mse", "l1", "huber", "smooth_l1", "quantile",
                                                     "kl_div");

struct ClassificationTask {
  ClassLoss loss = ClassLoss::kCrossEntropy;
  double gamma = 2;              // of kFocal
  double label_smoothing = 0;    // training only
  double aux_loss_weight = 0.4;  // for a model's auxiliary classifier
  ClassWeights class_weights;
  bool operator==(const ClassificationTask&) const = default;
};
struct BinaryClassificationTask {
  BinaryLoss loss = BinaryLoss::kBce;
  double gamma = 2;  // of kFocal
  std::optional<double>
      alpha;  // of kFocal: weight of label 1, with 1 - alpha of label 0; null: 1 of both
  double pos_weight = 1;  // weight of samples with label 1
  bool operator==(const BinaryClassificationTask&) const = default;
};
struct RegressionTask {
  RegressionLoss loss = RegressionLoss::kMse;
  double delta = 1;       // of kHuber
  double beta = 1;        // of kSmoothL1
  double quantile = 0.5;  // of kQuantile
  bool operator==(const RegressionTask&) const = default;
};
struct MultilabelClassificationTask {
  BinaryLoss loss = BinaryLoss::kBce;
  double gamma = 2;                // of kFocal
  std::optional<double> alpha;     // of kFocal, as in BinaryClassificationTask
  double smooth = 1e-5;            // of kDice: added to numerator and denominator
  std::vector<double> pos_weight;  // weight of positive labels per class; empty: 1
  bool operator==(const MultilabelClassificationTask&) const = default;
};
struct SequenceLabelingTask {
  ClassLoss loss = ClassLoss::kCrossEntropy;
  double gamma = 2;  // of kFocal
  double label_smoothing = 0;
  std::vector<double> class_weights;  // empty: 1
  std::vector<std::string> tags;      // of each class, for metrics of entities; empty: none
  bool operator==(const SequenceLabelingTask&) const = default;
};
struct CtcTask {
  bool zero_infinity = false;  // infinite losses, from labels longer than the input, count as 0
  bool operator==(const CtcTask&) const = default;
};
// The loss of the model alone.
struct CustomTask {
  bool operator==(const CustomTask&) const = default;
};

struct CaptioningTask {
  double label_smoothing = 0;
  bool operator==(const CaptioningTask&) const = default;
};

// The alternatives are in the order of TaskName.
using TaskVariant = std::variant<LanguageModelingTask, ClassificationTask, BinaryClassificationTask,
                                 RegressionTask, MultilabelClassificationTask, SequenceLabelingTask,
                                 CtcTask, CaptioningTask, CustomTask>;

struct TaskConfig {
  TaskVariant task;

  TaskName name() const { return static_cast<TaskName>(task.index()); }
  bool has_balanced_weights() const {
    const auto* const each = std::get_if<ClassificationTask>(&task);
    return each != nullptr && each->class_weights.is_balanced;
  }
  // Labels are class indices.
  bool has_classes() const {
    return name() == TaskName::kClassification || name() == TaskName::kBinaryClassification ||
           name() == TaskName::kCaptioning || has_per_step_labels();
  }
  bool has_per_step_labels() const {
    return name() == TaskName::kSequenceLabeling || name() == TaskName::kCtc;
  }
  bool operator==(const TaskConfig&) const = default;
};

// ---- optimizer -----------------------------------------------------------------------------------
enum class OptimizerName {
  kSgd,
  kAdam,
  kAdamW,
  kRmsprop,
  kAdagrad,
  kLion,
  kMuon,
  kNadam,
  kRadam,
  kAdamax,
  kAdadelta,
  kAdafactor,
  kLamb,
  kLars,
  kScheduleFreeAdamW
};
template <>
inline constexpr auto kWords<OptimizerName> = words("sgd", "adam", "adamw", "rmsprop", "adagrad",
                                                    "lion", "muon", "nadam", "radam", "adamax",
                                                    "adadelta", "adafactor", "lamb", "lars",
                                                    "schedule_free_adamw");
struct SgdConfig {
  double lr = 0.01;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;  // added to the gradient
  bool operator==(const SgdConfig&) const = default;
};
struct AdamConfig {
  double lr = 3.0e-4;
  std::vector<double> betas = {0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0;  // added to the gradient
  bool operator==(const AdamConfig&) const = default;
};
struct AdamWConfig {
  double lr = 3.0e-4;
  std::vector<double> betas = {0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;  // decoupled
  bool operator==(const AdamWConfig&) const = default;
};
struct RmspropConfig {
  double lr = 0.01;
  double alpha = 0.99;  // decay of the mean square
  double eps = 1e-8;
  double momentum = 0;
  double weight_decay = 0;  // added to the gradient
  bool operator==(const RmspropConfig&) const = default;
};
struct AdagradConfig {
  double lr = 0.01;
  double eps = 1e-10;
  double weight_decay = 0;  // added to the gradient
  bool operator==(const AdagradConfig&) const = default;
};
struct LionConfig {
  double lr = 1e-4;
  std::vector<double> betas = {0.9, 0.99};
  double weight_decay = 0;  // decoupled
  bool operator==(const LionConfig&) const = default;
};
struct MuonConfig {
  double lr = 3.0e-4;
  double momentum = 0.95;
  bool nesterov = true;
  // Globs of matrices that are not weights of hidden layers. adamw updates them, as it does
  // vectors.
  std::vector<std::string> adamw_params = {"tok.*", "pos.*", "head.*", "heads.*", "fc.*"};
  std::vector<double> betas = {0.9, 0.95};  // for adamw
  double eps = 1e-8;                        // for adamw
  double weight_decay = 0.1;                // decoupled
  bool operator==(const MuonConfig&) const = default;
};

struct NadamConfig {
  double lr = 2e-3;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum_decay = 4e-3;
  bool decoupled_weight_decay = false;  // otherwise added to the gradient
  bool operator==(const NadamConfig&) const = default;
};
struct RadamConfig {
  double lr = 1e-3;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;  // otherwise added to the gradient
  bool operator==(const RadamConfig&) const = default;
};
struct AdamaxConfig {
  double lr = 2e-3;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;  // added to the gradient
  bool operator==(const AdamaxConfig&) const = default;
};
struct AdadeltaConfig {
  double lr = 1;
  double rho = 0.9;  // decay of the mean squares
  double eps = 1e-6;
  double weight_decay = 0;  // added to the gradient
  bool operator==(const AdadeltaConfig&) const = default;
};
struct AdafactorConfig {
  double lr = 1e-2;           // relative to the root mean square of the parameter
  double beta2_decay = -0.8;  // exponent of the decay rate of the mean square
  // For the squared gradient, where PyTorch's default is this one of fp32, and for the parameter.
  std::vector<double> eps = {std::numeric_limits<float>::epsilon(), 1e-3};
  double d = 1;             // largest root mean square of an update
  double weight_decay = 0;  // decoupled
  bool operator==(const AdafactorConfig&) const = default;
};
struct LambConfig {
  double lr = 1e-3;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-6;
  double weight_decay = 0.01;  // added to the update before its norm is taken
  bool trust_clip = false;     // at most 1
  bool always_adapt = false;   // also without weight decay
  bool operator==(const LambConfig&) const = default;
};
struct LarsConfig {
  double lr = 1;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;  // added to the gradient
  double trust_coeff = 0.001;
  double eps = 1e-8;
  bool trust_clip = false;    // at most the learning rate
  bool always_adapt = false;  // also without weight decay
  bool operator==(const LarsConfig&) const = default;
};

struct ScheduleFreeAdamWConfig {
  double lr = 2.5e-3;
  std::vector<double> betas = {0.9, 0.999};  // the first one: part of the average in the parameters
  double eps = 1e-8;
  double weight_decay = 0;  // added to the update
  bool operator==(const ScheduleFreeAdamWConfig&) const = default;
};

// The alternatives are in the order of OptimizerName.
using OptimizerVariant =
    std::variant<SgdConfig, AdamConfig, AdamWConfig, RmspropConfig, AdagradConfig, LionConfig,
                 MuonConfig, NadamConfig, RadamConfig, AdamaxConfig, AdadeltaConfig,
                 AdafactorConfig, LambConfig, LarsConfig, ScheduleFreeAdamWConfig>;

// Whether an update of a parameter depends on all of its elements, and not on each alone.
inline bool updates_whole_parameters(OptimizerName name) {
  switch (name) {
    case OptimizerName::kMuon:
    case OptimizerName::kAdafactor:
    case OptimizerName::kLamb:
    case OptimizerName::kLars:
      return true;
    case OptimizerName::kSgd:
    case OptimizerName::kAdam:
    case OptimizerName::kAdamW:
    case OptimizerName::kRmsprop:
    case OptimizerName::kAdagrad:
    case OptimizerName::kLion:
    case OptimizerName::kNadam:
    case OptimizerName::kRadam:
    case OptimizerName::kAdamax:
    case OptimizerName::kAdadelta:
    case OptimizerName::kScheduleFreeAdamW:
      return false;
  }
  return true;
}

enum class ParamKind { kNorm, kBias, kEmbedding, kVector };
template <>
inline constexpr auto kWords<ParamKind> = words("norm", "bias", "embedding", "vector");

// Parameters with separate settings: those that are of both, a name and a kind, if both are given.
struct ParamGroup {
  std::string params;                  // glob of parameter names; empty: any
  std::optional<ParamKind> kind;       // null: any
  double lr_scale = 1.0;               // multiplies the scheduler's learning rate
  std::optional<double> weight_decay;  // null: the optimizer's
  bool operator==(const ParamGroup&) const = default;
};

struct OptimizerConfig {
  OptimizerVariant method = AdamWConfig{};
  std::vector<ParamGroup> param_groups;  // the first matching group applies
  // Multiplies the learning rate of each layer by this factor relative to the layer after it.
  std::optional<double> layer_decay;

  OptimizerName name() const { return static_cast<OptimizerName>(method.index()); }
  double lr() const {
    return std::visit([](const auto& each) { return each.lr; }, method);
  }
  void set_lr(double lr) {
    std::visit([lr](auto& each) { each.lr = lr; }, method);
  }
  // Its state has an average of the parameters, which checkpoints have as that of train.ema_decay.
  bool averages() const { return name() == OptimizerName::kScheduleFreeAdamW; }
  double weight_decay() const {
    return std::visit([](const auto& each) { return each.weight_decay; }, method);
  }
  bool operator==(const OptimizerConfig&) const = default;
};

// ---- scheduler -----------------------------------------------------------------------------------

enum class SchedulerName {
  kConstant,
  kCosine,
  kLinear,
  kStep,
  kMultiStep,
  kExponential,
  kPolynomial,
  kOneCycle,
  kCosineWarmRestarts,
  kReduceOnPlateau
};
template <>
inline constexpr auto kWords<SchedulerName> = words("constant", "cosine", "linear", "step",
                                                    "multi_step", "exponential", "polynomial",
                                                    "one_cycle", "cosine_warm_restarts",
                                                    "reduce_on_plateau");

struct ConstantScheduler {
  bool operator==(const ConstantScheduler&) const = default;
};
struct CosineScheduler {
  std::optional<double> min_lr;  // at train.max_steps; null: optimizer.lr / 10
  bool operator==(const CosineScheduler&) const = default;
};
struct LinearScheduler {
  std::optional<double> min_lr;  // at train.max_steps; null: optimizer.lr / 10
  bool operator==(const LinearScheduler&) const = default;
};
struct StepScheduler {
  uint64_t step_size = 1000;  // steps between two multiplications by gamma
  double gamma = 0.1;
  bool operator==(const StepScheduler&) const = default;
};

struct MultiStepScheduler {
  std::vector<int64_t> milestones;  // increasing; steps after the warmup
  double gamma = 0.1;
  bool operator==(const MultiStepScheduler&) const = default;
};
struct ExponentialScheduler {
  double gamma = 0.1;
  uint64_t step_size = 1;  // steps over which the rate falls by gamma
  bool operator==(const ExponentialScheduler&) const = default;
};
struct PolynomialScheduler {
  double power = 1;
  std::optional<double> min_lr;  // at train.max_steps; null: optimizer.lr / 10
  bool operator==(const PolynomialScheduler&) const = default;
};
enum class AnnealStrategy { kCos, kLinear };
template <>
inline constexpr auto kWords<AnnealStrategy> = words("cos", "linear");
struct OneCycleScheduler {
  double pct_start = 0.3;  // fraction of the steps in which the rate rises to optimizer.lr
  AnnealStrategy anneal_strategy = AnnealStrategy::kCos;
  double div_factor = 25;         // optimizer.lr / rate of the first step
  double final_div_factor = 1e4;  // rate of the first step / rate of the last one
  bool three_phase = false;
  bool operator==(const OneCycleScheduler&) const = default;
};
struct CosineWarmRestartsScheduler {
  uint64_t t_0 = 1000;           // steps until the first restart
  uint64_t t_mult = 1;           // factor of the steps until the next one
  std::optional<double> min_lr;  // before each restart; null: optimizer.lr / 10
  bool operator==(const CosineWarmRestartsScheduler&) const = default;
};

enum class PlateauMonitor { kTrainLoss, kEval };
template <>
inline constexpr auto kWords<PlateauMonitor> = words("train_loss", "eval");
inline constexpr const char* kNumReductionsKey = "scheduler.num_reductions";
enum class ThresholdMode { kRel, kAbs };
template <>
inline constexpr auto kWords<ThresholdMode> = words("rel", "abs");
struct ReduceOnPlateauScheduler {
  PlateauMonitor monitor = PlateauMonitor::kTrainLoss;
  uint64_t every_steps = 1000;  // kTrainLoss: steps whose mean is a value
  double factor = 0.1;
  uint64_t patience = 10;  // values without improvement that change nothing
  double threshold = 1e-4;
  ThresholdMode threshold_mode = ThresholdMode::kRel;
  uint64_t cooldown = 0;  // values after a reduction that do not count
  double min_lr = 0;
  uint64_t num_reductions = 0;  // so far; the run changes it
  bool operator==(const ReduceOnPlateauScheduler&) const = default;
};

// The alternatives are in the order of SchedulerName.
using SchedulerVariant =
    std::variant<ConstantScheduler, CosineScheduler, LinearScheduler, StepScheduler,
                 MultiStepScheduler, ExponentialScheduler, PolynomialScheduler, OneCycleScheduler,
                 CosineWarmRestartsScheduler, ReduceOnPlateauScheduler>;

struct SchedulerConfig {
  SchedulerVariant schedule = CosineScheduler{};
  uint64_t warmup_steps = 100;
  // The rate of the first step of the warmup relative to optimizer.lr; null: 1 / warmup_steps.
  std::optional<double> warmup_start_factor;

  // one_cycle has its own.
  bool has_warmup() const { return name() != SchedulerName::kOneCycle; }
  uint64_t warmup() const { return has_warmup() ? warmup_steps : 0; }
  SchedulerName name() const { return static_cast<SchedulerName>(schedule.index()); }
  // The rate that `schedule` ends with; nullopt: it has none, or follows optimizer.lr.
  std::optional<double> min_lr() const {
    return std::visit(
        [](const auto& each) -> std::optional<double> {
          if constexpr (requires { each.min_lr; }) return each.min_lr;
          return std::nullopt;
        },
        schedule);
  }
  bool operator==(const SchedulerConfig&) const = default;
};

// ---- train ---------------------------------------------------------------------------------------

enum class Precision { kFp32, kTf32, kBf16, kFp16 };
template <>
inline constexpr auto kWords<Precision> = words("fp32", "tf32", "bf16", "fp16");
enum class CudaGraphs { kAuto, kNever };
template <>
inline constexpr auto kWords<CudaGraphs> = words("auto", "never");
// How the decay of the average rises to ema_decay.
enum class EmaWarmup { kNumUpdates, kPower };
template <>
inline constexpr auto kWords<EmaWarmup> = words("num_updates", "power");
enum class OnNonfinite { kFail, kSkipStep, kRollback };
template <>
inline constexpr auto kWords<OnNonfinite> = words("fail", "skip_step", "rollback");

// train.device: auto, cpu, cuda or cuda:N. Tests also have fake and fake:SEED.
struct DeviceConfig {
  enum class Type { kAuto, kCpu, kCuda, kFake };
  Type type = Type::kAuto;
  std::optional<int> index;  // of cuda:N; of fake:SEED the seed

  bool operator==(const DeviceConfig&) const = default;
};
std::optional<DeviceConfig> parse_device(std::string_view text);
std::string to_string(const DeviceConfig& device);

// Fused CUDA kernels that are used instead of LibTorch's.
struct FusedKernelsConfig {
  bool adamw = false;
  bool cross_entropy = false;
  bool gelu = false;
  bool norm = false;
  bool rope = false;
  bool swiglu = false;

  bool operator==(const FusedKernelsConfig&) const = default;
};
struct FusedKernelSwitch {
  std::string_view name;
  bool FusedKernelsConfig::*is_enabled;
};
inline constexpr FusedKernelSwitch kFusedKernelSwitches[] = {
    {"adamw", &FusedKernelsConfig::adamw}, {"cross_entropy", &FusedKernelsConfig::cross_entropy},
    {"gelu", &FusedKernelsConfig::gelu},   {"norm", &FusedKernelsConfig::norm},
    {"rope", &FusedKernelsConfig::rope},   {"swiglu", &FusedKernelsConfig::swiglu}};
inline constexpr FusedKernelsConfig kAllFusedKernels{
    .adamw = true, .cross_entropy = true, .gelu = true, .norm = true, .rope = true, .swiglu = true};

struct TrainConfig {
  uint64_t max_steps = 2000;
  std::optional<double> max_epochs;  // if max_steps is configured in epochs
  int64_t micro_batch_size = 16;
  int64_t gradient_accumulation_steps = 1;  // micro-batches per step
  DeviceConfig device;
  Precision precision = Precision::kFp32;
  std::optional<double> max_grad_norm = 1.0;  // global norm; null: no clipping
  std::optional<double> max_grad_value;  // per element, before max_grad_norm; null: no clipping
  std::optional<double> ema_decay;       // null: no moving average of the weights
  uint64_t ema_every_steps = 1;          // steps between two updates of the average
  std::optional<EmaWarmup> ema_warmup;   // null: ema_decay from the first update on
  bool channels_last = false;
  bool flush_denormal = false;
  CudaGraphs cuda_graphs = CudaGraphs::kAuto;
  FusedKernelsConfig fused_kernels;
  std::optional<int> num_threads;  // threads of LibTorch; null: all cores
  OnNonfinite on_nonfinite = OnNonfinite::kFail;
  int max_nonfinite = 10;           // kSkipStep: consecutive steps; kRollback: rollbacks per run
  double rollback_lr_factor = 0.5;  // kRollback: multiplies the learning rate

  bool operator==(const TrainConfig&) const = default;
};

// ---- distributed ---------------------------------------------------------------------------------

enum class Reduction { kOrdered, kAllReduce };
template <>
inline constexpr auto kWords<Reduction> = words("ordered", "allreduce");

enum class GroupBackend { kAuto, kGloo, kNccl };
template <>
inline constexpr auto kWords<GroupBackend> = words("auto", "gloo", "nccl");

enum class Shard { kNone, kOptimizer };
template <>
inline constexpr auto kWords<Shard> = words("none", "optimizer");

struct DistributedConfig {
  GroupBackend backend = GroupBackend::kAuto;
  std::optional<Reduction> reduction;  // null: micro-batches are added one after the other
  // In a group of several ranks:
  Shard shard = Shard::kNone;          // what each rank has a part of
  std::string interface = "auto";      // name or address; auto: that of the route to rank 0
  double timeout_seconds = 120;        // of a step, without its own computation
  double start_timeout_seconds = 600;  // until all ranks have started
  double bucket_mib = 25;              // kAllReduce: gradients that are summed together
  // From SIGTERM until the last checkpoint must be complete; null: 25.
  std::optional<double> stop_deadline_seconds;
  std::optional<int> preempted_exit_code;  // null: 143 under Kubernetes, otherwise 0
  std::optional<uint64_t> consistency_check_every_steps = 1000;  // null: never

  bool operator==(const DistributedConfig&) const = default;
};

// ---- cluster -------------------------------------------------------------------------------------

enum class ReplicaMode { kSync, kAsync };
template <>
inline constexpr auto kWords<ReplicaMode> = words("sync", "async");

enum class VariablePlacement { kRoundRobin, kBytes };
template <>
inline constexpr auto kWords<VariablePlacement> = words("round_robin", "bytes");

// Of parameter servers and workers. Which task a process is comes from its options or TF_CONFIG.
struct ClusterConfig {
  std::vector<std::string> ps;      // "host:port" by index; both empty, or none
  std::vector<std::string> worker;  // the first one is the chief
  // null: as the options of the command line, or sync and round_robin.
  std::optional<ReplicaMode> replicas;
  std::optional<uint64_t> max_staleness;  // kAsync; null: no bound, unless the command line has one
  std::optional<VariablePlacement> placement;

  bool operator==(const ClusterConfig&) const = default;
};

}  // namespace stoker::config
