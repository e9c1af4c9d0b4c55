// Contents of tokenizer.json files with byte-level BPE.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace stoker::test {

struct TokenizerFile {
  // Pairs that are merged, in GPT-2's alphabet of bytes, in which a space is "\u0120" ("Ġ"). The
  // tokens of the bytes are 0 to 255 in its order, from "!"; the results of the merges follow.
  std::vector<std::pair<std::string, std::string>> merges = {};
  std::vector<std::string> added_tokens = {"<|endoftext|>"};  // the last ids
  std::string pre_tokenizer = R"({"type": "ByteLevel", "add_prefix_space": false})";
  std::string normalizer = "null";
  std::string model_fields = {};  // ", \"ignore_merges\": true"
};

std::string to_json(const TokenizerFile& file);
// Ids: 256 "to", 257 "be", 258 " to", 259 " be", 260 "<|endoftext|>".
TokenizerFile small_tokenizer();

}  // namespace stoker::test
