#include "shared/config/yaml_value.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "shared/base/utf8.h"

namespace stoker::config {
namespace {

// YAML forbids control characters. The parser interprets one of them (0x04) as the end of the file
// and would ignore the rest, so the bytes are validated before parsing.
struct TextError {
  SourceLocation location;
  std::string message;
};

SourceLocation location_at(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return {.line = static_cast<int>(lines) + 1, .column = static_cast<int>(offset - line_start) + 1};
}

std::string hex(unsigned char byte) {
  std::array<char, 8> out{};
  std::snprintf(out.data(), out.size(), "0x%02x", byte);
  return out.data();
}

// Finds the first byte that is not text: NUL, another control character, invalid UTF-8.
std::optional<TextError> validate_text(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool control = byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r';
    if (byte == 0) {
      return TextError{location_at(text, at), "a NUL byte; a configuration is text in UTF-8"};
    }
    if (control || byte == 0x7f) {
      return TextError{location_at(text, at), "the control character " + hex(byte) +
                                                  "; remove it (a configuration is text in UTF-8)"};
    }
    const size_t bytes = utf8_character_bytes(text.substr(at));
    if (bytes == 0) {
      return TextError{location_at(text, at),
                       "the byte " + hex(byte) + " is not UTF-8; save the file as UTF-8"};
    }
    at += bytes;
  }
  return std::nullopt;
}

// The parser keeps every bracket that it has read until the text says what it starts: 250 bytes of
// memory for each. A configuration has few, also where they are not brackets but text.
std::optional<TextError> check_brackets(std::string_view text) {
  constexpr int kMaxOpen = 1000;
  int open = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '[' || text[at] == '{') ++open;
    if (text[at] == ']' || text[at] == '}') open = std::max(0, open - 1);
    if (open > kMaxOpen)
      return TextError{location_at(text, at),
                       "more than " + std::to_string(kMaxOpen) + " brackets that are not closed"};
  }
  return std::nullopt;
}

// Thrown to abort the parser; caught in parse_yaml().
struct ParseError {
  SourceLocation location;
  std::string message;
};

// Keys are compared with each other, to find what an unknown one probably means.
constexpr size_t kMaxKeys = 1000;

const char* const kNoAnchors =
    "anchors and aliases (& and *) are not supported; write the value itself";

class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(int flag, std::string_view key, ConfigErrors& errors)
      : flag_(flag), key_(key), errors_(errors) {}

  Value take_root() {
    while (!open_.empty()) close();  // the parser stopped before the end
    return root_ ? *std::move(root_) : Value{};
  }

  SourceLocation location_of(const YAML::Mark& mark) const {
    if (flag_ >= 0) return {.flag = flag_};
    if (mark.is_null()) return {};
    return {.line = mark.line + 1, .column = mark.column + 1};
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0)
      throw ParseError{location_of(mark),
                       "a second document (---); a configuration is a single document"};
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    check_plain(mark, "", anchor);
    attach({.location = location_of(mark)});
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw ParseError{location_of(mark), kNoAnchors};
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    check_plain(mark, tag, anchor);
    Value value{.type = Value::Type::kScalar, .location = location_of(mark), .text = text};
    value.in_quotes = tag == "!";
    attach(std::move(value));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    start(Value::Type::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    start(Value::Type::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  // A list or mapping that is not closed yet.
  struct Open {
    Value value;
    std::optional<Entry> entry;  // of a map: an entry whose value is not read yet
    std::map<std::string, SourceLocation, std::less<>> seen;  // keys of a map
  };

  void check_plain(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) const {
    if (anchor != YAML::NullAnchor) throw ParseError{location_of(mark), kNoAnchors};
    if (!tag.empty() && tag != "?" && tag != "!") {
      throw ParseError{location_of(mark),
                       "tag " + quoted(tag) + "; tags are not supported, write the value alone"};
    }
  }

  void start(Value::Type type, const YAML::Mark& mark, const std::string& tag,
             YAML::anchor_t anchor) {
    check_plain(mark, tag, anchor);
    // Checked here, because the parser recurses once per level only after this call.
    if (open_.size() == kMaxDepth) {
      throw ParseError{location_of(mark),
                       "lists and maps nest deeper than " + std::to_string(kMaxDepth) + " levels"};
    }
    if (!open_.empty() && open_.back().value.type == Value::Type::kMap && !open_.back().entry)
      throw ParseError{location_of(mark), "a list or mapping as a key; keys are words"};
    open_.push_back({.value = {.type = type, .location = location_of(mark)}});
  }

  void close() {
    Value value = std::move(open_.back().value);
    open_.pop_back();
    if (!open_.empty() && open_.back().value.type == Value::Type::kMap && !open_.back().entry)
      return;  // the parser stopped between key and value
    attach(std::move(value));
  }

  void attach(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (Open& parent = open_.back(); parent.value.type == Value::Type::kList) {
      parent.value.items.push_back(std::move(value));
    } else if (parent.entry) {
      attach_to_map(parent, std::move(value));
    } else {
      if (value.type != Value::Type::kScalar)
        throw ParseError{value.location, "a value without a key; write key: value"};
      parent.entry = Entry{std::move(value.text), value.location, {}};
    }
  }

  void attach_to_map(Open& parent, Value value) {
    Entry entry = *std::move(parent.entry);
    if (parent.seen.size() == kMaxKeys)
      throw ParseError{entry.location,
                       "a mapping of more than " + std::to_string(kMaxKeys) + " keys"};
    parent.entry.reset();
    const auto [first, is_new] = parent.seen.emplace(entry.key, entry.location);
    if (is_new) {
      entry.value = std::move(value);
      parent.value.entries.push_back(std::move(entry));
      return;
    }
    const std::string where =
        flag_ >= 0 ? "" : " (first on line " + std::to_string(first->second.line) + ")";
    errors_.add(entry.location, full_name(entry.key), "is given twice" + where + "; remove one");
  }

  std::string full_name(const std::string& last) const {
    std::string name(key_);
    const auto append = [&](const std::string& key) { name += (name.empty() ? "" : ".") + key; };
    for (const Open& open : open_)
      if (open.entry) append(open.entry->key);
    append(last);
    return name;
  }

  const int flag_;
  const std::string_view key_;
  ConfigErrors& errors_;
  int documents_ = 0;
  std::vector<Open> open_;
  std::optional<Value> root_;
};

// The parser detects a tab in the indentation only through a later error.
bool is_indented_with_tab(std::string_view text, int line) {
  for (; line > 0; --line) text = text.substr(std::min(text.find('\n'), text.size() - 1) + 1);
  const size_t blanks = std::min(text.find_first_not_of(" \t"), text.size());
  return text.substr(0, blanks).find('\t') != std::string_view::npos;
}

std::string parser_message(const YAML::Exception& error, std::string_view text) {
  if (error.msg == YAML::ErrorMsg::UNKNOWN_ANCHOR) return kNoAnchors;
  if (is_indented_with_tab(text, error.mark.line))
    return "a tab in the indentation; indent with spaces";
  return "not YAML (" + error.msg + "); check indentation, brackets, quotes and ': ' near here";
}

}  // namespace

Value* Value::find(std::string_view key) {
  for (Entry& entry : entries)
    if (entry.key == key) return &entry.value;
  return nullptr;
}

Value parse_yaml(std::string_view text, int flag, std::string_view key, ConfigErrors& errors) {
  auto invalid = validate_text(text);
  if (!invalid) invalid = check_brackets(text);
  if (invalid) {
    errors.add(flag >= 0 ? SourceLocation{.flag = flag} : invalid->location, key, invalid->message);
    return {};
  }
  TreeBuilder tree(flag, key, errors);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(tree)) {
    }
  } catch (const ParseError& error) {
    errors.add(error.location, key, error.message);
  } catch (const YAML::Exception& error) {
    errors.add(tree.location_of(error.mark), key, parser_message(error, text));
  }
  return tree.take_root();
}

}  // namespace stoker::config
