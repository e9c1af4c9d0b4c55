#include "shared/config/yaml_value.h"

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "shared/config/text_check.h"

namespace stoker::config {
namespace {

// Thrown through the parser to end it; caught in parse_yaml().
struct Refused {
  Place place;
  std::string what;
};

const char* const kNoAnchors = "anchors and aliases (& and *) are not read; write the value out";

class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(int flag, std::string_view key, Mistakes& mistakes)
      : flag_(flag), key_(key), mistakes_(mistakes) {}

  Value take_root() {
    while (!open_.empty()) close();  // the parser gave up in the middle
    return root_ ? *std::move(root_) : Value{};
  }

  Place place_of(const YAML::Mark& mark) const {
    if (flag_ >= 0) return {.flag = flag_};
    if (mark.is_null()) return {};
    return {.line = mark.line + 1, .column = mark.column + 1};
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0)
      throw Refused{place_of(mark), "a second document (---); a configuration is one"};
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    check_plain(mark, "", anchor);
    attach({.place = place_of(mark)});
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw Refused{place_of(mark), kNoAnchors};
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    check_plain(mark, tag, anchor);
    Value value{.type = Value::Type::kScalar, .place = place_of(mark), .text = text};
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
  // A list or map whose end has not come yet.
  struct Open {
    Value value;
    std::optional<Entry> entry;                      // of a map: has its key, waits for its value
    std::map<std::string, Place, std::less<>> seen;  // keys of a map
  };

  void check_plain(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) const {
    if (anchor != YAML::NullAnchor) throw Refused{place_of(mark), kNoAnchors};
    if (!tag.empty() && tag != "?" && tag != "!") {
      throw Refused{place_of(mark),
                    "the tag " + quoted(tag) + "; tags are not read, write the value alone"};
    }
  }

  void start(Value::Type type, const YAML::Mark& mark, const std::string& tag,
             YAML::anchor_t anchor) {
    check_plain(mark, tag, anchor);
    // Here and not afterwards: the parser recurses once per level, only after this call.
    if (open_.size() == kMaxDepth) {
      throw Refused{place_of(mark), "lists and maps nest deeper than " + std::to_string(kMaxDepth) +
                                        " levels; no setting needs that"};
    }
    if (!open_.empty() && open_.back().value.type == Value::Type::kMap && !open_.back().entry)
      throw Refused{place_of(mark), "a list or map as a key; a key is a word"};
    open_.push_back({.value = {.type = type, .place = place_of(mark)}});
  }

  void close() {
    Value value = std::move(open_.back().value);
    open_.pop_back();
    if (!open_.empty() && open_.back().value.type == Value::Type::kMap && !open_.back().entry)
      return;  // given up between key and value
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
        throw Refused{value.place, "a value without a key; write key: value"};
      parent.entry = Entry{std::move(value.text), value.place, {}};
    }
  }

  void attach_to_map(Open& parent, Value value) {
    Entry entry = *std::move(parent.entry);
    parent.entry.reset();
    const auto [first, is_new] = parent.seen.emplace(entry.key, entry.place);
    if (is_new) {
      entry.value = std::move(value);
      parent.value.entries.push_back(std::move(entry));
      return;
    }
    const std::string where =
        flag_ >= 0 ? "" : " (first in line " + std::to_string(first->second.line) + ")";
    mistakes_.add(entry.place, full_name(entry.key), "is here twice" + where + "; remove one");
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
  Mistakes& mistakes_;
  int documents_ = 0;
  std::vector<Open> open_;
  std::optional<Value> root_;
};

// The parser finds a tab in the indentation by what goes wrong after it.
bool is_indented_with_tab(std::string_view text, int line) {
  for (; line > 0; --line) text = text.substr(std::min(text.find('\n'), text.size() - 1) + 1);
  const size_t blanks = std::min(text.find_first_not_of(" \t"), text.size());
  return text.substr(0, blanks).find('\t') != std::string_view::npos;
}

std::string said_by_parser(const YAML::Exception& error, std::string_view text) {
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

Value parse_yaml(std::string_view text, int flag, std::string_view key, Mistakes& mistakes) {
  if (const auto trouble = check_text(text)) {
    mistakes.add(flag >= 0 ? Place{.flag = flag} : trouble->place, key, trouble->what);
    return {};
  }
  TreeBuilder tree(flag, key, mistakes);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(tree)) {
    }
  } catch (const Refused& refused) {
    mistakes.add(refused.place, key, refused.what);
  } catch (const YAML::Exception& error) {
    mistakes.add(tree.place_of(error.mark), key, said_by_parser(error, text));
  }
  return tree.take_root();
}

}  // namespace stoker::config
