// Outside models: what is asked of a model whose code is not stoker's (plugin, torchscript), before
// anything is trained with it.
//
// Threads: as the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <c10/util/Exception.h>

#include "shared/base/status.h"
#include "shared/model/model.h"
#include "shared/model/model_factories.h"

namespace stoker::model {

// What it is given, and how much it has to say.
struct ModelContext {
  std::vector<int64_t> input;  // of one sample; [tokens] of tokens, without the one to predict
  bool has_tokens = false;
  bool is_predicting = false;  // the next token, of each
  bool has_per_step_labels =
      false;  // something is said of each step of the input, not of the sample
  int64_t outputs = 0;
};

// kMismatch: the data is nothing that a model can be given.
Result<ModelContext> make_model_context(std::optional<int64_t> num_classes, const Samples& sample,
                                        uint64_t classes);

// Runs it once, on zeros, in eval mode; leaves it in train mode. kMismatch, without the model's
// name: it has nothing to train, a tensor that training or checkpoints cannot take, one tensor
// under two names, or its output has another shape (both are named). kInvalidArgument: forward()
// throws; says what.
Status validate_user_model(Model& model, const ModelContext& model_context);

// What code that is not stoker's has thrown, for its user to mend: kInvalidArgument, or
// kOutOfMemory; "what: the first line of the exception's text".
Status user_model_error(const c10::Error& error, std::string_view what);

// With model.path before it, and the path where the message does not name it.
Status with_model_path(const Status& status, const std::string& path);

}  // namespace stoker::model
