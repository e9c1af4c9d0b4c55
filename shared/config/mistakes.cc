#include "shared/config/mistakes.h"

#include <algorithm>
#include <tuple>

namespace stoker::config {
namespace {

constexpr size_t kMaxMistakes = 50;
constexpr size_t kMaxQuoted = 60;
constexpr size_t kMaxFlag = 120;

// "train.steps" of "train.steps=10".
std::string_view key_of_flag(std::string_view flag) { return flag.substr(0, flag.find('=')); }

// The file's lines first, then the flags in their order, then what stands nowhere.
auto order_of(const Place& place) {
  const int group = place.line > 0 ? 0 : place.flag >= 0 ? 1 : 2;
  return std::tuple(group, place.flag, place.line, place.column);
}

}  // namespace

Mistakes::Mistakes(std::string file, const std::vector<std::string>& flags)
    : file_(std::move(file)), flags_(flags) {}

void Mistakes::add(const Place& place, std::string_view key, std::string_view what) {
  ++count_;
  if (kept_.size() == kMaxMistakes) return;
  std::string line;
  const bool in_flag = place.flag >= 0;
  if (in_flag) {
    line = "--set " + one_line(flags_.at(static_cast<size_t>(place.flag)), kMaxFlag);
  } else {
    line = one_line(file_, 1024);
    if (place.line > 0)
      line += ':' + std::to_string(place.line) + ':' + std::to_string(place.column);
  }
  const bool said = in_flag && key == key_of_flag(flags_[static_cast<size_t>(place.flag)]);
  if (!key.empty() && !said) line += ": " + one_line(key, kMaxFlag);
  kept_.push_back({place, line + ": " + std::string(what)});
  keys_.emplace(key);
}

bool Mistakes::touches(std::string_view key) const {
  for (size_t end = key.size();; end = key.rfind('.', end - 1)) {
    if (keys_.contains(key.substr(0, end))) return true;
    if (end == 0 || key.rfind('.', end - 1) == std::string_view::npos) break;
  }
  return false;
}

Status Mistakes::status() const {
  if (empty()) return {};
  std::vector<Mistake> sorted = kept_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Mistake& a, const Mistake& b) {
    return order_of(a.place) < order_of(b.place);
  });
  std::string text;
  for (const Mistake& mistake : sorted) text += (text.empty() ? "" : "\n") + mistake.line;
  if (count_ > kept_.size())
    text += "\n" + one_line(file_, 1024) + ": and " + std::to_string(count_ - kept_.size()) +
            " more mistakes; correct these first";
  return Status(Code::kInvalidArgument, text);
}

std::string one_line(std::string_view text, size_t max_bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool starts_character = (c & 0xc0) != 0x80;
    if (out.size() >= max_bytes && starts_character) return out + "…";
    if (c == '\n') {
      out += "\\n";
    } else if (c < 0x20 || c == 0x7f) {
      out += {'\\', 'x', kHex[c >> 4], kHex[c & 15]};
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string quoted(std::string_view text) { return "'" + one_line(text, kMaxQuoted) + "'"; }

}  // namespace stoker::config
