// TaskConfig: the settings under task: what is asked of the model.
//
// Threads: values.
#pragma once

#include <vector>

namespace stoker::config {

enum class TaskKind { kLanguageModel, kClassification, kRegression, kMultiLabel, kTagging, kCtc };

struct TaskConfig {
  TaskKind kind = TaskKind::kLanguageModel;
  // Pictures of bytes become (x / 255 - mean) / std; one number, or one a channel.
  std::vector<double> mean = {0.5};
  std::vector<double> std = {0.5};
  // classification tagging: share of the target that is spread over all classes, in training
  double label_smoothing = 0;
  double mixup = 0;         // classification: alpha of the share; 0 = off
  double cutmix = 0;        // classification: the same, of a part of the picture
  double aux_weight = 0.4;  // classification: of the loss of a model's auxiliary head
  // classification tagging: what a label of each class counts in the loss; multi_label: what a label
  // that is true does. Empty: 1.
  std::vector<double> class_weights;
  // classification: class_weights: balanced. The numbers follow from how often each class is the label
  // of a sample; who has found them puts them into class_weights.
  bool balanced_weights = false;
  // ctc: a sample with more labels than its steps can hold counts 0, not infinity
  bool zero_infinity = false;

  // Whether the model is to say something of each step of a sequence, and of its labels there are
  // several.
  bool labels_steps() const { return kind == TaskKind::kTagging || kind == TaskKind::kCtc; }

  bool operator==(const TaskConfig&) const = default;
};

}  // namespace stoker::config
