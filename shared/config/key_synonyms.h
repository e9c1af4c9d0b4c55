// KeySynonym: the names that settings have in PyTorch, Lightning, transformers, Keras and common
// training scripts, for the errors of unknown keys and for docs/configuration.md.
//
// Threads: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stoker::config {

struct KeySynonym {
  // Full keys, separated by blanks: "train.micro_batch_size eval.batch_size"; data.NAME stands for
  // the dataset. Empty if no setting corresponds; then `remark` says what to do.
  std::string_view keys;
  std::string_view names;   // elsewhere, separated by blanks
  std::string_view remark;  // how the value differs; can be empty

  std::vector<std::string> all_keys() const;
  std::vector<std::string> all_names() const;
};

std::span<const KeySynonym> key_synonyms();

// The synonym with the name `typed`, regardless of case, '_' and '-'; null if there is none.
const KeySynonym* find_key_synonym(std::string_view typed);
// The same for a misspelt name.
const KeySynonym* closest_key_synonym(std::string_view typed);

// The table of docs/configuration.md.
std::string key_synonyms_markdown();

}  // namespace stoker::config
