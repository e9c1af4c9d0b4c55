// StateDictMapping: assigns the tensors of a file to the tensors of a model that is initialized
// from it, and lists what remains on either side. Implements key_mapping, exclude and strict of
// model.pretrained.
//
// Names are mapped first: the first rule of key_mapping whose `from` matches a name in the file
// renames it. Then the names of a Hugging Face folder are mapped by its table; a rule can also give
// the name in the model itself, and the tensor is transposed as that of the table. Then names on
// either side that match a glob of exclude are ignored. The remaining names must agree; with strict:
// false, tensors that only one side has are ignored too.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "shared/base/glob.h"
#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/checkpoint/huggingface.h"
#include "shared/checkpoint/tensor_source.h"
#include "shared/config/model_config.h"

namespace stoker::pretrained {

struct StateDictMapping {
  struct Load {
    size_t tensor = 0;  // index in the model
    std::string from;   // in the file
    bool is_transposed = false;
  };
  std::vector<Load> loads;
  // Tensors of the file that must equal one of the model: a tied weight that is stored twice.
  std::vector<Load> copies;
  // For display, one tensor per line: "blocks.0.qkv.bias F32 [576], from h.0.attn.bias".
  std::vector<std::string> loaded;
  std::vector<std::string> unexpected;  // in the file
  std::vector<std::string> missing;     // in the model
  std::vector<std::string> problems;    // all of them; if there are any, nothing may be loaded
  // The likely cause of the problems, and what to set: one side has its names below a prefix. Empty:
  // unknown.
  std::string suggestion;

  // kMismatch: reports the suggestion, else the first problems and the number of the others.
  Status status() const;
  // All lists as text, one entry per line.
  std::string report() const;
};

// `needed`: the tensors of the model. `names`: of a Hugging Face folder, otherwise null.
StateDictMapping map_state_dict(const std::vector<TensorSpec>& needed,
                                const checkpoint::TensorSource& file,
                                const config::PretrainedConfig& config,
                                const checkpoint::HuggingFaceNames* names = nullptr);

// The tensors of the file under the names, and with the shapes and dtypes, that they have in a model
// that has all of them; without those that `config` excludes.
std::vector<TensorSpec> mapped_tensors(const checkpoint::TensorSource& file,
                                       const config::PretrainedConfig& config,
                                       const checkpoint::HuggingFaceNames* names = nullptr);

// The rules of model.pretrained.key_mapping.
class KeyMappingRules {
 public:
  explicit KeyMappingRules(const std::vector<config::KeyMapping>& rules);

  // By the first rule that matches; nullopt: none does.
  std::optional<std::string> rename(const std::string& name);
  // `from` of those that have renamed nothing.
  std::vector<std::string> unused() const;
  bool empty() const { return rules_.empty(); }

 private:
  struct Rule {
    NameGlob glob;
    config::KeyMapping rule;
    bool is_used = false;
  };
  std::vector<Rule> rules_;
};

// Whether `from` converts to `to` without loss: F16 and BF16 to F32.
bool is_widening(DType from, DType to);

}  // namespace stoker::pretrained
