// OutOfVocabError: a model whose code is not stoker's (plugin, torchscript) looked a token up that its tables
// do not have.
//
// Which tokens it knows, such a model tells nobody; one beyond them is found out by its failing, on the
// CPU. A device says only that something failed.
//
// Threads: a function of its arguments.
#pragma once

#include <string_view>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

namespace stoker::model {

// Data and model do not fit each other: no fault of the program.
class OutOfVocabError : public c10::Error {
  using c10::Error::Error;
};

// For where forward() of `input` has failed and `reported` why. Throws OutOfVocabError, which says which tokens
// the batch has and what to do, if that is what it was; returns otherwise.
void throw_if_out_of_vocab(const at::Tensor& input, std::string_view reported);

}  // namespace stoker::model
