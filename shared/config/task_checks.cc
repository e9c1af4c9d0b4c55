#include "shared/config/task_checks.h"

#include <algorithm>
#include <string>

#include "shared/config/training_sets.h"

namespace stoker::config {
namespace {

class TaskChecks {
 public:
  TaskChecks(const Config& config, const GivenKeys& given, Mistakes& mistakes)
      : config_(config), task_(config.task), given_(given), mistakes_(mistakes) {}

  void run() {
    // What a model in a file of the user's reads is seen when it is loaded.
    const bool is_known = !config_.model.is_from_file();
    if (is_known && !mistakes_.touches("task.kind") && !mistakes_.touches("model.kind")) {
      check_model();
      check_data();
    }
    check_normalization();
    check_class_weights();
    check_balanced_weights();
  }

 private:
  void refuse(const std::string& key, const std::string& what) {
    if (!mistakes_.touches(key)) mistakes_.add(given_.place_of(key), key, what);
  }

  // The word of a kind that reads tokens.
  const char* token_model() const {
    switch (config_.model.kind) {
      case ModelKind::kLstm:
        return "lstm";
      case ModelKind::kLayers:
        return "layers";
      default:
        return "gpt";
    }
  }

  void check_model() {
    const bool speaks = task_.kind == TaskKind::kLanguageModel;
    const bool reads_tokens = config_.model.reads_tokens();
    const std::string kind = config_.model.kind == ModelKind::kLayers
                                 ? "a model.stack that begins with an embedding"
                                 : std::string("model.kind ") + token_model();
    if (speaks && !reads_tokens)
      refuse("task.kind",
             "is language_model, which needs model.kind gpt or lstm (or layers that begin with an "
             "embedding); for pictures and numbers write classification or regression");
    if (!speaks && reads_tokens)
      refuse("task.kind", "does not fit " + kind + "; write language_model");
    else
      check_steps();
  }

  // Models that say one thing of a whole sample.
  static bool says_one_thing(ModelKind kind) {
    switch (kind) {
      case ModelKind::kMlp:
      case ModelKind::kLenet:
      case ModelKind::kResnet:
      case ModelKind::kAlexnet:
      case ModelKind::kVgg:
      case ModelKind::kVit:
      case ModelKind::kInceptionV3:
        return true;
      default:
        return false;
    }
  }

  void check_steps() {
    const bool steps = task_.labels_steps();
    if (steps && says_one_thing(config_.model.kind))
      refuse(
          "task.kind",
          "needs a model that says something of each step of a sequence; write model.kind blstm");
    const std::string& states = config_.model.states;
    if (config_.model.kind != ModelKind::kBlstm || mistakes_.touches("model.states")) return;
    if (steps && states != "each")
      refuse("model.states", "is " + states + ", but the task asks about each step; write each");
    if (!steps && states == "each")
      refuse("model.states",
             "is each, but the task asks one thing of a sample; write last or mean");
  }

  void check_data() {
    const bool reads_tokens = config_.model.reads_tokens();
    for (const std::string& name : training_sets(config_)) {
      const auto train = config_.data.find(name);
      if (train == config_.data.end() || mistakes_.touches("data." + name + ".kind")) continue;
      if (train->second.kind == DatasetKind::kMixture) continue;  // its sets are looked at
      const bool is_sequence = train->second.is_sequence();
      // Whether its tokens have labels, the data itself must show.
      if (config_.model.kind == ModelKind::kBlstm) continue;
      if (is_sequence && !reads_tokens)
        refuse("model.kind", "does not read sequences of tokens, which data." + name +
                                 " has; write gpt or lstm, or blstm where they have labels");
      if (!is_sequence && reads_tokens)
        refuse("model.kind", "is " + std::string(token_model()) +
                                 ", which reads sequences of tokens; data." + name +
                                 " must be of kind text or tokens, or have a text");
    }
  }

  void check_normalization() {
    if (task_.mean.empty() || task_.mean.size() != task_.std.size())
      refuse("task.mean",
             "and task.std must have as many numbers: one, or one a channel, such as [0.485, "
             "0.456, 0.406] and [0.229, 0.224, 0.225]");
  }

  void check_class_weights() {
    const std::vector<double>& weights = task_.class_weights;
    const bool any = std::ranges::any_of(weights, [](double weight) { return weight > 0; });
    if (!weights.empty() && !any)
      refuse("task.class_weights", "are all 0, so that no label would count; give one above 0");
  }

  void check_balanced_weights() {
    if (!task_.balanced_weights || mistakes_.touches("task.kind")) return;
    if (task_.kind != TaskKind::kClassification)
      refuse("task.class_weights",
             "is balanced, which is of samples with one label each (task.kind classification); how "
             "often a label is there only reading all samples would tell: give a list of numbers");
    else if (config_.feed.source != FeedSource::kReaders)
      refuse(
          "task.class_weights",
          "is balanced, but what outside producers fill in (feed.source) cannot be counted before "
          "it is there; give a list of numbers");
  }

  const Config& config_;
  const TaskConfig& task_;
  const GivenKeys& given_;
  Mistakes& mistakes_;
};

}  // namespace

void check_task(const Config& config, const GivenKeys& given, Mistakes& mistakes) {
  TaskChecks(config, given, mistakes).run();
}

}  // namespace stoker::config
