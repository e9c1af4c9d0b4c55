// TarWriter: tar files for tests, valid or not.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace stoker::data::testing {

struct TarHeader {
  std::string name;
  uint64_t size = 0;
  char type = '0';
  std::string size_field;  // if not empty, replaces the octal size
  std::string magic =
      "ustar\0"
      "00";
  std::string prefix;
};

// The 512 bytes of a header with its checksum.
inline std::string tar_header(const TarHeader& header) {
  std::string block(512, '\0');
  const auto put = [&block](size_t at, std::string_view text) {
    block.replace(at, text.size(), text);
  };
  char octal[16];
  std::snprintf(octal, sizeof octal, "%011llo", static_cast<unsigned long long>(header.size));
  put(0, header.name);
  put(100, "0000644");
  put(124,
      header.size_field.empty() ? std::string_view(octal) : std::string_view(header.size_field));
  put(148, "        ");
  block[156] = header.type;
  put(257, header.magic);
  put(345, header.prefix);
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  std::snprintf(octal, sizeof octal, "%06o", sum);
  put(148, std::string_view(octal, 7));
  return block;
}

// Padded with zeros to complete blocks.
inline std::string tar_content(std::string content) {
  content.resize((content.size() + 511) / 512 * 512, '\0');
  return content;
}

inline std::string tar_member(const std::string& name, const std::string& content,
                              char type = '0') {
  return tar_header({.name = name, .size = content.size(), .type = type}) + tar_content(content);
}

inline std::string pax_header(const std::string& records, char type = 'x') {
  return tar_member("PaxHeader", records, type);
}

inline const std::string kTarEnd(1024, '\0');

}  // namespace stoker::data::testing
