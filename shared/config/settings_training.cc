// Descriptors of the sections task, optimizer, scheduler, train and distributed.
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "shared/config/schema.h"

namespace stoker::config {
namespace {

constexpr double kMaxSteps = 1e15;  // so that no product of two settings overflows
constexpr double kMaxLr = 1e3;
constexpr double kMaxWeightDecay = 1e3;

// Variants of `config` that its key `name` selects. `variant` is the member, and `names` has the
// order of its alternatives. `fields_of(config)` describes the keys of the selected one.
template <typename T, typename Variant>
Variants variants_by_name(T& config, Variant T::*variant, std::span<const std::string_view> names,
                          Fields (*fields_of)(T&)) {
  return {.discriminator = "name",
          .noun = {},
          .names = {names.begin(), names.end()},
          .selected = (config.*variant).index(),
          .select = [&config, variant](size_t i) { emplace_alternative(config.*variant, i); },
          .keys =
              [variant, fields_of](size_t i) {
                T defaults;
                emplace_alternative(defaults.*variant, i);
                std::vector<std::string_view> keys;
                for (const Field& field : fields_of(defaults)) keys.push_back(field.name);
                return keys;
              }};
}

// ---- task ----------------------------------------------------------------------------------------

Field label_smoothing(double& target) {
  return {.name = "label_smoothing",
          .target = &target,
          .help = "Fraction of each label distributed over all classes",
          .details =
              "From 0 to 0.99; 0.1 is common. Reduces overconfident predictions, as in PyTorch's "
              "CrossEntropyLoss. Applied during training only.",
          .min = 0,
          .max = 0.99,
          .affects_result = true,
          .on_resume = OnResume::kModel,
          .example = "0.1"};
}

// Weights of labels in the loss.
Field label_weights(std::string_view name, Target target, std::string_view help,
                    std::string_view details) {
  return {.name = name,
          .target = target,
          .help = help,
          .details = details,
          .min = 0,
          .max = 1e6,
          .accepts_null = true,
          .affects_result = true,
          .on_resume = OnResume::kModel,
          .example = "[1, 5, 1]"};
}

template <typename Loss>
Field loss_field(Loss& target, std::string_view details) {
  return {.name = "loss",
          .target = choice(target),
          .help = "Loss that training minimizes",
          .details = details,
          .affects_result = true,
          .on_resume = OnResume::kModel};
}

// A number of one of the losses.
Field loss_number(std::string_view name, Target target, std::string_view help,
                  std::string_view details, double max) {
  return {.name = name,
          .target = target,
          .help = help,
          .details = details,
          .min = 0,
          .max = max,
          .exclusive_min = true,
          .affects_result = true,
          .on_resume = OnResume::kModel};
}

Field gamma_of_focal(double& target) {
  return loss_number("gamma", &target, "Exponent of the focal loss",
                     "Above 0, at most 100. The loss of a label with probability p is multiplied "
                     "by (1 - p)^gamma. Requires loss: focal.",
                     100);
}

Field alpha_of_focal(std::optional<double>& target) {
  Field field = loss_number("alpha", &target, "Weight of label 1 in the focal loss, or null",
                            "Above 0, at most 1; label 0 has the weight 1 - alpha. 0.25 is "
                            "torchvision's default; null: both have 1. Requires loss: focal.",
                            1);
  field.example = "0.25";
  return field;
}

constexpr std::string_view kClassLossDetails =
    "cross_entropy: as PyTorch's CrossEntropyLoss. focal: that of Lin et al., 2017, which "
    "multiplies the cross entropy of each label by (1 - p)^gamma, with its probability p; without "
    "label_smoothing, mixup and cutmix.";
constexpr std::string_view kBinaryLossDetails =
    "bce: as PyTorch's BCEWithLogitsLoss. focal: as torchvision's sigmoid_focal_loss.";

Fields fields_of_task(LanguageModelingTask& task) {
  return {label_smoothing(task.label_smoothing)};
}

Fields fields_of_task(RegressionTask& task) {
  return {loss_field(
              task.loss,
              "As PyTorch's MSELoss, L1Loss, HuberLoss and SmoothL1Loss; quantile: q * e for "
              "an error e = target - output above 0, else (q - 1) * e, as scikit-learn's "
              "mean_pinball_loss. kl_div: the targets of a sample are the probabilities of "
              "classes; as KLDivLoss(reduction=\"batchmean\") of the log-softmax of the outputs, "
              "and the other metrics are those of their softmax."),
          loss_number("delta", &task.delta, "Error from which the Huber loss is linear",
                      "Above 0, at most 1.0e9. Requires loss: huber.", 1e9),
          loss_number("beta", &task.beta, "Error from which the smooth L1 loss is linear",
                      "Above 0, at most 1.0e9. Requires loss: smooth_l1.", 1e9),
          loss_number("quantile", &task.quantile, "Quantile that the outputs predict",
                      "Above 0, at most 0.999999; 0.5 is the median. Requires loss: quantile.",
                      0.999999)};
}
Fields fields_of_task(CustomTask& /*task*/) { return {}; }

Fields fields_of_task(ClassificationTask& task) {
  return {loss_field(task.loss, kClassLossDetails),
          gamma_of_focal(task.gamma),
          label_smoothing(task.label_smoothing),
          {.name = "aux_loss_weight",
           .target = &task.aux_loss_weight,
           .help = "Weight of the auxiliary classifier's loss",
           .details = "From 0 to 1000. The weighted loss is added to that of the main output "
                      "during training. Has an effect only for models with an auxiliary "
                      "classifier: inception_v3 with aux_logits. Evaluation does not compute it.",
           .min = 0,
           .max = 1e3,
           .affects_result = true,
           .on_resume = OnResume::kModel},
          label_weights(
              "class_weights",
              NumbersOrKeyword{.numbers = &task.class_weights.values,
                               .is_keyword = &task.class_weights.is_balanced,
                               .keyword = "balanced"},
              "Weight of each class in the loss: a list, balanced, or null",
              "A list has one number from 0 to 1000000 per class, in the order of the classes; "
              "null weights all classes equally. The loss is the weighted mean over a batch, and "
              "over a dataset in evaluation, as in PyTorch's CrossEntropyLoss. balanced weights "
              "each class by samples / (classes * samples of the class), as scikit-learn does: the "
              "labels of data.train are counted when the run starts, and its checkpoints store the "
              "weights. balanced requires feed.producers internal.")};
}

Fields fields_of_task(BinaryClassificationTask& task) {
  return {loss_field(task.loss, kBinaryLossDetails),
          gamma_of_focal(task.gamma),
          alpha_of_focal(task.alpha),
          {.name = "pos_weight",
           .target = &task.pos_weight,
           .help = "Weight of samples with label 1 in the loss",
           .details = "Above 0, at most 1000000. Samples with label 0 have weight 1; the number of "
                      "negative samples divided by that of positive ones balances them. As in "
                      "PyTorch's BCEWithLogitsLoss, in training and evaluation.",
           .min = 0,
           .max = 1e6,
           .exclusive_min = true,
           .affects_result = true,
           .on_resume = OnResume::kModel}};
}

Fields fields_of_task(MultilabelClassificationTask& task) {
  return {loss_field(task.loss,
                     "bce: as PyTorch's BCEWithLogitsLoss. focal: as torchvision's "
                     "sigmoid_focal_loss. dice: 1 - (2 * sum(p * t) + smooth) / (sum(p) + sum(t) + "
                     "smooth) over the labels of a sample, such as the pixels of a mask, with the "
                     "probabilities p; as MONAI's DiceLoss(sigmoid=True)."),
          gamma_of_focal(task.gamma), alpha_of_focal(task.alpha),
          loss_number("smooth", &task.smooth,
                      "Term of the Dice loss, which is then defined without a positive label",
                      "Above 0, at most 1000000. Requires loss: dice.", 1e6),
          label_weights("pos_weight", &task.pos_weight,
                        "Weight of a positive label of each class in the loss",
                        "One number from 0 to 1000000 per class, in the order of the classes; null "
                        "weights positive and negative labels equally. As in PyTorch's "
                        "BCEWithLogitsLoss, in training and evaluation.")};
}

Fields fields_of_task(SequenceLabelingTask& task) {
  return {loss_field(task.loss, kClassLossDetails),
          gamma_of_focal(task.gamma),
          label_smoothing(task.label_smoothing),
          label_weights("class_weights", &task.class_weights,
                        "Weight of each class in the loss: a list or null",
                        "One number from 0 to 1000000 per class, in the order of the classes; null "
                        "weights all classes equally. The loss is the weighted mean over a batch, "
                        "and over a dataset in evaluation, as in PyTorch's CrossEntropyLoss."),
          {.name = "tags",
           .target = &task.tags,
           .help = "Tag of each class, for entity_precision, entity_recall and entity_f1; empty: "
                   "without these",
           .details = "One per class, in the order of the classes: O outside of entities, or B, I, "
                      "E or S and the type of the entity. Evaluation then counts entities, as "
                      "seqeval does by default.",
           .example = "[O, B-PER, I-PER, B-LOC, I-LOC]"}};
}

Fields fields_of_task(CtcTask& task) {
  return {{.name = "zero_infinity",
           .target = &task.zero_infinity,
           .help = "Count infinite losses as 0",
           .details = "A sample with more labels than its time steps can represent has an infinite "
                      "loss. true: it counts as 0 in training and evaluation, as in PyTorch's "
                      "CTCLoss. false: training applies train.on_nonfinite.",
           .affects_result = true,
           .on_resume = OnResume::kModel}};
}

Fields fields_of_task(CaptioningTask& task) { return {label_smoothing(task.label_smoothing)}; }

Fields task_fields(TaskConfig& task) {
  return std::visit([](auto& each) { return fields_of_task(each); }, task.task);
}

// ---- optimizer -----------------------------------------------------------------------------------

Field lr_field(double& target) {
  return {
      .name = "lr",
      .target = &target,
      .help = "Learning rate",
      .details =
          "Above 0, at most 1000. The scheduler starts from it; metrics report the resulting value "
          "as lr.",
      .min = 0,
      .max = kMaxLr,
      .exclusive_min = true,
      .affects_result = true,
      .on_resume = OnResume::kLive};
}

// From 0 to 1.
Field fraction(std::string_view name, Target target, std::string_view help,
               std::string_view details) {
  return {.name = name,
          .target = target,
          .help = help,
          .details = details,
          .min = 0,
          .max = 1,
          .affects_result = true};
}

Field nesterov_field(bool& target, std::string_view details) {
  return {.name = "nesterov",
          .target = &target,
          .help = "Use Nesterov momentum",
          .details = details,
          .affects_result = true};
}

Field adam_betas(std::vector<double>& target) {
  return fraction("betas", &target,
                  "Decay rates of the running means of the gradient and of its square",
                  "Two numbers from 0 to below 1. PyTorch's default is [0.9, 0.999]; 0.999 is "
                  "common outside language models.");
}

Field decoupled_field(bool& target) {
  return {.name = "decoupled_weight_decay",
          .target = &target,
          .help = "Shrink the weights by lr * weight_decay instead of changing the gradient",
          .details = {},
          .affects_result = true};
}

Field flag_field(std::string_view name, bool& target, std::string_view help) {
  return {.name = name, .target = &target, .help = help, .details = {}, .affects_result = true};
}

Field eps_field(double& target, std::string_view details) {
  return {.name = "eps",
          .target = &target,
          .help = "Term added to the denominator for numerical stability",
          .details = details,
          .min = 0,
          .max = 1,
          .exclusive_min = true,
          .affects_result = true};
}

Field weight_decay(double& target, std::string_view help, std::string_view details) {
  return {.name = "weight_decay",
          .target = &target,
          .help = help,
          .details = details,
          .min = 0,
          .max = kMaxWeightDecay,
          .affects_result = true};
}
Field coupled_weight_decay(double& target) {
  return weight_decay(
      target, "Weight decay, added to the gradient",
      "From 0 to 1000. weight_decay * weight is added to the gradient (L2 regularization).");
}
Field decoupled_weight_decay(double& target, std::string_view details) {
  return weight_decay(target, "Weight decay, decoupled from the gradient", details);
}

Fields fields_of_method(SgdConfig& sgd) {
  return {lr_field(sgd.lr),
          fraction("momentum", &sgd.momentum, "Momentum factor",
                   "From 0 to 1. 0.9 is common; 0 disables momentum."),
          nesterov_field(sgd.nesterov, "Requires optimizer.momentum above 0."),
          coupled_weight_decay(sgd.weight_decay)};
}

Fields fields_of_method(AdamConfig& adam) {
  return {lr_field(adam.lr), adam_betas(adam.betas), eps_field(adam.eps, "Above 0, at most 1."),
          coupled_weight_decay(adam.weight_decay)};
}

Fields fields_of_method(AdamWConfig& adamw) {
  return {lr_field(adamw.lr), adam_betas(adamw.betas), eps_field(adamw.eps, "Above 0, at most 1."),
          decoupled_weight_decay(adamw.weight_decay,
                                 "From 0 to 1000. Each step shrinks the weights by lr * "
                                 "weight_decay. PyTorch's default is 0.01.")};
}

Fields fields_of_method(RmspropConfig& rmsprop) {
  return {lr_field(rmsprop.lr),
          fraction("alpha", &rmsprop.alpha,
                   "Decay rate of the running mean of the squared gradient", "From 0 to 1."),
          eps_field(rmsprop.eps, "Above 0, at most 1."),
          fraction("momentum", &rmsprop.momentum, "Momentum factor",
                   "From 0 to 1. 0 disables momentum."),
          coupled_weight_decay(rmsprop.weight_decay)};
}

Fields fields_of_method(AdagradConfig& adagrad) {
  return {lr_field(adagrad.lr), eps_field(adagrad.eps, "Above 0, at most 1."),
          coupled_weight_decay(adagrad.weight_decay)};
}

Fields fields_of_method(LionConfig& lion) {
  return {lr_field(lion.lr),
          fraction("betas", &lion.betas,
                   "Weight of the running mean of the gradient in a step, and its decay rate",
                   "Two numbers from 0 to below 1."),
          decoupled_weight_decay(
              lion.weight_decay,
              "From 0 to 1000. Each step shrinks the weights by lr * weight_decay.")};
}

Fields fields_of_method(MuonConfig& muon) {
  return {lr_field(muon.lr),
          fraction("momentum", &muon.momentum, "Momentum factor", "From 0 to 1."),
          nesterov_field(muon.nesterov, {}),
          {.name = "adamw_params",
           .target = &muon.adamw_params,
           .help = "Globs of the matrices that adamw updates",
           .details = "Name the matrices that are not weights of hidden layers: embeddings and "
                      "output heads. adamw also updates every parameter that is not a matrix.",
           .affects_result = true},
          fraction("betas", &muon.betas,
                   "Decay rates of the running means, for parameters that adamw updates",
                   "Two numbers from 0 to below 1, for the gradient and for its square."),
          eps_field(muon.eps, "Above 0, at most 1. For the parameters that adamw updates."),
          decoupled_weight_decay(muon.weight_decay,
                                 "From 0 to 1000. Each step shrinks the weights by lr * "
                                 "weight_decay, also those that adamw updates.")};
}

Fields fields_of_method(NadamConfig& nadam) {
  return {lr_field(nadam.lr),
          adam_betas(nadam.betas),
          eps_field(nadam.eps, "Above 0, at most 1."),
          fraction("momentum_decay", &nadam.momentum_decay, "Decay of the momentum schedule",
                   "From 0 to 1."),
          decoupled_field(nadam.decoupled_weight_decay),
          coupled_weight_decay(nadam.weight_decay)};
}

Fields fields_of_method(RadamConfig& radam) {
  return {lr_field(radam.lr), adam_betas(radam.betas), eps_field(radam.eps, "Above 0, at most 1."),
          decoupled_field(radam.decoupled_weight_decay), coupled_weight_decay(radam.weight_decay)};
}

Fields fields_of_method(AdamaxConfig& adamax) {
  return {lr_field(adamax.lr),
          fraction("betas", &adamax.betas,
                   "Decay rates of the running mean of the gradient and of the largest gradient",
                   "Two numbers from 0 to below 1."),
          eps_field(adamax.eps, "Above 0, at most 1."), coupled_weight_decay(adamax.weight_decay)};
}

Fields fields_of_method(AdadeltaConfig& adadelta) {
  return {lr_field(adadelta.lr),
          fraction("rho", &adadelta.rho,
                   "Decay rate of the running means of the squared gradient and update",
                   "From 0 to 1."),
          eps_field(adadelta.eps, "Above 0, at most 1."),
          coupled_weight_decay(adadelta.weight_decay)};
}

Fields fields_of_method(AdafactorConfig& adafactor) {
  return {
      lr_field(adafactor.lr),
      {.name = "beta2_decay",
       .target = &adafactor.beta2_decay,
       .help = "Exponent of the step in the weight of the squared gradient in its running mean",
       .details = "From -1 to 0; -0.8 is the paper's.",
       .min = -1,
       .max = 0,
       .affects_result = true},
      {.name = "eps",
       .target = &adafactor.eps,
       .help = "Smallest squared gradient, and smallest root mean square of a parameter for its "
               "learning rate",
       .details = "Two numbers above 0, at most 1.",
       .min = 0,
       .max = 1,
       .exclusive_min = true,
       .affects_result = true},
      {.name = "d",
       .target = &adafactor.d,
       .help = "Largest root mean square of an update before the learning rate applies",
       .details = "From 1 to 1000000.",
       .min = 1,
       .max = 1e6,
       .affects_result = true},
      decoupled_weight_decay(
          adafactor.weight_decay,
          "From 0 to 1000. Each step shrinks the weights by lr * weight_decay.")};
}

Fields fields_of_method(LambConfig& lamb) {
  return {lr_field(lamb.lr),
          adam_betas(lamb.betas),
          eps_field(lamb.eps, "Above 0, at most 1."),
          flag_field("trust_clip", lamb.trust_clip,
                     "Limit the ratio of the norms of weights and update to 1"),
          flag_field("always_adapt", lamb.always_adapt,
                     "Scale updates by the ratio of the norms also without weight decay"),
          weight_decay(lamb.weight_decay, "Weight decay, added to the update",
                       "From 0 to 1000. With 0, as for norms and biases in a parameter group, the "
                       "ratio of the norms is not used, unless always_adapt.")};
}

Fields fields_of_method(LarsConfig& lars) {
  return {lr_field(lars.lr),
          fraction("momentum", &lars.momentum, "Momentum factor",
                   "From 0 to 1. 0.9 is common; 0 disables momentum."),
          nesterov_field(lars.nesterov, "Requires optimizer.momentum above 0."),
          {.name = "trust_coeff",
           .target = &lars.trust_coeff,
           .help = "Factor of the ratio of the norms of weights and gradient",
           .details = "Above 0, at most 1000.",
           .min = 0,
           .max = 1e3,
           .exclusive_min = true,
           .affects_result = true},
          eps_field(lars.eps, "Above 0, at most 1."),
          flag_field("trust_clip", lars.trust_clip,
                     "Limit the learning rate of each parameter to that of the scheduler"),
          flag_field("always_adapt", lars.always_adapt,
                     "Scale updates by the ratio of the norms also without weight decay"),
          coupled_weight_decay(lars.weight_decay)};
}

Fields fields_of_method(ScheduleFreeAdamWConfig& adamw) {
  return {lr_field(adamw.lr),
          fraction("betas", &adamw.betas,
                   "Part of the average in the trained weights, and decay rate of the mean of "
                   "squared gradients",
                   "Two numbers from 0 to below 1, the first one above 0."),
          eps_field(adamw.eps, "Above 0, at most 1."),
          weight_decay(adamw.weight_decay, "Weight decay, decoupled from the gradient",
                       "From 0 to 1000. Each step shrinks the weights by lr * weight_decay.")};
}

Fields fields_of_param_group(ParamGroup& group) {
  return {
      {.name = "params",
       .target = &group.params,
       .help = "Glob of parameter names",
       .details = "With kind, only parameters of both.",
       .accepts_null = true,
       .is_required = true,
       .replaced_by = "kind",
       .example = "\"head.*\""},
      {.name = "kind",
       .target = choice(group.kind),
       .help = "Kind of parameter, or null: any",
       .details =
           "norm: weight and bias of layers whose weight is a vector. bias: names that end with "
           "bias. vector: at most one dimension, which norms and biases have. embedding: weights "
           "of embedding layers, learned positions and class tokens; not known of an exported "
           "model.",
       .example = "vector"},
      {.name = "lr_scale",
       .target = &group.lr_scale,
       .help = "Factor of the learning rate",
       .details = "Above 0, at most 1000000.",
       .min = 0,
       .max = 1e6,
       .exclusive_min = true,
       .example = "10"},
      {.name = "weight_decay",
       .target = &group.weight_decay,
       .help = "Weight decay of the group",
       .details = "From 0 to 1000; null uses optimizer.weight_decay.",
       .min = 0,
       .max = kMaxWeightDecay,
       .example = "0"}};
}

Fields optimizer_fields(OptimizerConfig& optimizer) {
  Fields fields = std::visit([](auto& each) { return fields_of_method(each); }, optimizer.method);
  fields.push_back(
      {.name = "param_groups",
       .target = list<fields_of_param_group>(optimizer.param_groups),
       .help = "Parameters with their own learning rate or weight decay",
       .details = "A parameter belongs to the first group whose params match its name, and whose "
                  "kind it is of. A group without parameters is an error.",
       .affects_result = true,
       .example = R"([{params: "head.*", lr_scale: 10}, {params: "*.bias", weight_decay: 0}])"});
  fields.push_back(
      {.name = "layer_decay",
       .target = &optimizer.layer_decay,
       .help = "Factor of the learning rate of a layer relative to the next one; null: 1",
       .details =
           "As in timm: the learning rate of the output layer is unchanged, that of the last "
           "block and of the norm after it multiplied by layer_decay, and so on to the "
           "embeddings; with a tied output layer, that of the last block is unchanged. Multiplies "
           "lr_scale of param_groups. For gpt, gpt2, llama, bert and vit.",
       .min = 0,
       .max = 1,
       .exclusive_min = true,
       .affects_result = true,
       .example = "0.75"});
  return fields;
}

// ---- scheduler -----------------------------------------------------------------------------------

Field min_lr_field(std::optional<double>& target) {
  return {.name = "min_lr",
          .target = &target,
          .help = "Learning rate at the end of the decay; null: optimizer.lr / 10",
          .details =
              "From 0 to optimizer.lr. The end is step train.max_steps, with cosine_warm_restarts "
              "each restart. null follows optimizer.lr when it changes during the run.",
          .min = 0,
          .max = kMaxLr,
          .affects_result = true,
          .on_resume = OnResume::kLive};
}

Fields fields_of_schedule(ConstantScheduler& /*schedule*/) { return {}; }
Fields fields_of_schedule(CosineScheduler& schedule) { return {min_lr_field(schedule.min_lr)}; }
Fields fields_of_schedule(LinearScheduler& schedule) { return {min_lr_field(schedule.min_lr)}; }
// ".step_size" of several schedulers, in steps or epochs.
Field step_size_field(uint64_t& target, std::string_view help) {
  return {.name = "step_size",
          .target = &target,
          .help = help,
          .details = "At least 1. Counted from the end of the warmup.",
          .min = 1,
          .max = kMaxSteps,
          .accepts_epochs = true,
          .affects_result = true};
}

Field gamma_field(double& target, std::string_view help) {
  return {.name = "gamma",
          .target = &target,
          .help = help,
          .details = "Above 0, at most 1000.",
          .min = 0,
          .max = 1e3,
          .exclusive_min = true,
          .affects_result = true};
}

Fields fields_of_schedule(StepScheduler& schedule) {
  return {step_size_field(schedule.step_size,
                          "Steps between two multiplications of the learning rate by gamma"),
          gamma_field(schedule.gamma,
                      "Factor that the learning rate is multiplied by every step_size steps")};
}

Fields fields_of_schedule(MultiStepScheduler& schedule) {
  return {{.name = "milestones",
           .target = &schedule.milestones,
           .help = "Steps at which the learning rate is multiplied by gamma",
           .details = "Increasing, each at least 1. Counted from the end of the warmup. "
                      "{epochs: [30, 60]} gives them in epochs.",
           .min = 1,
           .max = kMaxSteps,
           .accepts_epochs = true,
           .is_required = true,
           .affects_result = true,
           .example = "[30000, 60000]"},
          gamma_field(schedule.gamma,
                      "Factor that the learning rate is multiplied by at each milestone")};
}

Fields fields_of_schedule(ExponentialScheduler& schedule) {
  Field gamma = gamma_field(schedule.gamma, "Factor of the learning rate after step_size steps");
  gamma.is_required = true;
  gamma.example = "0.95";
  return {gamma, step_size_field(schedule.step_size,
                                 "Steps in which the learning rate changes by gamma, evenly")};
}

Fields fields_of_schedule(PolynomialScheduler& schedule) {
  return {{.name = "power",
           .target = &schedule.power,
           .help = "Exponent of the decay",
           .details = "Above 0, at most 100. 1 is a line.",
           .min = 0,
           .max = 100,
           .exclusive_min = true,
           .affects_result = true},
          min_lr_field(schedule.min_lr)};
}

Fields fields_of_schedule(OneCycleScheduler& schedule) {
  return {{.name = "pct_start",
           .target = &schedule.pct_start,
           .help = "Fraction of the steps in which the learning rate rises to optimizer.lr",
           .details = "Above 0, at most 0.999999; at most 0.5 with three_phase.",
           .min = 0,
           .max = 0.999999,
           .exclusive_min = true,
           .affects_result = true},
          {.name = "anneal_strategy",
           .target = choice(schedule.anneal_strategy),
           .help = "Form of the rise and the fall",
           .affects_result = true},
          {.name = "div_factor",
           .target = &schedule.div_factor,
           .help = "Ratio of optimizer.lr to the learning rate of the first step",
           .details = "At least 1, at most 1.0e9.",
           .min = 1,
           .max = 1e9,
           .affects_result = true},
          {.name = "final_div_factor",
           .target = &schedule.final_div_factor,
           .help = "Ratio of the learning rate of the first step to that of the last one",
           .details = "At least 1, at most 1.0e9.",
           .min = 1,
           .max = 1e9,
           .affects_result = true},
          {.name = "three_phase",
           .target = &schedule.three_phase,
           .help = "Fall to the learning rate of the first step as fast as it rose, then further",
           .details = "false: one fall after the rise. The momentum is constant, as with "
                      "cycle_momentum=False in PyTorch.",
           .affects_result = true}};
}

Fields fields_of_schedule(CosineWarmRestartsScheduler& schedule) {
  return {{.name = "t_0",
           .target = &schedule.t_0,
           .help = "Steps until the first restart of the cosine",
           .details = "At least 1. Counted from the end of the warmup.",
           .min = 1,
           .max = kMaxSteps,
           .accepts_epochs = true,
           .affects_result = true},
          {.name = "t_mult",
           .target = &schedule.t_mult,
           .help = "Factor of the steps from each restart to the next one",
           .details = "From 1 to 1000.",
           .min = 1,
           .max = 1000,
           .affects_result = true},
          min_lr_field(schedule.min_lr)};
}

Fields fields_of_schedule(ReduceOnPlateauScheduler& schedule) {
  const auto count = [](std::string_view name, uint64_t& target, std::string_view help) {
    return Field{.name = name,
                 .target = &target,
                 .help = help,
                 .details = "From 0 to 1000000.",
                 .min = 0,
                 .max = 1e6,
                 .affects_result = true};
  };
  Field reductions =
      count("num_reductions", schedule.num_reductions, "Reductions of the learning rate so far");
  reductions.details =
      "From 0 to 1000000. stokerd increases it during the run as a live setting, which checkpoints "
      "have; stokerctl set can, too.";
  reductions.on_resume = OnResume::kLive;
  return {
      {.name = "monitor",
       .target = choice(schedule.monitor),
       .help = "Values of which a plateau reduces the learning rate",
       .details =
           "train_loss: the mean training loss of every_steps steps. eval: eval.monitor, in the "
           "order of the steps of the evaluated checkpoints. Training does not wait for an "
           "evaluation: the learning rate is reduced when its result is there.",
       .affects_result = true},
      {.name = "every_steps",
       .target = &schedule.every_steps,
       .help = "Steps whose mean training loss is a value, with monitor train_loss",
       .details = "At least 1. metrics/train.jsonl has a record of each such step.",
       .min = 1,
       .max = kMaxSteps,
       .accepts_epochs = true,
       .affects_result = true},
      {.name = "factor",
       .target = &schedule.factor,
       .help = "Factor of the learning rate in a reduction",
       .details = "Above 0, at most 0.999999.",
       .min = 0,
       .max = 0.999999,
       .exclusive_min = true,
       .affects_result = true},
      count("patience", schedule.patience, "Values without improvement that change nothing"),
      {.name = "threshold",
       .target = &schedule.threshold,
       .help = "Difference from the best value that is an improvement",
       .details = "From 0 to 1.0e9.",
       .min = 0,
       .max = 1e9,
       .affects_result = true},
      {.name = "threshold_mode",
       .target = choice(schedule.threshold_mode),
       .help = "Meaning of threshold",
       .details = "rel: relative to the best value. abs: in the units of the value.",
       .affects_result = true},
      count("cooldown", schedule.cooldown, "Values after a reduction that are not counted"),
      {.name = "min_lr",
       .target = &schedule.min_lr,
       .help = "Smallest learning rate",
       .details = "From 0 to optimizer.lr.",
       .min = 0,
       .max = kMaxLr,
       .affects_result = true},
      reductions};
}

Fields scheduler_fields(SchedulerConfig& scheduler) {
  Fields fields;
  if (scheduler.has_warmup())
    fields = {{.name = "warmup_steps",
               .target = &scheduler.warmup_steps,
               .help = "Steps over which the learning rate rises linearly to optimizer.lr",
               .details = "From 0; 0 disables the warmup.",
               .min = 0,
               .max = kMaxSteps,
               .accepts_epochs = true,
               .affects_result = true},
              {.name = "warmup_start_factor",
               .target = &scheduler.warmup_start_factor,
               .help = "Learning rate of the first step of the warmup relative to optimizer.lr; "
                       "null: 1 / warmup_steps",
               .details =
                   "Above 0, at most 1. With a number, the step after the warmup is the first one "
                   "with optimizer.lr, as with PyTorch's LinearLR; with null, the last step of it.",
               .min = 0,
               .max = 1,
               .exclusive_min = true,
               .affects_result = true,
               .example = "0.01"}};
  return concat({fields, std::visit([](auto& each) { return fields_of_schedule(each); },
                                    scheduler.schedule)});
}

// ---- train ---------------------------------------------------------------------------------------

Fields step_fields(TrainConfig& train) {
  return {
      {.name = "max_steps",
       .target = &train.max_steps,
       .help = "Optimizer steps of the run",
       .details = "At least 1. A finished run continues if it is started again with a larger "
                  "number. The schedule is stretched over all steps.",
       .min = 1,
       .max = kMaxSteps,
       .accepts_epochs = true,
       .affects_result = true,
       .on_resume = OnResume::kLive},
      {.name = "max_epochs",
       .target = &train.max_epochs,
       .help = "Epochs of the run, instead of max_steps; null: max_steps",
       .details =
           "Above 0, at most 1000000000; 1.5 is an epoch and a half. The same as max_steps: "
           "{epochs: N}. An epoch has as many samples as data.train, counting repeat: its "
           "datasets together with mixture or concat. Not for a stream, which has no epochs.",
       .min = 0,
       .max = kMaxEpochs,
       .exclusive_min = true,
       .affects_result = true,
       .on_resume = OnResume::kLive,
       .example = "10"},
      {.name = "micro_batch_size",
       .target = &train.micro_batch_size,
       .help = "Samples per micro-batch",
       .details =
           "From 1 to 1000000. A step uses micro_batch_size * gradient_accumulation_steps samples.",
       .min = 1,
       .max = 1e6,
       .affects_result = true,
       .on_resume = OnResume::kBatch},
      {.name = "gradient_accumulation_steps",
       .target = &train.gradient_accumulation_steps,
       .help = "Micro-batches whose losses and gradients are summed to one step",
       .details = "From 1 to 1000000. Increase it for batches that do not fit into memory.",
       .min = 1,
       .max = 1e6,
       .affects_result = true,
       .on_resume = OnResume::kBatch}};
}

Fields device_fields(TrainConfig& train) {
  return {
      {.name = "device",
       .target = &train.device,
       .help = "Device of the training",
       .details = "auto: the first usable GPU, else the CPU; the log names the device and the "
                  "reason. cpu, cuda, cuda:N: exactly this device, or an error. GPUs: not yet run "
                  "on one, tested with a simulated device.",
       .example = "cuda:1"},
      {.name = "precision",
       .target = choice(train.precision),
       .help = "Number format of the forward pass",
       .details =
           "Weights, accumulated gradients and optimizer state are always fp32. fp32: single "
           "precision everywhere. tf32: on a GPU, matrix products and convolutions round their "
           "inputs to 10 bits; on the CPU the same as fp32. bf16: bfloat16 where PyTorch's "
           "autocast uses it; for GPUs that support it. fp16: half precision in the same "
           "operations, for GPUs without bfloat16; the loss is scaled as by PyTorch's "
           "GradScaler, and a step whose gradient overflows is counted and changes nothing. Not "
           "yet run on a GPU.",
       .affects_result = true}};
}

Fields gradient_fields(TrainConfig& train) {
  return {{.name = "max_grad_norm",
           .target = &train.max_grad_norm,
           .help = "Maximum gradient norm over all parameters; null disables clipping",
           .details = "Above 0. A larger gradient is scaled down to this norm. grad_norm in the "
                      "metrics is the norm before any clipping.",
           .min = 0,
           .max = 1e9,
           .exclusive_min = true,
           .affects_result = true},
          {.name = "max_grad_value",
           .target = &train.max_grad_value,
           .help = "Maximum absolute value of a gradient element; null disables clipping",
           .details = "Above 0. Each element is clamped to [-max_grad_value, max_grad_value] "
                      "before max_grad_norm is applied.",
           .min = 0,
           .max = 1e9,
           .exclusive_min = true,
           .affects_result = true},
          {.name = "ema_decay",
           .target = &train.ema_decay,
           .help = "Decay of the exponential moving average of the weights; null disables it",
           .details = "From 0 to 0.999999; 0.999 is common. The average often evaluates better "
                      "than the weights themselves (eval.use_ema). Costs the memory of the weights "
                      "a second time, in checkpoints too.",
           .min = 0,
           .max = 0.999999,
           .affects_result = true,
           .example = "0.999"},
          {.name = "ema_every_steps",
           .target = &train.ema_every_steps,
           .help = "Steps between two updates of the moving average",
           .details = "At least 1. The average is updated after each step whose number is a "
                      "multiple. Requires ema_decay, which applies to an update.",
           .min = 1,
           .max = kMaxSteps,
           .affects_result = true},
          {.name = "ema_warmup",
           .target = choice(train.ema_warmup),
           .help = "Rise of the decay of the moving average to ema_decay, or null: none",
           .details = "The decay after step n is at most (1 + n) / (10 + n) with num_updates, as "
                      "TensorFlow's ExponentialMovingAverage with that argument, and 1 - n^(-2/3) "
                      "with power, as timm's ModelEmaV3 with use_warmup. The initial weights then "
                      "soon have no share in the average. Requires ema_decay.",
           .affects_result = true,
           .example = "num_updates"}};
}

Fields fields_of_fused_kernels(FusedKernelsConfig& kernels) {
  return {
      {.name = "adamw",
       .target = &kernels.adamw,
       .help = "Update of AdamW together with the weights' copies in bf16",
       .details = "With precision bf16, Linear layers of transformers read these copies instead "
                  "of converting their weights in each step. Also in fp32 and fp16, where it "
                  "writes no copies.",
       .affects_result = true},
      {.name = "cross_entropy",
       .target = &kernels.cross_entropy,
       .help = "Loss of a language model and its gradient, without logits in fp32",
       .details = "Task language_modeling with models gpt, gpt2 and llama.",
       .affects_result = true},
      {.name = "gelu",
       .target = &kernels.gelu,
       .help = "GELU after a Linear layer, with the addition of its bias and the bias gradient",
       .details = "In the MLP of transformer blocks.",
       .affects_result = true},
      {.name = "norm",
       .target = &kernels.norm,
       .help = "LayerNorm and RMSNorm together with the residual addition before them",
       .details = "In transformers whose norms are in front of attention and MLP.",
       .affects_result = true},
      {.name = "rope",
       .target = &kernels.rope,
       .help = "Rotary position embeddings (RoPE)",
       .details = "In llama.",
       .affects_result = true},
      {.name = "swiglu",
       .target = &kernels.swiglu,
       .help = "SwiGLU, the activation silu(gate) * up of the MLP",
       .details = "In llama.",
       .affects_result = true}};
}

Fields speed_fields(TrainConfig& train) {
  return {
      {.name = "channels_last",
       .target = &train.channels_last,
       .help = "Store images and convolution weights in channels-last memory format",
       .details = "Often faster for convolutions on the CPU, and the layout of cuDNN's fast "
                  "kernels for bf16 and fp16 (not yet run on a GPU). Sums may differ in the last "
                  "digits.",
       .affects_result = true},
      {.name = "flush_denormal",
       .target = &train.flush_denormal,
       .help = "Round denormal numbers to 0 on the CPU",
       .details = "Denormal numbers make a CPU many times slower, and occur when a loss "
                  "approaches 0. No effect on a GPU.",
       .affects_result = true},
      {.name = "cuda_graphs",
       .target = choice(train.cuda_graphs),
       .help = "Capture steps as CUDA graphs",
       .details =
           "auto: on a GPU, steps are captured and replayed, which saves the host most of its "
           "work; if a model cannot be captured, the log gives the reason and its steps run "
           "without graphs. never: steps always run without graphs. No effect on the CPU. Not "
           "yet run on a GPU."},
      {.name = "fused_kernels",
       .target = mapping<fields_of_fused_kernels>(train.fused_kernels),
       .help = "Stoker's fused CUDA kernels that are used instead of LibTorch's",
       .details =
           "Operations that LibTorch computes in several kernels then read and write memory "
           "once; sums may differ in the last digits. All but adamw need precision bf16. The "
           "log names the enabled kernels, or the reason why this build or device has none. No "
           "effect on the CPU. Not yet run on a GPU, therefore off by default.",
       .affects_result = true},
      {.name = "num_threads",
       .target = &train.num_threads,
       .help = "LibTorch threads; null uses one per core that the affinity mask and the CPU "
               "quota allow",
       .details = "From 1 to 4096. On the CPU, another number changes the last digits of the "
                  "results: set it for runs that are compared bit for bit.",
       .min = 1,
       .max = 4096}};
}

Fields nonfinite_fields(TrainConfig& train) {
  return {
      {.name = "on_nonfinite",
       .target = choice(train.on_nonfinite),
       .help = "Action on a loss, gradient or buffer that is not finite",
       .details =
           "Buffers are, for example, the statistics of batch norm. fail: the run ends with "
           "exit code 65; its last checkpoint remains. skip_step: such a step leaves "
           "parameters, buffers, optimizer and moving average as they were, and its loss is "
           "ignored; costs a little time per step. rollback: the run returns to its last "
           "checkpoint and continues with a lower learning rate and the same samples; so that it "
           "does "
           "not depend on the disk, no save by steps is skipped, and training waits for the one "
           "before. The check runs when a step is reported or saved, before a save also on "
           "parameters "
           "and optimizer state, so a checkpoint never contains nonfinite values.",
       .affects_result = true},
      {.name = "max_nonfinite",
       .target = &train.max_nonfinite,
       .help = "Maximum number of nonfinite steps before the run fails",
       .details =
           "From 1 to 1000000. skip_step: consecutive steps. rollback: rollbacks in the run.",
       .min = 1,
       .max = 1e6},
      {.name = "rollback_lr_factor",
       .target = &train.rollback_lr_factor,
       .help = "Factor of the learning rate after a rollback",
       .details = "Above 0, at most 1. Applied at each rollback and permanent, also to an "
                  "optimizer.lr that is set later. Used with on_nonfinite: rollback.",
       .min = 0,
       .max = 1,
       .exclusive_min = true,
       .affects_result = true}};
}

}  // namespace

Section task_section(TaskConfig& task) {
  Variants variants = variants_by_name(task, &TaskConfig::task, kWords<TaskName>, task_fields);
  variants.noun = "task";
  variants.help = "Quantity that the model predicts";
  variants.details =
      "language_modeling: the next token; for gpt, gpt2, llama, lstm_lm, and sequential with an "
      "embedding as "
      "its first layer. classification: the class of a sample. binary_classification: which of "
      "two classes, with one logit. regression: the numbers of the target. "
      "multilabel_classification: a target of zeros and ones, each label independently. "
      "sequence_labeling: a label per time step; for blstm. ctc: a sequence of labels that is "
      "shorter than the input and not aligned with it; for blstm; class 0 is the blank. "
      "captioning: the words that describe an image; for captioner. custom: the loss of a model "
      "that "
      "computes its own, which is all that evaluation reports; for exported.";
  return {.key = "task",
          .help = "Prediction task and loss",
          .fields = task_fields(task),
          .variants = std::move(variants)};
}

Section optimizer_section(OptimizerConfig& optimizer) {
  Variants variants = variants_by_name(optimizer, &OptimizerConfig::method, kWords<OptimizerName>,
                                       optimizer_fields);
  variants.noun = "optimizer";
  variants.help = "Optimizer";
  variants.details =
      "Computed as PyTorch's optimizers of the same names. sgd: stochastic gradient descent, with "
      "or without momentum. adam, adamw: Adam with coupled and with decoupled weight decay. "
      "rmsprop, adagrad: learning rates per parameter from squared gradients. lion: the sign of a "
      "running mean of gradients (Chen et al., 2023). muon: orthogonalized momentum for the "
      "matrices of hidden layers, as torch.optim.Muon with adjust_lr_fn=\"match_rms_adamw\", and "
      "adamw for all other parameters. schedule_free_adamw: AdamW whose average replaces a "
      "schedule "
      "(Defazio et al., 2024); use scheduler constant, and eval.use_ema, which evaluates the "
      "average.";
  return {.key = "optimizer",
          .help = "Parameter updates",
          .fields = optimizer_fields(optimizer),
          .variants = std::move(variants)};
}

Section scheduler_section(SchedulerConfig& scheduler) {
  Variants variants = variants_by_name(scheduler, &SchedulerConfig::schedule, kWords<SchedulerName>,
                                       scheduler_fields);
  variants.noun = "scheduler";
  variants.help = "Learning rate schedule after the warmup";
  variants.details =
      "constant: optimizer.lr. cosine: decreases to min_lr along half a cosine. linear: decreases "
      "linearly to min_lr. step: is multiplied by gamma every step_size steps. reduce_on_plateau: "
      "is "
      "multiplied by factor when the training loss or eval.monitor no longer improves.";
  variants.on_resume = OnResume::kFree;
  return {.key = "scheduler",
          .help = "Learning rate over the run",
          .fields = scheduler_fields(scheduler),
          .variants = std::move(variants)};
}

Section train_section(TrainConfig& train) {
  return {.key = "train",
          .help = "Length of the run, batch size, device and numerics",
          .fields = concat({step_fields(train), device_fields(train), gradient_fields(train),
                            speed_fields(train), nonfinite_fields(train)}),
          .variants = {}};
}

Section distributed_section(DistributedConfig& distributed) {
  return {.key = "distributed",
          .help = "Sums over the micro-batches of a step, and the processes that share them",
          .fields =
              {{.name = "backend",
                .target = choice(distributed.backend),
                .help = "Library that connects the processes of a group",
                .details = "auto: nccl between NVIDIA GPUs, if each process has its own, else "
                           "gloo, which connects CPUs over TCP. gloo: train on the CPU. nccl: "
                           "on GPUs, or an error. Not yet run on GPUs."},
               {.name = "reduction",
                .target = choice(distributed.reduction),
                .help = "Order in which gradients and losses of micro-batches are added, or null",
                .details = "null: one after the other; for one process only. ordered: in a binary "
                           "tree over the micro-batches of a step, so that processes that share a "
                           "step get the same sums as one (docs/distributed.md). Costs a copy of "
                           "the gradients for each doubling of "
                           "train.gradient_accumulation_steps. allreduce: one after the other in "
                           "each process, then by the backend, during the backward pass; "
                           "faster between nodes, but the sums depend on the number of processes. "
                           "run.rng is per_ticket by default with both.",
                .affects_result = true},
               {.name = "shard",
                .target = choice(distributed.shard),
                .help = "State that is divided among the processes of a group",
                .details = "none: each process has all. optimizer: each has the optimizer state of "
                           "its part of the parameters, updates that part, and sends it to the "
                           "others (ZeRO-1). The results are the same; a checkpoint has a file of "
                           "each process, and resumes with any number of them, and without."},
               {.name = "interface",
                .target = &distributed.interface,
                .help = "Network interface on which the processes of a group listen",
                .details = "A name, such as eth0, or an address of this host. auto: the interface "
                           "of the route to rank 0; the loopback interface if all processes are "
                           "on one host. The connections have neither authentication nor "
                           "encryption."},
               {.name = "timeout_seconds",
                .target = &distributed.timeout_seconds,
                .help = "Time in seconds to wait for the other processes in a step",
                .details = "Above 0. Must be longer than the slowest step, including the wait for "
                           "its data. Then the process that is missed is reported, and all exit "
                           "with code 73.",
                .min = 0,
                .max = 1e6,
                .exclusive_min = true},
               {.name = "start_timeout_seconds",
                .target = &distributed.start_timeout_seconds,
                .help = "Time in seconds to wait for the other processes at the start",
                .details = "Above 0. Must be longer than reading the index of the data and "
                           "loading the checkpoint; with shard: optimizer also than writing one. "
                           "The chief of parameter servers is waited for as long as it runs.",
                .min = 0,
                .max = 1e6,
                .exclusive_min = true},
               {.name = "bucket_mib",
                .target = &distributed.bucket_mib,
                .help = "Size in MiB of the parts in which gradients are summed (allreduce)",
                .details = "Above 0. The first part is 1 MiB, so that its sum starts early. "
                           "PyTorch's DistributedDataParallel has the same default.",
                .min = 0,
                .max = 1e6,
                .exclusive_min = true,
                .affects_result = true},
               {.name = "stop_deadline_seconds",
                .target = &distributed.stop_deadline_seconds,
                .help = "Time in seconds from SIGTERM to the last checkpoint, or auto",
                .details = "For a process that a launcher or Kubernetes can stop. Then the process "
                           "exits without it, before it is killed. auto: 25, of the 30 seconds "
                           "that torchrun, Slurm and Kubernetes wait by default.",
                .min = 0,
                .max = 1e6,
                .exclusive_min = true,
                .null_word = "auto"},
               {.name = "preempted_exit_code",
                .target = &distributed.preempted_exit_code,
                .help = "Exit code after SIGTERM from a launcher or Kubernetes, or auto",
                .details = "For a launcher that starts a job again depending on it. auto: 143 "
                           "under Kubernetes, where 0 would complete the Job, otherwise 0.",
                .min = 0,
                .max = 255,
                .null_word = "auto"},
               {.name = "consistency_check_every_steps",
                .target = &distributed.consistency_check_every_steps,
                .help = "Steps between comparisons of the parameters of all processes, or null",
                .details = "A process whose parameters differ, after a fault of its memory or "
                           "processor, is reported, and all exit. Costs a checksum of the "
                           "parameters.",
                .min = 1}},
          .variants = {}};
}

Section cluster_section(ClusterConfig& cluster) {
  return {
      .key = "cluster",
      .help = "Parameter servers and workers that train one run, as TensorFlow's ClusterSpec",
      .fields =
          {{.name = "ps",
            .target = &cluster.ps,
            .help = "Addresses of the parameter servers: host:port of each",
            .details = "Each process then needs its task: --job_name and --task_index, or "
                       "TF_CONFIG. --ps_hosts and --worker_hosts, or the cluster of TF_CONFIG, "
                       "are alternatives to ps and worker; where both are given, they must be "
                       "equal. See docs/distributed.md.",
            .example = "[ps0.example.com:2222, ps1.example.com:2222]"},
           {.name = "worker",
            .target = &cluster.worker,
            .help = "Addresses of the workers: host:port of each; the first one is the chief",
            .example = "[worker0.example.com:2222, worker1.example.com:2222]"},
           {.name = "replicas",
            .target = choice(cluster.replicas),
            .help = "Updates by the workers together, or by each on its own; null: sync",
            .details = "sync: a step adds train.gradient_accumulation_steps gradients of the same "
                       "parameters. async: each gradient is a step. null: as --replicas, which "
                       "otherwise must be equal.",
            .affects_result = true},
           {.name = "max_staleness",
            .target = &cluster.max_staleness,
            .help = "Most updates between the parameters of a gradient and its own (async)",
            .details = "null: as --max-staleness, or no bound.",
            .affects_result = true},
           {.name = "placement",
            .target = choice(cluster.placement),
            .help = "Distribution of the variables over the parameter servers; null: round_robin",
            .details = "round_robin: one variable after the other, in the order of the model. "
                       "bytes: each on the server that has the fewest bytes so far. null: as "
                       "--placement, which otherwise must be equal. With replicas: sync the "
                       "results are the same."}},
      .variants = {}};
}

}  // namespace stoker::config
