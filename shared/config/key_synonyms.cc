#include "shared/config/key_synonyms.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "shared/config/config_errors.h"

namespace stoker::config {
namespace {

constexpr std::string_view kStepsOrEpochs = "a number of steps, or {epochs: N}";
constexpr std::string_view kNoSetting = "stoker does this itself; remove it";

// In the order of config/stoker.yaml.
constexpr auto kSynonyms = std::to_array<KeySynonym>({
    {"run.dir",
     "output_dir save_dir work_dir default_root_dir model_dir log_dir logging_dir exp_dir "
     "checkpoint_dir ckpt_dir run_name experiment_name",
     "the directory of the run, with its checkpoints and metrics"},
    {"run.seed", "random_seed manual_seed random_state rng_seed data_seed", ""},
    {"run.deterministic", "use_deterministic_algorithms cudnn_deterministic full_determinism", ""},

    {"data", "datasets dataset datamodule data_module", ""},
    {"data.train.path",
     "train_file train_data train_path train_dir training_data train_dataset train_data_path", ""},
    {"data.val.path",
     "val_file val_data val_path val_dir validation_file validation_data eval_file eval_data "
     "val_dataset eval_dataset valid_dataset test_file test_data",
     ""},
    {"data.NAME.path",
     "data_dir data_path data_root data_file data_files dataset_path dataset_name dataset_dir "
     "folder directory",
     ""},
    {"data.NAME.glob", "file_pattern pattern", ""},
    {"data.NAME.split",
     "validation_split val_split train_split test_size test_split train_size val_size val_fraction "
     "test_fraction train_fraction split_ratio",
     "[from, to)"},
    {"data.NAME.split_by",
     "stratify stratify_by_column stratified shuffle_split random_split split_method split_type "
     "split_strategy split_mode",
     "position, random, stratified or group"},
    {"data.NAME.split_seed", "split_random_state random_split_seed shuffle_seed generator_seed",
     ""},
    {"data.NAME.fields.group",
     "groups group_by group_column group_col group_key group_field split_group", ""},
    {"data.NAME.transforms", "augment augmentation augmentations data_augmentation preprocessing",
     "a list of transforms"},
    {"data.NAME.class_names", "classes label_names labels_list id2label", ""},
    {"data.train.max_samples", "max_train_samples limit_train_batches", "a number of samples"},
    {"data.NAME.tokenizer.path", "tokenizer_name tokenizer_path tokenizer_file vocab_file", ""},
    {"model.context_length data.NAME.sequence.block_size",
     "seq_len seq_length sequence_length max_seq_len max_seq_length n_ctx n_positions "
     "max_position_embeddings",
     ""},

    {"feed", "dataloader data_loader loader train_dataloader", ""},
    {"feed.num_workers", "workers n_workers dataloader_num_workers num_data_workers n_jobs", ""},
    {"feed.prefetch_batches", "prefetch prefetch_factor prefetch_size dataloader_prefetch_factor",
     ""},
    {"feed.shuffle", "shuffle_data shuffle_train", "full, none, block or shards"},
    {"feed.shuffle_block_size", "shuffle_buffer shuffle_buffer_size shuffle_size buffer_size",
     "with feed.shuffle: block"},
    {"feed.last_batch", "drop_last dataloader_drop_last drop_remainder", "carry_over, drop or pad"},
    {"feed.bucket_boundaries", "group_by_length bucket_by_length length_grouped", "a list"},

    {"model", "network net backbone", ""},
    {"model.name", "arch architecture model_name model_type model_class", ""},
    {"model.pretrained.path",
     "model_name_or_path pretrained_model pretrained_path pretrained_weights init_from weights "
     "checkpoint_path load_from",
     ""},
    {"model.num_layers", "n_layer n_layers num_hidden_layers depth", ""},
    {"model.num_heads", "n_head n_heads num_attention_heads nhead", ""},
    {"model.num_key_value_heads", "num_kv_heads n_kv_heads n_head_kv", ""},
    {"model.embed_dim", "n_embd n_embed d_model emb_dim model_dim", ""},
    {"model.mlp_dim", "intermediate_size d_ff dim_feedforward ffn_dim n_inner", ""},
    {"model.hidden_sizes", "hidden_units hidden_dims hidden_layer_sizes", "a list"},
    {"model.vocab_size", "n_vocab vocabulary_size", ""},
    {"model.num_classes", "num_labels n_classes nb_classes num_outputs", ""},
    {"model.image_size data.NAME.transforms", "img_size input_size crop_size resolution", ""},
    {"model.dropout", "dropout_rate drop_rate resid_pdrop hidden_dropout_prob dropout_prob p_drop",
     ""},
    {"model.attention_dropout", "attn_pdrop attention_probs_dropout_prob attn_dropout", ""},
    {"model.activation_checkpointing",
     "gradient_checkpointing grad_checkpointing recompute use_checkpoint", ""},
    {"model.tie_weights", "tie_word_embeddings weight_tying", ""},
    {"model.lora.r", "lora_r lora_rank", ""},

    {"task.name task.loss", "loss_fn loss_function criterion objective problem_type",
     "the task, and its loss"},
    {"task.gamma", "focal_gamma gamma_focal", "with task.loss: focal"},
    {"task.smooth", "dice_smooth smooth_nr smooth_dr", "with task.loss: dice"},
    {"task.tags", "label_list tag_names ner_tags", "with task sequence_labeling"},
    {"task.label_smoothing", "label_smoothing_factor smoothing", ""},
    {"task.class_weights", "class_weight loss_weights", ""},

    {"optimizer.name", "optim opt optimizer_type optimizer_name optimizer_class", ""},
    {"optimizer.lr", "learning_rate base_lr initial_lr init_lr max_lr peak_lr lr0", ""},
    {"optimizer.betas", "beta1 beta2 adam_beta1 adam_beta2 adam_betas", "a list of both"},
    {"optimizer.eps", "epsilon adam_epsilon adam_eps", ""},
    {"optimizer.weight_decay", "wd l2 l2_reg weight_decay_rate l2_regularization", ""},
    {"optimizer.trust_coeff", "trust_coefficient lars_coefficient", ""},
    {"optimizer.layer_decay", "layer_wise_lr_decay llrd layerwise_decay", ""},
    {"optimizer.param_groups",
     "parameter_groups params lr_mult no_decay no_weight_decay norm_weight_decay bias_weight_decay",
     "a list"},

    {"scheduler", "lr_scheduler lr_schedule sched", ""},
    {"scheduler.name", "lr_scheduler_type lr_policy scheduler_type scheduler_name decay_lr", ""},
    {"scheduler.warmup_steps",
     "warmup warmup_iters num_warmup_steps warmup_ratio warmup_epochs n_warmup_steps "
     "lr_warmup_epochs",
     kStepsOrEpochs},
    {"scheduler.warmup_start_factor", "start_factor lr_warmup_decay warmup_init_lr warmup_factor",
     "relative to optimizer.lr"},
    {"scheduler.step_size", "decay_steps lr_step_size lr_decay_steps decay_epochs", kStepsOrEpochs},
    {"scheduler.milestones", "lr_steps decay_milestones lr_milestones", "a list"},
    {"scheduler.power", "poly_power lr_power", ""},
    {"scheduler.t_0", "first_cycle_steps cycle_length", kStepsOrEpochs},
    {"scheduler.factor", "plateau_factor lr_factor reduce_factor", "with reduce_on_plateau"},
    {"scheduler.patience", "lr_patience patience_epochs patience_t",
     "with reduce_on_plateau; of early stopping: eval.early_stopping.patience"},
    {"scheduler.cooldown", "cooldown_epochs", "with reduce_on_plateau"},
    {"scheduler.gamma", "lr_decay lr_gamma decay_rate lr_decay_rate", ""},
    {"scheduler.min_lr", "eta_min lr_end end_lr final_lr min_learning_rate end_learning_rate", ""},

    {"train", "trainer training training_args training_arguments fit", ""},
    {"train.max_epochs", "epochs num_epochs num_train_epochs n_epochs max_epoch total_epochs", ""},
    {"train.max_steps",
     "T_max total_steps num_steps num_train_steps train_steps num_training_steps max_iters "
     "max_iter total_iters iterations num_iterations max_train_steps steps",
     "the schedule ends with it"},
    {"train.micro_batch_size eval.batch_size",
     "batch_size bs batchsize mini_batch_size samples_per_batch", ""},
    {"train.micro_batch_size",
     "per_device_train_batch_size train_batch_size micro_batch train_micro_batch_size_per_gpu "
     "per_gpu_train_batch_size device_batch_size",
     "samples of one process and one accumulation step"},
    {"train.gradient_accumulation_steps",
     "accumulate_grad_batches grad_accum grad_accum_steps grad_accumulation_steps accum_iter "
     "accumulation_steps gradient_accumulation accumulate_steps update_freq",
     ""},
    {"train.device", "gpu use_gpu cuda use_cuda no_cuda accelerator use_cpu",
     "auto, cpu, cuda or cuda:N"},
    {"train.precision",
     "amp use_amp fp16 bf16 tf32 mixed_precision half autocast dtype torch_dtype amp_dtype "
     "float32_matmul_precision",
     "fp32, tf32, bf16 or fp16"},
    {"train.max_grad_norm",
     "grad_clip clip_grad clip_grad_norm gradient_clip_val gradient_clipping gradient_clip "
     "max_norm clipnorm global_clipnorm grad_norm_clip clip_norm",
     ""},
    {"train.max_grad_value", "clip_value clipvalue clip_grad_value grad_clip_value", ""},
    {"train.ema_decay", "ema use_model_ema model_ema model_ema_decay ema_momentum", ""},
    {"train.ema_every_steps", "model_ema_steps ema_steps ema_interval ema_update_interval", ""},
    {"train.ema_warmup", "model_ema_warmup use_ema_warmup ema_num_updates", "num_updates or power"},
    {"train.cuda_graphs train.fused_kernels", "compile torch_compile use_compile jit jit_compile",
     ""},
    {"train.num_threads", "omp_num_threads torch_num_threads intra_op_threads", ""},
    {"train.on_nonfinite", "detect_anomaly terminate_on_nan skip_nan",
     "fail, skip_step or rollback"},

    {"distributed", "ddp dist parallel", ""},
    {"distributed.backend", "dist_backend ddp_backend process_group_backend", "auto, gloo or nccl"},
    {"distributed.timeout_seconds", "ddp_timeout dist_timeout nccl_timeout", "seconds"},
    {"distributed.shard", "zero zero_stage fsdp deepspeed use_zero", "none or optimizer"},
    {"",
     "devices num_gpus n_gpu gpus num_nodes nproc_per_node world_size local_rank strategy "
     "distributed_type",
     "the launcher starts the processes: docs/distributed.md; remove it"},

    {"checkpoint", "checkpointing checkpoints ckpt model_checkpoint", ""},
    {"checkpoint.save_every_steps",
     "save_steps save_interval save_every save_freq save_frequency every_n_train_steps "
     "checkpoint_interval checkpoint_every ckpt_interval save_checkpoint_steps "
     "checkpointing_steps every_n_epochs save_strategy",
     kStepsOrEpochs},
    {"checkpoint.keep_last", "save_total_limit max_to_keep keep_checkpoint_max keep_last_n", ""},
    {"checkpoint.save_top_k", "save_best save_best_only save_best_model load_best_model_at_end",
     "a number of checkpoints"},

    {"eval", "evaluation evaluator", ""},
    {"data.val eval", "validation val valid", ""},
    {"eval.batch_size",
     "per_device_eval_batch_size eval_batch_size val_batch_size test_batch_size "
     "validation_batch_size valid_batch_size",
     ""},
    {"eval.every_steps",
     "eval_steps eval_interval eval_every val_interval val_check_interval val_every eval_freq "
     "check_val_every_n_epoch validation_steps evaluation_strategy eval_strategy",
     "steps or {epochs: N}, with eval.checkpoints: interval"},
    {"eval.max_samples",
     "max_eval_samples limit_val_batches val_batches eval_iters eval_batches max_val_samples",
     "a number of samples"},
    {"eval.monitor", "metric_for_best_model best_metric monitor_metric", ""},
    {"eval.early_stopping.patience", "patience early_stopping_patience early_stop",
     "a number of evaluations"},

    {"metrics.log_every_steps",
     "logging_steps log_every log_interval log_every_n_steps print_freq log_freq log_steps "
     "print_every logging_interval logging_strategy",
     kStepsOrEpochs},
    {"metrics.tensorboard", "report_to logger use_tensorboard wandb use_wandb", "true or false"},
    {"log", "logging", ""},
    {"log.level", "log_level logging_level verbose verbosity", "debug, info, warning or error"},

    {"",
     "pin_memory persistent_workers dataloader_pin_memory dataloader_persistent_workers "
     "non_blocking cudnn_benchmark ignore_data_skip",
     kNoSetting},
    {"", "resume resume_from_checkpoint resume_from ckpt_path auto_resume",
     "a start resumes the run in run.dir; remove it"},
});

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  std::istringstream stream{std::string(text)};
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// "T_max", "t-max" and "tMax" are the same name.
std::string folded(std::string_view name) {
  std::string text;
  for (const char c : name)
    if (c != '_' && c != '-') text += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

}  // namespace

std::vector<std::string> KeySynonym::all_keys() const { return split_words(keys); }
std::vector<std::string> KeySynonym::all_names() const { return split_words(names); }

std::span<const KeySynonym> key_synonyms() { return kSynonyms; }

const KeySynonym* find_key_synonym(std::string_view typed) {
  const std::string wanted = folded(typed);
  for (const KeySynonym& synonym : kSynonyms)
    for (const std::string& name : synonym.all_names())
      if (folded(name) == wanted) return &synonym;
  return nullptr;
}

const KeySynonym* closest_key_synonym(std::string_view typed) {
  std::vector<std::string> names;
  for (const KeySynonym& synonym : kSynonyms)
    for (const std::string& name : synonym.all_names()) names.push_back(folded(name));
  const std::string name = closest_match(folded(typed), names);
  return name.empty() ? nullptr : find_key_synonym(name);
}

std::string key_synonyms_markdown() {
  std::string text = "| elsewhere | here | remark |\n|---|---|---|\n";
  const auto cell = [](const std::vector<std::string>& words) {
    std::string list;
    for (const std::string& word : words) list += (list.empty() ? "`" : ", `") + word + "`";
    return list;
  };
  for (const KeySynonym& synonym : kSynonyms)
    text += "| " + cell(synonym.all_names()) + " | " + cell(synonym.all_keys()) + " | " +
            std::string(synonym.remark) + " |\n";
  return text;
}

}  // namespace stoker::config
