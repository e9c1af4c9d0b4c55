#include "shared/config/cross_checks.h"

#include <algorithm>
#include <set>
#include <string>

#include "shared/config/growth_checks.h"
#include "shared/config/length_checks.h"
#include "shared/config/mixture_checks.h"
#include "shared/config/model_checks.h"
#include "shared/config/nearest_word.h"
#include "shared/config/task_checks.h"

namespace stoker::config {
namespace {

constexpr int64_t kByteValues = 256;

class CrossChecks {
 public:
  CrossChecks(const Config& config, const GivenKeys& given, Mistakes& mistakes)
      : config_(config), given_(given), mistakes_(mistakes) {}

  void run() {
    if (!config_.data.contains("train"))
      refuse(
          "data.train",
          "is missing; name the data to train on, such as 'train: {kind: text, path: corpus.txt}'");
    for (const auto& [name, set] : config_.data) check_dataset("data." + name, set);
    check_mixtures(config_, given_, mistakes_);
    check_growth(config_, given_, mistakes_);
    check_lengths(config_, given_, mistakes_);
    check_feed();
    check_model(config_.model, given_, mistakes_);
    check_sequences();
    check_task(config_, given_, mistakes_);
    check_optimizer();
    check_device();
    check_eval();
    if (!config_.control.http.empty())
      refuse("control.http", "is not served by this version; leave it empty");
    if (config_.run.dir.empty()) refuse("run.dir", "must name a directory");
    if (config_.control.socket.empty())
      refuse("control.socket", "must be auto, off, or the path of a socket");
  }

 private:
  void refuse(const std::string& key, const std::string& what) {
    if (!mistakes_.touches(key)) mistakes_.add(given_.place_of(key), key, what);
  }

  void check_dataset(const std::string& key, const DatasetConfig& set) {
    if (mistakes_.touches(key + ".kind")) return;
    const bool is_made = set.kind == DatasetKind::kSynthetic || set.kind == DatasetKind::kMixture;
    if (!is_made && set.path.empty() && set.list.empty())
      refuse(key + ".path", "is missing; name the file or folder of the data");
    const bool is_part = set.split.size() == 2 && set.split[0] < set.split[1];
    if (!is_part)
      refuse(key + ".split", "must be the part [from, to) with from below to, such as [0.0, 0.9]");
    check_transforms(key, set);
    if (!set.weights_file.empty() && set.repeat != 1)
      refuse(key + ".repeat", "means nothing where samples are drawn by " + key +
                                  ".weights_file; leave one of them out");
    switch (set.kind) {
      case DatasetKind::kText:
      case DatasetKind::kTokens:
      case DatasetKind::kMixture:  // check_mixtures()
        break;
      case DatasetKind::kImages:
        if (set.size.size() != 2)
          refuse(key + ".size", "must be [height, width] in pixels, such as [224, 224]");
        if (set.channels == 2) refuse(key + ".channels", "must be 1 (grey) or 3 (RGB)");
        check_list(key, set);
        break;
      case DatasetKind::kIdx:
        if (set.labels.empty())
          refuse(key + ".labels",
                 "is missing; name the file of the labels, such as train-labels-idx1-ubyte");
        break;
      case DatasetKind::kCifar:
        if (set.classes != 10 && set.classes != 100) refuse(key + ".classes", "must be 10 or 100");
        break;
      case DatasetKind::kNpy:
        check_arrays(key, set);
        break;
      case DatasetKind::kJsonl:
      case DatasetKind::kTfrecord:
      case DatasetKind::kTar:
        if (!set.is_padded()) check_fields(key, set);  // else check_lengths()
        break;
      case DatasetKind::kCsv:
        check_fields(key, set);
        if (set.delimiter != "tab" && (set.delimiter.size() != 1 || set.delimiter == "\""))
          refuse(key + ".delimiter", "must be one character, and no quote, or the word tab");
        break;
      case DatasetKind::kSynthetic:
        if (set.samples == 0) refuse(key + ".samples", "is missing; say how many");
        if (set.features.empty())
          refuse(key + ".features", "is missing; give the shape of the input, such as [3, 32, 32]");
        break;
    }
  }

  // Nothing in a configuration is ignored: a number that the way of cropping does not use is a
  // mistake.
  void check_transforms(const std::string& key, const DatasetConfig& set) {
    const DatasetConfig defaults;
    if (set.has_fields() && set.size.empty() && set.fit != defaults.fit)
      refuse(key + ".fit", "is only used where the input is a picture, which has a size");
    if (set.fit != "center_crop" && set.crop_part != defaults.crop_part)
      refuse(key + ".crop_part", "is only used with fit: center_crop");
    if (set.fit != "random_crop" && set.crop_area != defaults.crop_area)
      refuse(key + ".crop_area", "is only used with fit: random_crop");
    if (set.fit != "random_crop" && set.crop_ratio != defaults.crop_ratio)
      refuse(key + ".crop_ratio", "is only used with fit: random_crop");
    const auto is_interval = [](const std::vector<double>& numbers) {
      return numbers.size() == 2 && numbers[0] <= numbers[1];
    };
    if (!is_interval(set.crop_area))
      refuse(key + ".crop_area", "must be [from, to] with from not above to, such as [0.08, 1.0]");
    if (!is_interval(set.crop_ratio))
      refuse(key + ".crop_ratio",
             "must be [from, to] with from not above to, such as [0.75, 1.3333]");
    if (set.jitter.size() != 4 || set.jitter[3] > 0.5)
      refuse(key + ".jitter",
             "must be [brightness, contrast, saturation, hue] with a hue of at most 0.5, such as "
             "[0.4, 0.4, 0.4, 0.1]");
  }

  void check_list(const std::string& key, const DatasetConfig& set) {
    if (set.input.size() > 1) refuse(key + ".input", "must be one column, that of the paths");
    if (!set.list.empty() && set.glob != DatasetConfig().glob)
      refuse(key + ".glob", "is not read with a list; remove it");
    if (!set.list.empty()) return;
    const std::string only = "is only read with a list; remove it";
    if (!set.input.empty()) refuse(key + ".input", only);
    if (!set.label.empty()) refuse(key + ".label", only);
    if (set.classes != 0) refuse(key + ".classes", only);
  }

  void check_arrays(const std::string& key, const DatasetConfig& set) {
    if (set.input.size() > 1) refuse(key + ".input", "must be one array");
    if (set.target.size() > 1) refuse(key + ".target", "must be one array");
    if (!set.label.empty() && !set.target.empty())
      refuse(key + ".target", "goes without a label; remove one of the two");
  }

  // Of kinds whose records have named fields.
  void check_fields(const std::string& key, const DatasetConfig& set) {
    const bool has_input = !set.input.empty(),
               has_answer = !set.label.empty() || !set.target.empty();
    if (!set.text.empty()) {
      if (has_input || has_answer)
        refuse(key + ".text", "goes without input, label and target; remove it or these");
      return;
    }
    // Without one, a csv's input is every other column.
    if (!has_input && set.kind != DatasetKind::kCsv) {
      refuse(key + ".input",
             "is missing; name the field that is the input (or, for a language "
             "model, a text)");
      return;
    }
    if (!set.is_table() && set.size.empty() == set.shape.empty())
      refuse(key + ".size",
             "is needed, such as [224, 224], where the input is a picture, and "
             "otherwise shape: one of the two");
    if (!set.size.empty() && set.size.size() != 2)
      refuse(key + ".size", "must be [height, width] in pixels, such as [224, 224]");
    if (set.channels == 2) refuse(key + ".channels", "must be 1 (grey) or 3 (RGB)");
    if (!has_answer)
      refuse(key + ".label",
             "is missing; name the field that is the class (or, for a regression, "
             "a target)");
    if (!set.label.empty() && !set.target.empty())
      refuse(key + ".target", "goes without a label; remove one of the two");
  }

  void check_feed() {
    if (config_.feed.isolation == Isolation::kProcess &&
        config_.feed.processes > config_.feed.readers.value_or(config_.feed.processes) &&
        !mistakes_.touches("feed.readers"))
      refuse("feed.processes", "is " + std::to_string(config_.feed.processes) + ", more than the " +
                                   std::to_string(*config_.feed.readers) +
                                   " threads of feed.readers that they share; raise feed.readers");
  }

  void check_sequences() {
    const ModelConfig& model = config_.model;
    const bool has_context = model.kind == ModelKind::kGpt || model.kind == ModelKind::kLstm;
    const bool has_vocab = has_context || model.kind == ModelKind::kBlstm;
    if (!has_vocab || mistakes_.touches("model.kind")) return;
    for (const auto& [name, set] : config_.data) {
      const std::string key = "data." + name;
      if (!set.is_sequence() || mistakes_.touches(key + ".kind")) continue;
      if (has_context && set.context > model.context && !mistakes_.touches("model.context"))
        refuse(key + ".context", "is " + std::to_string(set.context) +
                                     " tokens, more than model.context (" +
                                     std::to_string(model.context) + ")");
      if (set.is_of_bytes() && model.vocab < kByteValues)
        refuse("model.vocab", "is " + std::to_string(model.vocab) + ", but " + key +
                                  " is of bytes: at least " + std::to_string(kByteValues));
    }
  }

  void check_optimizer() {
    const auto& betas = config_.optimizer.betas;
    const bool fits = betas.size() == 2 && betas[0] < 1 && betas[1] < 1;
    if (!fits)
      refuse("optimizer.betas", "must be two numbers from 0 to below 1, such as [0.9, 0.95]");
    if (config_.optimizer.kind == OptimizerKind::kMomentum && config_.optimizer.nesterov &&
        config_.optimizer.momentum == 0)
      refuse("optimizer.nesterov", "needs optimizer.momentum above 0");
  }

  void check_device() {
    const std::string& device = config_.train.device;
    if (device == "auto" || device == "cpu" || device == "cuda") return;
    const std::string prefix = "cuda:";
    const std::string number = device.starts_with(prefix) ? device.substr(prefix.size()) : "";
    const bool is_number = !number.empty() && number.size() <= 2 &&
                           std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; });
    if (!is_number)
      refuse("train.device", "is " + quoted(device) + "; it must be auto, cpu, cuda or cuda:N");
  }

  void check_eval() {
    std::set<std::string> seen;
    std::vector<std::string> names;
    for (const auto& [name, set] : config_.data) names.push_back(name);
    for (const std::string& name : config_.eval.sets) {
      if (!seen.insert(name).second) refuse("eval.sets", "names " + quoted(name) + " twice");
      if (config_.data.contains(name)) continue;
      const std::string near = nearest_word(name, names);
      refuse("eval.sets", "names " + quoted(name) + ", but there is no data." + one_line(name, 60) +
                              (near.empty() ? "" : "; did you mean " + quoted(near) + "?"));
    }
    if (config_.eval.weights == "ema" && config_.train.ema == 0)
      refuse("eval.weights", "is ema, but train.ema keeps no average; set it, such as to 0.999");
    check_metric("eval.metric", "is ", config_.eval.metric);
    for (const std::string& metric : config_.checkpoint.keep_best_by)
      check_metric("checkpoint.keep_best_by", "names ", metric);
    if (!config_.eval.on_best.empty() && config_.eval.on_best.front().empty())
      refuse("eval.on_best", "begins with an empty text; the first is the program");
  }

  void check_metric(const std::string& key, const std::string& verb, const std::string& metric) {
    const size_t slash = metric.find('/');
    if (slash == std::string::npos) return;
    const std::string set = metric.substr(0, slash);
    if (std::ranges::count(config_.eval.sets, set) == 0)
      refuse(key, verb + quoted(metric) + ", but eval.sets does not name " + quoted(set));
  }

  const Config& config_;
  const GivenKeys& given_;
  Mistakes& mistakes_;
};

}  // namespace

void check_together(const Config& config, const GivenKeys& given, Mistakes& mistakes) {
  CrossChecks(config, given, mistakes).run();
}

}  // namespace stoker::config
