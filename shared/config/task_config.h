// TaskConfig: the settings under task: what is asked of the model.
//
// Threads: values.
#pragma once

namespace stoker::config {

enum class TaskKind { kLanguageModel, kClassification, kRegression };
struct TaskConfig {
  TaskKind kind = TaskKind::kLanguageModel;

  bool operator==(const TaskConfig&) const = default;
};

}  // namespace stoker::config
