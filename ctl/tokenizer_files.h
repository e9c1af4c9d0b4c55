// read_tokenizer_files: the files with which transformers encodes text as a run did: its
// tokenizer.json, and what is next to it, or a generated tokenizer_config.json.
//
// Threads: pure functions.
// Errors:  kMismatch: transformers does not read this kind of file, or it is not that of the
//          checkpoint; others: those of reading it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shared/base/status.h"

namespace stoker::ctl {

struct TokenizerFiles {
  std::vector<std::pair<std::string, std::string>> files;  // name and content
  std::optional<int32_t> end_token;
};

// `path`: data.train.tokenizer.path. `digest`: that of the checkpoint's manifest. `context_length`:
// of the model.
Result<TokenizerFiles> read_tokenizer_files(const std::string& path, const std::string& digest,
                                            int64_t context_length);

}  // namespace stoker::ctl
