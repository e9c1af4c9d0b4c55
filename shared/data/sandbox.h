// Sandbox: reads untrusted data of a dataset outside of this process while the dataset is indexed
// (shared/feed/worker_sandbox.h).
//
// The output is that of an untrusted process: the caller checks it before use.
//
// Threads:   Sandbox: const methods may be called from any thread.
// Ownership: must outlive what it creates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/dataset.h"

namespace stoker::data {

// JpegRewriter: adds restart markers to JPEG files (shared/image/add_restart_markers.h).
//
// Threads:  any, concurrently. A thread that calls rewrite() must live until the last rewrite() of
//           any thread has returned, because a worker process ends with the thread that started it.
// Blocking: rewrite() for the decoder, and for other threads if there are more than processes.
class JpegRewriter {
 public:
  virtual ~JpegRewriter() = default;
  // The rewritten file, of at most `max_bytes`; empty: it is not worth it or not possible.
  // kCorrupt: the file crashes its process or exceeds its limits, in two processes. kCancelled:
  // after stop(). Others: no process can be started.
  virtual Result<std::vector<std::byte>> rewrite(std::span<const std::byte> file,
                                                 uint64_t max_bytes) = 0;
  // Ends present and later calls of rewrite().
  virtual void stop() = 0;
};

// TextTokenizer: encodes parts of texts with the tokenizer of a dataset
// (shared/tokenizer/tokenizer.h: TextEncoder::encode_part).
//
// Threads:  one.
// Blocking: for the encoder.
class TextTokenizer {
 public:
  struct Part {
    std::vector<int32_t> ids;
    uint64_t bytes = 0;           // of the text that the ids stand for
    bool begins_section = false;  // of the next part
  };

  virtual ~TextTokenizer() = default;
  // kCorrupt: the text crashes its process or exceeds its limits, in two processes. kMismatch: the
  // file of the tokenizer has changed. Others: no process can be started; see lacks_memory().
  virtual Result<Part> tokenize(std::string_view text, bool begins_section, bool ends_text) = 0;
};

// The most ids of a text of this number of bytes. An invalid byte becomes a character of three bytes, and a
// character of three bytes can become one of 33 bytes in normalization form KC; SentencePiece adds a
// space.
constexpr uint64_t max_ids_of(uint64_t text_bytes) { return 11 * text_bytes + 3; }

// Whether fewer processes could have been enough.
inline bool lacks_memory(const Status& status) {
  return status.code() == StatusCode::kNoSpace || status.code() == StatusCode::kOutOfMemory;
}

class Sandbox {
 public:
  virtual ~Sandbox() = default;
  // `dataset`: its name. `digest`: that of its tokenizer. `text_bytes`: of texts for which there is
  // memory from the start. `should_stop` is called several times a second while a text is encoded,
  // and may throw; true: tokenize() is kCancelled.
  virtual std::unique_ptr<TextTokenizer> make_tokenizer(
      const std::string& dataset, const std::string& digest, uint64_t text_bytes,
      std::function<bool()> should_stop) const = 0;
  // Bound of the tokenizers that a caller uses at the same time, and so of their processes.
  virtual size_t max_processes() const = 0;
  // `dataset`: its name.
  virtual std::unique_ptr<JpegRewriter> make_rewriter(const std::string& dataset) const = 0;
  // The same dataset, read in another process. `dataset`, whose index is in `index_dir`, must
  // outlive the result. `on_wait` is called several times a second during reads and may throw.
  virtual Result<std::unique_ptr<Dataset>> open_reader(const std::string& name,
                                                       const std::string& index_dir,
                                                       const Dataset& dataset,
                                                       std::function<void()> on_wait) const = 0;
};

}  // namespace stoker::data
