// DocumentEncoder: encodes the text files of a dataset, in order, on several threads. Each thread
// has a tokenizer, in the sandbox of the request a process.
//
// A text is encoded in windows that end at multiples of 1 MiB, each from where the tokens of the
// previous one end. A thread does not wait for those: it encodes the last bytes before the window
// to find where they probably end. If they end elsewhere, the window is encoded again from there, so
// that the tokens do not depend on the number of threads.
//
// A piece of text that the tokenizer does not split within a window is cut at its end.
//
// Threads:   one at a time; starts up to `max_threads`, which live as long as this object, because a
//            worker process ends with the thread that started it. One whose process finds too little
//            memory ends and leaves its text to the others.
// Blocking:  next() until the text is read and encoded.
// Ownership: the files must outlive the object.
// Errors:    next(): those of FileReader and TextTokenizer, kCorrupt for an impossible result,
//            kOutOfMemory.
#pragma once

#include <compare>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "shared/base/status.h"
#include "shared/data/files/file_reader.h"
#include "shared/data/files/file_table.h"
#include "shared/data/sandbox.h"
#include "shared/tokenizer/tokenizer.h"

namespace stoker::data::cache {

// A position in the texts of a dataset.
struct TextPosition {
  uint64_t document = 0;
  uint64_t offset = 0;
  uint64_t begins_section = 1;  // tokenizer::TextEncoder::Part
  auto operator<=>(const TextPosition&) const = default;
};

class DocumentEncoder {
 public:
  static constexpr uint64_t kWindowBytes = uint64_t{1} << 20;
  // Called by each thread.
  using MakeTokenizer =
      std::function<std::unique_ptr<TextTokenizer>(std::function<bool()> should_stop)>;
  struct Tokens {
    std::vector<int32_t> ids;
    uint64_t bytes = 0;  // of text
    TextPosition end;
  };

  DocumentEncoder(const files::FileTable& files, const tokenizer::Tokenizer& tokenizer,
                  MakeTokenizer make_tokenizer, size_t max_threads);
  DocumentEncoder(const DocumentEncoder&) = delete;
  DocumentEncoder& operator=(const DocumentEncoder&) = delete;
  ~DocumentEncoder();

  // The position, or the start of the next file with text.
  TextPosition skip_empty(TextPosition at) const;
  // The tokens from `begin` on, of about 1 MiB of text: one window, or several short files. The end
  // token follows those of each file. `on_wait` is called several times a second and may throw; then
  // the object can only be destroyed.
  Result<Tokens> next(const TextPosition& begin, const std::function<void()>& on_wait);

 private:
  // A window of a file.
  struct Window {
    uint64_t document = 0;
    uint64_t end = 0;
    auto operator<=>(const Window&) const = default;
  };
  // Consecutive windows.
  struct Task {
    enum class State { kQueued, kRunning, kDone };

    Window first, past;
    // Guarded by mutex_.
    std::optional<TextPosition> begin = {};  // kQueued: none: to be found
    State state = State::kQueued;
    Status status = {};
    Tokens tokens = {};
  };

  uint64_t size_of(uint64_t document) const { return files_.stamp(document).size; }
  Window window_at(const TextPosition& at) const;
  Window after(const Window& window) const;
  uint64_t begin_of(const Window& window) const;
  Window end_of_task(const Window& first) const;
  // These two require mutex_.
  void queue_tasks();
  Status start_threads();
  void run(TextTokenizer& tokenizer);
  bool leave_to_others(Task& task, const Status& status);  // requires mutex_
  void fail(Status status);
  Status encode(TextTokenizer& tokenizer, const Task& task, std::optional<TextPosition>& begin,
                Tokens& tokens) const;
  Result<std::optional<TextPosition>> find_begin(TextTokenizer& tokenizer,
                                                 const Window& window) const;
  Status encode_window(TextTokenizer& tokenizer, TextPosition& at, Tokens& tokens) const;
  Result<std::string> read(uint64_t document, uint64_t begin, uint64_t end) const;
  Result<TextTokenizer::Part> tokenize(TextTokenizer& tokenizer, const TextPosition& at,
                                       std::string_view text, bool ends_text) const;

  // Constant after construction.
  const files::FileTable& files_;
  const files::FileReader reader_;
  const uint64_t num_tokens_;
  const std::optional<int32_t> end_token_;
  const MakeTokenizer make_tokenizer_;
  const size_t max_threads_;

  // Guarded by mutex_.
  std::mutex mutex_;
  std::condition_variable is_queued_;  // a task, or is_stopping_
  std::condition_variable is_done_;    // a task, or failure_
  bool is_stopping_ = false;
  size_t num_running_ = 0;                   // threads that take tasks
  Status failure_;                           // of a thread
  std::deque<std::shared_ptr<Task>> tasks_;  // consecutive, from the one of the next next()
  Window next_;                              // of the next task

  std::vector<std::jthread> threads_;  // joined first
};

}  // namespace stoker::data::cache
