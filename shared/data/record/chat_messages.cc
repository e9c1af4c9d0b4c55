#include "shared/data/record/chat_messages.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "shared/base/utf8.h"

namespace stoker::data::record {
namespace {

constexpr std::string_view kUser = "user", kAssistant = "assistant";

void append_text(std::string_view text, std::string& encoded) {
  const uint64_t size = text.size();
  encoded.append(reinterpret_cast<const char*>(&size), sizeof size).append(text);
}

Result<std::string_view> take_text(std::string_view& encoded) {
  uint64_t size = 0;
  if (encoded.size() >= sizeof size) std::memcpy(&size, encoded.data(), sizeof size);
  if (encoded.size() < sizeof size || encoded.size() - sizeof size < size)
    return Status(StatusCode::kCorrupt, "must be a list of messages");
  const std::string_view text = encoded.substr(sizeof size, size);
  encoded.remove_prefix(sizeof size + size);
  return text;
}

// The characters that Python's str.strip(), the filter `trim` of templates, removes.
constexpr auto kSpaces = std::to_array<std::string_view>(
    {" ",      "\t",     "\n",     "\v",     "\f",     "\r",     "\x1c",   "\x1d",
     "\x1e",   "\x1f",   "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002",
     "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a",
     "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"});

std::string_view without_spaces(std::string_view text) {
  const auto starts = [&text](std::string_view space) { return text.starts_with(space); };
  const auto ends = [&text](std::string_view space) { return text.ends_with(space); };
  for (auto space = kSpaces.begin();
       (space = std::ranges::find_if(kSpaces, starts)) != kSpaces.end();)
    text.remove_prefix(space->size());
  for (auto space = kSpaces.begin();
       (space = std::ranges::find_if(kSpaces, ends)) != kSpaces.end();)
    text.remove_suffix(space->size());
  return text;
}

constexpr std::array<std::string_view, 2> kChatmlTokens{"<|im_start|>", "<|im_end|>"};
constexpr std::array<std::string_view, 4> kLlama3Tokens{"<|begin_of_text|>", "<|start_header_id|>",
                                                        "<|end_header_id|>", "<|eot_id|>"};
constexpr std::array<std::string_view, 4> kMistralTokens{"<s>", "</s>", "[INST]", "[/INST]"};

// One message: its start, content and end. A reply is what follows the start; `after` is no part of
// it, because generation stops before.
struct Turn {
  std::string start;
  std::string_view content, end, after;
  bool is_reply = false;
};

Turn turn_of(config::ChatTemplate chat_template, const ChatMessage& message) {
  switch (chat_template) {
    case config::ChatTemplate::kChatml:
      break;
    case config::ChatTemplate::kMistral:
      if (message.role == kAssistant)
        return {.start = {}, .content = message.content, .end = "</s>", .after = {}};
      return {.start = "[INST]", .content = message.content, .end = "[/INST]", .after = {}};
    case config::ChatTemplate::kLlama3:
      return {.start = "<|start_header_id|>" + std::string(message.role) + "<|end_header_id|>\n\n",
              .content = without_spaces(message.content),
              .end = "<|eot_id|>",
              .after = {}};
  }
  return {.start = "<|im_start|>" + std::string(message.role) + "\n",
          .content = message.content,
          .end = "<|im_end|>",
          .after = "\n"};
}

std::string_view start_of_text(config::ChatTemplate chat_template) {
  switch (chat_template) {
    case config::ChatTemplate::kChatml:
      break;
    case config::ChatTemplate::kLlama3:
      return "<|begin_of_text|>";
    case config::ChatTemplate::kMistral:
      return "<s>";
  }
  return {};
}

// What each message adds to the text.
Result<std::vector<Turn>> turns_of(config::ChatTemplate chat_template,
                                   std::span<const ChatMessage> messages) {
  const bool is_mistral = chat_template == config::ChatTemplate::kMistral;
  std::string system;
  if (is_mistral && !messages.empty() && messages.front().role == "system") {
    system = std::string(messages.front().content) + "\n\n";
    messages = messages.subspan(1);
  }
  std::vector<Turn> turns;
  for (const ChatMessage& message : messages) {
    const std::string_view expected = turns.size() % 2 == 0 ? kUser : kAssistant;
    if (is_mistral && message.role != expected)
      return Status(StatusCode::kCorrupt, "has a message of the role " +
                                              quote_for_message(message.role) + ", expected " +
                                              std::string(expected) +
                                              ": the roles of mistral are user and assistant in "
                                              "turn, after at most one system");
    turns.push_back(turn_of(chat_template, message));
    turns.back().is_reply = message.role == kAssistant;
  }
  // As in the published template: a conversation that ends with a reply has no system message.
  if (!system.empty() && !turns.empty() && turns.size() % 2 == 1) turns.back().start += system;
  return turns;
}

}  // namespace

void append_message(const ChatMessage& message, std::string& encoded) {
  append_text(message.role, encoded);
  append_text(message.content, encoded);
}

Result<std::vector<ChatMessage>> read_messages(FieldBytes encoded) {
  std::vector<ChatMessage> messages;
  for (std::string_view rest = to_string_view(encoded); !rest.empty();) {
    ChatMessage message;
    STOKER_ASSIGN_OR_RETURN(message.role, take_text(rest));
    STOKER_ASSIGN_OR_RETURN(message.content, take_text(rest));
    messages.push_back(message);
  }
  return messages;
}

Result<ChatText> apply_chat_template(config::ChatTemplate chat_template,
                                     std::span<const ChatMessage> messages) {
  ChatText chat{.text = std::string(start_of_text(chat_template)), .replies = {}};
  for (const ChatMessage& message : messages) {
    for (const std::string_view token : special_tokens(chat_template))
      for (const std::string_view text : {message.role, message.content})
        if (text.find(token) != std::string_view::npos)
          return Status(StatusCode::kCorrupt,
                        "has the special token " + std::string(token) + " in a message");
  }
  STOKER_ASSIGN_OR_RETURN(const std::vector<Turn> turns, turns_of(chat_template, messages));
  for (const Turn& turn : turns) {
    chat.text += turn.start;
    const size_t begin = chat.text.size();
    chat.text.append(turn.content).append(turn.end);
    if (turn.is_reply) chat.replies.push_back({begin, chat.text.size()});
    chat.text += turn.after;
  }
  return chat;
}

std::span<const std::string_view> special_tokens(config::ChatTemplate chat_template) {
  switch (chat_template) {
    case config::ChatTemplate::kChatml:
      return kChatmlTokens;
    case config::ChatTemplate::kLlama3:
      return kLlama3Tokens;
    case config::ChatTemplate::kMistral:
      return kMistralTokens;
  }
  return {};
}

}  // namespace stoker::data::record
