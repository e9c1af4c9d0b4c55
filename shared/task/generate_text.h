// generate_text: text written by a language model over bytes.
//
// Threads: one thread; the model must not be used meanwhile.
// Errors:  LibTorch's exceptions pass through (c10::Error also when the model's vocabulary is not
//          the 256 bytes).
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "shared/model/model.h"

namespace stoker::task {

// `bytes` bytes that go on from `prompt`, drawn from the 40 most likely ones at each place;
// `temperature` 0 takes the most likely. Uses a generator of its own: the default one, and so
// training, does not notice. The model is left in the mode it was in. A stop ends it early.
std::string generate_text(model::Model& model, std::string prompt, int bytes, double temperature,
                          uint64_t seed, std::stop_token stop = {});

}  // namespace stoker::task
