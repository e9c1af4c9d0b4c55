#include "shared/config/validation.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <type_traits>
#include <variant>

#include "shared/base/glob.h"
#include "shared/base/log_events.h"
#include "shared/base/number_format.h"
#include "shared/config/http_listen.h"
#include "shared/config/run_metrics.h"
#include "shared/eval_metrics/entity_metrics.h"

namespace stoker::config {
namespace {

constexpr int64_t kNumByteValues = 256;

bool needs_token_model(const Config& config) { return config.model.is_language_model(); }

class Validator {
 public:
  Validator(const Config& config, const ExplicitKeys& keys, ConfigErrors& errors)
      : config_(config), keys_(keys), errors_(errors) {}

  void run() {
    if (config_.run.dir.empty()) add_error("run.dir", "must not be empty");
    validate_event_commands();
    if (config_.control.socket && config_.control.socket->empty())
      add_error("control.socket", "must be auto, the path of a socket, or null");
    if (config_.http.listen)
      if (const auto listen = parse_http_listen(*config_.http.listen); !listen.ok())
        add_error("http.listen", listen.status().message());
    validate_cluster();
    validate_data(config_, keys_, errors_);
    validate_feed();
    if (!errors_.has_error_for("model.name")) validate_model();
    validate_init();
    validate_pretrained();
    validate_lora();
    validate_layer_decay();
    validate_sequences();
    // What a model from a user file accepts is known only after loading.
    const bool is_known = !config_.model.is_user_file();
    if (is_known && !errors_.has_error_for("task.name") && !errors_.has_error_for("model.name")) {
      validate_task_and_model();
      if (!errors_.has_error_for("task.name")) validate_model_and_data();
    }
    validate_masks();
    if (!errors_.has_error_for("model.name")) validate_packing();
    if (!errors_.has_error_for("task.name")) {
      validate_predicted_labels();
      validate_batch_transforms();
    }
    validate_own_loss();
    if (!errors_.has_error_for("task.name"))
      std::visit([this](const auto& task) { validate_loss(task); }, config_.task.task);
    validate_num_outputs();
    validate_class_weights();
    validate_optimizer();
    validate_eval();
  }

 private:
  void add_error(const std::string& key, const std::string& message) {
    if (errors_.has_error_for(key) || errors_.names_key_with_error(message)) return;
    errors_.add(keys_.location_of(key), key, message);
  }
  template <typename T>
  const T* model() const {
    return std::get_if<T>(&config_.model.arch);
  }

  void validate_cluster() {
    const ClusterConfig& cluster = config_.cluster;
    std::set<std::string> known;
    const auto validate_tasks = [&](const std::string& key, const std::vector<std::string>& tasks,
                                    bool is_required) {
      if (tasks.empty() && is_required)
        add_error(key, "must not be empty; a cluster has parameter servers and workers");
      for (const std::string& address : tasks) {
        if (!is_task_address(address))
          add_error(key, "must be host:port with a port from 1 to 65535, got " + quoted(address));
        else if (!known.insert(address).second)
          add_error(key, quoted(address) + " is the address of two tasks; give each its own");
      }
    };
    validate_tasks("cluster.ps", cluster.ps, !cluster.worker.empty());
    validate_tasks("cluster.worker", cluster.worker, !cluster.ps.empty());
    if (cluster.max_staleness && cluster.replicas == ReplicaMode::kSync)
      add_error("cluster.max_staleness", "must be null with replicas: sync");
  }

  void validate_event_commands() {
    for (size_t i = 0; i < config_.run.on_event_command.size(); ++i) {
      const EventCommand& item = config_.run.on_event_command[i];
      const std::string key = "run.on_event_command[" + std::to_string(i) + "]";
      if (item.command.empty() || item.command.front().empty())
        add_error(key + ".command", "must start with a program");
      for (const std::string& pattern : item.events)
        if (!matches_event(pattern))
          add_error(key + ".events", quoted(pattern) +
                                         " matches no event of level info or above; docs/events.md "
                                         "lists them");
    }
  }
  static bool matches_event(const std::string& pattern) {
    const NameGlob glob(pattern);
    return std::ranges::any_of(log_events::kAll, [&glob](const LogEventInfo& event) {
      return event.levels != log_events::kDebug && glob.matches(event.name);
    });
  }

  // A number of a loss that is not selected would have no effect.
  void require_loss(const char* key, bool is_default, bool is_selected, const char* loss) {
    if (!is_default && !is_selected)
      add_error(std::string("task.") + key, std::string("requires task.loss ") + loss);
  }
  template <typename Task>
  void validate_loss(const Task& task) {
    const Task defaults;
    if constexpr (requires { task.gamma; }) {
      const bool is_focal = task.loss == decltype(task.loss)::kFocal;
      require_loss("gamma", task.gamma == defaults.gamma, is_focal, "focal");
      if constexpr (requires { task.alpha; })
        require_loss("alpha", task.alpha == defaults.alpha, is_focal, "focal");
      if constexpr (requires { task.pos_weight; }) validate_dice(task);
      if constexpr (requires { task.tags; }) validate_tags(task.tags);
      if constexpr (requires { task.label_smoothing; })
        if (is_focal && task.label_smoothing > 0)
          add_error("task.label_smoothing", "must be 0 with task.loss focal");
      const auto train = config_.data.find("train");
      if (is_focal && train != config_.data.end() && !train->second.batch_transforms.empty())
        add_error("data.train.batch_transforms",
                  "mixup and cutmix cannot be combined with task.loss focal");
    } else if constexpr (std::is_same_v<Task, RegressionTask>) {
      require_loss("delta", task.delta == defaults.delta, task.loss == RegressionLoss::kHuber,
                   "huber");
      require_loss("beta", task.beta == defaults.beta, task.loss == RegressionLoss::kSmoothL1,
                   "smooth_l1");
      require_loss("quantile", task.quantile == defaults.quantile,
                   task.loss == RegressionLoss::kQuantile, "quantile");
    }
  }

  template <typename Task>
  void validate_dice(const Task& task) {
    const bool is_dice = task.loss == BinaryLoss::kDice;
    if constexpr (requires { task.smooth; })
      require_loss("smooth", task.smooth == Task().smooth, is_dice, "dice");
    else if (is_dice)
      add_error(
          "task.loss",
          "dice compares the labels of a sample, of which task binary_classification has one; "
          "set task.name: multilabel_classification, or bce or focal");
    if (is_dice && task.pos_weight != Task().pos_weight)
      add_error("task.pos_weight", "has no effect on task.loss dice; remove it");
  }

  void validate_tags(const std::vector<std::string>& tags) {
    std::set<std::string> seen;
    for (const std::string& tag : tags) {
      if (!eval_metrics::is_entity_tag(tag))
        add_error("task.tags", "has " + quoted(tag) +
                                   ", which is neither O nor B, I, E or S with a "
                                   "type, such as B-PER; correct it");
      else if (!seen.insert(tag).second)
        add_error("task.tags", "has " + quoted(tag) + " twice; remove one");
    }
  }

  void validate_own_loss() {
    if (errors_.has_error_for("model.name")) return;
    const bool is_plugin = std::holds_alternative<PluginConfig>(config_.model.arch);
    if (config_.task.name() == TaskName::kCustom && !config_.model.has_loss() && !is_plugin)
      add_error("task.name",
                "custom reports the loss of a model that computes its own, which only "
                "model.name exported and plugin do");
    if (!config_.model.has_loss()) return;
    if (!config_.model.init.empty())
      add_error("model.init",
                "an exported model starts with the weights that its Python module had");
    const bool has_defaults = std::visit(
        [](const auto& task) { return task == std::decay_t<decltype(task)>(); }, config_.task.task);
    const std::string no_effect =
        "has no effect on an exported model, which has its own loss and outputs; ";
    if (!has_defaults) add_error("task", no_effect + "keep only task.name");
    const bool is_derived = config_.task.name() == TaskName::kBinaryClassification;
    if (config_.model.num_classes && !is_derived)
      add_error("model.num_classes", no_effect + "remove it");
    if (const auto train = config_.data.find("train");
        train != config_.data.end() && !train->second.batch_transforms.empty())
      add_error(
          "data.train.batch_transforms",
          "mixup and CutMix change labels, which the loss of an exported model does not take");
  }

  void validate_feed() {
    const FeedConfig& feed = config_.feed;
    const FeedConfig defaults;
    if (feed.shuffle != ShuffleMode::kBlock &&
        feed.shuffle_block_size != defaults.shuffle_block_size)
      add_error("feed.shuffle_block_size", "requires feed.shuffle block; remove it");
    if (feed.shuffle != ShuffleMode::kShards &&
        feed.shuffle_open_shards != defaults.shuffle_open_shards)
      add_error("feed.shuffle_open_shards", "requires feed.shuffle shards; remove it");
    if (feed.num_workers && feed.num_processes > *feed.num_workers)
      add_error("feed.num_processes",
                "must be at most feed.num_workers (" + std::to_string(*feed.num_workers) +
                    "), got " + std::to_string(feed.num_processes) + "; raise feed.num_workers");
  }

  // ---- model -------------------------------------------------------------------------------------

  void validate_heads(const char* width_key, int64_t width, int64_t heads) {
    if (width % heads != 0)
      add_error(width_key, "must be a multiple of model.num_heads (" + std::to_string(heads) +
                               "), got " + std::to_string(width));
  }

  void validate_llama(const LlamaConfig& llama) {
    const int64_t groups = llama.effective_num_key_value_heads();
    if (llama.num_heads % groups != 0)
      add_error("model.num_key_value_heads", "must divide model.num_heads (" +
                                                 std::to_string(llama.num_heads) + "), got " +
                                                 std::to_string(groups));
    if (!llama.head_dim) validate_heads("model.embed_dim", llama.embed_dim, llama.num_heads);
    if (llama.effective_head_dim() % 2 != 0 && !errors_.has_error_for("model.embed_dim"))
      add_error(llama.head_dim ? "model.head_dim" : "model.embed_dim",
                "must make the size of a head an even number, got " +
                    std::to_string(llama.effective_head_dim()));
    if (llama.rope_scaling && llama.rope_scaling->rope_type == RopeType::kLlama3 &&
        llama.rope_scaling->low_freq_factor >= llama.rope_scaling->high_freq_factor)
      add_error("model.rope_scaling.high_freq_factor", "must be above low_freq_factor");
  }

  void validate_pad_token(std::optional<int64_t> token, std::optional<int64_t> vocab_size) {
    if (token && vocab_size && *token >= *vocab_size)
      add_error("model.pad_token", "must be below model.vocab_size (" +
                                       std::to_string(*vocab_size) + "), got " +
                                       std::to_string(*token));
  }

  void validate_model() {
    if (const auto* const gpt = model<GptConfig>())
      validate_heads("model.embed_dim", gpt->embed_dim, gpt->num_heads);
    if (const auto* const gpt2 = model<Gpt2Config>())
      validate_heads("model.embed_dim", gpt2->embed_dim, gpt2->num_heads);
    if (const auto* const llama = model<LlamaConfig>()) {
      validate_llama(*llama);
      validate_pad_token(llama->pad_token, llama->vocab_size);
    }
    if (const auto* const bert = model<BertConfig>()) {
      validate_pad_token(bert->pad_token, bert->vocab_size);
      validate_heads("model.embed_dim", bert->embed_dim, bert->num_heads);
      if (bert->sep_token && *bert->sep_token >= bert->vocab_size)
        add_error("model.sep_token", "must be below model.vocab_size (" +
                                         std::to_string(bert->vocab_size) + "), got " +
                                         std::to_string(*bert->sep_token));
    }
    if (const auto* const vit = model<VitConfig>())
      validate_heads("model.hidden_dim", vit->hidden_dim, vit->num_heads);
    const auto* const captioner = model<CaptionerConfig>();
    if (captioner != nullptr && captioner->decoder.name == CaptionDecoder::kTransformer &&
        captioner->decoder.hidden_size % captioner->decoder.num_heads != 0)
      add_error("model.decoder.hidden_size", "must be a multiple of model.decoder.num_heads (" +
                                                 std::to_string(captioner->decoder.num_heads) +
                                                 "), got " +
                                                 std::to_string(captioner->decoder.hidden_size));
    if (captioner != nullptr && captioner->activation_checkpointing && !captioner->has_blocks())
      add_error("model.activation_checkpointing",
                "requires transformer blocks: an encoder vit_… or model.decoder.name transformer");
    if (config_.model.unfreeze_at_step && config_.model.freeze.empty())
      add_error("model.unfreeze_at_step", "requires model.freeze, the parameters it is for");
  }

  void validate_init() {
    for (const InitRule& rule : config_.model.init) {
      std::visit(
          [&](const auto& init) {
            if constexpr (requires { init.b; }) {
              constexpr bool kIsUniform = std::is_same_v<std::decay_t<decltype(init)>, UniformInit>;
              if (init.a >= init.b)
                add_error(
                    "model.init." + rule.pattern + (kIsUniform ? ".uniform.b" : ".trunc_normal.b"),
                    "must be above a, the lower bound");
            }
          },
          rule.value);
    }
  }

  void validate_pretrained() {
    if (!config_.model.pretrained) return;
    const std::vector<KeyMapping>& mapping = config_.model.pretrained->key_mapping;
    for (size_t i = 0; i < mapping.size(); ++i) {
      if (std::ranges::count(mapping[i].to, '*') > std::ranges::count(mapping[i].from, '*'))
        add_error(
            "model.pretrained.key_mapping[" + std::to_string(i) + "].to",
            "has more * than from, " + quoted(mapping[i].from) + "; each * of 'to' needs one");
    }
  }

  void validate_lora() {
    const ModelConfig& model = config_.model;
    if (!model.lora || errors_.has_error_for("model.name")) return;
    if (!model.supports_lora())
      return add_error("model.lora", "is not supported by model " + model.name() +
                                         " (only gpt, gpt2, llama, bert, vit, mlp); remove it");
    if (!model.pretrained)
      add_error("model.lora", "requires model.pretrained, the weights that it adapts");
    const bool has_default =
        model.is_language_model() || std::holds_alternative<BertConfig>(model.arch);
    if (model.lora->target_modules.empty() && !has_default)
      add_error("model.lora.target_modules",
                "is required for model " + model.name() +
                    "; set it to names of linear layers, or to all-linear");
  }

  void validate_layer_decay() {
    if (config_.optimizer.layer_decay && !errors_.has_error_for("model.name") &&
        !config_.model.supports_layer_decay())
      add_error("optimizer.layer_decay", "is not supported by model " + config_.model.name() +
                                             " (only gpt, gpt2, llama, bert, vit); remove it");
  }

  void validate_sequences() {
    if (errors_.has_error_for("model.name")) return;
    const std::optional<int64_t> context = config_.model.context_length();
    const std::optional<int64_t> vocab = config_.model.vocab_size();
    for (const auto& [name, dataset] : config_.data) {
      const std::string key = "data." + name;
      if (!dataset.has_tokens() || errors_.has_error_in(key)) continue;
      const SequenceConfig* const sequence = dataset.sequence();
      const int64_t block = sequence != nullptr && sequence->block_size ? *sequence->block_size : 0;
      const int64_t longest = sequence != nullptr && model<BertConfig>() != nullptr
                                  ? sequence->max_length.value_or(0)
                                  : 0;
      for (const auto& [length, length_key] :
           {std::pair(block, ".sequence.block_size"), std::pair(longest, ".sequence.max_length")})
        if (context && length > *context)
          return add_error(key + length_key, "must be at most model.context_length (" +
                                                 std::to_string(*context) + "), got " +
                                                 std::to_string(length));
      if (vocab && dataset.has_byte_tokens() && *vocab < kNumByteValues)
        add_error("model.vocab_size", "must be at least " + std::to_string(kNumByteValues) +
                                          ", because the tokens of " + key + " are bytes; got " +
                                          std::to_string(*vocab));
    }
  }

  // ---- task --------------------------------------------------------------------------------------

  // Models with one output per sample.
  bool predicts_once() const {
    return model<MlpConfig>() || model<Lenet5Config>() || model<ResnetConfig>() ||
           model<AlexnetConfig>() || model<VggConfig>() || model<VitConfig>() ||
           model<InceptionV3Config>();
  }

  void validate_task_and_model() {
    const bool is_lm_task = config_.task.name() == TaskName::kLanguageModeling;
    const bool is_lm = needs_token_model(config_);
    const std::string model_name = config_.model.name();
    if (is_lm_task && !is_lm)
      add_error("task.name",
                "language_modeling requires model gpt, gpt2, llama, lstm_lm, or sequential with an "
                "embedding as "
                "its first layer; for images and numbers set classification or regression");
    if (!is_lm_task && is_lm)
      add_error("task.name", std::string(to_string(config_.task.name())) +
                                 " is not supported by model " + model_name +
                                 "; set language_modeling");
    else if (!is_lm_task)
      validate_per_step_labels();
    validate_captioning();
  }

  void validate_captioning() {
    const bool is_task = config_.task.name() == TaskName::kCaptioning;
    const auto* const captioner = model<CaptionerConfig>();
    if (is_task && captioner == nullptr)
      add_error("task.name", "captioning requires model captioner");
    if (!is_task && captioner != nullptr)
      add_error("task.name", std::string(to_string(config_.task.name())) +
                                 " is not supported by model captioner; set captioning");
    if (errors_.has_error_for("task.name")) return;
    for (const auto& [name, dataset] : config_.data) {
      const std::string key = "data." + name;
      if (dataset.combines_datasets() || errors_.has_error_in(key)) continue;
      if (dataset.has_captions() && !is_task)
        add_error(key + ".fields.caption", "requires task captioning");
      if (!dataset.has_captions() && is_task)
        add_error(key + ".fields.caption",
                  "is required for task captioning; set it to the name of the captions in format "
                  "image_list, tfrecord or webdataset");
      const int64_t length =
          dataset.has_captions() ? dataset.sequence()->max_label_length.value_or(0) : 0;
      if (captioner != nullptr && length > captioner->max_length)
        add_error(key + ".sequence.max_label_length", "must be at most model.max_length (" +
                                                          std::to_string(captioner->max_length) +
                                                          "), got " + std::to_string(length));
    }
  }

  // One logit, or an output per class.
  void validate_num_outputs() {
    const std::optional<int64_t> outputs = config_.model.num_classes;
    if (!outputs || errors_.has_error_for("task.name") || !config_.task.has_classes()) return;
    const std::string task(to_string(config_.task.name()));
    if (config_.task.name() == TaskName::kBinaryClassification) {
      if (*outputs != 1)
        add_error("model.num_classes", "must be 1 for task " + task +
                                           ", which has one logit, got " +
                                           std::to_string(*outputs) + "; remove it");
    } else if (*outputs < 2) {
      add_error("model.num_classes", "must be at least 2 for task " + task +
                                         "; for one logit set task binary_classification");
    }
  }

  void validate_per_step_labels() {
    const bool is_per_step = config_.task.has_per_step_labels();
    if (is_per_step && predicts_once())
      add_error("task.name",
                std::string(to_string(config_.task.name())) +
                    " requires a model with an output per time step; set model blstm or bert");
    if (const auto* const blstm = model<BlstmConfig>())
      validate_pooling(is_per_step, blstm->pooling, "last or mean");
    if (const auto* const bert = model<BertConfig>())
      validate_pooling(is_per_step, bert->pooling, "pooler or mean");
  }

  template <typename P>
  void validate_pooling(bool is_per_step, P pooling, const std::string& per_sample) {
    if (is_per_step == (pooling == P::kNone)) return;
    add_error("model.pooling", "must be " + (is_per_step ? "none" : per_sample) + " for task " +
                                   std::string(to_string(config_.task.name())) + ", got " +
                                   quoted(to_string(pooling)));
  }

  void validate_masks() {
    if (errors_.has_error_for("task.name") || errors_.has_error_for("model.name")) return;
    for (const std::string& name : sampled_datasets(config_)) {
      const auto found = config_.data.find(name);
      if (found == config_.data.end() || errors_.has_error_in("data." + name)) continue;
      const FieldNames* const fields = found->second.fields();
      if (fields != nullptr && !fields->mask.empty()) validate_mask("data." + name);
    }
  }
  void validate_mask(const std::string& dataset) {
    if (!config_.model.is_user_file())
      add_error("model.name", config_.model.name() + " has one output per image, and " + dataset +
                                  ".fields.mask a class per pixel; set exported or plugin");
    const TaskName task = config_.task.name();
    if (task != TaskName::kClassification && task != TaskName::kCustom)
      add_error("task.name", "must be classification or custom for " + dataset + ".fields.mask");
    const auto* const classification = std::get_if<ClassificationTask>(&config_.task.task);
    if (classification != nullptr && classification->class_weights.is_balanced)
      add_error("task.class_weights", "balanced needs one label per sample, and " + dataset +
                                          ".fields.mask has one per pixel; set a list of numbers");
  }

  void validate_model_and_data() {
    // Whether the tokens of these models have labels can only be determined from the data.
    if (model<BlstmConfig>() != nullptr || model<BertConfig>() != nullptr) return;
    const bool is_lm = needs_token_model(config_);
    for (const std::string& name : sampled_datasets(config_)) {
      const auto found = config_.data.find(name);
      if (found == config_.data.end() || errors_.has_error_in("data." + name)) continue;
      if (found->second.combines_datasets()) continue;
      const bool has_tokens = found->second.has_tokens();
      if (has_tokens && !is_lm)
        add_error(
            "model.name",
            config_.model.name() + " does not accept token sequences, which data." + name +
                " has; set gpt, gpt2, llama or lstm_lm, or bert or blstm if they have labels");
      if (!has_tokens && is_lm)
        add_error("model.name", config_.model.name() + " requires token sequences; data." + name +
                                    " must have format text or tokens, or fields.text, "
                                    "fields.messages or fields.input_ids");
    }
  }

  // Other models would read across documents.
  void validate_packing() {
    if (model<GptConfig>() != nullptr || model<Gpt2Config>() != nullptr ||
        model<LlamaConfig>() != nullptr)
      return;
    for (const auto& [name, dataset] : config_.data)
      if (dataset.is_packed())
        add_error("data." + name + ".sequence.packing",
                  "is not supported by model " + config_.model.name() +
                      "; remove it, or set model gpt, gpt2 or llama");
  }

  void validate_batch_transforms() {
    const auto train = config_.data.find("train");
    if (train != config_.data.end() && !train->second.batch_transforms.empty() &&
        config_.task.name() != TaskName::kClassification)
      add_error("data.train.batch_transforms", "requires task classification");
  }

  // Labels of tokens say which tokens language_modeling predicts.
  void validate_predicted_labels() {
    if (config_.task.name() != TaskName::kLanguageModeling) return;
    const bool is_user_file = !errors_.has_error_for("model.name") && config_.model.is_user_file();
    for (const auto& [name, dataset] : config_.data) {
      const bool has_labels =
          dataset.has_tokens() && dataset.fields() != nullptr && !dataset.fields()->labels.empty();
      const std::string key = "data." + name;
      if (has_labels && dataset.sequence() != nullptr && dataset.sequence()->max_label_length)
        add_error(key + ".sequence.max_label_length",
                  "is not supported by task language_modeling, whose labels are one per token; "
                  "remove it");
      if (is_user_file && (has_labels || dataset.has_messages()))
        add_error(key + (has_labels ? ".fields.labels" : ".fields.messages"),
                  "is not supported by model " + config_.model.name() +
                      " with task language_modeling; set model gpt, gpt2 or llama, or train on "
                      "fields.text or fields.input_ids alone");
    }
  }

  void validate_weights(const std::string& key, const std::vector<double>& weights) {
    if (!weights.empty() && std::ranges::all_of(weights, [](double weight) { return weight == 0; }))
      add_error(key, "must have a number above 0; otherwise no label counts");
  }

  void validate_class_weights() {
    const TaskVariant& task = config_.task.task;
    if (const auto* const labeling = std::get_if<SequenceLabelingTask>(&task))
      validate_weights("task.class_weights", labeling->class_weights);
    if (const auto* const multilabel = std::get_if<MultilabelClassificationTask>(&task))
      validate_weights("task.pos_weight", multilabel->pos_weight);
    const auto* const classification = std::get_if<ClassificationTask>(&task);
    if (classification == nullptr) return;
    validate_weights("task.class_weights", classification->class_weights.values);
    if (classification->class_weights.is_balanced &&
        config_.feed.producers != ProducerMode::kInternal)
      add_error("task.class_weights",
                "balanced requires feed.producers internal, because the labels of external "
                "producers cannot be counted in advance; set a list of numbers");
    if (classification->class_weights.is_balanced && training_stream(config_) != nullptr)
      add_error("task.class_weights",
                "balanced cannot be combined with a stream, whose labels cannot be counted in "
                "advance; set a list of numbers");
  }

  // ---- optimizer, train --------------------------------------------------------------------------

  void validate_optimizer() {
    std::visit(
        [this](const auto& method) {
          using Method = std::decay_t<decltype(method)>;
          if constexpr (requires { method.betas; }) {
            const auto& betas = method.betas;
            if (betas.size() != 2 || betas[0] >= 1 || betas[1] >= 1)
              add_error("optimizer.betas",
                        "must be two numbers from 0 to below 1, for example [0.9, 0.95]");
          }
          if constexpr (std::is_same_v<Method, AdafactorConfig>)
            if (method.eps.size() != 2)
              add_error("optimizer.eps", "must be two numbers, for example [1.0e-7, 1.0e-3]");
          if constexpr (std::is_same_v<Method, SgdConfig> || std::is_same_v<Method, LarsConfig>)
            if (method.nesterov && method.momentum == 0)
              add_error("optimizer.nesterov", "requires optimizer.momentum above 0");
        },
        config_.optimizer.method);
    for (size_t i = 0; i < config_.optimizer.param_groups.size(); ++i) {
      const ParamGroup& group = config_.optimizer.param_groups[i];
      if (group.params.empty() && !group.kind)
        add_error("optimizer.param_groups[" + std::to_string(i) + "].params",
                  "or kind is required; they select the parameters of the group");
    }
    validate_min_lr();
    validate_scheduler();
    validate_schedule_free();
  }

  void validate_scheduler() {
    if (errors_.has_error_for("scheduler.name")) return;
    if (const auto* const steps = std::get_if<MultiStepScheduler>(&config_.scheduler.schedule)) {
      const auto epochs = config_.epochs.find("scheduler.milestones");
      const bool is_increasing = epochs != config_.epochs.end()
                                     ? std::ranges::is_sorted(epochs->second, std::less_equal())
                                     : std::ranges::is_sorted(steps->milestones, std::less_equal());
      if (!is_increasing)
        add_error("scheduler.milestones", "must be increasing, for example [30000, 60000]");
    }
    validate_plateau();
    const auto* const cycle = std::get_if<OneCycleScheduler>(&config_.scheduler.schedule);
    if (cycle == nullptr) return;
    if (cycle->three_phase && cycle->pct_start > 0.5)
      add_error("scheduler.pct_start",
                "must be at most 0.5 with three_phase: the fall takes as long as the rise");
  }

  void validate_schedule_free() {
    const auto* const free = std::get_if<ScheduleFreeAdamWConfig>(&config_.optimizer.method);
    if (free == nullptr) return;
    if (!free->betas.empty() && free->betas.front() == 0)
      add_error("optimizer.betas", "must begin with a number above 0");
    if (config_.train.ema_decay)
      add_error("train.ema_decay",
                "must be null with optimizer.name schedule_free_adamw, which has an average");
    if (config_.distributed.shard == Shard::kOptimizer)
      add_error("distributed.shard",
                "must be none with optimizer.name schedule_free_adamw, whose average is computed "
                "from its complete state");
  }

  void validate_plateau() {
    const auto* const plateau = std::get_if<ReduceOnPlateauScheduler>(&config_.scheduler.schedule);
    if (plateau == nullptr || plateau->monitor != PlateauMonitor::kEval) return;
    if (config_.eval.datasets.empty())
      add_error("scheduler.monitor",
                "eval requires eval.datasets, which are evaluated; set it, or monitor: train_loss");
    const bool has_steps = plateau->every_steps != ReduceOnPlateauScheduler().every_steps ||
                           config_.epochs.contains("scheduler.every_steps");
    if (has_steps)
      add_error("scheduler.every_steps", "requires scheduler.monitor train_loss; remove it");
  }

  void validate_min_lr() {
    const double lr = config_.optimizer.lr();
    const double min_lr = config_.scheduler.min_lr().value_or(0);
    if (min_lr <= lr || errors_.has_error_for("optimizer.name")) return;
    add_error("scheduler.min_lr", "must be at most optimizer.lr (" + format_shortest(lr) +
                                      "), to which the learning rate would otherwise rise, got " +
                                      format_shortest(min_lr) +
                                      "; lower it, or set it to null: optimizer.lr / 10");
  }

  // ---- eval --------------------------------------------------------------------------------------

  void validate_eval() {
    const EvalConfig& eval = config_.eval;
    std::set<std::string> seen;
    std::vector<std::string> names;
    for (const auto& [name, dataset] : config_.data) names.push_back(name);
    for (const std::string& name : eval.datasets) {
      if (!seen.insert(name).second)
        add_error("eval.datasets", "contains " + quoted(name) + " twice; remove one");
      if (!config_.data.contains(name) && errors_.has_error_for("data." + name)) continue;
      if (!config_.data.contains(name))
        add_error("eval.datasets", "contains " + quoted(name) + ", which is not a dataset" +
                                       did_you_mean(name, names));
      else if (is_stream(name) || (name == "train" && training_stream(config_)))
        add_error("eval.datasets", "contains " + quoted(name) +
                                       ", which is or contains a stream and cannot be read again; "
                                       "remove it");
    }
    if (!config_.train.ema_decay && config_.train.ema_every_steps != 1)
      add_error("train.ema_every_steps", "requires train.ema_decay; remove it");
    if (!config_.train.ema_decay && config_.train.ema_warmup)
      add_error("train.ema_warmup", "requires train.ema_decay; remove it");
    const bool has_average = config_.train.ema_decay || config_.optimizer.averages();
    if (eval.use_ema && !has_average)
      add_error("eval.use_ema", "requires train.ema_decay; set it, for example to 0.999");
    if (eval.checkpoints != CheckpointSelection::kInterval &&
        eval.every_steps != EvalConfig{}.every_steps)
      add_error("eval.every_steps", "requires eval.checkpoints interval; remove it");
    if (eval.monitor.empty())
      add_error("eval.monitor", "must not be empty");
    else
      validate_monitor("eval.monitor", eval.monitor);
    for (const std::string& metric : config_.checkpoint.monitor)
      validate_monitor("checkpoint.monitor", metric);
    if (!eval.on_best_command.empty() && eval.on_best_command.front().empty())
      add_error("eval.on_best_command", "must start with a program, got an empty text");
  }

  bool is_stream(const std::string& name) const {
    const auto* const streamed = streamed_dataset(config_);
    return streamed != nullptr && streamed->first == name;
  }

  void validate_monitor(const std::string& key, const std::string& metric) {
    if (errors_.has_error_for("task.name") || errors_.has_error_for("model.name")) return;
    // The model's metrics are in a file, see resolve_metrics().
    if (config_.task.name() != TaskName::kCustom)
      if (const std::string error = monitor_error(task_metrics(config_), metric); !error.empty())
        add_error(key, error);
    const size_t slash = metric.find('/');
    if (slash == std::string::npos) return;
    const std::string name = metric.substr(0, slash);
    if (std::ranges::count(config_.eval.datasets, name) == 0 &&
        !errors_.has_error_for("data." + name))
      add_error(key, quoted(metric) + " requires " + quoted(name) + " in eval.datasets");
  }

  const Config& config_;
  const ExplicitKeys& keys_;
  ConfigErrors& errors_;
};

}  // namespace

// ---- derived defaults ----------------------------------------------------------------------------

void apply_default_vocabulary(const ExplicitKeys& keys, Config& config) {
  if (training_tokenizer(config) == nullptr || keys.contains("model.vocab_size")) return;
  if (auto* const vocabulary = config.model.output_vocabulary()) vocabulary->reset();
}

void apply_derived_defaults(const ExplicitKeys& keys, Config& config) {
  if (auto* const blstm = std::get_if<BlstmConfig>(&config.model.arch);
      blstm != nullptr && config.task.has_per_step_labels() && !keys.contains("model.pooling"))
    blstm->pooling = Pooling::kNone;
  if (auto* const bert = std::get_if<BertConfig>(&config.model.arch);
      bert != nullptr && config.task.has_per_step_labels() && !keys.contains("model.pooling"))
    bert->pooling = BertPooling::kNone;
  // The seeds of dropout in a Python module derive from the ticket.
  if ((config.distributed.reduction || config.model.has_loss()) && !keys.contains("run.rng"))
    config.run.rng = Rng::kPerTicket;
  if (config.task.name() == TaskName::kBinaryClassification && !config.model.num_classes)
    config.model.num_classes = 1;
  if (!keys.contains("eval.datasets") && !config.data.contains("val")) config.eval.datasets.clear();
  const auto* const captioner = std::get_if<CaptionerConfig>(&config.model.arch);
  const std::vector<std::string> trained = sampled_datasets(config.data, "train");
  const auto first = trained.empty() ? config.data.end() : config.data.find(trained.front());
  std::optional<TokenizerConfig> tokenizer_of_text;
  if (const TokenizerConfig* const tokenizer = training_tokenizer(config))
    tokenizer_of_text = *tokenizer;
  for (auto& [name, dataset] : config.data) {
    SequenceConfig* const sequence = dataset.sequence();
    if (dataset.has_captions() && captioner != nullptr && !sequence->max_label_length)
      sequence->max_label_length = captioner->max_length;
    if (dataset.tokenizer() != nullptr && !dataset.tokenizer()->has_value()) {
      if (dataset.has_text())
        *dataset.tokenizer() = tokenizer_of_text;
      else if (dataset.has_captions() && first != config.data.end() && first->second.has_captions())
        *dataset.tokenizer() = *first->second.tokenizer();
    }
    if (sequence == nullptr || sequence->block_size) continue;
    if (dataset.has_tokens() && !dataset.has_variable_length())
      sequence->block_size = config.model.context_length().value_or(GptConfig{}.context_length);
  }
}

void validate_config(const Config& config, const ExplicitKeys& keys, ConfigErrors& errors) {
  Validator(config, keys, errors).run();
}

}  // namespace stoker::config
