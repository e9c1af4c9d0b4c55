// RunLayout: the paths of all files in a run directory, defined only here. docs/architecture.md
// lists them.
//
// Threads: immutable.
#pragma once

#include <string>

namespace stoker::run {

class RunLayout {
 public:
  explicit RunLayout(std::string run_dir) : root_(std::move(run_dir)) {}

  const std::string& root() const { return root_; }
  std::string lock_file() const { return at("LOCK"); }  // flock held by the running stokerd
  std::string exit_status_file() const { return at("exit_status.json"); }  // absent while running
  // The exit_status.json of before the present start, until that start is accepted (run_state.h).
  std::string former_exit_status_file() const { return at("former_exit_status.json"); }
  // How the newest start ended, if it did before it was accepted.
  std::string last_start_file() const { return at("last_start.json"); }
  std::string paused_file() const { return at("paused.json"); }  // while training is paused
  // Consecutive restarts without progress.
  std::string restart_count_file() const { return at("restart_count.json"); }
  // The newest committed checkpoint.
  std::string last_checkpoint_file() const { return at("last_checkpoint.json"); }
  // Which checkpoints the present state descends from (lineage.h).
  std::string lineage_file() const { return at("lineage.jsonl"); }
  // Of the steps before and after --allow-batch-change (batch_sizes.h).
  std::string batch_sizes_file() const { return at("batch_sizes.json"); }
  // What was changed while the run trained: one JSON object per line.
  std::string setting_changes_file() const { return at("setting_changes.jsonl"); }
  std::string rollback_file() const { return at("rollback.json"); }
  std::string config_file() const { return at("config.yaml"); }  // the resolved configuration
  std::string control_socket() const { return at("control.sock"); }
  // Of data.train.stream.source external.
  std::string producer_socket() const { return at("producers.sock"); }
  std::string sample_errors_file() const { return at("sample_errors.jsonl"); }
  // Of a stream that cannot be read again: what was read behind the newest checkpoint.
  std::string stream_history_file() const { return at("stream_history"); }
  // Versions of refreshable data.
  std::string dataset_versions_file() const { return at("dataset_versions.jsonl"); }
  // What the classes and input columns of data.train are (DatasetSchema), for all programs. Written by
  // stokerd at each start.
  std::string data_schema_file() const { return at("data_schema.json"); }
  std::string index_dir() const { return at("index"); }  // of the datasets that the trainer reads
  std::string checkpoints_dir() const { return at("checkpoints"); }
  std::string tensorboard_dir() const { return at("tensorboard"); }
  std::string logs_dir() const { return at("logs"); }
  std::string trainer_log() const { return at("logs/stokerd.log"); }
  // Of a process that its watchdog has ended at `time`.
  std::string stack_traces_file(const std::string& time) const {
    return logs_dir() + "/stacks-" + time + ".txt";
  }
  std::string evaluator_log() const { return at("logs/stoker-eval.log"); }
  // The last collectives of a rank of a group, after it has lost another one.
  std::string flight_recorder_file() const { return at("logs/flight_recorder.jsonl"); }
  // For model.pretrained.
  std::string pretrained_load_report() const { return at("logs/pretrained_load_report.txt"); }
  // Of a rank of a group other than the chief: its log, lock and sample errors, at the paths of a run.
  std::string rank_dir(int rank) const { return at("ranks") + "/" + std::to_string(rank); }
  // Of asynchronous training with parameter servers: what each server has applied, in which order.
  // What the processes of a group prove to each other that they know; only its owner can read it.
  std::string group_secret_file() const { return at("group_secret"); }
  std::string profiles_dir() const { return at("profiles"); }  // of `stokerctl profile`
  std::string metrics_dir() const { return at("metrics"); }
  std::string train_metrics_file() const { return at("metrics/train.jsonl"); }
  std::string eval_metrics_file() const { return at("metrics/eval.jsonl"); }
  // The metrics of the run, with which values are better (eval_metrics::MetricTable). Written by
  // stokerd before config_file(), read by all programs.
  std::string metric_table_file() const { return at("metrics/table.json"); }
  std::string eval_dir() const { return at("eval"); }  // written by the evaluator
  std::string eval_lock_file() const { return at("eval/LOCK"); }
  std::string eval_exit_status_file() const {
    return at("eval/exit_status.json");
  }  // absent while it runs
  // Of the datasets that the evaluator reads.
  std::string eval_index_dir() const { return at("eval/index"); }
  std::string evaluation_outcomes_file() const { return at("eval/outcomes.jsonl"); }
  // Written by stokerctl and stokerd, read and removed by the evaluator.
  std::string evaluation_requests_dir() const { return at("eval/requests"); }
  std::string evaluation_progress_file() const { return at("eval/progress.json"); }
  std::string attempts_file() const { return at("eval/attempts.json"); }
  // Human-readable texts and images.
  std::string eval_artifacts_dir() const { return at("eval/artifacts"); }
  std::string best_file() const { return at("eval/best.json"); }
  std::string early_stop_file() const { return at("eval/early_stop.json"); }

 private:
  std::string at(const char* name) const { return root_ + "/" + name; }
  std::string root_;
};

}  // namespace stoker::run
