// generate_text: samples text from a language model over bytes.
//
// Threads: one thread; the model must not be used concurrently.
// Errors:  exceptions of LibTorch are propagated (c10::Error also if the vocabulary of the model is
//          not the 256 bytes).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "shared/model/model.h"

namespace stoker::task {

// Returns up to `bytes` bytes that continue `prompt`, each sampled from the 40 most likely;
// `temperature` 0 selects the most likely. Uses its own generator, so the default one, and with it
// training, is not affected. Restores the train or eval mode of the model. `should_continue` is
// called before each byte; false ends generation early.
std::string generate_text(model::Model& model, std::string prompt, int bytes, double temperature,
                          uint64_t seed, const std::function<bool()>& should_continue = {});

}  // namespace stoker::task
