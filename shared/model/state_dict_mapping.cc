#include "shared/model/state_dict_mapping.h"

#include <algorithm>
#include <map>
#include <optional>

#include "shared/base/glob.h"

namespace stoker::model {
namespace {

constexpr size_t kMaxNamed = 5;

class StateDictMapper {
 public:
  StateDictMapper(const std::vector<TensorSpec>& needed, const checkpoint::TensorSource& file,
                  const config::PretrainedConfig& config)
      : needed_(needed), file_(file), strict_(config.strict) {
    for (const config::KeyMapping& rule : config.key_mapping)
      rules_.push_back({NameGlob(rule.from), rule, 0});
    for (const std::string& glob : config.exclude)
      ignored_.push_back({NameGlob(glob), {.from = glob, .to = ""}, 0});
  }

  StateDictMapping run() {
    rename();
    for (size_t i = 0; i < needed_.size(); ++i) map_tensor(i);
    for (const auto& [name, spec] : available_) add_unexpected(name, *spec);
    for (const std::string& other : file_.non_tensor_keys())
      mapping_.unexpected.push_back(other + ", not a tensor");
    check_used();
    if (mapping_.loads.empty() && mapping_.problems.empty())
      problem("no tensor of the file matches a tensor of the model by name");
    return std::move(mapping_);
  }

 private:
  struct Rule {
    NameGlob glob;
    config::KeyMapping rule;
    size_t matched = 0;
  };

  void problem(const std::string& what) { mapping_.problems.push_back(what); }

  // Maps the names of the file to names in the model.
  void rename() {
    for (const TensorSpec& spec : file_.tensors()) {
      std::string name = spec.name;
      for (Rule& rule : rules_) {
        const auto parts = rule.glob.match_parts(spec.name);
        if (!parts) continue;
        ++rule.matched;
        name = expand_wildcards(rule.rule.to, *parts);
        break;
      }
      const auto [other, is_new] = available_.emplace(name, &spec);
      if (!is_new)
        problem("'" + other->second->name + "' and '" + spec.name + "' are both mapped to '" +
                name + "' by model.pretrained.key_mapping");
    }
  }

  bool is_ignored(const std::string& name) {
    bool ignored = false;
    for (Rule& rule : ignored_) {
      if (!rule.glob.matches(name)) continue;
      ++rule.matched;
      ignored = true;
    }
    return ignored;
  }

  void map_tensor(size_t index) {
    const TensorSpec& needed = needed_[index];
    const auto found = available_.find(needed.name);
    if (is_ignored(needed.name)) {
      mapping_.missing.push_back(to_string(needed) + ", ignored");
      return;
    }
    if (found == available_.end()) {
      mapping_.missing.push_back(to_string(needed) + ", not in the file");
      if (strict_) problem("missing " + to_string(needed));
      return;
    }
    const TensorSpec& spec = *found->second;
    available_.erase(found);
    const bool fits = spec.shape == needed.shape &&
                      (spec.dtype == needed.dtype || is_widening(spec.dtype, needed.dtype));
    if (!fits) {
      problem("has " + to_string(spec) + ", expected " + to_string(needed));
      return;
    }
    mapping_.loads.push_back({index, spec.name});
    mapping_.loaded.push_back(to_string(needed) + ", from " +
                              (spec.dtype == needed.dtype ? spec.name : to_string(spec)));
  }

  void add_unexpected(const std::string& name, const TensorSpec& spec) {
    const std::string renamed = name == spec.name ? "" : " (here " + name + ")";
    if (is_ignored(name)) {
      mapping_.unexpected.push_back(to_string(spec) + renamed + ", ignored");
      return;
    }
    mapping_.unexpected.push_back(to_string(spec) + renamed + ", not in the model");
    if (strict_) problem("unexpected " + to_string(spec) + renamed);
  }

  // A pattern that matches nothing is an error in the configuration.
  void check_used() {
    for (const Rule& rule : rules_)
      if (rule.matched == 0)
        problem("model.pretrained.key_mapping: from '" + rule.rule.from +
                "' matches no tensor of the file that is left by earlier rules");
    for (const Rule& rule : ignored_)
      if (rule.matched == 0)
        problem("model.pretrained.exclude: '" + rule.rule.from +
                "' matches no tensor of either side");
  }

  const std::vector<TensorSpec>& needed_;
  const checkpoint::TensorSource& file_;
  const bool strict_;
  std::vector<Rule> rules_, ignored_;
  std::map<std::string, const TensorSpec*> available_;  // by mapped name
  StateDictMapping mapping_;
};

}  // namespace

Status StateDictMapping::status() const {
  if (problems.empty()) return {};
  std::string text;
  for (size_t i = 0; i < std::min(problems.size(), kMaxNamed); ++i)
    text += (i > 0 ? "; " : "") + problems[i];
  if (problems.size() > kMaxNamed)
    text += "; and " + std::to_string(problems.size() - kMaxNamed) + " more";
  return Status(StatusCode::kMismatch, "the file does not fit the model: " + text);
}

std::string StateDictMapping::report() const {
  std::string text;
  const auto add = [&text](const char* word, const std::vector<std::string>& lines) {
    for (const std::string& line : lines) text += word + line + '\n';
  };
  add("problem ", problems);
  add("missing    ", missing);
  add("unexpected ", unexpected);
  add("loaded     ", loaded);
  return text;
}

StateDictMapping map_state_dict(const std::vector<TensorSpec>& needed,
                                const checkpoint::TensorSource& file,
                                const config::PretrainedConfig& config) {
  return StateDictMapper(needed, file, config).run();
}

bool is_widening(DType from, DType to) {
  return to == DType::kF32 && (from == DType::kF16 || from == DType::kBF16);
}

}  // namespace stoker::model
