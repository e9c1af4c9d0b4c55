// OutOfVocabError: thrown when a user-defined model (plugin, exported) looks up a token that is
// not in its embedding tables.
//
// Such a model does not declare its vocabulary, so an unknown token is detected from the error of
// the lookup, which only the CPU reports in detail. A GPU only reports that a kernel failed.
//
// Threads: a function of its arguments.
#pragma once

#include <string_view>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

namespace stoker::model {

// Reports that data and model are incompatible, as opposed to an internal error.
class OutOfVocabError : public c10::Error {
  using c10::Error::Error;
};

// Call it after forward() of `input` has failed with message `reported`. Throws OutOfVocabError,
// with the range of tokens in the batch and a suggested fix, if the cause was an unknown token;
// otherwise returns.
void throw_if_out_of_vocab(const at::Tensor& input, std::string_view reported);

}  // namespace stoker::model
