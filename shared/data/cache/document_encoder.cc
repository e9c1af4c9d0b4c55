#include "shared/data/cache/document_encoder.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <system_error>
#include <utility>

#include "shared/base/coordinator.h"
#include "shared/base/exception_status.h"
#include "shared/base/thread_registry.h"

namespace stoker::data::cache {
namespace {

constexpr uint64_t kWindowBytes = DocumentEncoder::kWindowBytes;
// Before a window, from which its start is found: enough for several pieces of usual text.
constexpr uint64_t kSearchedBytes = 4096;
constexpr size_t kTasksPerThread = 2;
constexpr std::chrono::milliseconds kWaitInterval{100};

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Without the start of a character at the end.
std::string_view whole_characters(std::string_view text) {
  size_t end = text.size();
  while (end > 0 && text.size() - end < 3 && is_continuation(text[end - 1])) --end;
  return end > 1 && static_cast<unsigned char>(text[end - 1]) >= 0xc0 ? text.substr(0, end - 1)
                                                                      : text;
}

}  // namespace

DocumentEncoder::DocumentEncoder(const files::FileTable& files,
                                 const tokenizer::Tokenizer& tokenizer,
                                 MakeTokenizer make_tokenizer, size_t max_threads)
    : files_(files),
      reader_(files),
      num_tokens_(tokenizer.size()),
      end_token_(tokenizer.end_token()),
      make_tokenizer_(std::move(make_tokenizer)),
      max_threads_(std::max<size_t>(max_threads, 1)) {}

DocumentEncoder::~DocumentEncoder() {
  const std::lock_guard lock(mutex_);
  is_stopping_ = true;
  is_queued_.notify_all();
}

// ---- Windows

TextPosition DocumentEncoder::skip_empty(TextPosition at) const {
  while (at.document < files_.size() && size_of(at.document) == 0) ++at.document;
  return at;
}

// The window of a text is the first that has at least kWindowBytes from the position on.
DocumentEncoder::Window DocumentEncoder::window_at(const TextPosition& at) const {
  if (at.document >= files_.size()) return {.document = files_.size()};
  const uint64_t from = (at.offset + kWindowBytes - 1) / kWindowBytes * kWindowBytes;
  return {.document = at.document, .end = std::min(from + kWindowBytes, size_of(at.document))};
}

DocumentEncoder::Window DocumentEncoder::after(const Window& window) const {
  const uint64_t size = size_of(window.document);
  if (window.end == size) return window_at(skip_empty({.document = window.document + 1}));
  return {.document = window.document, .end = std::min(window.end + kWindowBytes, size)};
}

uint64_t DocumentEncoder::begin_of(const Window& window) const {
  return (window.end - 1) / kWindowBytes * kWindowBytes;
}

DocumentEncoder::Window DocumentEncoder::end_of_task(const Window& first) const {
  uint64_t bytes = 0;
  Window window = first;
  do {
    bytes += window.end - begin_of(window);
    window = after(window);
  } while (window.document < files_.size() &&
           bytes + window.end - begin_of(window) <= kWindowBytes);
  return window;
}

// ---- Tasks

Result<DocumentEncoder::Tokens> DocumentEncoder::next(const TextPosition& begin,
                                                      const std::function<void()>& on_wait) {
  const Window first = window_at(begin);
  std::unique_lock lock(mutex_);
  if (tasks_.empty() || tasks_.front()->first != first) {
    tasks_.clear();
    next_ = first;
  }
  queue_tasks();
  STOKER_RETURN_IF_ERROR(start_threads());
  const std::shared_ptr<Task> task = tasks_.front();
  if (task->state == Task::State::kQueued) task->begin = begin;
  while (true) {
    while (failure_.ok() && task->state != Task::State::kDone) {
      is_done_.wait_for(lock, kWaitInterval);
      lock.unlock();
      on_wait();
      lock.lock();
    }
    if (!failure_.ok()) return failure_;
    if (task->begin == begin) break;
    task->begin = begin;
    task->state = Task::State::kQueued;
    is_queued_.notify_all();
  }
  tasks_.pop_front();
  STOKER_RETURN_IF_ERROR(task->status);
  return std::move(task->tokens);
}

void DocumentEncoder::queue_tasks() {
  while (tasks_.size() < kTasksPerThread * max_threads_ && next_.document < files_.size()) {
    const Window past = end_of_task(next_);
    tasks_.push_back(std::make_shared<Task>(Task{.first = next_, .past = past}));
    next_ = past;
  }
  is_queued_.notify_all();
}

Status DocumentEncoder::start_threads() {
  const size_t count = std::min(max_threads_, tasks_.size());
  try {
    while (threads_.size() < count) {
      threads_.emplace_back([this, name = "encode-text-" + std::to_string(threads_.size())] {
        Status ended = catch_exceptions([&] {
          ThreadRecord record(name, "encode text");
          record.begin();
          run(*make_tokenizer_([this] {
            const std::lock_guard lock(mutex_);
            return is_stopping_;
          }));
          return Status();
        });
        if (!ended.ok()) fail(ended.with_context("encode text"));
      });
      ++num_running_;
    }
  } catch (const std::system_error& error) {
    if (threads_.empty()) return to_status(error).with_context("encode text");
  }
  return {};
}

void DocumentEncoder::run(TextTokenizer& tokenizer) {
  const auto find_queued = [this] {
    return std::ranges::find(tasks_, Task::State::kQueued, &Task::state);
  };
  std::unique_lock lock(mutex_);
  while (true) {
    is_queued_.wait(lock, [&] { return is_stopping_ || find_queued() != tasks_.end(); });
    if (is_stopping_) return;
    const std::shared_ptr<Task> task = *find_queued();
    task->state = Task::State::kRunning;
    std::optional<TextPosition> begin = task->begin;
    lock.unlock();
    Tokens tokens;
    Status status = encode(tokenizer, *task, begin, tokens);
    lock.lock();
    if (leave_to_others(*task, status)) return;
    task->begin = begin;
    task->status = std::move(status);
    task->tokens = std::move(tokens);
    task->state = Task::State::kDone;
    is_done_.notify_one();
  }
}

// The last thread reports the error.
bool DocumentEncoder::leave_to_others(Task& task, const Status& status) {
  if (!lacks_memory(status) || num_running_ == 1) return false;
  --num_running_;
  task.state = Task::State::kQueued;
  is_queued_.notify_all();
  return true;
}

void DocumentEncoder::fail(Status status) {
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = std::move(status);
  is_done_.notify_one();
}

// ---- Encoding

Status DocumentEncoder::encode(TextTokenizer& tokenizer, const Task& task,
                               std::optional<TextPosition>& begin, Tokens& tokens) const {
  if (!begin) {
    STOKER_ASSIGN_OR_RETURN(begin, find_begin(tokenizer, task.first));
  }
  if (!begin) return {};  // next() sets it
  tokens.end = *begin;
  while (window_at(tokens.end) < task.past)
    STOKER_RETURN_IF_ERROR(encode_window(tokenizer, tokens.end, tokens));
  return {};
}

// Where the tokens of the window before this one probably end. Nothing within a piece that is longer
// than what is searched.
Result<std::optional<TextPosition>> DocumentEncoder::find_begin(TextTokenizer& tokenizer,
                                                                const Window& window) const {
  TextPosition at{.document = window.document};
  const uint64_t end = begin_of(window);
  if (end == 0) return std::optional(at);
  at.offset = end - std::min(end, kSearchedBytes);
  at.begins_section = 0;
  STOKER_ASSIGN_OR_RETURN(const std::string read_text, read(at.document, at.offset, end));
  std::string_view text = read_text;
  for (int i = 0; i < 3 && !text.empty() && is_continuation(text[0]); ++i) text.remove_prefix(1);
  at.offset = end - text.size();
  STOKER_ASSIGN_OR_RETURN(const TextTokenizer::Part part,
                          tokenize(tokenizer, at, text, /*ends_text=*/false));
  if (part.bytes == 0) return std::optional<TextPosition>();
  at.offset += part.bytes;
  at.begins_section = part.begins_section ? 1 : 0;
  return std::optional(at);
}

// Encodes text from `at` on, and moves it.
Status DocumentEncoder::encode_window(TextTokenizer& tokenizer, TextPosition& at,
                                      Tokens& tokens) const {
  const uint64_t end = window_at(at).end, size = size_of(at.document);
  STOKER_ASSIGN_OR_RETURN(const std::string text, read(at.document, at.offset, end));
  STOKER_ASSIGN_OR_RETURN(TextTokenizer::Part part, tokenize(tokenizer, at, text, end == size));
  if (part.bytes == 0) {
    STOKER_ASSIGN_OR_RETURN(part,
                            tokenize(tokenizer, at, whole_characters(text), /*ends_text=*/true));
    part.begins_section = false;
  }
  tokens.ids.insert(tokens.ids.end(), part.ids.begin(), part.ids.end());
  tokens.bytes += part.bytes;
  at.offset += part.bytes;
  at.begins_section = part.begins_section ? 1 : 0;
  if (at.offset < size) return {};
  if (end_token_) tokens.ids.push_back(*end_token_);
  at = skip_empty({.document = at.document + 1});
  return {};
}

Result<std::string> DocumentEncoder::read(uint64_t document, uint64_t begin, uint64_t end) const {
  std::string text(end - begin, '\0');
  STOKER_RETURN_IF_ERROR(reader_.read(document, begin, std::as_writable_bytes(std::span(text))));
  return text;
}

// Checks the result, which can come from another process.
Result<TextTokenizer::Part> DocumentEncoder::tokenize(TextTokenizer& tokenizer,
                                                      const TextPosition& at, std::string_view text,
                                                      bool ends_text) const {
  const std::string where =
      files_.path(at.document) + ": the text at offset " + std::to_string(at.offset);
  auto part = tokenizer.tokenize(text, at.begins_section != 0, ends_text);
  if (!part) return part.status().with_context(where);
  const auto is_token = [this](int32_t id) {
    return id >= 0 && static_cast<uint64_t>(id) < num_tokens_;
  };
  // The ids are bounded by the bytes that they stand for, so that a process that encodes one byte per
  // request cannot fill the memory of this one. Those of no bytes are not kept.
  if (part->bytes > text.size() || (ends_text && part->bytes != text.size()) ||
      (part->bytes > 0 && part->ids.size() > max_ids_of(part->bytes)) ||
      !std::ranges::all_of(part->ids, is_token))
    return Status(StatusCode::kCorrupt, where + ": its worker process sent an impossible result");
  return part;
}

}  // namespace stoker::data::cache
