#include "evaluator/checkpoint_evaluator.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "evaluator/batched_dataset.h"
#include "evaluator/caption_artifacts.h"
#include "evaluator/classification_artifacts.h"
#include "evaluator/evaluation_limit.h"
#include "evaluator/load_class_mapping.h"
#include "shared/base/cgroup.h"
#include "shared/base/exception_status.h"
#include "shared/base/log.h"
#include "shared/checkpoint/store.h"
#include "shared/model/load_weights.h"
#include "shared/model/lora.h"
#include "shared/model/model.h"
#include "shared/model/model_file.h"
#include "shared/model/torch_status.h"
#include "shared/model/torch_threads.h"
#include "shared/pretrained/state_dict_mapping.h"
#include "shared/task/generate_tokens.h"
#include "shared/task/task.h"
#include "shared/tokenizer/tokenizer.h"

namespace stoker::evaluator {
namespace {

Status to_status(const std::exception& error, const std::string& what) {
  if (const auto* torch = dynamic_cast<const c10::Error*>(&error))
    return model::to_status(*torch, what);
  return stoker::to_status(error).with_context(what);
}

// Data that does not fit, or samples that cannot be read, are no fault of the checkpoint: kCorrupt,
// kOutOfMemory, or of the system, kIoError.
Status data_error(const std::string& dataset, const Status& status) {
  const bool is_kept =
      status.code() == StatusCode::kCorrupt || status.code() == StatusCode::kOutOfMemory;
  const StatusCode code = status.code() == StatusCode::kMismatch ? StatusCode::kCorrupt
                          : is_kept                              ? status.code()
                                                                 : StatusCode::kIoError;
  return Status(code, "dataset " + dataset + ": " + status.message());
}

struct Weights {
  const checkpoint::SafetensorsFile& tensors;
  std::string path;
  uint64_t step = 0;
  std::string manifest_sha256;
};

// Resolves task.class_weights: balanced to the values stored in the checkpoint.
Result<config::TaskConfig> resolve_class_weights(const config::TaskConfig& task,
                                                 const checkpoint::VerifiedCheckpoint& saved) {
  config::TaskConfig resolved = task;
  auto& weights = std::get<config::ClassificationTask>(resolved.task).class_weights;
  STOKER_ASSIGN_OR_RETURN(weights.values, checkpoint::read_class_weights(saved));
  if (!weights.values.empty()) return resolved;
  return Status(StatusCode::kMismatch,
                saved.path() +
                    ": has no class weights, because task.class_weights was "
                    "not balanced; set task.class_weights to a list of values");
}

// ---- Text generation

// The tokens of a prompt: at least one, which the model needs. Null: they are bytes.
Result<std::vector<int32_t>> encode_prompt(
    const std::shared_ptr<const tokenizer::Tokenizer>& maybe_tokenizer, const std::string& prompt) {
  std::vector<int32_t> tokens;
  if (!maybe_tokenizer) {
    for (const char byte : prompt.empty() ? "\n" : prompt)
      tokens.push_back(static_cast<unsigned char>(byte));
    return tokens;
  }
  if (prompt.empty() && maybe_tokenizer->end_token())
    return std::vector<int32_t>{*maybe_tokenizer->end_token()};
  STOKER_RETURN_IF_ERROR(tokenizer::TextEncoder(maybe_tokenizer)
                             .encode(prompt.empty() ? "\n" : prompt, tokens)
                             .with_context("the prompt"));
  if (tokens.empty()) tokens.push_back(0);  // SentencePiece removes spaces
  return tokens;
}

task::Generation to_generation(const config::GenerateConfig& generate, uint64_t seed) {
  return {.sampling = {.temperature = generate.temperature,
                       .top_k = generate.top_k,
                       .top_p = generate.top_p},
          .max_new_tokens = generate.max_new_tokens,
          .seed = seed};
}

// The text that continues `prompt`. The end token of a tokenizer ends it. Exceptions of LibTorch are
// propagated.
Result<std::string> continue_text(
    model::Model& model, const std::shared_ptr<const tokenizer::Tokenizer>& maybe_tokenizer,
    const std::string& prompt, task::Generation generation) {
  STOKER_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt_tokens,
                          encode_prompt(maybe_tokenizer, prompt));
  const at::Tensor tokens = at::empty({1, static_cast<int64_t>(prompt_tokens.size())}, at::kLong);
  std::ranges::copy(prompt_tokens, tokens.mutable_data_ptr<int64_t>());
  if (maybe_tokenizer) generation.end = maybe_tokenizer->end_token();
  std::string text;
  const auto generated = task::generate_tokens(model, tokens, generation);
  for (const int64_t token : generated.front()) {
    if (maybe_tokenizer)
      text += maybe_tokenizer->bytes_of(static_cast<int32_t>(token));
    else
      text += static_cast<char>(token);
  }
  return text;
}

}  // namespace

struct CheckpointEvaluator::State {
  State(config::Config options, Clock& time) : config(std::move(options)), clock(time) {}

  Result<eval_metrics::EvalReport> evaluate_dataset(BatchedDataset& dataset,
                                                    EvaluationLimit& limit) {
    SampleBatches& batches = dataset.batches;
    // Allocated per evaluation, so that running out of memory fails only this checkpoint.
    SampleBatches::Memory memory;
    const auto evaluation = dataset.task->start_evaluation(
        {.top_k = config.eval.top_k.value_or(0),
         .misclassified = static_cast<size_t>(config.eval.num_misclassified),
         .num_beams = config.eval.generate ? config.eval.generate->num_beams : 1,
         .captions = kShownCaptions,
         .class_names = caption_words(*dataset.data)});
    const uint64_t before = samples_before(dataset), total = num_samples();
    for (size_t number = 0; number < batches.size(); ++number) {
      pause(limit);
      const uint64_t first = batches.first_position(number);
      if (on_progress) on_progress(before + first, total);
      STOKER_RETURN_IF_ERROR(limit.check("sample " + std::to_string(first) + " of " +
                                         std::to_string(batches.samples()) + " of " +
                                         dataset.name));
      const auto tensors = batches.read(number, memory);
      if (!tensors.ok()) return data_error(dataset.name, tensors.status());
      if (!tensors->empty()) evaluation->add(*model, *tensors);
    }
    if (batches.quarantined() == batches.samples())
      return Status(StatusCode::kCorrupt,
                    "dataset " + dataset.name + ": every sample is quarantined");
    eval_metrics::EvalReport report = evaluation->report();
    for (eval_metrics::MisclassifiedSample& misclassified_sample : report.misclassified)
      misclassified_sample.sample = batches.evaluated_sample(misclassified_sample.sample);
    for (eval_metrics::CaptionedSample& captioned_sample : report.captions)
      captioned_sample.sample = batches.evaluated_sample(captioned_sample.sample);
    return report;
  }

  // Of the datasets that are evaluated earlier.
  uint64_t samples_before(const BatchedDataset& dataset) const {
    uint64_t sum = 0;
    for (const BatchedDataset& one : datasets) {
      if (&one == &dataset) break;
      sum += one.batches.samples();
    }
    return sum;
  }
  uint64_t num_samples() const {
    return samples_before(datasets.back()) + datasets.back().batches.samples();
  }

  // Only for captions, because there can be many words.
  std::vector<std::string> caption_words(const data::Dataset& data) const {
    if (config.task.name() != config::TaskName::kCaptioning) return {};
    return data.class_names();
  }

  void pause(EvaluationLimit& limit) const {
    if (pause_between_batches) limit.extend(pause_between_batches(limit.stop()));
  }

  // Whether the tokens of the model are known as text.
  bool can_generate_text() const {
    return config.task.name() == config::TaskName::kLanguageModeling &&
           (maybe_tokenizer || model->vocab() == 256);
  }

  // Generates text if the model is a language model over bytes, or with a tokenizer, and
  // eval.generate is set.
  Result<std::optional<Artifact>> generate_artifact(EvaluationLimit& limit) {
    if (!can_generate_text() || !config.eval.generate) return std::optional<Artifact>();
    const config::GenerateConfig& generate = *config.eval.generate;
    task::Generation generation = to_generation(generate, config.run.seed);
    generation.should_continue = [&] {
      pause(limit);
      return !limit.stop().stop_requested();
    };
    STOKER_ASSIGN_OR_RETURN(const std::string text,
                            continue_text(*model, maybe_tokenizer, generate.prompt, generation));
    STOKER_RETURN_IF_ERROR(limit.check("text generation"));
    return std::optional<Artifact>(
        {datasets.front().name, ArtifactKind::kGeneratedText, generate.prompt + text});
  }

  Result<Evaluation> evaluate(const Weights& weights, bool with_artifacts, EvaluationLimit& limit) {
    const auto start = clock.monotonic();
    meter.begin(start, worker_use());
    Evaluation evaluation;
    evaluation.result.step = weights.step;
    evaluation.result.manifest_sha256 = weights.manifest_sha256;
    STOKER_RETURN_IF_ERROR(model::load_weights(*model, weights.tensors).with_context(weights.path));
    for (BatchedDataset& dataset : datasets) {
      STOKER_ASSIGN_OR_RETURN(eval_metrics::EvalReport report, evaluate_dataset(dataset, limit));
      name_classes(*dataset.data, report);
      run::DatasetResult& result = evaluation.result.datasets.emplace_back();
      result = {.dataset = dataset.name,
                .samples = dataset.batches.samples() - dataset.batches.quarantined(),
                .metrics = std::move(report.metrics),
                .classes = std::move(report.classes),
                .confusion_matrix = std::move(report.confusion_matrix),
                .pr_curves = std::move(report.pr_curves),
                .quarantined = dataset.batches.quarantined()};
      if (!with_artifacts) continue;
      auto artifacts =
          report.captions.empty()
              ? dataset_artifacts(*dataset.data, result, report.misclassified)
              : caption_artifacts(*dataset.data, dataset.name, weights.step, report.captions);
      if (!artifacts.ok())
        log_warn("artifacts not created", {{"error", artifacts.status().to_string()}});
      if (artifacts.ok())
        evaluation.artifacts = append(std::move(evaluation.artifacts), *std::move(artifacts));
    }
    if (with_artifacts) {
      STOKER_ASSIGN_OR_RETURN(auto sample, generate_artifact(limit));
      if (sample) evaluation.artifacts.push_back(*std::move(sample));
    }
    const auto end = clock.monotonic();
    evaluation.result.seconds = seconds_between(start, end);
    evaluation.result.resources = meter.measure(end, worker_use());
    evaluation.result.created = to_iso8601(clock.wall());
    return evaluation;
  }

  // Of the processes that read the datasets.
  ProcessUse worker_use() const {
    ProcessUse sum;
    for (const BatchedDataset& dataset : datasets)
      if (dataset.worker_use) sum = sum + dataset.worker_use();
    return sum;
  }

  static std::vector<Artifact> append(std::vector<Artifact> first, std::vector<Artifact> more) {
    std::ranges::move(more, std::back_inserter(first));
    return first;
  }

  // Converts LibTorch exceptions to Status.
  Result<Evaluation> try_evaluate(const Weights& weights, bool with_artifacts,
                                  std::stop_token stop) {
    EvaluationLimit limit(clock, config.eval.timeout_seconds, std::move(stop));
    try {
      const at::NoGradGuard no_grad;
      return evaluate(weights, with_artifacts, limit);
    } catch (const std::exception& error) {
      return to_status(error, weights.path);
    }
  }

  Result<Evaluation> evaluate_checkpoint(const checkpoint::VerifiedCheckpoint& checkpoint,
                                         bool with_artifacts, std::stop_token stop) {
    STOKER_RETURN_IF_ERROR(compute_class_weights(checkpoint));
    STOKER_ASSIGN_OR_RETURN(const auto tensors, open_weights(checkpoint));
    STOKER_ASSIGN_OR_RETURN(Evaluation evaluation,
                            try_evaluate({*tensors, checkpoint.path() + '/' + weights_file(),
                                          checkpoint.manifest().step, checkpoint.manifest_sha256()},
                                         with_artifacts, std::move(stop)));
    evaluation.result.maybe_use_ema = config.eval.use_ema;
    return evaluation;
  }

  // Uses the class weights of the training run that saved the checkpoint.
  Status compute_class_weights(const checkpoint::VerifiedCheckpoint& checkpoint) {
    if (!config.task.has_balanced_weights()) return {};
    STOKER_ASSIGN_OR_RETURN(const auto resolved, resolve_class_weights(config.task, checkpoint));
    try {
      for (BatchedDataset& dataset : datasets) {
        STOKER_ASSIGN_OR_RETURN(
            dataset.task,
            task::make_task(resolved, config::training_normalization(config), dataset.data->spec(),
                            dataset.data->classes(), {}, config.model.has_loss()));
      }
    } catch (const std::exception& error) {
      return to_status(error, checkpoint.path());
    }
    return {};
  }

  // eval.use_ema selects the averaged or the raw weights.
  std::string weights_file() const {
    return config.eval.use_ema ? "ema.safetensors" : "model.safetensors";
  }
  std::string user_file_path() const {
    const std::string* const path = config.model.user_file_path();
    return path == nullptr ? std::string() : *path;
  }
  std::string tokenizer_path() const {
    const config::TokenizerConfig* const tokenizer = config::training_tokenizer(config);
    return tokenizer == nullptr ? "the configuration" : tokenizer->path;
  }
  // An adapter belongs to the weights that it was trained with.
  Status check_base(const checkpoint::VerifiedCheckpoint& checkpoint) const {
    const checkpoint::BaseWeights& base = *checkpoint.manifest().base_weights;
    if (!config.model.lora)
      return Status(StatusCode::kMismatch, checkpoint.path() +
                                               ": has an adapter only; set model.lora and "
                                               "model.pretrained as the run has them");
    const config::LoraConfig& lora = *config.model.lora;
    if (lora.r != base.r || lora.lora_alpha != base.lora_alpha)
      return Status(
          StatusCode::kMismatch,
          checkpoint.path() +
              ": was saved with another model.lora.r or lora_alpha than the "
              "configuration has; set them as base_weights in its manifest.json has them");
    return model::check_same_file(base.sha256, base_sha256, config.model.pretrained->path,
                                  "model.pretrained.path")
        .with_context(checkpoint.path());
  }
  Result<std::unique_ptr<checkpoint::SafetensorsFile>> open_weights(
      const checkpoint::VerifiedCheckpoint& checkpoint) const {
    STOKER_RETURN_IF_ERROR(
        model::check_same_file(checkpoint.manifest().model_file, model_file, user_file_path())
            .with_context(checkpoint.path()));
    if (checkpoint.manifest().base_weights) STOKER_RETURN_IF_ERROR(check_base(checkpoint));
    STOKER_RETURN_IF_ERROR(
        model::check_same_file(checkpoint.manifest().tokenizer,
                               maybe_tokenizer ? maybe_tokenizer->digest() : std::string(),
                               tokenizer_path(), "data.train.tokenizer.path")
            .with_context(checkpoint.path()));
    auto opened = checkpoint.open_tensors(weights_file());
    if (opened.status().code() != StatusCode::kNotFound || !config.eval.use_ema) return opened;
    return Status(StatusCode::kMismatch,
                  checkpoint.path() +
                      ": has no averaged weights, because it was saved without train.ema_decay and "
                      "without optimizer schedule_free_adamw; set eval.use_ema: false");
  }

  const config::Config config;
  Clock& clock;
  ResourceMeter meter;
  std::vector<BatchedDataset> datasets;
  model::ModelPtr model;
  std::string model_file;   // checksum, as in Manifest
  std::string base_sha256;  // the same, with model.lora
  std::shared_ptr<const tokenizer::Tokenizer>
      maybe_tokenizer;  // null: tokens are bytes, or unknown
  Pause pause_between_batches;
  OnProgress on_progress;
};

void CheckpointEvaluator::pause_between_batches(Pause pause) {
  state_->pause_between_batches = std::move(pause);
}

void CheckpointEvaluator::report_progress(OnProgress on_progress) {
  state_->on_progress = std::move(on_progress);
}

CheckpointEvaluator::CheckpointEvaluator(std::unique_ptr<State> state) : state_(std::move(state)) {}
CheckpointEvaluator::~CheckpointEvaluator() = default;

Result<std::unique_ptr<CheckpointEvaluator>> CheckpointEvaluator::create(
    const config::Config& options, const Indexes& indexes, Clock& clock,
    const std::string& feed_program, const std::stop_token& stop) {
  STOKER_RETURN_IF_ERROR(model::start_threads(options.eval.num_threads ? *options.eval.num_threads
                                                                       : num_usable_cores()));
  if (options.eval.datasets.empty())
    return Status(StatusCode::kInvalidArgument,
                  "eval.datasets: is empty; set it to the datasets to evaluate on");
  STOKER_RETURN_IF_ERROR(model::check_eval_batch_size(options.model, options.eval));
  std::unique_ptr<State> state;
  try {
    config::Config config = options;
    std::shared_ptr<const tokenizer::Tokenizer> maybe_tokenizer;
    if (const config::TokenizerConfig* const tokenizer = config::training_tokenizer(config)) {
      STOKER_ASSIGN_OR_RETURN(maybe_tokenizer, tokenizer::Tokenizer::read(tokenizer->path));
      // The tokens of other data, such as files of tokens, are those of the tokenizer too.
      if (auto* const vocabulary = config.model.output_vocabulary(); vocabulary && !*vocabulary)
        *vocabulary = static_cast<int64_t>(maybe_tokenizer->size());
    }
    state = std::make_unique<State>(config, clock);
    state->maybe_tokenizer = std::move(maybe_tokenizer);
    data::record::ClassMapping train;
    if (!indexes.train.empty()) train = load_class_mapping(config, indexes.train);
    STOKER_ASSIGN_OR_RETURN(state->datasets,
                            open_batched_datasets(config, indexes.own, train, feed_program, stop));
    const data::Dataset& first = *state->datasets.front().data;
    STOKER_ASSIGN_OR_RETURN(state->model_file, model::file_digest(config.model));
    config::ModelConfig model = config.model;
    model.init.clear();  // weights are always loaded, and drawing them can take minutes
    STOKER_ASSIGN_OR_RETURN(state->model, model::make_model(model, first.spec(), first.classes()));
    if (model.lora) {
      model.lora->path.reset();  // checkpoints have the adapter
      pretrained::StateDictMapping mapping;
      STOKER_RETURN_IF_ERROR(model::load_pretrained(*state->model, model, mapping));
      state->base_sha256 = model::base_digest(*state->model);
    }
    state->model->eval();
  } catch (const std::exception& error) {
    return to_status(error, "prepare the evaluation");
  }
  return std::unique_ptr<CheckpointEvaluator>(new CheckpointEvaluator(std::move(state)));
}

Result<Evaluation> CheckpointEvaluator::evaluate(const checkpoint::VerifiedCheckpoint& checkpoint,
                                                 std::stop_token stop) {
  return state_->evaluate_checkpoint(checkpoint, true, std::move(stop));
}

Result<run::EvalResult> CheckpointEvaluator::measure(
    const checkpoint::VerifiedCheckpoint& checkpoint, std::stop_token stop) {
  STOKER_ASSIGN_OR_RETURN(Evaluation evaluation,
                          state_->evaluate_checkpoint(checkpoint, false, std::move(stop)));
  return std::move(evaluation.result);
}

Result<run::EvalResult> CheckpointEvaluator::measure_file(const std::string& safetensors_path,
                                                          std::stop_token stop) {
  if (state_->config.task.has_balanced_weights())
    return Status(
        StatusCode::kInvalidArgument,
        safetensors_path +
            ": weights alone do not say what task.class_weights: balanced resolved to; give "
            "the checkpoint's folder, or a list with --set task.class_weights=[…]");
  STOKER_ASSIGN_OR_RETURN(const auto tensors, checkpoint::SafetensorsFile::open(safetensors_path));
  STOKER_ASSIGN_OR_RETURN(
      Evaluation evaluation,
      state_->try_evaluate({*tensors, safetensors_path, 0, ""}, false, std::move(stop)));
  return std::move(evaluation.result);
}

Result<std::string> CheckpointEvaluator::generate_text(
    const checkpoint::VerifiedCheckpoint& checkpoint, const config::GenerateConfig& generate) {
  if (!state_->can_generate_text())
    return Status(StatusCode::kInvalidArgument,
                  "--generate: requires a language model with data.train.tokenizer, or over bytes "
                  "(model.vocab_size 256)");
  try {
    const at::NoGradGuard no_grad;
    STOKER_ASSIGN_OR_RETURN(const auto weights, state_->open_weights(checkpoint));
    STOKER_RETURN_IF_ERROR(model::load_weights(*state_->model, *weights)
                               .with_context(checkpoint.path() + '/' + state_->weights_file()));
    return continue_text(*state_->model, state_->maybe_tokenizer, generate.prompt,
                         to_generation(generate, state_->config.run.seed));
  } catch (const std::exception& error) {
    return to_status(error, checkpoint.path());
  }
}

}  // namespace stoker::evaluator
