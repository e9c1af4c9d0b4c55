// BytePairEncoding: merges the bytes of a piece of text to tokens, the pair of lowest rank first and,
// of equal ranks, the leftmost; as Hugging Face's tokenizers and tiktoken do.
//
// Threads: const methods may be called from any thread, each with its own Memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <boost/unordered/unordered_flat_map.hpp>

namespace stoker::tokenizer {

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using TokenIds = boost::unordered_flat_map<std::string, int32_t, StringHash, std::equal_to<>>;

class BytePairEncoding {
 public:
  // Buffers of one thread, and the tokens of frequent pieces. Used with one object only.
  class Memory {
   private:
    friend class BytePairEncoding;
    struct Symbol {
      int32_t id = 0;
      int32_t previous = 0, next = 0;  // -1: none
      bool is_merged = false;          // into the one before it
    };
    struct Candidate {
      uint32_t rank = 0;
      int32_t at = 0;  // the left symbol
      int32_t id = 0;  // of the result
    };
    struct CachedIds {
      uint32_t first = 0, count = 0;  // in ids_
    };
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
    boost::unordered_flat_map<std::string, CachedIds, StringHash, std::equal_to<>> cache_;
    std::vector<int32_t> ids_;  // of all cached pieces
  };

  void set_byte(unsigned char byte, int32_t id) { byte_ids_[byte] = id; }
  // False: there is already a merge of these two tokens, which is not changed.
  bool add_merge(int32_t left, int32_t right, uint32_t rank, int32_t result);
  // A piece that is one of these tokens is not merged from its bytes.
  void set_whole_pieces(TokenIds tokens) { whole_pieces_ = std::move(tokens); }

  // Appends the tokens of a piece of less than 2 GiB.
  void encode(std::string_view piece, Memory& memory, std::vector<int32_t>& ids) const;

 private:
  struct Merge {
    uint32_t rank = 0;
    int32_t id = 0;
  };

  static uint64_t pair(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  const Merge* find_merge(int32_t left, int32_t right) const;
  void merge_bytes(std::string_view piece, Memory& memory, std::vector<int32_t>& ids) const;

  std::array<int32_t, 256> byte_ids_{};
  boost::unordered_flat_map<uint64_t, Merge> merges_;
  TokenIds whole_pieces_;
};

}  // namespace stoker::tokenizer
