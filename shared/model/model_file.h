// The file of a user-defined model (model.path: a plugin, or the folder of an exported module, whose
// graph.json it is).
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>

#include "shared/base/status.h"
#include "shared/config/model_config.h"
#include "shared/config/run_config.h"

namespace stoker::model {

// SHA-256 (hex) of the file at model.path, which is part of the identity of a run; empty for models
// without a file. Logs it. kNotFound, kIoError; kInvalidArgument: not a regular file; kCorrupt: the
// file is being written.
Result<std::string> file_digest(const config::ModelConfig& config);

// Whether the model takes the batches of the evaluation, before any data is read. Only an exported module
// can limit them; its graph.json is read. kMismatch: eval.batch_size is out of its range; others as
// make_model().
Status check_eval_batch_size(const config::ModelConfig& model, const config::EvalConfig& eval);
// The same for the last batch of the dataset `name` with `size` samples.
Status check_last_eval_batch(const config::ModelConfig& model, const config::EvalConfig& eval,
                             const std::string& name, uint64_t size);

// Weights are valid only with the code, and the tokenizer, that they were trained with.
// kInvalidArgument if `saved`, the Manifest::model_file or tokenizer of a checkpoint, is not empty
// and differs from `now`; names both and `key`, the setting.
Status check_same_file(const std::string& saved, const std::string& now, const std::string& path,
                       const std::string& key = "model.path");

}  // namespace stoker::model
