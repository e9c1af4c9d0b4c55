#include "shared/model/torch_status.h"

#include <algorithm>
#include <string>

#include "shared/model/out_of_vocab.h"

namespace stoker::model {

Status to_status(const c10::Error& error, std::string_view what) {
  const std::string text = error.what_without_backtrace();
  if (dynamic_cast<const OutOfVocabError*>(&error) != nullptr)
    return Status(StatusCode::kMismatch, std::string(what) + ": " + first_line(text));
  // The CPU allocator throws a plain c10::Error, recognizable only by its text.
  const bool memory = dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
                      text.find("not enough memory") != std::string::npos ||
                      text.find("can't allocate memory") != std::string::npos;
  return Status(memory ? StatusCode::kOutOfMemory : StatusCode::kInternal,
                std::string(what) + ": " + first_line(text));
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, std::min(text.find('\n'), text.size())));
}

}  // namespace stoker::model
