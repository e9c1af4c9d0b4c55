// Chat messages as the value of a field, and their text with a chat template.
//
// A reader of records encodes the messages of a conversation into bytes (append_message()), because a
// FieldValue has no structure.
//
// Threads: pure functions.
// Errors:  kCorrupt: the messages do not fit the template.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/base/status.h"
#include "shared/config/dataset_config.h"
#include "shared/data/record/field_value.h"

namespace stoker::data::record {

struct ChatMessage {
  std::string_view role, content;
};

void append_message(const ChatMessage& message, std::string& encoded);
// Views into `encoded`. kCorrupt: it was not created by append_message().
Result<std::vector<ChatMessage>> read_messages(FieldBytes encoded);

// The text that a model sees.
struct ChatText {
  struct Range {
    size_t begin = 0, end = 0;
  };
  std::string text;
  std::vector<Range> replies;  // what the assistant writes: its messages with their end, in order
};

// As tokenizer.apply_chat_template(messages, tokenize=False) of Hugging Face's transformers with the
// template that the name stands for.
Result<ChatText> apply_chat_template(config::ChatTemplate chat_template,
                                     std::span<const ChatMessage> messages);
// The special tokens of a template; text cannot replace them.
std::span<const std::string_view> special_tokens(config::ChatTemplate chat_template);

}  // namespace stoker::data::record
