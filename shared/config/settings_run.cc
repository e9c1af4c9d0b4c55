// Descriptors of the sections run, feed, checkpoint, eval, metrics, control and log, and the list
// of all sections.
#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "shared/config/schema.h"

namespace stoker::config {
namespace {

constexpr double kMaxInterval = 1e15;  // so that no product of two settings overflows
constexpr double kMaxSampleCount = 1e9;
constexpr double kMaxMib = 1e9;
constexpr double kMaxThreads = 4096;

// ---- feed ----------------------------------------------------------------------------------------

Fields producer_fields(FeedConfig& feed) {
  return {
      {.name = "producers",
       .target = choice(feed.producers),
       .help = "Producers of batches: workers of stokerd, external programs, or both",
       .details = "internal: only the workers of stokerd; no other program can attach. both: the "
                  "workers, and programs that attach over the control socket and must fill each "
                  "ticket as `stokerctl show-batch` lists it. external: only such programs; they "
                  "decide the content of a ticket, and data.train gives its shapes.",
       .on_resume = OnResume::kData},
      {.name = "num_workers",
       .target = &feed.num_workers,
       .help = "Threads that read and decode samples, in total, or auto",
       .details =
           "From 1 to 1024. auto: the number that keeps the ring between a quarter and three "
           "quarters full, at most one per usable core. Increase it while data_wait_ms in the "
           "metrics is not near 0 and cores are idle. Also bounds the processes that encode "
           "text, each with 64 MiB. Never changes which samples a batch contains.",
       .min = 1,
       .max = 1024,
       .null_word = "auto",
       .on_resume = OnResume::kLive},
      {.name = "num_processes",
       .target = &feed.num_processes,
       .help = "Worker processes (stoker-feed) that share these threads",
       .details =
           "From 0 to 64, at most num_workers. In a separate process, a decoder crash costs no "
           "training step; with several processes the others continue reading. 0: the workers are "
           "threads of stokerd, for debugging and where no process can be started. stoker-eval "
           "reads each dataset in one process, or with 0 itself.",
       .min = 0,
       .max = 64},
      {.name = "prefetch_batches",
       .target = &feed.prefetch_batches,
       .help = "Batches that the ring in shared memory holds",
       .details = "From 2 to 1024. Each costs the bytes of one batch. More batches compensate for "
                  "a disk that stalls occasionally, not for workers that are too slow.",
       .min = 2,
       .max = 1024}};
}

Fields shuffle_fields(FeedConfig& feed) {
  return {
      {.name = "shuffle",
       .target = choice(feed.shuffle),
       .help = "Order of the samples in an epoch",
       .details = "full: a random permutation per epoch, determined by run.seed. none: the order "
                  "of the data. block: random per epoch, but a sample stays near its position in "
                  "the data. shards: files in random order, a few of them open at a time, for "
                  "storage with slow random access. Resuming costs the same with each.",
       .affects_result = true,
       .on_resume = OnResume::kData},
      {.name = "shuffle_block_size",
       .target = &feed.shuffle_block_size,
       .help = "Neighboring samples that are mixed with each other",
       .details = "At least 2. A sample moves by fewer than this many positions. Used with "
                  "shuffle: block.",
       .min = 2,
       .max = kMaxInterval,
       .affects_result = true,
       .on_resume = OnResume::kData},
      {.name = "shuffle_open_shards",
       .target = &feed.shuffle_open_shards,
       .help = "Shards that are open at a time and whose samples are mixed",
       .details = "From 1 to 1000000000. A shard is a file of format text, tokens, cifar10, "
                  "cifar100, tfrecord, webdataset, csv or jsonl; a dataset of another format is "
                  "one shard. Used with shuffle: shards.",
       .min = 1,
       .max = kMaxSampleCount,
       .affects_result = true,
       .on_resume = OnResume::kData}};
}

Fields batch_fields(FeedConfig& feed) {
  return {
      {.name = "last_batch",
       .target = choice(feed.last_batch),
       .help = "Handling of an incomplete batch at the end of an epoch",
       .details = "carry_over: the batch is completed with samples of the next epoch. drop: it is "
                  "dropped. pad: it is filled with the first samples of the epoch.",
       .affects_result = true,
       .on_resume = OnResume::kData},
      {.name = "bucket_boundaries",
       .target = &feed.bucket_boundaries,
       .help = "Increasing lengths that batches of variable-length sequences are padded to",
       .details =
           "From 2 to 1000000, inclusive upper bounds. A batch contains samples of one bucket: not "
           "longer than its boundary and longer than the previous one; the last bucket is "
           "data.train.sequence.max_length. Empty: every batch is padded to that length. The log "
           "reports the remaining padding at the start. The evaluator pads to the same lengths.",
       .min = 2,
       .max = 1e6,
       .affects_result = true,
       .on_resume = OnResume::kData,
       .example = "[32, 64, 128]"}};
}

Fields sample_error_fields(FeedConfig& feed) {
  return {
      {.name = "on_sample_error",
       .target = choice(feed.on_sample_error),
       .help = "Action on a sample that cannot be read",
       .details = "skip: the next sample of the epoch replaces it; the log and sample_errors.jsonl "
                  "give file and offset. fail: the run ends with an error that gives them."},
      {.name = "max_sample_error_rate",
       .target = &feed.max_sample_error_rate,
       .help = "Fraction of sample errors above which the run fails",
       .details = "From 0 to 1. Applies to all starts of the run together, and to the last one "
                  "alone. Checked from 1000 samples or 10 sample errors on, whichever comes first.",
       .min = 0,
       .max = 1},
      {.name = "refresh_interval_seconds",
       .target = &feed.refresh_interval_seconds,
       .help = "Seconds between two scans for new data",
       .details = "Above 0, at most 1000000. For datasets with data.NAME.refresh. A scan reads "
                  "size and time of every file.",
       .min = 0,
       .max = 1e6,
       .exclusive_min = true}};
}

Fields worker_limit_fields(FeedConfig& feed) {
  return {
      {.name = "worker_timeout_seconds",
       .target = &feed.worker_timeout_seconds,
       .help = "Seconds without progress after which a worker process is killed, or null",
       .details = "Above 0, at most 1000000; null: never. Progress is a finished sample or a poll "
                  "for work; a worker without it is stopped, waits for an unavailable mount, or "
                  "decodes endlessly. Its batches are requeued. Set it above the time of the "
                  "slowest sample, including opening the index. Needs num_processes above 0.",
       .min = 0,
       .max = 1e6,
       .exclusive_min = true},
      {.name = "max_restarts_per_minute",
       .target = &feed.max_restarts_per_minute,
       .help = "Worker process restarts per minute above which the run saves and ends",
       .details = "From 1 to 1000000. Independently of it, the run ends after 20 crashes, or 3 "
                  "errors reported by worker processes, without a new batch.",
       .min = 1,
       .max = 1e6},
      {.name = "worker_memory_limit_mib",
       .target = &feed.worker_memory_limit_mib,
       .help = "Address space of a worker process per thread, in MiB, or null",
       .details =
           "At least 1, not counting the ring and the index; null: unlimited. A sample that needs "
           "more is a sample error; stoker-eval quarantines it. In addition, each process caches "
           "the samples of a dataset that "
           "fits into an eighth of it, at most 256 MiB. Needs num_processes above 0.",
       .min = 1,
       .max = kMaxMib},
      {.name = "sandbox",
       .target = &feed.sandbox,
       .help = "Restrict worker processes to the system calls of reading",
       .details =
           "true: they can only read files and write to standard error; no network, no programs, "
           "no files opened for writing. A process that makes another system call is terminated, "
           "and the log names the call. Set it to false for a C library that needs such a call."}};
}

Fields read_ahead_fields(FeedConfig& feed) {
  return {
      {.name = "read_ahead",
       .target = &feed.read_ahead,
       .help = "Reads in flight, of all workers, or auto",
       .details = "From 0 to 1024. auto: up to 32 while reads wait for the disk, none while the "
                  "data is in memory. For storage with high latency: network, object store, "
                  "spinning disk. Each read in flight is a thread that only reads. Never changes "
                  "which samples a batch contains.",
       .min = 0,
       .max = 1024,
       .null_word = "auto"},
      {.name = "read_ahead_mib",
       .target = &feed.read_ahead_mib,
       .help = "Memory for data that is read ahead and not yet decoded, of all workers, in MiB",
       .details = "From 1 to 1000000. If it is below read_ahead times the size of a sample, fewer "
                  "reads are in flight. A sample larger than it is read when it is decoded.",
       .min = 1,
       .max = 1e6}};
}

// ---- checkpoint ----------------------------------------------------------------------------------

Fields save_fields(CheckpointConfig& checkpoint) {
  return {
      {.name = "save_every_steps",
       .target = &checkpoint.save_every_steps,
       .help = "Steps between two checkpoints; null disables saving by steps",
       .details = "At least 1. A checkpoint is saved at each multiple, and always at the last step "
                  "of a run and when it is stopped. Written in the background: training pauses "
                  "only for the copy to memory.",
       .min = 1,
       .max = kMaxInterval,
       .accepts_epochs = true,
       .on_resume = OnResume::kLive},
      {.name = "save_every_seconds",
       .target = &checkpoint.save_every_seconds,
       .help = "Maximum age of the last checkpoint in seconds; null disables saving by time",
       .details = "Above 0. Limits the training time that a power failure costs.",
       .min = 0,
       .max = 1e9,
       .exclusive_min = true,
       .on_resume = OnResume::kLive},
      {.name = "save_on_loss_improvement",
       .target = &checkpoint.save_on_loss_improvement,
       .help = "Relative decrease of the training loss that triggers a checkpoint, or null",
       .details = "Above 0, at most 0.99: 0.05 saves at 95 % of the lowest loss of all checkpoints "
                  "so far. The loss is smoothed over the reported records. null: disabled.",
       .min = 0,
       .max = 0.99,
       .exclusive_min = true,
       .example = "0.05"},
      {.name = "save_at_start",
       .target = &checkpoint.save_at_start,
       .help = "Save the initial state of a new run as the checkpoint of step 0",
       .details =
           "With pretrained weights, if there are any. The evaluator's curves then begin at "
           "step 0. A resumed run has no such checkpoint, unless it was saved at its start."}};
}

Fields keep_fields(CheckpointConfig& checkpoint) {
  return {{.name = "keep_last",
           .target = &checkpoint.keep_last,
           .help = "Number of newest checkpoints that are retained",
           .details = "From 2 to 1000000, so that a corrupt one has a predecessor. Checkpoints "
                      "that are incomplete, or that the evaluator found corrupt, are not counted.",
           .min = 2,
           .max = 1e6,
           .on_resume = OnResume::kLive},
          {.name = "keep_every_steps",
           .target = &checkpoint.keep_every_steps,
           .help = "Retain checkpoints at multiples of this many steps permanently, or null",
           .details = "At least 1; null: disabled.",
           .min = 1,
           .max = kMaxInterval,
           .accepts_epochs = true,
           .on_resume = OnResume::kLive,
           .example = "10000"},
          {.name = "keep_every_hours",
           .target = &checkpoint.keep_every_hours,
           .help = "Retain one checkpoint per this many hours permanently, or null",
           .details = "Above 0, at most 1000000; 1.5 is an hour and a half. null: disabled.",
           .min = 0,
           .max = 1e6,
           .exclusive_min = true,
           .on_resume = OnResume::kLive,
           .example = "1.5"}};
}

Fields retention_fields(CheckpointConfig& checkpoint) {
  return {
      {.name = "save_top_k",
       .target = &checkpoint.save_top_k,
       .help = "Number of best checkpoints that are retained, of each metric of monitor",
       .details = "From 0 to 1000000. The best one of eval.monitor is retained in addition. 0: the "
                  "best checkpoints are deleted as any other.",
       .min = 0,
       .max = 1e6},
      {.name = "monitor",
       .target = &checkpoint.monitor,
       .help = "Metrics by which save_top_k ranks checkpoints: METRIC or DATASET/METRIC",
       .details = "One metric or a list. METRIC is of the first dataset of eval.datasets. null: "
                  "eval.monitor.",
       .accepts_null = true,
       .accepts_scalar = true,
       .example = "[val/loss, test/accuracy]"},
      {.name = "min_age_seconds",
       .target = &checkpoint.min_age_seconds,
       .help = "Age in seconds below which no checkpoint is deleted",
       .details = "From 0. For readers on other machines (NFS), which retention cannot detect. A "
                  "checkpoint that is being read on this machine is never deleted.",
       .min = 0,
       .max = 1e9},
      {.name = "keep_unevaluated",
       .target = &checkpoint.keep_unevaluated,
       .help = "Number of newest checkpoints that are retained until their evaluation",
       .details =
           "From 0 to 1000000; 0: disabled. Applies whether or not an evaluator is running. If the "
           "disk has no space for the next checkpoint, they are deleted and the log reports it.",
       .min = 0,
       .max = 1e6,
       .on_resume = OnResume::kLive,
       .example = "20"},
      {.name = "on_write_error",
       .target = choice(checkpoint.on_write_error),
       .help = "Action if a checkpoint cannot be written",
       .details =
           "For example, if the disk is full or the directory is missing. retry: training "
           "continues with status degraded, and writing is retried after 30 seconds at first, then "
           "at growing intervals up to 10 minutes. fail: the run ends with exit code 74."}};
}

// ---- eval ----------------------------------------------------------------------------------------

Fields selection_fields(EvalConfig& eval) {
  return {
      {.name = "datasets",
       .target = &eval.datasets,
       .help = "Datasets that are evaluated, by their names under data",
       .details = "The default is [val] if there is such a dataset, else none. Start the evaluator "
                  "with `stoker-eval --run-dir DIR --follow`; it accepts --set as well.",
       .example = "[val, test]"},
      {.name = "use_ema",
       .target = &eval.use_ema,
       .help = "Evaluate the moving average of the weights",
       .details = "Requires train.ema_decay. false: the weights as they are trained."},
      {.name = "checkpoints",
       .target = choice(eval.checkpoints),
       .help = "Checkpoints that are evaluated",
       .details = "latest: the newest one; older ones that are still pending are dropped. all: "
                  "every checkpoint; checkpoint.keep_last or checkpoint.keep_unevaluated must "
                  "retain it long enough. interval: one per eval.every_steps."},
      {.name = "every_steps",
       .target = &eval.every_steps,
       .help = "Steps between two evaluated checkpoints",
       .details = "At least 1. The first checkpoint at or after each multiple is evaluated, "
                  "and the last one of a run that has ended. Used with checkpoints: interval.",
       .min = 1,
       .max = kMaxInterval,
       .accepts_epochs = true},
      {.name = "order",
       .target = choice(eval.order),
       .help = "Order in which pending checkpoints are evaluated"}};
}

Fields timing_fields(EvalConfig& eval) {
  return {{.name = "start_delay_seconds",
           .target = &eval.start_delay_seconds,
           .help = "Seconds before the first evaluation, with stoker-eval --follow",
           .details = "From 0 to 1000000. Not applied once the run has ended.",
           .min = 0,
           .max = 1e6},
          {.name = "throttle_seconds",
           .target = &eval.throttle_seconds,
           .help = "Minimum seconds between the starts of two evaluations, with --follow",
           .details = "From 0 to 1000000. Not applied once the run has ended.",
           .min = 0,
           .max = 1e6},
          {.name = "poll_interval_seconds",
           .target = &eval.poll_interval_seconds,
           .help = "Maximum seconds between two scans of the run directory",
           .details = "From 0.1 to 1000000. On a local file system, changes are noticed "
                      "immediately; on a network file system, at this interval.",
           .min = 0.1,
           .max = 1e6}};
}

Fields resource_fields(EvalConfig& eval) {
  return {
      {.name = "batch_size",
       .target = &eval.batch_size,
       .help = "Samples per evaluation batch",
       .details = "From 1 to 1000000. Affects memory use and speed, not the metrics.",
       .min = 1,
       .max = 1e6},
      {.name = "num_threads",
       .target = &eval.num_threads,
       .help = "LibTorch threads of the evaluator; null uses one per usable core",
       .details = "From 1 to 4096. On the CPU, leave cores to the trainer.",
       .min = 1,
       .max = kMaxThreads},
      {.name = "priority",
       .target = choice(eval.priority),
       .help = "CPU priority of the evaluator relative to a trainer on the same machine",
       .details =
           "idle: only otherwise unused CPU time; slows the trainer least, and makes no "
           "progress on a fully loaded machine. low: when both compete for a core, a tenth "
           "of the time of a trainer thread. In both cases, an evaluation that competes with "
           "training for CPUs pauses between batches 96 % of the time, to limit the slowdown of "
           "training: where training keeps all CPUs busy, it takes 25 times as long. normal: the "
           "same as other programs, without pauses; for results sooner at the cost of slower "
           "steps, for an evaluator on another machine, or with a CPU quota that it shares with "
           "training."},
      {.name = "max_samples",
       .target = &eval.max_samples,
       .help = "Maximum number of samples per dataset; null evaluates all",
       .details = "From 1 to 1000000000.",
       .min = 1,
       .max = kMaxSampleCount,
       .example = "1000"},
      {.name = "subset",
       .target = choice(eval.subset),
       .help = "Samples that max_samples selects",
       .details = "evenly_spaced over the dataset, or the first ones. Always the same samples."},
      {.name = "memory_limit_mib",
       .target = &eval.memory_limit_mib,
       .help = "Memory limit of the evaluator in MiB, without programs and libraries, or null",
       .details = "At least 1; null: unlimited. An evaluation that needs more is a failed attempt; "
                  "other processes on the machine are not affected.",
       .min = 1,
       .max = kMaxMib,
       .example = "8192"}};
}

Fields attempt_fields(EvalConfig& eval) {
  return {{.name = "timeout_seconds",
           .target = &eval.timeout_seconds,
           .help = "Maximum duration of the evaluation of one checkpoint in seconds",
           .details = "At least 1. Pauses caused by eval.priority do not count. A longer "
                      "evaluation is a failed attempt.",
           .min = 1,
           .max = 1e9},
          {.name = "max_attempts",
           .target = &eval.max_attempts,
           .help = "Attempts per checkpoint before its evaluation is recorded as failed",
           .details = "From 1 to 100. The outcome is in eval/outcomes.jsonl. An attempt during "
                      "which the evaluator crashed is counted.",
           .min = 1,
           .max = 100}};
}

Fields fields_of_early_stopping(EarlyStoppingConfig& early_stopping) {
  return {{.name = "patience",
           .target = &early_stopping.patience,
           .help = "Consecutive evaluations without improvement that end the run, or null",
           .details = "From 1 to 1000000; null: never. The run is saved and finished. The trainer "
                      "checks about twice a second.",
           .min = 1,
           .max = 1e6,
           .example = "10"},
          {.name = "patience_steps",
           .target = &early_stopping.patience_steps,
           .help = "Steps since the best evaluation that end the run, or null",
           .details = "At least 1; null: never.",
           .min = 1,
           .max = kMaxInterval,
           .accepts_epochs = true,
           .example = "10000"},
          {.name = "min_delta",
           .target = &early_stopping.min_delta,
           .help = "Largest change of the metric that is not an improvement",
           .details = "From 0. Applies to patience and patience_steps.",
           .min = 0,
           .max = 1e9},
          {.name = "stopping_threshold",
           .target = &early_stopping.stopping_threshold,
           .help = "Value of the metric that ends the run when it is reached or passed, or null",
           .details = "null: none.",
           .example = "0.99"}};
}

Fields fields_of_generate(GenerateConfig& generate) {
  return {{.name = "max_new_tokens",
           .target = &generate.max_new_tokens,
           .help = "Number of tokens that are generated",
           .details = "From 1 to 100000. Beyond the context of the model, each costs a forward "
                      "pass over all of it.",
           .min = 1,
           .max = 1e5},
          {.name = "prompt",
           .target = &generate.prompt,
           .help = "Text that the generated text continues",
           .example = "\"#include <\""},
          {.name = "temperature",
           .target = &generate.temperature,
           .help = "Sampling temperature",
           .details = "From 0 to 10. Lower values prefer likely tokens; 0 always takes the most "
                      "likely one.",
           .min = 0,
           .max = 10},
          {.name = "top_k",
           .target = &generate.top_k,
           .help = "Number of most likely tokens that a token is sampled from, or null",
           .details = "From 1 to 1000000. null: all tokens.",
           .min = 1,
           .max = 1e6},
          {.name = "top_p",
           .target = &generate.top_p,
           .help = "Total probability of the most likely tokens that a token is sampled from",
           .details = "From 0.01 to 1, of those within top_k, as in Hugging Face's generate(). "
                      "1: all of these.",
           .min = 0.01,
           .max = 1},
          {.name = "num_beams",
           .target = &generate.num_beams,
           .help = "Number of beams of the search for captions; 1 is greedy search",
           .details = "From 1 to 64, for task captioning, which always generates captions. The "
                      "score of a caption is the mean log probability of its tokens, as with "
                      "Hugging Face's length_penalty 1.",
           .min = 1,
           .max = 64}};
}

Fields metric_fields(EvalConfig& eval) {
  return {
      {.name = "monitor",
       .target = &eval.monitor,
       .help = "Metric that ranks checkpoints: METRIC or DATASET/METRIC",
       .details = "METRIC is of the first dataset of eval.datasets. Used by checkpoint.save_top_k "
                  "and early stopping. docs/metrics.md lists the metrics of each task, and whether "
                  "larger or smaller values are better.",
       .example = "val/accuracy"},
      {.name = "early_stopping",
       .target = mapping<fields_of_early_stopping>(eval.early_stopping),
       .help = "Conditions on eval.monitor that end the run early"},
      {.name = "top_k",
       .target = &eval.top_k,
       .help = "Number of most likely classes of the top-k accuracy, or null",
       .details = "From 2 to 1000000; 5 gives the metric top5_accuracy, the fraction of samples "
                  "whose label is among the 5 most likely classes. null, or no more classes than "
                  "this: no such metric. Classification only.",
       .min = 2,
       .max = 1e6},
      {.name = "num_misclassified",
       .target = &eval.num_misclassified,
       .help = "Number of misclassified samples that are shown",
       .details = "From 0 to 25, those with the highest loss first; in eval/artifacts and "
                  "TensorBoard. Classification only.",
       .min = 0,
       .max = 25},
      {.name = "generate",
       .target = mapping<fields_of_generate>(eval.generate),
       .help = "Text generated with each evaluated checkpoint; null disables it",
       .details = "Written to eval/artifacts and TensorBoard, for language models over bytes or "
                  "with a tokenizer. Captioning uses num_beams only."},
      {.name = "on_best_command",
       .target = &eval.on_best_command,
       .help = "Program and arguments that are run for each new best checkpoint",
       .details =
           "Run without a shell, with the path of the checkpoint as an additional last "
           "argument. Its output goes to the output of the evaluator; a failure is logged "
           "and has no other effect. It is terminated after timeout_seconds. Only the owner and "
           "operators see it. Empty: none.",
       .example = "[/usr/bin/rsync, -a]",
       .is_secret = true}};
}

}  // namespace

const Field* Section::find(std::string_view name) const {
  const auto found = std::ranges::find(fields, name, &Field::name);
  return found == fields.end() ? nullptr : &*found;
}

std::vector<Field> fields_of_event_command(EventCommand& item) {
  return {
      {.name = "events",
       .target = &item.events,
       .help = "Names of events, or patterns such as \"checkpoint *\"",
       .details = "Of stokerd, as in docs/events.md, at level info or above, whatever log.level "
                  "is.",
       .accepts_scalar = true,
       .is_required = true,
       .example = "[checkpoint saved, \"daemon *\"]"},
      {.name = "command",
       .target = &item.command,
       .help = "Program and arguments, run without a shell",
       .details = "The event is on its standard input: a line of the JSON log format.",
       .is_required = true,
       .example = "[/usr/local/bin/notify, admin@example.org]"}};
}

Section run_section(RunConfig& run) {
  return {
      .key = "run",
      .help = "Run directory and reproducibility",
      .fields =
          {{.name = "dir",
            .target = &run.dir,
            .help = "Run directory: checkpoints, metrics, logs, results of the evaluator",
            .details = "Created if it does not exist. One stokerd at a time uses it; a second one "
                       "exits with code 75. --run-dir overrides it."},
           {.name = "seed",
            .target = &run.seed,
            .help = "Seed of the initial weights, the sample order and all other randomness",
            .details = "From 0. The same seed, data and settings give the same run.",
            .min = 0,
            .max = kMaxSeed,
            .affects_result = true,
            .on_resume = OnResume::kData},
           {.name = "rng",
            .target = choice(run.rng),
            .help = "Random numbers of training steps, such as those of dropout",
            .details =
                "sequential: one sequence over the run, from run.seed. per_ticket: a sequence for "
                "each micro-batch, from run.seed and its ticket, so that the numbers do not depend "
                "on the micro-batches before it. Initial weights and samples are the same with "
                "both.",
            .affects_result = true},
           {.name = "deterministic",
            .target = &run.deterministic,
            .help = "Reject nondeterministic kernels",
            .details =
                "true: a kernel whose result depends on timing is an error that names the "
                "operation, cuDNN does not select algorithms by benchmarking, and cuBLAS gets "
                "CUBLAS_WORKSPACE_CONFIG=:4096:8 unless it is set. Costs speed on a GPU. No effect "
                "on the CPU, whose results are reproducible for a fixed train.num_threads."},
           {.name = "allow_group_access",
            .target = &run.allow_group_access,
            .help = "Accept a run directory of another user, or that a group may write to",
            .details =
                "true: the owner and the members of the group of the run directory can change the "
                "run and resume it, and files are created for the group. They are trusted: whoever "
                "starts the run executes what it contains. A run that another user has created is "
                "only accepted if the configuration or command line of whoever starts it has the "
                "setting. false: such a directory is an error (78)."},
           {.name = "on_event_command",
            .target = list<fields_of_event_command>(run.on_event_command),
            .help = "Programs that stokerd runs for events of its log",
            .details =
                "One at a time, terminated after 30 seconds; a failure is logged and has no "
                "other effect. Training never waits for them: of the events that wait, at "
                "most 64 are kept. An event runs the first item that matches. Only the owner and "
                "operators see it.",
            .example = "[{events: [\"daemon *\"], command: [/usr/local/bin/notify]}]",
            .is_secret = true}},
      .variants = {}};
}

Section feed_section(FeedConfig& feed) {
  return {.key = "feed",
          .help = "Reading, order and delivery of samples",
          .fields = concat({producer_fields(feed), shuffle_fields(feed), batch_fields(feed),
                            sample_error_fields(feed), worker_limit_fields(feed),
                            read_ahead_fields(feed)}),
          .variants = {}};
}

Section checkpoint_section(CheckpointConfig& checkpoint) {
  return {.key = "checkpoint",
          .help = "Saving and retention of checkpoints",
          .fields = concat(
              {save_fields(checkpoint), keep_fields(checkpoint), retention_fields(checkpoint)}),
          .variants = {}};
}

Section eval_section(EvalConfig& eval) {
  return {.key = "eval",
          .help = "Evaluation of checkpoints by stoker-eval, a separate process",
          .fields = concat({selection_fields(eval), timing_fields(eval), resource_fields(eval),
                            attempt_fields(eval), metric_fields(eval)}),
          .variants = {}};
}

Section metrics_section(MetricsConfig& metrics) {
  return {
      .key = "metrics",
      .help = "Metrics of training",
      .fields =
          {{.name = "log_every_steps",
            .target = &metrics.log_every_steps,
            .help = "Steps between two records in metrics/train.jsonl",
            .details = "At least 1; the last step is always recorded. On a GPU, each record waits "
                       "for the device.",
            .min = 1,
            .max = kMaxInterval,
            .accepts_epochs = true,
            .on_resume = OnResume::kLive},
           {.name = "tensorboard",
            .target = &metrics.tensorboard,
            .help = "Write event files for TensorBoard",
            .details = "Shown by `tensorboard --logdir runs/demo/tensorboard`."},
           {.name = "histogram_every_steps",
            .target = &metrics.histogram_every_steps,
            .help = "Steps between two histograms of parameters and gradients, or null",
            .details =
                "At least 1; null: none. Written to TensorBoard, one per parameter and gradient. "
                "Such a step takes about 0.05 s longer per million parameters and core.",
            .min = 1,
            .max = kMaxInterval,
            .accepts_epochs = true,
            .example = "1000"},
           {.name = "num_logged_samples",
            .target = &metrics.num_logged_samples,
            .help = "Samples of the first batch that TensorBoard shows",
            .details = "From 0 to 64. Images or text as training receives them, with their labels.",
            .min = 0,
            .max = 64}},
      .variants = {}};
}

namespace {

// The texts must be constants.
Field timeout_field(std::string_view name, std::optional<double>& seconds, std::string_view help,
                    std::string_view details) {
  return {.name = name,
          .target = &seconds,
          .help = help,
          .details = details,
          .min = 0,
          .max = 1e6,
          .exclusive_min = true};
}

}  // namespace

Section watchdog_section(WatchdogConfig& watchdog) {
  return {
      .key = "watchdog",
      .help = "Timeouts of phases that make no progress: warning, stacks, exit code 70",
      .fields = {timeout_field("start_timeout_seconds", watchdog.start_timeout_seconds,
                               "Seconds without progress before training, or null",
                               "Above 0, at most 1000000; null: never. Reading an index is "
                               "progress; the verification of a "
                               "checkpoint, and the creation of the model, are not divided. In a "
                               "group: distributed.start_timeout_seconds instead."),
                 timeout_field("step_timeout_seconds", watchdog.step_timeout_seconds,
                               "Seconds of a micro-batch, or null",
                               "Above 0, at most 1000000; null: never. Set it above the time of "
                               "the slowest one, which is the first on a "
                               "device that compiles kernels. In a group: "
                               "distributed.timeout_seconds instead."),
                 timeout_field("checkpoint_timeout_seconds", watchdog.checkpoint_timeout_seconds,
                               "Seconds to write a checkpoint, or null",
                               "Above 0, at most 1000000; null: never. Of each attempt, from the "
                               "copy of the state to the commit. Set it "
                               "above twice the duration_ms of `checkpoint saved`."),
                 timeout_field("data_timeout_seconds", watchdog.data_timeout_seconds,
                               "Seconds to wait for a batch, or null",
                               "Above 0, at most 1000000; null: never. Set it above "
                               "feed.worker_timeout_seconds, after which a worker that "
                               "hangs is replaced. Waiting for the producer of a stream does not "
                               "count. In a group: distributed.timeout_seconds instead.")},
      .variants = {}};
}

Section control_section(ControlConfig& control) {
  return {.key = "control",
          .help = "Control socket and permissions",
          .fields = {{.name = "socket",
                      .target = &control.socket,
                      .help = "Unix socket for stokerctl: auto, a path, or null",
                      .details = "auto: control.sock in the run directory, or in the "
                                 "RuntimeDirectory of systemd. null: no socket."},
                     {.name = "operators",
                      .target = &control.operators,
                      .help = "Users who may pause, stop and change the run, by name or number",
                      .details = "In addition to the owner of the daemon and root. Other users who "
                                 "can open the socket may only read.",
                      .example = "[alice, 1001]"}},
          .variants = {}};
}

Section http_section(HttpConfig& http) {
  return {
      .key = "http",
      .help = "Read-only HTTP server for monitoring",
      .fields = {{.name = "listen",
                  .target = &http.listen,
                  .help = "Address: unix:PATH, 127.0.0.1:PORT, or null",
                  .details = "Serves a page of the run at /, /metrics (Prometheus), /healthz, "
                             "/readyz and /v1/status. The page shows log and evaluated samples: "
                             "every user of this machine can read a TCP port, but only the "
                             "group a socket. Other addresses are rejected: use ssh -L or a "
                             "reverse proxy. null: no server.",
                  .example = "127.0.0.1:9750"}},
      .variants = {}};
}

Section log_section(LogConfig& log) {
  return {.key = "log",
          .help = "Log of the daemon",
          .fields = {{.name = "level",
                      .target = choice(log.level),
                      .help = "Minimum level of log messages",
                      .details = "Messages below this level are discarded. SIGHUP applies the "
                                 "level of the file, too.",
                      .on_resume = OnResume::kLive},
                     {.name = "format",
                      .target = choice(log.format),
                      .help = "Format of log lines",
                      .details = "text: readable. json: one object per line. In systemd's journal, "
                                 "each field of an event is one of the entry (STOKER_STEP=1200)."}},
          .variants = {}};
}

std::vector<Section> all_sections(Config& config) {
  std::vector<Section> sections = {run_section(config.run)};
  if (const auto train = config.data.find("train"); train != config.data.end())
    sections.push_back(dataset_section(train->first, train->second));
  for (auto& [name, dataset] : config.data)
    if (name != "train") sections.push_back(dataset_section(name, dataset));
  sections.push_back(feed_section(config.feed));
  sections.push_back(model_section(config.model));
  sections.push_back(task_section(config.task));
  sections.push_back(optimizer_section(config.optimizer));
  sections.push_back(scheduler_section(config.scheduler));
  sections.push_back(train_section(config.train));
  sections.push_back(distributed_section(config.distributed));
  sections.push_back(cluster_section(config.cluster));
  sections.push_back(checkpoint_section(config.checkpoint));
  sections.push_back(eval_section(config.eval));
  sections.push_back(metrics_section(config.metrics));
  sections.push_back(watchdog_section(config.watchdog));
  sections.push_back(control_section(config.control));
  sections.push_back(http_section(config.http));
  sections.push_back(log_section(config.log));
  return sections;
}

Section find_section(Config& config, const std::string& key) {
  for (Section& section : all_sections(config))
    if (section.key == key) return std::move(section);
  return {};
}

}  // namespace stoker::config
