#include "shared/pretrained/state_dict_mapping.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

namespace stoker::pretrained {
namespace {

constexpr size_t kMaxNamed = 5;
constexpr std::string_view kPositions = "encoder.pos_embedding";  // of a vit

class StateDictMapper {
 public:
  StateDictMapper(const std::vector<TensorSpec>& needed, const checkpoint::TensorSource& file,
                  const config::PretrainedConfig& config, const checkpoint::HuggingFaceNames* names)
      : needed_(needed),
        file_(file),
        strict_(config.strict),
        names_(names),
        rules_(config.key_mapping) {
    for (const std::string& glob : config.exclude) ignored_.push_back({NameGlob(glob), glob});
  }

  StateDictMapping run() {
    rename();
    if (names_ != nullptr) tie_head();
    for (size_t i = 0; i < needed_.size(); ++i) map_tensor(i);
    std::erase_if(mapping_.copies, [&](const StateDictMapping::Load& copy) {  // not if excluded
      return std::ranges::count(mapping_.loads, copy.tensor, &StateDictMapping::Load::tensor) == 0;
    });
    for (const StateDictMapping::Load& copy : mapping_.copies)
      mapping_.loaded.push_back(to_string(needed_[copy.tensor]) + ", again from " + copy.from);
    for (const auto& [name, found] : available_) add_unexpected(name, *found.spec);
    for (const std::string& other : file_.non_tensor_keys())
      mapping_.unexpected.push_back(other + ", not a tensor");
    check_used();
    if (mapping_.loads.empty() && mapping_.problems.empty())
      problem("no tensor of the file matches a tensor of the model by name");
    if (!has_common_name_ && rules_.empty()) mapping_.suggestion = suggest_prefix();
    return std::move(mapping_);
  }

  std::vector<TensorSpec> tensors() {
    rename();
    std::vector<TensorSpec> specs;
    for (const auto& [name, found] : available_) {
      if (is_ignored(name)) continue;
      TensorSpec& spec = specs.emplace_back(*found.spec);
      spec.name = name;
      if (found.is_transposed) std::ranges::reverse(spec.shape);
      if (is_widening(spec.dtype, DType::kF32)) spec.dtype = DType::kF32;
    }
    return specs;
  }

 private:
  struct Available {
    const TensorSpec* spec;
    bool is_transposed;
  };
  struct Ignored {
    NameGlob glob;
    std::string pattern;
    bool is_used = false;
  };

  void problem(const std::string& what) { mapping_.problems.push_back(what); }

  // Maps the names of the file to names in the model.
  void rename() {
    for (const TensorSpec& spec : file_.tensors()) {
      const checkpoint::HuggingFaceNames::Name name = map_name(spec);
      if (names_ != nullptr && names_->is_ignored(name.name)) {
        mapping_.unexpected.push_back(to_string(spec) + ", not used, ignored");
        continue;
      }
      const auto [other, is_new] =
          available_.emplace(name.name, Available{&spec, name.is_transposed});
      if (!is_new)
        problem("'" + other->second.spec->name + "' and '" + spec.name + "' are both mapped to '" +
                name.name + "'" + (rules_.empty() ? "" : " by model.pretrained.key_mapping"));
    }
  }

  checkpoint::HuggingFaceNames::Name map_name(const TensorSpec& spec) {
    const std::optional<std::string> renamed = rules_.rename(spec.name);
    const std::string& name = renamed ? *renamed : spec.name;
    if (names_ == nullptr) return {name};
    if (auto known = names_->to_stoker(name)) return *std::move(known);
    // A rule changes the name of a tensor, not its layout.
    const auto theirs = renamed ? names_->from_stoker(name) : std::nullopt;
    return {name, theirs && theirs->is_transposed};
  }

  // A model with a tied head has the embedding only; a file can have either, or both.
  void tie_head() {
    const auto is_head = [](const TensorSpec& spec) {
      return spec.name == checkpoint::kHeadWeight;
    };
    const auto head = available_.find(std::string(checkpoint::kHeadWeight));
    if (head == available_.end() || std::ranges::any_of(needed_, is_head) ||
        is_ignored(head->first))
      return;
    const auto [embedding, is_only] =
        available_.emplace(std::string(checkpoint::kEmbeddingWeight), head->second);
    const TensorSpec& spec = *head->second.spec;
    available_.erase(head);
    if (is_only) return;
    const TensorSpec& tied = *embedding->second.spec;
    for (size_t i = 0; i < needed_.size(); ++i)
      if (needed_[i].name == checkpoint::kEmbeddingWeight && spec.shape == tied.shape &&
          spec.dtype == tied.dtype) {
        mapping_.copies.push_back({i, spec.name});
        return;
      }
    problem("has " + to_string(spec) + " and " + to_string(tied) + ", which are tied");
  }

  bool is_ignored(const std::string& name) {
    bool ignored = false;
    for (Ignored& each : ignored_) {
      if (!each.glob.matches(name)) continue;
      each.is_used = true;
      ignored = true;
    }
    return ignored;
  }

  void map_tensor(size_t index) {
    const TensorSpec& needed = needed_[index];
    const auto found = available_.find(needed.name);
    if (found != available_.end()) has_common_name_ = true;
    if (is_ignored(needed.name)) {
      mapping_.missing.push_back(to_string(needed) + ", ignored");
      return;
    }
    // As in PyTorch: files from before version 0.4.1 lack it, and it is not used.
    if (found == available_.end() && needed.name.ends_with(".num_batches_tracked")) {
      mapping_.missing.push_back(to_string(needed) + ", not in the file, unchanged");
      return;
    }
    if (found == available_.end()) {
      mapping_.missing.push_back(to_string(needed) + ", not in the file");
      if (strict_) problem("missing " + to_string(needed));
      return;
    }
    const auto [found_spec, is_transposed] = found->second;
    const TensorSpec& spec = *found_spec;
    available_.erase(found);
    std::vector<int64_t> shape = spec.shape;
    if (is_transposed) std::ranges::reverse(shape);
    const bool fits = shape == needed.shape &&
                      (spec.dtype == needed.dtype || is_widening(spec.dtype, needed.dtype));
    if (!fits) {
      problem("has " + to_string(spec) + ", expected " + to_string(needed) +
              (is_transposed ? ", transposed" : "") +
              (needed.name == kPositions ? ", for another number of patches: use images, and "
                                           "patches, of the size of the file"
                                         : ""));
      return;
    }
    mapping_.loads.push_back({index, spec.name, is_transposed});
    mapping_.loaded.push_back(to_string(needed) + ", from " +
                              (spec.dtype == needed.dtype ? spec.name : to_string(spec)) +
                              (is_transposed ? ", transposed" : ""));
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
    for (const std::string& from : rules_.unused())
      problem("model.pretrained.key_mapping: from '" + from +
              "' matches no tensor of the file that is left by earlier rules");
    for (const Ignored& each : ignored_)
      if (!each.is_used)
        problem("model.pretrained.exclude: '" + each.pattern +
                "' matches no tensor of either side");
  }

  // A prefix of a wrapper (DistributedDataParallel, Lightning, torch.compile), or of a model that the
  // file's is a part of.
  std::string suggest_prefix() const {
    std::vector<std::string> ours, theirs;
    for (const TensorSpec& spec : needed_) ours.push_back(spec.name);
    for (const TensorSpec& spec : file_.tensors()) theirs.push_back(spec.name);
    const auto to_ours = [&](const std::string& name) {
      const auto known = names_ == nullptr ? std::nullopt : names_->to_stoker(name);
      return known ? known->name : name;
    };
    const auto set = [](const std::string& prefix, const std::string& from, const std::string& to) {
      return " have the prefix '" + prefix + "'; set model.pretrained.key_mapping: [{from: \"" +
             from + "\", to: \"" + to + "\"}]";
    };
    if (const std::string prefix = find_prefix(theirs, ours, to_ours); !prefix.empty())
      return "the names in the file" + set(prefix, prefix + "*", "*");
    if (names_ != nullptr) return {};  // which do not know names below a prefix of ours
    if (const std::string prefix = find_prefix(ours, theirs, std::identity()); !prefix.empty())
      return "the names in the model" + set(prefix, "*", prefix + "*");
    return {};
  }

  // The prefix, with its dot, without which most of either side's names are in `wanted`; empty: none,
  // or a rule would have to escape it.
  static std::string find_prefix(const std::vector<std::string>& names,
                                 const std::vector<std::string>& wanted, const auto& translate) {
    const std::set<std::string> known(wanted.begin(), wanted.end());
    std::map<std::string, size_t> counts;
    for (const std::string& name : names)
      for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
        if (known.contains(translate(name.substr(dot + 1)))) ++counts[name.substr(0, dot + 1)];
    const auto most =
        std::ranges::max_element(counts, {}, [](const auto& counted) { return counted.second; });
    const bool is_most =
        most != counts.end() && 2 * most->second > std::min(names.size(), wanted.size());
    const bool is_plain = is_most && most->first.find_first_of("*?[]\"\\") == std::string::npos;
    return is_plain ? most->first : std::string();
  }

  const std::vector<TensorSpec>& needed_;
  const checkpoint::TensorSource& file_;
  const bool strict_;
  const checkpoint::HuggingFaceNames* const names_;
  KeyMappingRules rules_;
  std::vector<Ignored> ignored_;
  std::map<std::string, Available> available_;  // by mapped name
  bool has_common_name_ = false;
  StateDictMapping mapping_;
};

}  // namespace

Status StateDictMapping::status() const {
  if (problems.empty()) return {};
  if (!suggestion.empty())
    return Status(StatusCode::kMismatch, "the file does not fit the model: " + suggestion);
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
  if (!suggestion.empty()) add("suggestion ", {suggestion});
  add("problem ", problems);
  add("missing    ", missing);
  add("unexpected ", unexpected);
  add("loaded     ", loaded);
  return text;
}

StateDictMapping map_state_dict(const std::vector<TensorSpec>& needed,
                                const checkpoint::TensorSource& file,
                                const config::PretrainedConfig& config,
                                const checkpoint::HuggingFaceNames* names) {
  return StateDictMapper(needed, file, config, names).run();
}

std::vector<TensorSpec> mapped_tensors(const checkpoint::TensorSource& file,
                                       const config::PretrainedConfig& config,
                                       const checkpoint::HuggingFaceNames* names) {
  const std::vector<TensorSpec> none;
  return StateDictMapper(none, file, config, names).tensors();
}

KeyMappingRules::KeyMappingRules(const std::vector<config::KeyMapping>& rules) {
  for (const config::KeyMapping& rule : rules) rules_.push_back({NameGlob(rule.from), rule});
}

std::optional<std::string> KeyMappingRules::rename(const std::string& name) {
  for (Rule& rule : rules_) {
    const auto parts = rule.glob.match_parts(name);
    if (!parts) continue;
    rule.is_used = true;
    return expand_wildcards(rule.rule.to, *parts);
  }
  return std::nullopt;
}

std::vector<std::string> KeyMappingRules::unused() const {
  std::vector<std::string> patterns;
  for (const Rule& rule : rules_)
    if (!rule.is_used) patterns.push_back(rule.rule.from);
  return patterns;
}

bool is_widening(DType from, DType to) {
  return to == DType::kF32 && (from == DType::kF16 || from == DType::kBF16);
}

}  // namespace stoker::pretrained
