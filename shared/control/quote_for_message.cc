#include "shared/control/quote_for_message.h"

namespace stoker::control {

std::string quote_for_message(std::string_view text) {
  constexpr size_t kMaxBytes = 40;
  std::string out = "'";
  for (const char c : text.substr(0, kMaxBytes)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return out + (text.size() > kMaxBytes ? "…'" : "'");
}

}  // namespace stoker::control
